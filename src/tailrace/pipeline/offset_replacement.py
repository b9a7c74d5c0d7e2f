"""Another offset for a stopped pipeline: checked, made exact, and put into its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tailrace.config.model import Pipeline
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import ConfigError
from tailrace.pipeline import table_requests
from tailrace.pipeline.offset_check import require_in_log
from tailrace.pipeline.offset_set import behind_targets, continued
from tailrace.pipeline.older_checkpoint import newest_in_targets
from tailrace.pipeline.run import captured_tables
from tailrace.pipeline.run_state import RunState, forget_run
from tailrace.sources import registry
from tailrace.spark.checkpoint import Checkpoint

#: What is beside a stream's own offset, and stays.
_KEPT = ("shape",)


@dataclass(frozen=True)
class OffsetReplacement:
    """An offset from which a pipeline can continue.

    Args:
        former: the end of the newest batch; None: there is none.
        value: what takes its place.
        reads_again: tables that are read again, so that their targets equal them.
        batch: the newest batch of the checkpoint; -1: there is none.
        in_targets: the newest batch that targets have; -1: not known.
    """

    former: Mapping[str, Any] | None
    value: Mapping[str, Any]
    reads_again: Sequence[str]
    batch: int
    in_targets: int

    @property
    def is_behind(self) -> bool:
        """Whether the checkpoint is older than the targets."""
        return self.former is not None and self.in_targets > self.batch


def read_offset(text: str) -> StreamOffset:
    """An offset as `tailrace offsets show` prints it.

    Raises:
        ConfigError: it is none.
    """
    try:
        return offset_of(json.loads(text))
    except json.JSONDecodeError as error:
        raise ConfigError("the offset is not JSON", str(error), code="TR-1301") from None


def offset_of(value: Any) -> StreamOffset:
    """An offset of JSON values.

    Raises:
        ConfigError: it is none.
    """
    try:
        return StreamOffset.from_json(value)
    except (KeyError, TypeError, AttributeError, ValueError):
        raise ConfigError(
            "the offset is not a valid stream offset",
            None,
            "`tailrace offsets show` prints one",
            code="TR-1301",
        ) from None


def planned(
    pipeline: Pipeline, end: StreamOffset, *, unchecked: bool = False, skip_changes: bool = False
) -> OffsetReplacement:
    """What takes the place of a pipeline's offset, if somebody wants it to be `end`; nothing is changed.

    Args:
        pipeline: the pipeline, of one source.
        end: the offset.
        unchecked: whether to ask neither the server for the position nor the targets.
        skip_changes: whether tables are not read again because of a later position.

    Raises:
        ConfigError: the stream cannot continue from there.
    """
    last = Checkpoint(pipeline.checkpoint).last()
    newest = -1 if last is None or unchecked else newest_in_targets(pipeline, last)
    is_behind = last is not None and newest > last.id
    # tables that are all read again need no log from before
    if not (unchecked or (is_behind and pipeline.source.on_position_lost == "refresh")):
        require_in_log(pipeline.source, end)
    if last is None:
        return OffsetReplacement(None, end.to_json(), (), -1, newest)
    former = StreamOffset.from_json(last.end)
    appending = [sink.type for sink in pipeline.sinks if table_requests.appends(sink)]
    if end.log != former.log:
        end = replace(end, shapes={})  # those at another position; the stream finds out anew
    end, again = continued(
        former,
        end,
        registry.position_type(pipeline.source.dialect),
        appending=appending,
        skips_changes=skip_changes,
    )
    if is_behind:
        end, again = behind_targets(end, map(str, captured_tables(pipeline)), appending=appending)
    kept = {name: last.end[name] for name in _KEPT if name in last.end}
    return OffsetReplacement(last.end, {**end.to_json(), **kept}, again, last.id, newest)


def put(pipeline: Pipeline, replacement: OffsetReplacement) -> str:
    """Let the stopped pipeline continue from there; returns where the old offset is kept.

    Raises:
        ConfigError: the pipeline is running.
        StateError: there is no batch yet, or the newest one is not in the sinks.
    """
    checkpoint = Checkpoint(pipeline.checkpoint)
    state = RunState.read(checkpoint.path)
    if state is not None and state.runs:
        raise ConfigError(
            "the pipeline is running",
            f"process {state.pid} has the offset in its memory, and would go on from there",
            "stop it first",
            code="TR-1312",
        )
    kept = checkpoint.set_end(dict(replacement.value), replacement.in_targets)
    forget_run(checkpoint.path)
    return kept
