"""The tables that a pipeline captures: those of its file, or those that a signal has set since."""

from __future__ import annotations

from dataclasses import replace

from tailrace.config.model import Pipeline
from tailrace.enumerator.offset import StreamOffset
from tailrace.model.table_setting import in_force
from tailrace.spark.checkpoint import Checkpoint, absolute


def with_tables_in_force(pipeline: Pipeline) -> Pipeline:
    """`pipeline` with the patterns that its stream captures by, or will once it is started.

    Raises:
        StateError: the checkpoint's offset is of a newer Tailrace.
    """
    last = Checkpoint(absolute(pipeline.checkpoint)).last()
    if last is None:
        return pipeline
    setting = StreamOffset.from_json(last.end).setting
    source = pipeline.source
    return replace(pipeline, source=source.capturing(in_force(setting, source.tables)))
