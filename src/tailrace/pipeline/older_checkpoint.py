"""An older checkpoint that was restored: targets have batches that it does not know.

    checkpoint   batches 0 to 640        (restored from a copy)
    targets      batches 0 to 812

Spark would number the next batches from 641 on. Sinks would take them for batches that come again, and skip
what they have by number: changes would be in no target, without an error. So the targets are asked before a
stream starts. Spark writes the number of a batch into the checkpoint before a sink has any of it, so no
target can be ahead otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.config.model import Pipeline
from tailrace.config.sink_settings import OnError
from tailrace.config.sinks import SinkSettings, sink_names
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import StateError, TailraceError
from tailrace.model.table import TableId
from tailrace.sinks.base import StreamId
from tailrace.sinks.registry import standing
from tailrace.spark.checkpoint import Checkpoint, PlannedBatch


def require_newest(pipeline: Pipeline, tables: Iterable[TableId]) -> None:
    """Refuse a checkpoint that is older than a target.

    Args:
        pipeline: the pipeline, whose stream stands still.
        tables: the tables that it captures now; those of its newest batch are looked at, too.

    Raises:
        StateError: a target has a batch that the checkpoint does not know.
        TailraceError: a sink does not answer; not with `on-error: park`: it is parked by its first batch.
    """
    last = Checkpoint(pipeline.checkpoint).last()
    if last is None:
        return
    stream, known = _stream(pipeline), sorted({*tables, *_tables(last)})
    for settings, name in zip(pipeline.sinks, sink_names(pipeline.sinks), strict=True):
        try:
            found = _batches(pipeline, settings, stream, known)
        except TailraceError:
            if settings.on_error is OnError.PARK:
                continue
            raise
        for target, batch in found.items():
            if batch > last.id:
                raise StateError(
                    f"the checkpoint is older than target `{target}` of sink `{name}`",
                    f"the target has batch {batch}, and the newest one of `{pipeline.checkpoint}` is "
                    f"{last.id}: new batches would have numbers that the target has, and be left out there",
                    "restore the checkpoint with which the target was written. If it is lost:\n"
                    "tailrace offsets show PIPELINE.YAML > offset.json\n"
                    "tailrace offsets set PIPELINE.YAML @offset.json\n"
                    "The pipeline then goes on with batch numbers above those of the targets, and all tables "
                    "are read again; not if a sink appends changes: it needs a new target, and the pipeline "
                    "a new checkpoint",
                    code="TR-6009",
                )


def newest_in_targets(pipeline: Pipeline, last: PlannedBatch) -> int:
    """The newest batch of the stream that a target has; -1: none has any.

    Args:
        pipeline: the pipeline, whose stream stands still.
        last: the newest batch of its checkpoint.

    Raises:
        TailraceError: a sink does not answer.
    """
    stream, known = _stream(pipeline), sorted(_tables(last))
    each = [_batches(pipeline, settings, stream, known) for settings in pipeline.sinks]
    return max((batch for found in each for batch in found.values()), default=-1)


def _stream(pipeline: Pipeline) -> StreamId:
    return StreamId(pipeline.settings.name, Checkpoint(pipeline.checkpoint).query_id() or "")


def _tables(last: PlannedBatch) -> set[TableId]:
    """The tables that the stream has at the end of a batch, with those that are parked."""
    offset = StreamOffset.from_json(last.end)
    names = [name for name in (*offset.names(), *offset.parked) if name.count(".") == 1]
    return set(map(TableId.parse, names))


def _batches(
    pipeline: Pipeline, settings: SinkSettings, stream: StreamId, tables: Sequence[TableId]
) -> dict[str, int]:
    """The newest batch of each target of a sink that has any."""
    found = standing(settings, pipeline, stream, tables).targets
    return {name: held.batch for name, held in sorted(found.items()) if held.batch is not None}
