"""The signals in a range of the log: rows that were inserted into the table of signals.

The table is never queried: whoever sends a signal may delete it at once. The log says when a range may have
some (`LogRange.may_have_signals`), so that nothing is decoded here but such ranges.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

import pyarrow.compute as pc

from tailrace.config.options import SourceOptions
from tailrace.enumerator.signals import MOST_WAITING
from tailrace.errors import PositionLostError, ServerChangedError, SourceError
from tailrace.model.change import OP_CREATE, ChangeBatch
from tailrace.model.signal import Signal, read_signal
from tailrace.model.split import LogSplit
from tailrace.sources import registry
from tailrace.sources.base import Log

#: The table's columns, as Debezium's documentation creates them; by order if they have other names.
_COLUMNS = ("id", "type", "data")


class SignalTable:
    """Reads the table of signals from the log.

    Args:
        options: the stream's options, with `signal.data.collection`.
    """

    def __init__(self, options: SourceOptions) -> None:
        name = options.signal_data_collection
        assert name is not None
        self._name = name
        self._options = options.capturing_only(name)

    def read(self, log: Log, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[tuple[str, Signal]]:
        """The signals in `(start, end]` of the log, in order, each with an id of its own.

        Rows that cannot be decoded are one signal that cannot be read.

        Raises:
            TransientSourceError: the server cannot be reached.
            PositionLostError: the log is gone.
            ServerChangedError: another server answers.
        """
        whole = LogSplit(start, end, finished=frozenset({self._name}))
        found: list[tuple[str, Signal]] = []
        with closing(registry.session(self._options)) as session:
            for split in log.splits(whole, 1):
                try:
                    for batch in session.changes(session.located(split)):
                        found += _signals(batch)
                        if len(found) > MOST_WAITING:  # the rest is refused as one
                            return found[: MOST_WAITING + 1]
                except (PositionLostError, ServerChangedError):
                    raise
                except SourceError as error:
                    if error.retryable:
                        raise
                    id_ = hashlib.sha256(repr(end).encode()).hexdigest()[:16]
                    found.append((f"log-{id_}", Signal("", "", problem=f"the log's rows: {error.message}")))
        return found


def _signals(batch: ChangeBatch) -> Iterable[tuple[str, Signal]]:
    """The rows that a batch inserts, as signals; a few more than may wait, at most."""
    created = pc.indices_nonzero(pc.equal(batch.op, OP_CREATE))[: MOST_WAITING + 1]
    if not len(created):
        return
    few = batch.take(created)
    names = {name.lower(): name for name in (c.name for c in batch.table.columns)}
    columns = [names.get(name, name) for name in _COLUMNS]
    if not names.keys() >= set(_COLUMNS):
        columns = [c.name for c in batch.table.columns][: len(_COLUMNS)]
    for row, seq in zip(few.image("after").to_pylist(), few.origin.column("seq").to_pylist(), strict=True):
        values = [row.get(name) for name in columns]
        yield f"log-{seq}", read_signal(*values, *[None] * (len(_COLUMNS) - len(values)))
