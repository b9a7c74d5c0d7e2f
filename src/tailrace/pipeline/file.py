"""The pipeline file that a command names."""

from __future__ import annotations

from pathlib import Path

from tailrace.config import load
from tailrace.config.model import Pipeline
from tailrace.spark import object_stores


def load_pipeline(path: Path, source: str | None = None) -> Pipeline:
    """As `config.load.load_pipeline`; object stores are reached with the pipeline's settings from now on."""
    pipeline = load.load_pipeline(path, source)
    object_stores.use(pipeline.settings.spark)
    return pipeline


def load_pipelines(path: Path) -> tuple[Pipeline, ...]:
    """As `config.load.load_pipelines`; object stores are reached with the pipeline's settings from now on."""
    pipelines = load.load_pipelines(path)
    object_stores.use(pipelines[0].settings.spark)
    return pipelines
