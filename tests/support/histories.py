"""A database in memory with its log, and a sink: what a stream of random histories is judged by.

Reading a key range gives what `reader.snapshot` gives: the rows as they are when it is read, rewound by the
logged changes since the batch's position. Changes that are not logged stay in it.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import PositionLostError
from tailrace.model.declaration import CatalogText
from tailrace.model.split import Key, LogSplit, SnapshotSplit, Split
from tailrace.model.table import TableId, TableSchema
from tailrace.sources.base import Activity, Log, LogClock, LogRange, Source
from tests.support.changes import INT, table

TABLES = {name: table(("id", INT), key=("id",), name=name) for name in ("shop.a", "shop.b")}
#: Keys are less than this.
MOST_KEYS = 16

Rows = dict[int, int]


@dataclass(frozen=True)
class At:
    """A position: the number of transactions before it."""

    pos: int

    @property
    def order(self) -> tuple[int]:
        """Its place in the log."""
        return (self.pos,)

    def to_json(self) -> dict[str, Any]:
        """The position as JSON."""
        return {"pos": self.pos}


@dataclass(frozen=True)
class Found:
    """A table in the catalog."""

    schema: TableSchema
    estimated_rows: int = MOST_KEYS
    key_in: str = "log"
    left_out: tuple[str, ...] = ()

    @property
    def whole(self) -> TableSchema:
        """All columns are captured."""
        return self.schema

    @property
    def texts(self) -> dict[str, CatalogText]:
        """Nothing."""
        return {}

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """Its key."""
        return (self.schema.key,)


@dataclass(frozen=True)
class Transaction:
    """An entry of the log.

    Args:
        table: the table that it concerns.
        changes: rows before and after, by key; None: no row.
        kind: "rows", a schema change ("rewrite", "truncate", "swap", "drop", "create"), or "unlogged": rows
            were changed, and the log does not tell.
    """

    table: str
    changes: Mapping[int, tuple[int | None, int | None]] = field(default_factory=dict)
    kind: str = "rows"

    @property
    def is_ddl(self) -> bool:
        """Whether it is a schema change."""
        return self.kind not in ("rows", "unlogged")


class ModelDatabase:
    """The tables with all their history.

    Args:
        chance: of all choices.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.log: list[Transaction] = []
        #: The tables' rows at every position; a table that is missing does not exist.
        self.states: list[dict[str, Rows]] = [{name: self._rows() for name in TABLES}]
        #: The log before it is gone.
        self.purged = 0

    @property
    def now(self) -> dict[str, Rows]:
        """The tables' present rows."""
        return self.states[-1]

    def write(self, kinds: Sequence[str]) -> None:
        """One random transaction of one of these kinds."""
        name, kind = self._chance.choice([*TABLES]), self._chance.choice(kinds)
        missing = [n for n in TABLES if n not in self.now]
        if kind == "create":
            if not missing:
                return
            name = missing[0]
        elif name not in self.now or (kind == "drop" and missing):
            return  # one table is always left
        state = {n: dict(rows) for n, rows in self.now.items()}
        changes: dict[int, tuple[int | None, int | None]] = {}
        match kind:
            case "rows":
                for key in self._chance.sample(range(MOST_KEYS), self._chance.randint(0, 3)):
                    before = state[name].pop(key, None)
                    after = self._chance.choice([None, self._value(), self._value()])
                    if before is None and after is None:
                        continue
                    if after is not None:
                        state[name][key] = after
                    changes[key] = before, after
            case "drop":
                del state[name]
            case "create" | "truncate":
                state[name] = {}
            case "swap":
                state[name] = self._rows()
            case _:
                kept = {key: row for key, row in state[name].items() if self._chance.random() < 0.8}
                state[name] = {
                    k: v if self._chance.random() < 0.5 else self._value() for k, v in kept.items()
                }
        self.log.append(Transaction(name, changes, kind))
        self.states.append(state)

    def unlogged(self, name: str, start: int, end: int) -> int | None:
        """Where in `(start, end]` rows of the table last changed without the log telling how."""
        found = (p for p in range(end, start, -1) if self.log[p - 1].table == name)
        return next((p for p in found if self.log[p - 1].kind not in ("rows", "create")), None)

    def read(self, split: Split) -> list[tuple[str, bool, int, int | None]]:
        """What a split gives: (table, is a row read for the first time, key, row)."""
        if isinstance(split, LogSplit):
            return self._changes(split)
        rows: dict[int, int | None] = dict(self.now.get(str(split.table.id), {}))
        for entry in reversed(self.log[split.as_of["pos"] :]):
            if entry.table == str(split.table.id):
                rows.update({key: before for key, (before, _) in entry.changes.items()})
        return [
            (str(split.table.id), not split.reread, key, row)
            for key, row in rows.items()
            if row is not None and _is_within(split, key)
        ]

    def _changes(self, split: LogSplit) -> list[tuple[str, bool, int, int | None]]:
        assert split.start["pos"] >= self.purged, "a part of the log is read that is gone"
        found = []
        for entry in self.log[split.start["pos"] : split.end["pos"]]:
            id_ = TABLES[entry.table].id
            if not split.concerns(id_):
                continue
            cursor = split.cursors.get(id_)
            for key, (_, after) in entry.changes.items():
                if cursor is None or (key,) <= cursor.upto:
                    found.append((entry.table, False, key, after))
        return found

    def _rows(self) -> Rows:
        return {key: self._value() for key in range(MOST_KEYS) if self._chance.random() < 0.6}

    def _value(self) -> int:
        return self._chance.randint(0, 1_000_000)


def _is_within(split: SnapshotSplit, key: int) -> bool:
    return (split.after is None or (key,) > split.after) and (split.upto is None or (key,) <= split.upto)


class ModelSource(Source, Log):
    """The database for an enumerator.

    Args:
        database: the tables and their log.
        chance: of all choices.
    """

    def __init__(self, database: ModelDatabase, chance: random.Random) -> None:
        self._database = database
        self._chance = chance
        #: Whether the log is always caught up, and every range as long as it can be.
        self.is_calm = False

    def require(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass

    def server_changed(self) -> None:
        pass

    def position(self, value: Mapping[str, Any]) -> At:
        return At(**value)

    def log_end(self) -> At:
        return At(len(self._database.log))

    starting_position = head = read_upto = log_end

    def rejoin(self, lost: Mapping[str, Any]) -> At:
        return self.log_end()

    def tables(self) -> list[Found]:
        return [Found(schema) for name, schema in TABLES.items() if name in self._database.now]

    def condition_problem(self, table: TableSchema, condition: str) -> str | None:
        return None

    def boundary(self, schema: TableSchema, after: Key | None, rows: int) -> Key | None:
        keys = sorted(self._database.now.get(str(schema.id), {}))
        keys = [key for key in keys if after is None or (key,) > after]
        return (keys[rows - 1],) if len(keys) > rows else None

    def follow(self, start: Any, knows: Any) -> ModelSource:
        return self

    def read_table(self, table: TableSchema, page_rows: int) -> Any:
        raise NotImplementedError

    def ending_position(self, text: str, position: Any) -> Any:
        raise NotImplementedError

    def frozen(self, connections: int) -> Any:
        raise NotImplementedError

    def gaps(self, ids: Mapping[str, str], reading: Collection[str]) -> Mapping[str, str]:
        return {}

    def range_after(self, start: At, *, upto: At | None, **_: Any) -> LogRange | None:
        log = self._database.log
        if start.pos < self._database.purged:
            raise PositionLostError("the log is purged")
        limit = len(log) if upto is None else upto.pos
        if start.pos >= limit:
            return None
        end, most = start.pos + 1, start.pos + (limit if self.is_calm else self._chance.randint(1, 6))
        while end < min(limit, most) and not log[end].is_ddl:  # a schema change is the first of its batch
            end += 1
        inside, first = log[start.pos : end], log[start.pos]
        ahead = [entry for entry in log[end : end + 1] if entry.is_ddl]
        created = [e.table for e in (first, *ahead) if e.kind == "create"]
        is_rewritten = first.is_ddl and first.kind != "create"
        return LogRange(
            At(end),
            has_changes=any(entry.changes for entry in inside),
            ddl_ahead=bool(ahead),
            created=tuple(TABLES[name].id for name in created),
            rewritten=(TABLES[first.table].id,) if is_rewritten else (),
        )

    def log_clock(self, position: Any) -> LogClock:
        return LogClock(1, self.log_end())

    def log_retention(self, position: Any) -> None:
        """The model's log is kept for ever."""

    def activity(self) -> Activity:
        raise AssertionError("no limit is set")

    def row_bytes(self, table: TableId) -> int | None:
        raise AssertionError("no limit is set")

    def heartbeat(self, statement: str) -> None:
        raise AssertionError(f"no heartbeat is set: {statement}")

    def wait(self, timeout_s: float) -> None:
        """What follows is there already."""

    def is_caught_up(self, position: At) -> bool:
        return self.is_calm or self._chance.random() < 0.8

    def splits(self, split: LogSplit, slices: int) -> list[LogSplit]:
        return [split]


class ModelSink:
    """Rows as a sink holds them that writes every table once per batch, and what is known of them."""

    def __init__(self, database: ModelDatabase) -> None:
        self._database = database
        self._rows: dict[str, Rows] = {name: {} for name in TABLES}
        self._seen: dict[str, tuple[str, set[int]]] = {}
        self._written = dict.fromkeys(TABLES, 0)
        #: Where a table's reading has begun that goes on or ended last, by id.
        self._began: dict[str, int] = {}
        #: Where a reading must have begun for a table's rows to be as they should be.
        self._needs: dict[str, int] = dict.fromkeys(TABLES, 0)
        self._last: dict[str, str] = {}

    def write(
        self,
        number: int,
        batch: tuple[StreamOffset, StreamOffset],
        cells: Sequence[tuple[str, bool, int, int | None]],
        names: Collection[str],
    ) -> None:
        """Write a batch to the targets of these tables, except those that have it already."""
        for name in names:
            if self._written[name] < number:
                self._write(name, batch, [cell for cell in cells if cell[0] == name])
                self._written[name] = number

    def _write(
        self,
        name: str,
        batch: tuple[StreamOffset, StreamOffset],
        cells: Sequence[tuple[str, bool, int, int | None]],
    ) -> None:
        start, end = batch
        rows, left = self._rows[name], set[int]()
        for _, is_new, key, row in cells:
            assert not (is_new and key in rows), f"row {key} of {name} is appended twice"
            rows.pop(key, None)
            left.discard(key)
            if row is not None:
                rows[key] = row
                left.add(key)
        self._judge(name, start, end)
        reread = end.again.get(name)
        if reread is None:
            return
        id_, seen = self._seen.get(name, ("", set()))
        seen = (seen if id_ == reread.id else set()) | left
        self._seen[name] = reread.id, seen
        self._last[name] = reread.id
        assert end.log is not None
        # the first transaction of the batch may be what is read after: no change before it counts as seen
        has_no_log = start.is_new or end.gaps > start.gaps
        begin = end.log["pos"] if has_no_log else min(at_of(start, end) + 1, end.log["pos"])
        self._began.setdefault(reread.id, begin)
        if reread.done:
            self._rows[name] = {key: row for key, row in rows.items() if key in seen}

    def _judge(self, name: str, start: StreamOffset, end: StreamOffset) -> None:
        """Note what in the table's rows cannot be right before it is read again."""
        assert end.log is not None
        at, before = end.log["pos"], at_of(start, end)
        reads = (start.tables.get(name), start.again.get(name)) != (end.tables.get(name), end.again.get(name))
        upto = len(self._database.log) if reads or name not in start.done else at
        found = self._database.unlogged(name, before, upto)
        if end.gaps > start.gaps:
            found = at
        self._needs[name] = max(self._needs[name], found or 0)

    def check(self, end: StreamOffset, *, is_end: bool = False) -> None:
        """Assert that the rows are the table's at the offset's position, as far as they are read."""
        assert end.log is not None
        state = self._database.states[end.log["pos"]]
        for name in end.done if not is_end else TABLES.keys() & state.keys():
            wanted, found, reread = state.get(name, {}), self._rows[name], end.again.get(name)
            is_right = self._began.get(self._last.get(name, ""), 0) >= self._needs[name]
            if is_end or (is_right and (reread is None or reread.done)):
                assert found == wanted, f"{name}: {found}, not {wanted}"
            elif is_right and reread is not None:
                keys = self._seen[name][1]
                assert _only(found, keys) == _only(wanted, keys), f"the rows that are read again of {name}"
        for name, progress in end.tables.items():
            if progress.cursor is not None and not self._needs[name]:
                keys = {key for key in range(MOST_KEYS) if (key,) <= progress.cursor}
                wanted = _only(state.get(name, {}), keys)
                assert self._rows[name] == wanted, f"the rows that are read of {name}"


def at_of(start: StreamOffset, end: StreamOffset) -> int:
    """The position at which a batch begins."""
    found = end.log if start.log is None else start.log
    assert found is not None
    pos: int = found["pos"]
    return pos


def _only(rows: Rows, keys: Collection[int]) -> Rows:
    return {key: row for key, row in rows.items() if key in keys}
