"""Random schema changes among random changes of rows: in the end targets equal their tables.

They come while a table is snapshotted, followed and read again, between a batch's plan and its reading, while
the table is parked, and while the stream is stopped; it may be swapped with another captured one. A batch may
be read twice: the second reading counts, as after a crash. Both are equal if no schema change came between
them; rows read by SELECT only where the log has the rows before.

TAILRACE_SEED=1234 runs that seed alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest

from tailrace.enumerator import captured_tables
from tailrace.enumerator.request import Request
from tests.support import postgres as postgres_support
from tests.support.ddl import WRITERS, MySqlTable, PostgresTable, RandomTable
from tests.support.engine import Engine, multiset, options_for
from tests.support.rereading import Requests, Target, read

#: Seeds of each test run, those of one with writers, and those of the slow tests.
SEEDS, WRITTEN_SEEDS, MORE_SEEDS = range(3), range(1), range(110)
STEPS = 14


def seeds(of_each_run: range) -> list[Any]:
    """Parameters: the seeds."""
    given = os.environ.get("TAILRACE_SEED")
    if given is not None:
        return [int(given)]
    slow = (pytest.param(seed, marks=pytest.mark.slow) for seed in MORE_SEEDS if seed not in of_each_run)
    return [*of_each_run, *slow]


#: Those that ask the stream for something, and others.
_REQUESTS = ("resync", "park", "resume", "resume")
_OTHERS = ("rows", "rows", "shape", "shape", "batch", "batch", "shape in batch", "twice", "replay", "restart")
STEP_KINDS = (*_REQUESTS, *_OTHERS, *_OTHERS)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog is searched at every batch."""
    monkeypatch.setattr(captured_tables, "CATALOG_REFRESH_S", 0)


class Place:
    """A database with the random tables `t` and `u`, both captured."""

    def __init__(self, request: pytest.FixtureRequest, product: str, seed: int) -> None:
        names = {"mysql": "database", "mariadb": "mariadb_database", "postgres": "postgres_database"}
        self.server: Any = request.getfixturevalue(product)
        self.database = request.getfixturevalue(names[product])
        self.of = {"database": self.database} if product == "postgres" else {}
        given = {"snapshotChunkRows": 7, "formerColumns": ("reread", "follow")[seed % 2]}
        if product == "postgres":
            self.schema = "public"
            self.options = postgres_support.options_for(self.server, self.database, r"public\.(t|u)", **given)
        else:
            self.schema = self.database
            self.options = options_for(self.server, rf"{self.database}\.(t|u)", **given)
        self.table: RandomTable = (PostgresTable if self.of else MySqlTable)(self.execute, seed)

    def execute(self, *statements: str) -> Any:
        """Run statements."""
        first = () if self.of else (f"USE `{self.database}`",)
        return self.server.execute(*first, *statements, **self.of)

    @contextmanager
    def writers(self, pause_s: float = 0.005) -> Iterator[None]:
        """Eight writers, until the block ends."""
        stop = threading.Event()
        threads = [threading.Thread(target=self._write, args=(n, stop, pause_s)) for n in range(WRITERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _write(self, number: int, stop: threading.Event, pause_s: float) -> None:
        of = {"database": self.database}
        with closing(self.server.connect(**of)) as connection, closing(connection.cursor()) as cursor:
            turn = 0
            while not stop.wait(pause_s):
                turn += 1
                for statement in self.table.writes(number, turn):
                    with suppress(Exception):  # whatever the table looks like
                        cursor.execute(statement)


class Targets:
    """What a sink holds of both tables.

    Args:
        engine: the stream.
        place: its tables.
    """

    def __init__(self, engine: Engine, place: Place) -> None:
        self.engine = engine
        self.place = place
        self.requests = Requests()
        engine.plan._requests._requests = self.requests
        self.name = f"{place.schema}.t"
        self.of_tables = [Target(engine, f"{place.schema}.{name}") for name in "tu"]

    def step(self) -> bool:
        """Apply the next batch; whether there was one."""
        batch = self.engine.next()
        if batch is not None:
            self.apply(*read(self.engine, batch), end=batch[1].to_json())
        return batch is not None

    def apply(self, snapshot: Any, log: Any, *, end: Any) -> None:
        """Apply a batch."""
        for target in self.of_tables:
            target.apply(snapshot, log, end=end)

    def request(self, kind: Any) -> None:
        """Ask the stream for something about `t`."""
        replay = kind == "resume" and not self.place.of and self.place.table.random.random() < 0.5
        number = self.place.table.new_name()
        self.requests.waiting.append(Request(number, (self.name,), kind, replay=replay))

    def end(self) -> None:
        """Apply all that a stream with the trigger AvailableNow reads, and assert that all rows are there."""
        if self.name in self.engine.offset.parked or self.requests.waiting:
            self.request("resume")
        for _ in range(3):  # what is found out by one may have to be read again
            self.engine.plan.hold()
            while self.step():
                pass
            self.engine.read_beyond()
        assert not self.engine.offset.parked
        for target in self.of_tables:
            target.equals(self.place.server, **self.place.of)


@pytest.mark.parametrize("seed", seeds(SEEDS))
@pytest.mark.parametrize("product", ["mysql", "mariadb", "postgres"])
def test_target_equals_its_table_after_random_changes(
    request: pytest.FixtureRequest, product: str, seed: int
) -> None:
    place = Place(request, product, seed)
    place.table.create()
    with Engine(place.options) as engine, noted(place.table):
        targets = Targets(engine, place)
        for _ in range(STEPS):
            _step(place.table, targets)
        targets.end()


@pytest.mark.parametrize("seed", seeds(WRITTEN_SEEDS))
@pytest.mark.parametrize("product", ["mysql", "mariadb", "postgres"])
def test_target_equals_its_table_beside_eight_writers(
    request: pytest.FixtureRequest, product: str, seed: int
) -> None:
    place = Place(request, product, seed)
    place.table.create()
    with Engine(place.options) as engine, noted(place.table):
        with place.writers():
            targets = Targets(engine, place)
            for _ in range(STEPS):
                _step(place.table, targets)
        targets.end()


@contextmanager
def noted(table: RandomTable) -> Iterator[None]:
    """Errors have the statements that were executed."""
    try:
        yield
    except BaseException as error:
        error.add_note("\n".join(table.log))
        raise


def _step(table: RandomTable, target: Targets) -> None:
    engine, choice = target.engine, table.random.choice
    match choice(STEP_KINDS):
        case "rows":
            table.change_rows(6)
        case "shape":
            table.change_shape()
        case "batch":
            table.log.append("-- batch")
            target.step()
        case "restart":
            table.log.append("-- restart")
            engine.plan.close()
        case "resync" | "park" | "resume" as kind:
            table.log.append(f"-- request: {kind}")
            target.request(kind)
        case "replay":
            batch = engine.next()
            if batch is None:
                return
            table.log.append("-- batch read, then replayed")
            first = read(engine, batch)
            table.change_rows(3)
            engine.plan.close()
            second = read(engine, batch)
            assert multiset(second[1]) == multiset(first[1]), "a replay has another log"
            for name in filter(table.logs_old_rows, "tu"):
                rows = [[b for b in part if b.table.id.table == name] for part in (first[0], second[0])]
                assert multiset(rows[1]) == multiset(rows[0]), f"a replay has other rows of {name}"
            target.apply(*second, end=batch[1].to_json())
        case "shape in batch" | "twice" as kind:
            batch = engine.next()
            if batch is None:
                return
            table.log.append(f"-- batch planned, {kind}")
            if kind == "twice":
                read(engine, batch)
            table.change_shape()
            table.change_rows(2)
            table.log.append("-- batch read")
            target.apply(*read(engine, batch), end=batch[1].to_json())
