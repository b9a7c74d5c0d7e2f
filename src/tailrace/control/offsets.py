"""The offsets of a subscription's streams: what they are, were, and shall be.

An offset is set while nobody runs the subscription, and nobody can begin to: whoever sets it holds the
subscription's lease (`leases.hold`). Its number is above that of a former owner, which therefore cannot begin
a batch any more, should it come back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tailrace.config.model import Pipeline
from tailrace.control import audit, leases
from tailrace.control.operations import Control
from tailrace.control.streams import reaching, reading, stream_of
from tailrace.control.subscriptions import Subscription
from tailrace.errors import ControlError
from tailrace.pipeline import offset_replacement, table_requests
from tailrace.pipeline.offset_history import difference_lines, history_lines
from tailrace.pipeline.offset_replacement import OffsetReplacement
from tailrace.spark.checkpoint import Checkpoint, PlannedBatch

#: Who owns a subscription while its offset is set, and how long that may take, seconds.
HOLDER = "(sets the offset)"
_HOLD_S = 120.0


@dataclass(frozen=True)
class OffsetSet:
    """An offset that was set, or would be.

    Args:
        replacement: what takes the place of what.
        kept: where in the checkpoint the former one is kept; None: nothing was changed.
    """

    replacement: OffsetReplacement
    kept: str | None


def offset(control: Control, name: str, source: str | None = None) -> dict[str, Any] | None:
    """The newest batch of a stream, its end, its version and what is parked; None: it has none yet."""
    pipeline = stream_of(control, name, source)
    with reaching(pipeline):
        last = Checkpoint(pipeline.checkpoint).last()
        parked = table_requests.parked_now(pipeline)
    if last is None:
        return None
    return {
        "batch": last.id,
        "committed": last.committed,
        "planned_ms": last.planned_ms,
        "end": last.end,
        "version": version_of(last),
        "parked": {
            table: {
                "code": entry.reason.code,
                "message": entry.reason.message,
                "detail": entry.reason.detail,
                "hint": entry.reason.hint,
            }
            for table, entry in parked.items()
        },
    }


def version_of(last: PlannedBatch | None) -> str:
    """What tells the newest batch of a stream, and its end, from every other."""
    value = None if last is None else [last.id, last.committed, last.end]
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def offset_history(control: Control, name: str, last: int, source: str | None = None) -> list[str]:
    """What the newest batches have read, as lines of text; see `tailrace offsets history`."""
    pipeline = stream_of(control, name, source)
    with reaching(pipeline):
        return history_lines(pipeline, last)


def offset_difference(
    control: Control, name: str, first: int | None, last: int | None, source: str | None = None
) -> list[str]:
    """What changed between the ends of two batches, as lines of text; see `tailrace offsets diff`."""
    pipeline = stream_of(control, name, source)
    with reaching(pipeline):
        return difference_lines(pipeline, first, last)


def set_offset(
    control: Control,
    actor: str,
    name: str,
    value: Mapping[str, Any],
    version: str | None,
    *,
    source: str | None = None,
    unchecked: bool = False,
    skip_changes: bool = False,
    dry_run: bool = False,
) -> OffsetSet:
    """Let a paused subscription's stream continue from another offset, see `tailrace offsets set`.

    Args:
        control: the control plane.
        actor: who asks for it.
        name: the subscription.
        value: the offset.
        version: that of the offset which it replaces; None: any.
        source: of this source.
        unchecked: whether to ask neither the server for the position nor the targets.
        skip_changes: whether tables are not read again because of a later position.
        dry_run: whether to change nothing; then the subscription need not be paused.

    Raises:
        ConfigError: the stream cannot continue from there.
        ControlError: there is no such subscription, it is not paused, or its offset has another version.
        StateError: its checkpoint has no batch, or the newest one is not in the sinks.
    """
    end = offset_replacement.offset_of(dict(value))
    subscription, pipeline = control.get(name), stream_of(control, name, source)

    def planned() -> OffsetReplacement:
        _require_version(pipeline, name, version)
        return offset_replacement.planned(pipeline, end, unchecked=unchecked, skip_changes=skip_changes)

    if dry_run:
        with reaching(pipeline), reading(pipeline):
            return OffsetSet(planned(), None)
    with _held(control, subscription) as lease, reaching(pipeline), reading(pipeline):
        found = planned()
        with control.database.begin() as connection:  # what was checked may have taken long
            leases.require_held(connection, lease)
        kept = offset_replacement.put(pipeline, found)
        before, after = _shown(found.batch, found.former), _shown(found.batch, found.value)
        after |= {"source": pipeline.source_name, "kept": kept, "reads_again": list(found.reads_again)}
        after |= {"unchecked": unchecked, "skip_changes": skip_changes}
        with control.database.begin() as connection:
            audit.note(connection, actor, "subscription.set_offset", name, before=before, after=after)
    return OffsetSet(found, kept)


@contextmanager
def _held(control: Control, subscription: Subscription) -> Iterator[leases.Lease]:
    """Nobody runs the subscription inside.

    Raises:
        ControlError: somebody does, or may begin to.
    """
    with control.database.begin() as connection:
        lease = leases.hold(connection, subscription, HOLDER, _HOLD_S)
    if lease is None:
        now = control.get(subscription.name)
        raise ControlError(
            f"the offset of subscription `{subscription.name}` cannot be set now",
            f"it is to `{now.desired}`" + (f", and `{now.owner}` has it" if now.owner else ""),
            f"tailrace pause {subscription.name}, and wait until no server runs it: tailrace get",
            code="TR-8487",
        )
    try:
        yield lease
    finally:
        with control.database.begin() as connection:
            leases.release(connection, lease)


def _require_version(pipeline: Pipeline, name: str, version: str | None) -> None:
    found = version_of(Checkpoint(pipeline.checkpoint).last())
    if version is not None and version != found:
        raise ControlError(
            f"the offset of subscription `{name}` has changed",
            f"its version is {found}, and the request is based on {version}",
            f"tailrace offsets show {name}, and decide again",
            code="TR-8488",
        )


def _shown(batch: int, value: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the audit keeps of an offset: no cursors, which hold keys."""
    return {"batch": batch, "log": None if value is None else value.get("log")}
