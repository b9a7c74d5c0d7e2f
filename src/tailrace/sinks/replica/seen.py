"""Tables that are read again: the keys that their targets receive meanwhile, in the ledger's schema.

    _tailrace_k_<target>_<reading>    the key of a target's rows, as its primary key

Types and collations of the columns are the target's own. The transaction that writes rows inserts their keys,
too. The transaction that records the last batch of a reading deletes the rows of all other keys
(`model.reread`); the table of the keys is dropped afterwards. One that a crash has left, or that belongs to a
reading which another one has replaced, is dropped before the target's next batch is written. The ledger notes
which of these tables exist: without one that somebody has dropped, too many rows would be deleted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.soft_delete import SoftDelete
from tailrace.sinks.base import CellBatch
from tailrace.sinks.claims import Claims
from tailrace.sinks.replica.dialect import WriteSession
from tailrace.sinks.replica.ledger import Ledger
from tailrace.sinks.tables.rereads import refreshes

_PREFIX = "_tailrace_k_"


@dataclass(frozen=True)
class Reading:
    """A table that is read again, and its target.

    Args:
        table: the source table, as a shard column names it.
        target: the target's name.
        stream: the stream's id.
        id: identifies this reading of the table.
        done: whether the batch holds the table's last rows.
        shard: the key column that holds the table's name; None: all of the target's rows are the table's.
        marks: how rows are marked that the table no longer has; None: they are deleted.
    """

    table: str
    target: str
    stream: str
    id: str
    done: bool
    shard: str | None
    marks: SoftDelete | None = None

    @property
    def keys_table(self) -> str:
        """The name of the table of the keys."""
        return f"{keys_prefix(self.stream, self.target)}{_digest(self.table, self.id)}"

    @property
    def only(self) -> Mapping[str, str]:
        """Which of the target's rows are the table's: columns and their values."""
        return {} if self.shard is None else {self.shard: self.table}

    def keys(self, rows: pa.Table, key: Sequence[str]) -> pa.Table:
        """The keys of the table's rows among `rows`, which are the target's."""
        for column, value in self.only.items():
            rows = rows.filter(pc.equal(rows.column(column), value))
        return rows.select(list(key))


def readings_of(batch: CellBatch, claims: Claims) -> dict[str, list[Reading]]:
    """The tables that are read again, by target; without those whose rows the target does not tell apart."""
    found: dict[str, list[Reading]] = {}
    for refresh in refreshes(batch, claims):
        target, reread = claims.router.target(refresh.table), refresh.reread
        query = batch.stream.query
        reading = Reading(refresh.name, target, query, reread.id, reread.done, refresh.shard, refresh.marks)
        found.setdefault(target, []).append(reading)
    return found


def keys_prefix(stream: str, target: str) -> str:
    """The prefix of the names of a target's tables of keys."""
    return f"{_PREFIX}{_digest(stream, target)}_"


def keys_tables(session: WriteSession, ledger: Ledger) -> set[str]:
    """The names of all tables of keys."""
    return set(ledger.own_tables(session, _PREFIX))


def _digest(*texts: str) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]
