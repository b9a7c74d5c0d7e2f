"""Who may write: a pipeline that several machines may run asks before and after each batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Fence(Protocol):
    """Lets batches through, as long as this process may run the pipeline (`control.leases`)."""

    @property
    def lease(self) -> int:
        """The number of the right to run the pipeline: it rises with every owner."""

    def begin(self, batch_id: int, end: Mapping[str, Any]) -> None:
        """A batch is planned up to `end`, and no sink has been given it.

        Raises:
            LeaseLostError: another process may run the pipeline.
            TransientControlError: it cannot be told now.
            StateError: the batch was begun before with another end.
        """

    def end(self, batch_id: int) -> None:
        """All sinks have a batch, and Spark has not recorded it as done.

        Raises:
            LeaseLostError: another process runs the pipeline, and writes the batch again.
            TransientControlError: it cannot be told now.
        """


class Open:
    """The fence of a pipeline that nobody else runs."""

    lease = 0

    def begin(self, batch_id: int, end: Mapping[str, Any]) -> None:
        """See `Fence`."""

    def end(self, batch_id: int) -> None:
        """See `Fence`."""
