"""Random schema changes among random changes of rows: in the end a target equals its table.

They come while the table is snapshotted, followed and read again, between a batch's plan and its reading, and
while the stream is stopped. A batch may be read twice: the second reading counts, as after a crash. Both are
equal if no schema change came between them; rows read by SELECT only where the log has the rows before.

TAILRACE_SEED=1234 runs that seed alone.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tailrace.enumerator import captured_tables
from tests.support import postgres as postgres_support
from tests.support.ddl import MOST_ROWS, MySqlTable, PostgresTable, RandomTable
from tests.support.engine import Engine, multiset, options_for
from tests.support.rereading import Target, read

#: Seeds of each test run, and those of the slow one.
SEEDS, MORE_SEEDS = range(5), range(5, 110)
STEPS = 14


def seeds() -> list[Any]:
    """Parameters: the seeds."""
    given = os.environ.get("TAILRACE_SEED")
    if given is not None:
        return [int(given)]
    return [*SEEDS, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MORE_SEEDS)]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog is searched at every batch."""
    monkeypatch.setattr(captured_tables, "CATALOG_REFRESH_S", 0)


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("product", ["mysql", "mariadb"])
def test_target_equals_its_table_after_random_changes(
    request: pytest.FixtureRequest, product: str, seed: int
) -> None:
    server = request.getfixturevalue(product)
    database = request.getfixturevalue("database" if product == "mysql" else "mariadb_database")

    def execute(*statements: str) -> Any:
        return server.execute(f"USE `{database}`", *statements)

    options = options_for(server, rf"{database}\.t", snapshotChunkRows=7)
    table = MySqlTable(execute, seed)
    live(table, lambda: Engine(options), f"{database}.t", server)


@pytest.mark.parametrize("seed", seeds())
def test_target_equals_its_table_of_postgres(postgres: Any, postgres_database: str, seed: int) -> None:
    def execute(*statements: str) -> Any:
        return postgres.execute(*statements, database=postgres_database)

    options = postgres_support.options_for(
        postgres,
        postgres_database,
        r"public\.t",
        snapshotChunkRows=7,
        formerColumns=("reread", "follow")[seed % 2],
    )
    table = PostgresTable(execute, seed)
    live(table, lambda: Engine(options), "public.t", postgres, database=postgres_database)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_target_equals_its_table_beside_eight_writers(mysql: Any, database: str, seed: int) -> None:
    def execute(*statements: str) -> Any:
        return mysql.execute(f"USE `{database}`", *statements)

    table = MySqlTable(execute, seed)
    stop = threading.Event()

    def write(number: int) -> None:
        while not stop.is_set():
            with suppress(Exception):  # whatever the table looks like
                execute(
                    f"DELETE FROM t WHERE id % 8 = {number} LIMIT 1",
                    f"INSERT INTO t (id) VALUES ({(int(time.time() * 1000) * 8 + number) % (8 * MOST_ROWS)})",
                )

    options = options_for(mysql, rf"{database}\.t", snapshotChunkRows=7)
    writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]

    def begin() -> Engine:
        for writer in writers:
            if not writer.is_alive() and not stop.is_set():
                writer.start()
        return Engine(options)

    def end() -> None:
        stop.set()
        for writer in writers:
            writer.join()

    try:
        live(table, begin, f"{database}.t", mysql, before_the_end=end)
    finally:
        end()


def live(
    table: RandomTable,
    begin: Callable[[], Engine],
    name: str,
    server: Any,
    before_the_end: Callable[[], None] = lambda: None,
    **of: Any,
) -> None:
    """Change a table while a stream follows it, then compare."""
    table.create()
    with begin() as engine:
        target = Target(engine, name)
        try:
            for _ in range(STEPS):
                _step(table, target)
            before_the_end()
            for _ in range(2):  # what is found out by the first may have to be read again
                target.drain_all()
            target.equals(server, **of)
        except BaseException as error:
            error.add_note("\n".join(table.log))
            raise


def _step(table: RandomTable, target: Target) -> None:
    engine, choice = target.engine, table.random.choice
    match choice(["rows", "rows", "shape", "batch", "batch", "shape in batch", "twice", "replay", "restart"]):
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
            if table.logs_old_rows():
                assert multiset(second[0]) == multiset(first[0]), "a replay has other rows"
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
