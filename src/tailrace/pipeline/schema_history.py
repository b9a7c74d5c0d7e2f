"""The schema changes that a checkpoint's batches hold."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.errors import StateError
from tailrace.model.schema_change import SchemaEvent, schema_events
from tailrace.spark.checkpoint import Checkpoint


@dataclass(frozen=True)
class RecordedChange:
    """A schema change, and the batch that begins with it.

    Args:
        event: the change.
        batch: the batch's number.
        committed: whether the sinks have the batch.
        at_ms: when, milliseconds since 1970 UTC: as the log has it, or else when the batch was planned.
    """

    event: SchemaEvent
    batch: int
    committed: bool
    at_ms: int


def schema_history(checkpoint: str) -> list[RecordedChange]:
    """The schema changes of the batches that a checkpoint still holds, the newest first.

    Raises:
        StateError: a batch is not of a Tailrace stream, or of a newer version.
    """
    held = Checkpoint(checkpoint)
    # `offsets set` leaves them out of the ends that it writes
    replaced = {batch.id: batch for batch in reversed(held.replaced())}
    found = []
    for batch in reversed(held.batches()):
        try:
            events = schema_events(replaced.get(batch.id, batch).end)
        except (KeyError, TypeError, ValueError):
            raise StateError(
                f"batch {batch.id} of checkpoint `{checkpoint}` has a schema change that is not known",
                None,
                "update Tailrace: a newer version has written it",
                code="TR-8465",
            ) from None
        found += [
            RecordedChange(event, batch.id, batch.committed, event.ts_ms or batch.planned_ms)
            for event in reversed(events)
        ]
    return found
