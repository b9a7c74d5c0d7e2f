"""Random histories of a stream that crashes while tables are parked and resumed, over a model of a database.

The enumerator and the decisions about parking are the real ones. The model has the log as a list of changes,
reads splits as readers do, and writes a batch table by table, each exactly once by the batch's number.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest

from tailrace.enumerator.enumerator import Enumerator, Limits
from tailrace.enumerator.offset import StreamOffset
from tailrace.enumerator.parked import left_out, parked_at
from tailrace.enumerator.request import Request
from tailrace.errors import SinkError
from tailrace.model.parked import Reason, without_tables
from tailrace.model.reread import rereads
from tailrace.model.split import LogSplit, SnapshotSplit
from tailrace.sources.base import LogRange
from tests.support.changes import INT, table
from tests.unit.enumerator.test_enumerator import At, FakeSource, Found, enumerator

NAMES = ("shop.a", "shop.b", "shop.c")
TABLES = {name: table(("id", INT), key=("id",), name=name) for name in NAMES}
WHY = Reason.of(SinkError("refused", code="TR-7001"))


class CrashedError(Exception):
    """The process ends here."""


class Database(FakeSource):
    """Three tables and their log: (table, key, value), None: deleted. A position is a number of changes."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.draw = draw
        self.log: list[tuple[str, int, int | None]] = []
        self.write(30)

    @property
    def end(self) -> At:
        return At(len(self.log))

    @end.setter
    def end(self, value: At) -> None: ...

    def write(self, count: int) -> None:
        for _ in range(count):
            name, key = self.draw.choice(NAMES), self.draw.randrange(12)
            there = key in self.at(len(self.log), name)
            value = None if there and self.draw.random() < 0.4 else self.draw.randrange(1000)
            self.log.append((name, key, value))

    def at(self, position: int, name: str) -> dict[int, int]:
        rows: dict[int, int] = {}
        for of, key, value in self.log[:position]:
            if of == name and value is None:
                rows.pop(key, None)
            elif of == name:
                rows[key] = value
        return rows

    def log_end(self) -> At:
        return self.end

    starting_position = log_end

    def tables(self) -> list[Found]:
        return [Found(schema, 10) for schema in TABLES.values()]

    def boundary(self, schema: Any, after: Any, rows: int) -> Any:
        at = -1 if after is None else after[0]
        left = sorted(key for key in self.at(len(self.log), str(schema.id)) if key > at)
        return (left[rows - 1],) if len(left) > rows else None

    def range_after(self, start: At, *, upto: At | None, **_: Any) -> LogRange | None:
        head = len(self.log) if upto is None else upto.pos
        if start.pos >= head:
            return None
        return LogRange(At(self.draw.randint(start.pos + 1, head)), has_changes=True)

    def head(self) -> At:
        return self.end

    def read(self, split: Any) -> dict[str, tuple[list[Any], dict[int, int], bool]]:
        """By table: changes of the log, rows, whether these are read again."""
        if isinstance(split, SnapshotSplit):
            after = -1 if split.after is None else split.after[0]
            upto = 99 if split.upto is None else split.upto[0]
            rows = self.at(split.as_of["pos"], str(split.table.id))
            return {str(split.table.id): ([], {k: v for k, v in rows.items() if after < k <= upto}, True)}
        assert isinstance(split, LogSplit)
        found: dict[str, tuple[list[Any], dict[int, int], bool]] = {}
        for name, key, value in self.log[split.start["pos"] : split.end["pos"]]:
            cursor = split.cursors.get(TABLES[name].id)
            if split.concerns(TABLES[name].id) and (cursor is None or key <= cursor.upto[0]):
                found.setdefault(name, ([], {}, False))[0].append((key, value))
        return found


class Target:
    """A target that holds rows; a batch is merged once."""

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.batch = -1
        self.reading, self.seen = "", set[int]()

    def write(self, batch: int, changes: list[Any], rows: Mapping[int, int], reread: Any) -> None:
        if batch <= self.batch:
            return
        if reread is not None:
            if self.reading != reread.id:
                self.reading, self.seen = reread.id, set()
            self.seen |= {key for key, value in changes if value is not None} | rows.keys()
        for key, value in changes:
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value
        self.rows |= rows
        if reread is not None and reread.done:
            self.rows = {key: value for key, value in self.rows.items() if key in self.seen}
        self.batch = batch


class Requested:
    def __init__(self) -> None:
        self.waiting: list[Request] = []
        self.count = 0

    def pending(self) -> list[Request]:
        return list(self.waiting)

    def remove(self, ids: Any) -> None:
        self.waiting = [r for r in self.waiting if r.id not in ids]

    def add(self, name: str, kind: Any, **more: Any) -> None:
        self.count += 1
        self.waiting.append(Request(f"r{self.count}", (name,), kind, **more))


class History:
    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.database = Database(self.draw)
        self.requests = Requested()
        self.offsets = [StreamOffset()]
        self.done = 0
        self.targets = {name: Target() for name in NAMES}
        self.poisoned: set[str] = set()
        self.plan = self._begin()

    def _begin(self) -> Enumerator:
        return enumerator(self.database, requests=self.requests, snapshotChunkRows="3", parallelism=2)

    def maybe_crash(self, chance: float) -> None:
        if self.draw.random() < chance:
            raise CrashedError

    def step(self, chance: float) -> bool:
        """Run one batch; whether there was one."""
        try:
            return self._batch(chance)
        except CrashedError:
            self.plan = self._begin()
        except SinkError as error:
            name, start, end = str(error.table), self.offsets[self.done], self.offsets[-1]
            if name in left_out(end, self.requests.pending()):
                raise
            self.requests.add(name, "park", parked=parked_at(name, start, end, WHY))
            self.plan = self._begin()
        return True

    def _batch(self, chance: float) -> bool:
        start = self.offsets[self.done]
        if len(self.offsets) == self.done + 1:
            end = self.plan.latest(start, Limits())
            if end is start:
                return False
            self.maybe_crash(chance)
            self.offsets.append(StreamOffset.from_json(json.loads(json.dumps(end.to_json()))))
            if self.draw.random() < 0.7:
                self.plan.commit(start)
        end = self.offsets[-1]
        splits = self.plan.splits(start, end)
        self.maybe_crash(chance)
        out = left_out(end, self.requests.pending())
        seen = rereads(without_tables(end.to_json(), out))
        cells: dict[str, tuple[list[Any], dict[int, int]]] = {name: ([], {}) for name in NAMES}
        for split in splits:
            for name, (changes, rows, _) in self.database.read(split).items():
                cells[name][0].extend(changes)
                cells[name][1].update(rows)
        held = {name: dict(self.targets[name].rows) for name in out}
        for name in self.draw.sample(NAMES, 3):
            self.maybe_crash(chance)
            changes, rows = cells[name]
            if name in self.poisoned and (changes or rows):
                raise SinkError("refused", code="TR-7001", table=name)
            self.targets[name].write(self.done, changes, rows, seen.get(name))
        assert held == {name: self.targets[name].rows for name in out}, "a parked table's target was written"
        self.maybe_crash(chance)
        self.done += 1
        self.require_exact(end, out)
        return True

    def require_exact(self, end: StreamOffset, out: frozenset[str]) -> None:
        for name in end.done.keys() - end.again.keys() - out:
            assert end.log is not None
            assert self.targets[name].rows == self.database.at(end.log["pos"], name), name


@pytest.mark.parametrize("seed", range(200))
def test_targets_are_exact_whatever_is_parked_resumed_and_killed(seed: int) -> None:
    history = History(seed)
    for _ in range(60):
        act, name = history.draw.random(), history.draw.choice(NAMES)
        if act < 0.4:
            history.database.write(history.draw.randrange(6))
        elif act < 0.47:
            history.poisoned.add(name)
        elif act < 0.53:
            history.poisoned.clear()
        elif act < 0.57:
            history.requests.add(name, "park")
        elif act < 0.63:
            history.requests.add(name, "resume", replay=history.draw.random() < 0.5)
        elif act < 0.66:
            history.requests.add(name, "resync")
        history.step(0.1)
    history.poisoned.clear()
    for name in NAMES:
        history.requests.add(name, "resume")
    history.database.write(5)
    while history.step(0.0):
        pass
    end = history.offsets[-1]
    assert not end.parked
    assert end.done.keys() == set(NAMES)
    assert end.log == {"pos": len(history.database.log)}
    for name in NAMES:
        assert history.targets[name].rows == history.database.at(len(history.database.log), name)
