"""A sink's rows by its contract, of a stream whose tables may be read again; and the tables' own rows."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import closing
from typing import Any

import pytest

from tailrace.enumerator.offset import StreamOffset
from tailrace.enumerator.request import Request
from tailrace.errors import TransientSourceError
from tailrace.model.change import REREAD, ChangeBatch
from tailrace.model.reread import rereads
from tailrace.model.schema_change import (
    ColumnAdded,
    ColumnDropped,
    ColumnRenamed,
    of_table,
    schema_events,
)
from tests.support.databases import named_rows
from tests.support.engine import Engine, changes_of

#: How long a test waits for the log's end, seconds.
PATIENCE_S = 60.0


MOMENTS = ("stopped", "in the snapshot", "running")


def at_moments(cases: Sequence[Any], moments: Sequence[str] = MOMENTS) -> list[Any]:
    """Parameters (case, moment): each case at one moment in turn, at the others as slow tests."""
    return [
        pytest.param(
            (case, moment), id=f"{named(case)}, {moment}", marks=[] if is_due else [pytest.mark.slow]
        )
        for number, case in enumerate(cases)
        for moment, is_due in ((m, number % len(moments) == i) for i, m in enumerate(moments))
    ]


def named(case: Any) -> str:
    """A case in a test's name."""
    return " ".join(getattr(part, "__name__", str(part)) for part in case)


def read(engine: Engine, batch: tuple[StreamOffset, StreamOffset]) -> tuple[Any, Any]:
    """A batch's parts; after an error that passes they are read by the engine as it is when started anew."""
    try:
        return engine.read(*batch)
    except TransientSourceError:
        engine.plan.close()
        return engine.read(*batch)


class Requests:
    """Requests that wait for a stream, in memory."""

    def __init__(self) -> None:
        self.waiting: list[Request] = []

    def pending(self) -> list[Request]:
        """The requests."""
        return list(self.waiting)

    def remove(self, ids: Collection[str]) -> None:
        """Remove some."""
        self.waiting = [request for request in self.waiting if request.id not in ids]


class Target:
    """The rows of one table, as a sink that holds rows keeps them.

    A sink knows a table's key by its changes: a table that gets another key is read again.

    Args:
        engine: the stream.
        table: `database.table`.
    """

    def __init__(self, engine: Engine, table: str) -> None:
        self.engine = engine
        self.rows: list[dict[str, Any]] = []
        self._table = table
        self._key: tuple[str, ...] = ()
        self._seen: dict[str, set[tuple[Any, ...]]] = {}

    @property
    def readings(self) -> int:
        """How many times the table has been read again."""
        return len(self._seen)

    def step(self) -> bool:
        """Apply the next batch; whether there was one."""
        batch = self.engine.next()
        if batch is None:
            return False
        self.apply(*read(self.engine, batch), end=batch[1].to_json())
        return True

    def apply(self, read: list[ChangeBatch], log: list[ChangeBatch], *, end: dict[str, Any]) -> None:
        """Apply a batch: schema changes, if rows do not tell them; changes of the log, then rows."""
        if self.engine.options.former_columns == "follow":
            self._follow(end)
        left: set[tuple[Any, ...]] = set()
        for batch in (*log, *read):
            if str(batch.table.id) != self._table:
                continue
            self._key = batch.table.key
            held = {self._of(row): row for row in self.rows}
            for op, before, after, _ in changes_of([batch]):
                if op in ("u", "d"):  # without the row before, its key is the same
                    held.pop(self._of(after if before is None else before), None)
                if after is not None and op != "d":
                    appended = op == "r" and batch.kind != REREAD
                    assert not (appended and self._of(after) in held), f"appended twice: {after}"
                    held[self._of(after)] = after
                    left.add(self._of(after))
            self.rows = list(held.values())
        reread = rereads(end).get(self._table)
        if reread is None or reread.partial:
            return
        seen = self._seen.setdefault(reread.id, set())
        seen |= left
        if reread.done:
            self.rows = [row for row in self.rows if self._of(row) in seen]

    def _follow(self, end: dict[str, Any]) -> None:
        """Rename and drop columns, as a sink does that follows its source's."""
        for change in of_table(schema_events(end), self._table):
            match change:
                case ColumnRenamed(old, new):
                    if all(new not in row for row in self.rows):  # else the table is read again
                        self.rows = [{new if k == old else k: v for k, v in row.items()} for row in self.rows]
                case ColumnAdded(column):
                    self.rows = [{column.name: None, **row} for row in self.rows]
                case ColumnDropped(name):
                    self.rows = [{k: v for k, v in row.items() if k != name} for row in self.rows]

    def drain(self, server: Any) -> None:
        """Apply what comes until the log's end of now is reached and nothing is left to read."""
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW BINARY LOG STATUS")
            file, pos = cursor.fetchone()[:2]
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            offset = self.engine.offset
            log = offset.log or {"file": "", "pos": 0}
            waits = any(
                not reread.done and self._exists(server, name) for name, reread in offset.again.items()
            )
            if (log["file"], log["pos"]) >= (file, pos) and not offset.tables and not waits:
                return
            if not self.step():
                time.sleep(0.02)
        raise AssertionError(f"the stream does not reach {file}:{pos}: {self.engine.offset.to_json()}")

    def drain_all(self) -> None:
        """Apply all that a stream with the trigger AvailableNow reads."""
        self.engine.plan.hold()
        while self.step():
            pass
        self.engine.read_beyond()

    def equals(self, server: Any, **of: Any) -> None:
        """Assert that the rows are the table's, as far as its log has them; `of`: see `server.connect`."""
        with closing(server.connect(**of)) as connection, closing(connection.cursor()) as cursor:
            rows = named_rows(cursor, f"SELECT * FROM {self._table}")
            captured = self.engine.plan._captured.tables.get(self._table)
            left_out = () if captured is None else captured.left_out
            names = [column[0] for column in cursor.description if column[0] not in left_out]
        rows = [{name: row[name] for name in names} for row in rows]
        found = [{name: row.get(name) for name in names} for row in self.rows]
        has, wanted = sorted(map(repr, found)), sorted(map(repr, rows))
        assert has == wanted, f"the target has {has}, the table {wanted}"

    def _of(self, row: dict[str, Any]) -> tuple[Any, ...]:
        # a row of another schema may lack key columns: it is a row of its own
        return tuple(row.get(name, repr(row)) for name in self._key)

    @staticmethod
    def _exists(server: Any, name: str) -> bool:
        with server.connect() as connection, connection.cursor() as cursor:
            tables = "information_schema.tables WHERE CONCAT(table_schema, '.', table_name)"
            cursor.execute(f"SELECT 1 FROM {tables} = %s", (name,))
            return cursor.fetchone() is not None
