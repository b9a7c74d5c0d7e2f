"""The tables that a pipeline captures: those of its file, or those that a signal has set since."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from tailrace.config.model import Pipeline
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import ConfigError, StateError
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


def with_tables_if_known(pipeline: Pipeline) -> Pipeline:
    """`with_tables_in_force`, for a check: `pipeline` itself while its checkpoint cannot be read."""
    try:
        return with_tables_in_force(pipeline)
    except (OSError, ValueError, NotImplementedError, pa.ArrowException, ConfigError, StateError):
        return pipeline  # the checkpoint has a check of its own
