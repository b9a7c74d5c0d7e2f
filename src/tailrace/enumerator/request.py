"""What users, and the pipeline itself, ask of a running stream."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from tailrace.model.parked import Parked
from tailrace.model.signal import Signal

Kind = Literal["resync", "park", "resume", "signal"]


@dataclass(frozen=True)
class Request:
    """A request to a stream.

    Args:
        id: identifies it; it takes effect once.
        tables: the tables that it concerns, as `str(TableId)`.
        kind: `resync`: read them again; `park`: leave them out from now on; `resume`: go on with them;
            `signal`: what the signal asks for (`enumerator.signals`).
        parked: how to park them. Only the pipeline itself says so, while its stream stands still: the batch
            that is planned already, if any, is to be written without the tables.
        replay: whether to resume with the changes of the time in between, rather than with the rows.
        signal: the signal that the request comes from, if it is one.
        needed: whether a target is wrong until its tables are read again: no signal stops that reading.
        where: of tables that are read again, the condition of their rows (`model.condition`); others are read
            whole.
    """

    id: str
    tables: tuple[str, ...]
    kind: Kind = "resync"
    parked: Parked | None = None
    replay: bool = False
    signal: Signal | None = None
    needed: bool = False
    where: Mapping[str, str] = field(default_factory=dict)


class Requests(Protocol):
    """Requests that wait for the stream."""

    def pending(self) -> Sequence[Request]:
        """The requests, the oldest first; those that the stream has accepted may be among them."""

    def add(self, tables: Sequence[str], *, needed: bool) -> str:
        """Request that tables be read again, see `Request`; returns the request's id. It is durable then."""

    def remove(self, ids: Collection[str]) -> None:
        """Remove requests that have taken effect for good."""
