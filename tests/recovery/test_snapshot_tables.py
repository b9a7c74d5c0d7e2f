"""Tables that are followed without their earlier rows, by `snapshot.include.collection.list`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tailrace.config.options import SourceOptions
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import ConfigError, TableGapError
from tests.support import engine as mysql_engine
from tests.support import postgres as postgres_support
from tests.support.databases import fresh_database
from tests.support.engine import Engine
from tests.support.rereading import Target, read

pytestmark = pytest.mark.usefixtures("_soon")


class Database:
    """Tables `a`, whose rows are read, and `b`, whose are not."""

    def __init__(self, server: Any, database: str, *, is_postgres: bool) -> None:
        self.server, self.database, self.is_postgres = server, database, is_postgres
        self.schema = "public" if is_postgres else database
        for table in "ab":
            self.execute(
                f"CREATE TABLE {self.name(table)} (id int PRIMARY KEY, v int)",
                f"INSERT INTO {self.name(table)} VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)",
            )
            if is_postgres:
                self.execute(f"ALTER TABLE {self.name(table)} REPLICA IDENTITY FULL")

    def name(self, table: str) -> str:
        return f"{self.schema}.{table}"

    def execute(self, *statements: str) -> list[Any]:
        if self.is_postgres:
            return self.server.execute(*statements, database=self.database)
        return self.server.execute(*statements)

    def options(self, listed: str, **given: Any) -> SourceOptions:
        given = {"snapshot.include.collection.list": self.name(listed), "snapshotChunkRows": 2, **given}
        tables = rf"{self.schema}[.].*"
        if self.is_postgres:
            return postgres_support.options_for(self.server, self.database, tables, **given)
        return mysql_engine.options_for(self.server, tables, **given)

    def rows(self, table: str) -> list[tuple[int, int]]:
        return sorted((i, v) for i, v in self.execute(f"SELECT id, v FROM {self.name(table)}"))


class Stream:
    """A stream with a target of each table, over restarts."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.offset = StreamOffset()
        self.targets: dict[str, Target] = {}

    def run(self, options: SourceOptions, until: Callable[[], bool]) -> None:
        with Engine(options, parallelism=1) as engine:
            engine.offset = StreamOffset.from_json(json.loads(json.dumps(self.offset.to_json())))
            for table in "abcd":
                self.targets.setdefault(table, Target(engine, self.database.name(table))).engine = engine
            deadline = time.monotonic() + 60
            while not until():
                assert time.monotonic() < deadline, self.offset
                batch = engine.next()
                if batch is not None:
                    parts = read(engine, batch)
                    for target in self.targets.values():
                        target.apply(*parts, end=batch[1].to_json())
                    self.offset = engine.offset

    def rows(self, table: str) -> list[tuple[int, int]]:
        return sorted((row["id"], row["v"]) for row in self.targets[table].rows)

    def has_read(self) -> bool:
        """Whether no table is being read."""
        return not self.offset.tables and all(reread.done for reread in self.offset.again.values())

    def is_equal(self, table: str) -> bool:
        return self.rows(table) == self.database.rows(table) and not self.offset.tables


@pytest.fixture
def fresh(mysql: Any) -> Iterator[str]:
    """A fresh database of MySQL."""
    with fresh_database(mysql) as name:
        yield name


@pytest.fixture(params=["mysql", "postgres", pytest.param("mariadb", marks=pytest.mark.slow)])
def database(request: pytest.FixtureRequest) -> Database:
    names = {"mysql": "fresh", "postgres": "postgres_database", "mariadb": "mariadb_database"}
    server = request.getfixturevalue(request.param)
    name = request.getfixturevalue(names[request.param])
    return Database(server, name, is_postgres=request.param == "postgres")


def test_table_is_followed_without_its_rows_and_read_once_it_is_listed(database: Database) -> None:
    stream, only_a = Stream(database), database.options("A")  # in any case, as Debezium's lists
    stream.run(only_a, lambda: stream.is_equal("a"))
    database.execute(
        f"UPDATE {database.name('b')} SET v = 30 WHERE id = 3",
        f"INSERT INTO {database.name('b')} VALUES (6, 6)",
        f"DELETE FROM {database.name('b')} WHERE id = 1",
    )
    stream.run(only_a, lambda: stream.rows("b") == [(3, 30), (6, 6)])
    assert stream.offset.partial == (database.name("b"),)
    database.execute(f"UPDATE {database.name('b')} SET v = 60 WHERE id = 6")
    stream.run(database.options("."), lambda: stream.is_equal("b") and not stream.offset.partial)
    assert stream.targets["b"].readings == 1
    assert stream.targets["a"].readings == 0
    assert stream.is_equal("a")


def test_table_that_is_found_later_is_read_if_it_is_listed(database: Database) -> None:
    stream, listed = Stream(database), database.options("[ac]")
    stream.run(listed, lambda: stream.is_equal("a"))
    for table in "cd":  # what exists when the stream finds it
        database.execute(f"CREATE TABLE {database.name(table)} (id int PRIMARY KEY, v int)")
        database.execute(f"INSERT INTO {database.name(table)} VALUES (1, 1)")
    stream.run(listed, lambda: stream.is_equal("c"))
    assert database.name("d") in stream.offset.partial
    if not database.is_postgres:  # its CREATE is in the log, behind the stream's position
        stream.run(listed, lambda: stream.is_equal("d"))


def test_schema_change_does_not_read_it_and_truncate_does(database: Database) -> None:
    stream, only_a, b = Stream(database), database.options("a"), database.name("b")
    stream.run(only_a, lambda: stream.is_equal("a"))
    database.execute(
        f"ALTER TABLE {b} ADD COLUMN w int NOT NULL DEFAULT 7",
        f"ALTER TABLE {database.name('a')} ADD COLUMN w int NOT NULL DEFAULT 7",
        f"UPDATE {b} SET v = 30 WHERE id = 3",
    )
    stream.run(only_a, lambda: stream.rows("b") == [(3, 30)] and stream.targets["a"].readings > 0)
    stream.run(only_a, stream.has_read)
    assert stream.targets["b"].readings == 0
    database.execute(f"TRUNCATE TABLE {b}", f"INSERT INTO {b} VALUES (9, 9, 9)")
    stream.run(only_a, lambda: stream.rows("b") == [(9, 9)] and stream.has_read())
    assert stream.targets["b"].readings == 1
    assert not stream.offset.partial  # all of it is known


def test_gap_in_its_log_is_an_error_until_it_is_listed(postgres: Any, postgres_database: str) -> None:
    database = Database(postgres, postgres_database, is_postgres=True)
    stream = Stream(database)
    stream.run(database.options("a"), lambda: stream.is_equal("a"))
    database.execute(
        "ALTER PUBLICATION tailrace DROP TABLE b",
        "INSERT INTO b VALUES (7, 7)",
        "ALTER PUBLICATION tailrace ADD TABLE b",
    )
    with pytest.raises(TableGapError, match="missing from the log") as error:
        stream.run(database.options("a"), lambda: False)
    assert "snapshot.include.collection.list" in str(error.value)
    stream.run(database.options("[ab]"), lambda: stream.is_equal("b") and not stream.offset.partial)


def test_rows_of_a_condition_are_read_first_and_others_come_as_they_change(database: Database) -> None:
    name = database.name("b")
    statement = f"SELECT * FROM {name} WHERE v > 2 AND id <> 4"
    overrides = "snapshot.select.statement.overrides"
    options = database.options(".*", **{overrides: name, f"{overrides}.{name}": statement})
    stream = Stream(database)
    stream.run(options, lambda: stream.is_equal("a") and stream.has_read())
    assert stream.rows("b") == [(3, 3), (5, 5)]
    assert stream.offset.partial == (name,)
    database.execute(
        f"UPDATE {name} SET v = 20 WHERE id = 2",
        f"UPDATE {name} SET v = 1 WHERE id = 3",
        f"DELETE FROM {name} WHERE id = 5",
        f"INSERT INTO {name} VALUES (6, 0)",
    )
    stream.run(options, lambda: (6, 0) in stream.rows("b"))
    assert stream.rows("b") == [(2, 20), (3, 1), (6, 0)]
    # nothing is read again, neither after a restart nor with the option
    stream.run(options, stream.has_read)
    assert stream.rows("b") == [(2, 20), (3, 1), (6, 0)]


@pytest.mark.parametrize(
    "condition", ["1 = 1; DROP TABLE x", "id IN (SELECT 1)", "nothing = 1", "id + 1 = 2"]
)
def test_condition_that_cannot_be_used_is_refused(mysql: Any, fresh: str, condition: str) -> None:
    database = Database(mysql, fresh, is_postgres=False)
    name, overrides = database.name("b"), "snapshot.select.statement.overrides"
    given = {overrides: name, f"{overrides}.{name}": f"SELECT * FROM {name} WHERE {condition}"}
    engine = Engine(database.options(".*", **given), parallelism=1)
    with engine, pytest.raises(ConfigError) as refused:
        _first_batch(engine)
    assert refused.value.code == "TR-1018"


def _first_batch(engine: Engine) -> None:
    while engine.next() is None:
        pass
