"""The pipeline file that a command names."""

from __future__ import annotations

from pathlib import Path

from tailrace.config import load
from tailrace.config.model import Pipeline


def load_pipeline(path: Path, source: str | None = None) -> Pipeline:
    """As `config.load.load_pipeline`; object stores are reached with the pipeline's settings from now on."""
    pipeline = load.load_pipeline(path, source)
    _use(pipeline)
    return pipeline


def load_pipelines(path: Path) -> tuple[Pipeline, ...]:
    """As `config.load.load_pipelines`; object stores are reached with the pipeline's settings from now on."""
    pipelines = load.load_pipelines(path)
    _use(pipelines[0])
    return pipelines


def _use(pipeline: Pipeline) -> None:
    from tailrace.spark import object_stores  # noqa: PLC0415 - loads PySpark and Arrow, which `--help` needs not

    object_stores.use(pipeline.settings.spark)
