"""The batches that a checkpoint holds, as `tailrace offsets history` and `offsets diff` print them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tailrace.config.model import Pipeline
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import ConfigError
from tailrace.pipeline.offset_changes import changes
from tailrace.sources import registry
from tailrace.spark.checkpoint import Checkpoint, PlannedBatch


def history_lines(pipeline: Pipeline, last: int) -> list[str]:
    """The newest `last` batches: when, whether committed, and what each has read."""
    checkpoint = Checkpoint(pipeline.checkpoint)
    batches = checkpoint.batches()
    replaced = {batch.id: batch for batch in checkpoint.replaced()}
    lines = []
    for i in range(max(len(batches) - last, 0), len(batches)):
        batch = batches[i]
        lines.append(f"batch {batch.id}, {_when(batch)}, {_state(batch)}")
        if i > 0 or batch.id == 0:
            former = batches[i - 1].end if i > 0 else {"v": 1}
            lines += _indented(pipeline, former, replaced.get(batch.id, batch).end)
        if batch.id in replaced:
            lines.append("  `offsets set` then changed its end:")
            lines += _indented(pipeline, replaced[batch.id].end, batch.end)
    return lines or [f"checkpoint {pipeline.checkpoint} has no batch yet"]


def difference_lines(pipeline: Pipeline, first: int | None, last: int | None) -> list[str]:
    """What changed between the ends of two batches.

    Raises:
        ConfigError: the checkpoint does not hold one of them.
    """
    batches = {batch.id: batch for batch in Checkpoint(pipeline.checkpoint).batches()}
    if not batches:
        return [f"checkpoint {pipeline.checkpoint} has no batch yet"]
    last = max(batches) if last is None else last
    first = last - 1 if first is None else first
    former = {"v": 1} if first == -1 else _held(batches, first).end
    new = _held(batches, last)
    lines = [f"from the end of batch {first} to the end of batch {last}, {_state(new)}"]
    return [*lines, *(_indented(pipeline, former, new.end) or ["  nothing"])]


def _held(batches: dict[int, PlannedBatch], number: int) -> PlannedBatch:
    if number not in batches:
        raise ConfigError(
            f"the checkpoint does not hold batch {number}",
            f"it holds {min(batches)} to {max(batches)}",
            "Spark keeps the last hundred batches: see `tailrace offsets history`",
            code="TR-1303",
        )
    return batches[number]


def _indented(pipeline: Pipeline, former: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    position_type = registry.position_type(pipeline.source.dialect)
    both = StreamOffset.from_json(former), StreamOffset.from_json(new)
    return [f"  {line}" for line in changes(*both, position_type)]


def _when(batch: PlannedBatch) -> str:
    at = datetime.fromtimestamp(batch.planned_ms / 1000, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _state(batch: PlannedBatch) -> str:
    return "committed" if batch.committed else "planned: the next start repeats it"
