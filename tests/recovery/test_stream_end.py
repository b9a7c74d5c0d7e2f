"""A stream that ends by `endingPosition`: what it holds then, whatever happens meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tailrace.config.options import SourceOptions
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import ConfigError, SchemaMismatchError, StateError
from tailrace.model.change import ChangeBatch
from tests.support import engine as mysql_engine
from tests.support import postgres as postgres_support
from tests.support.engine import Engine, State, apply, changes_of, rows_of
from tests.support.logged import end_of_log

ROWS = 40


@dataclass
class Table:
    """A table `t` of some database."""

    server: Any
    database: str
    is_postgres: bool

    @property
    def name(self) -> str:
        return "t" if self.is_postgres else f"{self.database}.t"

    def execute(self, *statements: str) -> list[Any]:
        texts = [statement.replace("{t}", self.name) for statement in statements]
        if self.is_postgres:
            return self.server.execute(*texts, database=self.database)
        return self.server.execute(*texts)

    def options(self, **given: Any) -> SourceOptions:
        given = {"snapshotChunkRows": 10, **given}
        if self.is_postgres:
            return postgres_support.options_for(self.server, self.database, "public[.]t2?", **given)
        return mysql_engine.options_for(self.server, f"{self.database}[.]t2?", **given)

    def rows(self) -> State:
        return {(k,): {"id": k, "v": v} for k, v in self.execute("SELECT id, v FROM {t}")}

    def position(self) -> str:
        """The log's end, as `endingPosition` names it."""
        if self.is_postgres:
            return f"lsn:{self.execute('SELECT pg_current_wal_insert_lsn()::text')[0][0]}"
        end = end_of_log(self.server)
        return f"file:{end.file}:{end.pos}"

    def now_us(self) -> int:
        if self.is_postgres:
            return int(self.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")[0][0])
        statement = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
        return int(self.execute(statement)[0][0])


@pytest.fixture(params=["mysql", "postgres", pytest.param("mariadb", marks=pytest.mark.slow)])
def table(request: pytest.FixtureRequest) -> Table:
    server = request.getfixturevalue(request.param)
    database = {"mysql": "database", "postgres": "postgres_database", "mariadb": "mariadb_database"}
    found = Table(server, request.getfixturevalue(database[request.param]), request.param == "postgres")
    values = ", ".join(f"({i}, {i})" for i in range(ROWS))
    found.execute("CREATE TABLE {t} (id int PRIMARY KEY, v int)", f"INSERT INTO {{t}} VALUES {values}")
    if found.is_postgres:
        found.execute("ALTER TABLE {t} REPLICA IDENTITY FULL")
    return found


def write(table: Table) -> None:
    """Changes of rows that are read and of rows that are not."""
    table.execute(
        "UPDATE {t} SET v = v + 1000 WHERE id IN (1, 35)",
        "DELETE FROM {t} WHERE id IN (2, 36)",
        "INSERT INTO {t} VALUES (-1, 7), (100, 7)",
    )


class Stream:
    """What a target holds, over restarts."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.offset = StreamOffset()
        self.state: State = {}
        self.times: list[int] = []
        self.reread: set[str] = set()

    def run(
        self,
        options: SourceOptions,
        *,
        batches: int | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """Read some batches, or all up to the end; `meanwhile` is called before each."""
        with Engine(options, parallelism=1) as engine:
            engine.offset = StreamOffset.from_json(json.loads(json.dumps(self.offset.to_json())))
            left, deadline = batches, time.monotonic() + 60
            while left is None or left:
                if meanwhile is not None:
                    meanwhile()
                found = engine.next()
                if found is None:
                    if self.offset.ending is not None and self.offset.ending.reached:
                        return
                    assert time.monotonic() < deadline, f"the end is not reached: {self.offset}"
                    time.sleep(0.05)
                    continue
                snapshot, log = engine.read(*found)
                self.reread |= {name for name, reread in engine.offset.again.items() if reread.done}
                self.take(log)
                self.add(snapshot)
                self.offset = engine.offset
                left = None if left is None else left - 1

    def go_on(self) -> None:
        """Read without an end until the state is that of the table."""
        with Engine(self.table.options(), parallelism=1) as engine:
            engine.offset, deadline = self.offset, time.monotonic() + 60
            while self.state != self.table.rows():
                assert time.monotonic() < deadline
                if (found := engine.next()) is not None:
                    snapshot, log = engine.read(*found)
                    self.take(log)
                    self.add(snapshot)
            self.offset = engine.offset

    def add(self, snapshot: list[ChangeBatch]) -> None:
        for row in rows_of(snapshot):
            assert self.reread or (row["id"],) not in self.state
            self.state[row["id"],] = row

    def take(self, log: list[ChangeBatch]) -> None:
        self.times += [t for b in log for t in b.origin.column("ts_us").to_pylist()]
        apply(self.state, changes_of(log), ("id",))


@pytest.mark.parametrize("restarts", [False, True])
def test_stream_up_to_latest_holds_the_tables_as_they_were_when_it_started(
    table: Table, restarts: bool
) -> None:
    options, stream = table.options(endingPosition="latest"), Stream(table)
    expected = table.rows()
    stream.run(options, batches=2)
    write(table)
    if restarts:
        stream.run(options, batches=1)
        write_more(table)
    stream.run(options, meanwhile=lambda: table.execute("UPDATE {t} SET v = v + 1 WHERE id = 39"))
    assert stream.state == expected
    assert not stream.times
    ended = stream.offset
    write_more(table)
    stream.run(options)
    assert stream.offset == ended
    assert stream.state == expected


def write_more(table: Table) -> None:
    table.execute("UPDATE {t} SET v = -5 WHERE id > 30", "DELETE FROM {t} WHERE id = 38")


def test_stream_goes_on_from_its_end_once_the_option_is_gone(table: Table) -> None:
    stream = Stream(table)
    stream.run(table.options(endingPosition="latest"))
    write(table)
    stream.go_on()
    assert stream.offset.ending is None


def test_stream_ends_before_the_transaction_in_which_its_position_lies(table: Table) -> None:
    stream = Stream(table)
    stream.run(table.options(), batches=1)
    write(table)
    at, expected = table.position(), table.rows()
    table.execute("BEGIN", "UPDATE {t} SET v = 1 WHERE id = 3", "UPDATE {t} SET v = 2 WHERE id = 4", "COMMIT")
    if not table.is_postgres:  # every LSN lies between two transactions
        kind, file, pos = at.split(":")
        at = f"{kind}:{file}:{int(pos) + 100}"
    table.execute("DELETE FROM {t} WHERE id < 10")
    stream.run(table.options(endingPosition=at))
    assert stream.state == expected


def test_stream_ends_with_the_last_transaction_before_a_time(table: Table) -> None:
    """And goes on behind it: nothing is lost or comes twice."""
    at_us = table.now_us() + 2_500_000
    numbers = iter(range(1000, 100_000))

    def write_two() -> None:
        a, b = next(numbers), next(numbers)
        table.execute(
            "BEGIN", f"INSERT INTO {{t}} VALUES ({a}, 0)", f"INSERT INTO {{t}} VALUES ({b}, 0)", "COMMIT"
        )

    stream = Stream(table)
    stream.run(table.options(endingPosition=f"timestamp:{at_us // 1000}"), meanwhile=write_two)
    before = stream.times
    assert before
    assert max(before) // 1000 <= at_us // 1000
    assert len(before) % 2 == 0
    stream.times = []
    stream.go_on()
    assert stream.times
    assert min(stream.times) // 1000 > at_us // 1000


def test_stream_ends_at_a_time_after_which_nothing_is_written(table: Table) -> None:
    at_us = table.now_us() + 1_000_000
    stream = Stream(table)
    stream.run(table.options(endingPosition=f"timestamp:{at_us // 1000}"))
    assert stream.state == table.rows()


def test_end_before_the_start_or_ahead_of_the_log_is_refused(table: Table) -> None:
    early, past = table.position(), table.now_us() // 1000 - 60_000
    write(table)
    ahead = "lsn:FFFF/0" if table.is_postgres else "file:binlog.999999:4"
    for text in (early, f"timestamp:{past}", ahead):
        with pytest.raises(ConfigError) as error:
            Stream(table).run(table.options(endingPosition=text), batches=1)
        assert error.value.code == "TR-4007"


def test_table_that_is_altered_behind_the_end_before_it_is_read_is_an_error(table: Table) -> None:
    options, stream = table.options(endingPosition="latest"), Stream(table)
    stream.run(options, batches=2)
    table.execute("ALTER TABLE {t} DROP COLUMN v", "ALTER TABLE {t} ADD COLUMN v int DEFAULT 3")
    with pytest.raises((SchemaMismatchError, StateError)) as error:
        stream.run(options)
    assert error.value.code in ("TR-4410", "TR-4008")


def test_table_that_is_dropped_behind_the_end_before_it_is_read_is_an_error(table: Table) -> None:
    table.execute("CREATE TABLE {t}2 (id int PRIMARY KEY)")
    options, stream = table.options(endingPosition="latest"), Stream(table)
    stream.run(options, batches=2)
    table.execute("DROP TABLE {t}")
    with pytest.raises((SchemaMismatchError, StateError)) as error:
        stream.run(options)
    assert error.value.code in ("TR-4410", "TR-4008")


def test_table_that_is_truncated_before_the_end_is_read_again_before_it_or_is_an_error(table: Table) -> None:
    """In PostgreSQL the reading could only begin behind it."""
    stream = Stream(table)
    stream.go_on()
    table.execute("TRUNCATE TABLE {t}", "INSERT INTO {t} VALUES (3, 3)")
    options = table.options(endingPosition=table.position())
    table.execute("INSERT INTO {t} VALUES (4, 4)")
    stream.state.clear()  # as targets do at the end of the reading
    if table.is_postgres:
        with pytest.raises(StateError, match="cannot end") as error:
            stream.run(options)
        assert error.value.code == "TR-4008"
    else:
        stream.run(options)
        assert stream.reread == {table.name}
        assert stream.state == {(3,): {"id": 3, "v": 3}}


def test_row_that_the_log_does_not_tell_behind_the_end_is_an_error(
    postgres: Any, postgres_database: str
) -> None:
    """Without whole rows in the log, a restart loses the rows that were changed since."""
    table = Table(postgres, postgres_database, True)
    values = ", ".join(f"({i}, {i})" for i in range(ROWS))
    table.execute("CREATE TABLE {t} (id int PRIMARY KEY, v int)", f"INSERT INTO {{t}} VALUES {values}")
    options, stream = table.options(endingPosition="latest"), Stream(table)
    expected = table.rows()
    stream.run(options, batches=2)
    table.execute("INSERT INTO {t} VALUES (200, 1)")
    stream.run(options, batches=1)  # an insert is known
    table.execute("UPDATE {t} SET v = 0 WHERE id = 39")
    with pytest.raises(SchemaMismatchError) as error:
        stream.run(options)
    assert error.value.code == "TR-4410"
    assert stream.state.items() <= expected.items()
