"""Time limits of statements and locks on real servers: each is kept, and named with its remedy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tailrace.config.options import SourceOptions
from tailrace.errors import TableLockedError, TransientSourceError
from tailrace.model.split import SnapshotSplit
from tailrace.sources import registry
from tailrace.sources.mysql.connection import connect, waiting_briefly
from tailrace.sources.postgres import connection as postgres_connection
from tests.support import postgres as postgres_support
from tests.support.engine import Engine, options_for, rows_of
from tests.support.switch import Switch

ROWS = 40
#: The square root of the rows of a table that takes a server some time to read.
SIDE = 200


@dataclass
class Shop:
    """A table `t` with ROWS rows, and the means to lock it.

    Args:
        schema: the table's database or schema.
        execute: runs statements there.
        options: makes the options of a stream.
        connect: an open connection of the server's driver, in that database.
        lock: locks `t` against readers.
        unlock: unlocks it.
    """

    schema: str
    execute: Callable[..., Any]
    options: Callable[..., SourceOptions]
    connect: Callable[[], Any]
    lock: str
    unlock: str

    @contextmanager
    def locked(self) -> Iterator[Callable[[], None]]:
        """`t` is locked until the end, or until what is given is called."""
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(self.lock)
            yield lambda: cursor.execute(self.unlock)
            cursor.execute(self.unlock)

    def rows(self, options: SourceOptions, page_rows: int = 1000) -> int:
        """Read all rows of `t`, in pages; their number."""
        with closing(registry.source(options)) as source:
            (table,) = [found.schema for found in source.tables() if found.schema.id.table == "t"]
            if options.dialect == "postgresql":
                pages = lambda: sum(len(page.rows) for page in source.read_table(table, page_rows))  # noqa: E731
                return postgres_connection.retrying(options, pages, "reading t")
        split = SnapshotSplit(table, None, None, {}, page_rows)
        with closing(registry.session(options)) as session:
            return sum(len(page.rows) for page in session.pages(split))


def mysql_shop(server: Any, name: str) -> Shop:
    return Shop(
        name,
        lambda *statements: server.execute(f"USE {name}", *statements),
        lambda **given: options_for(server, rf"{name}\..*", **given),
        lambda: server.connect(database=name),
        f"LOCK TABLES {name}.t WRITE",
        "UNLOCK TABLES",
    )


@pytest.fixture(params=["mysql", "mariadb", "postgres"])
def shop(request: pytest.FixtureRequest) -> Shop:
    server = request.getfixturevalue(request.param)
    if request.param == "postgres":
        name = request.getfixturevalue("postgres_database")
        made = Shop(
            "public",
            lambda *statements: server.execute(*statements, database=name),
            lambda **given: postgres_support.options_for(server, name, r"public\..*", **given),
            lambda: server.connect(database=name, autocommit=False),
            "LOCK TABLE t IN ACCESS EXCLUSIVE MODE",
            "COMMIT",
        )
    else:
        name = request.getfixturevalue("database" if request.param == "mysql" else "mariadb_database")
        made = mysql_shop(server, name)
    made.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    made.execute("INSERT INTO t VALUES " + ", ".join(f"({i})" for i in range(ROWS)))
    return made


@pytest.fixture(params=["mysql", "mariadb"])
def large_shop(request: pytest.FixtureRequest) -> Shop:
    name = request.getfixturevalue("database" if request.param == "mysql" else "mariadb_database")
    made = mysql_shop(request.getfixturevalue(request.param), name)
    made.execute("CREATE TABLE n (id INT PRIMARY KEY)", "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(500))")
    made.execute("INSERT INTO n VALUES " + ", ".join(f"({i})" for i in range(SIDE)))
    made.execute(f"INSERT INTO t SELECT a.id * {SIDE} + b.id, REPEAT('x', 500) FROM n a, n b")
    return made


def limits_of(options: SourceOptions) -> dict[str, Any]:
    """The limits of sessions, in milliseconds."""
    if options.dialect == "postgresql":
        found = {}
        for kind in ("rows", "writes", "replication", "other"):
            given = {} if kind == "other" else {kind: True}
            with postgres_connection.connect(options, purpose="a test", **given) as connection:
                names = ("statement_timeout", "lock_timeout")
                query = "SELECT setting::int8 FROM pg_settings WHERE name = '{}'"
                found[kind] = [int(connection.value(query.format(name))) for name in names]
        return found
    limit, unit = ("max_execution_time", 1) if options.dialect == "mysql" else ("max_statement_time", 1000)
    with closing(connect(options, purpose="a test")) as connection, connection.cursor() as cursor:

        def asked() -> list[int]:
            cursor.execute(f"SELECT @@{limit}, @@lock_wait_timeout")
            statement, lock = cursor.fetchone()
            return [int(float(statement) * unit), int(lock) * 1000]

        before = asked()
        with waiting_briefly(connection, rows=True):
            rows = asked()
        with waiting_briefly(connection, 1.0):
            planning = asked()
        assert asked() == before
        return {"other": before, "rows": rows, "planning": planning}


def test_sessions_have_the_limits_of_the_options(shop: Shop) -> None:
    given = {"queryTimeoutMs": 70_000, "lockTimeoutMs": 4500}
    for rows_ms in (0, 8000):
        options = shop.options(**given, **({"snapshotQueryTimeoutMs": rows_ms} if rows_ms else {}))
        if options.dialect == "postgresql":
            expected = {
                "rows": [rows_ms, 4500],
                "other": [70_000, 4500],
                "writes": [0, 0],
                "replication": [0, 0],
            }
        else:
            day_ms = 86_400_000  # not less: MariaDB's catalog leaves out tables that it cannot lock in time
            expected = {"rows": [rows_ms, 5000], "other": [70_000, day_ms], "planning": [70_000, 1000]}
        assert limits_of(replace(options, dialect=_dialect(shop, options))) == expected


def _dialect(shop: Shop, options: SourceOptions) -> str:
    """Of the server, as `mysql://` names both."""
    if options.dialect == "postgresql":
        return options.dialect
    return "mariadb" if "mariadb" in shop.execute("SELECT VERSION()")[0][0].lower() else "mysql"


def test_reading_a_locked_table_ends_in_time_and_says_what_to_do(shop: Shop) -> None:
    options = shop.options(lockTimeoutMs=1000, retryTimeoutMs=500)
    with shop.locked():
        begun = time.monotonic()
        with pytest.raises(TableLockedError) as raised:
            shop.rows(options)
        assert 0.9 < time.monotonic() - begun < 30
    assert raised.value.code == "TR-4304"
    assert "KILL" in raised.value.hint or "pg_blocking_pids" in raised.value.hint
    assert "lockTimeoutMs" in raised.value.hint
    assert shop.rows(options) == ROWS


def test_planning_gives_a_locked_table_up_after_a_second(large_shop: Shop) -> None:
    options = large_shop.options(lockTimeoutMs=60_000)
    with closing(registry.source(options)) as source:
        tables = {found.schema.id.table: found.schema for found in source.tables()}
        with large_shop.locked():
            begun = time.monotonic()
            with pytest.raises(TableLockedError):
                source.boundary(tables["t"], None, 10)
            assert time.monotonic() - begun < 20
            assert source.boundary(tables["n"], None, 10) == (9,)  # over the same connection
        assert source.boundary(tables["t"], None, 10) == (9,)


def test_statement_that_takes_too_long_is_named_with_its_options(large_shop: Shop) -> None:
    """No row alone is in time, so no smaller page is."""
    large_shop.execute("DELETE FROM t WHERE id > 3", "ALTER TABLE t MODIFY v LONGTEXT")
    large_shop.execute("UPDATE t SET v = REPEAT(v, 16000)")
    options = large_shop.options(snapshotQueryTimeoutMs=1, retryTimeoutMs=300)
    with pytest.raises(TransientSourceError) as raised:
        large_shop.rows(options, SIDE * SIDE)
    assert raised.value.code == "TR-3018"
    assert "snapshotQueryTimeoutMs" in raised.value.hint


def test_chunk_that_takes_too_long_is_named_with_its_options(postgres: Any, postgres_database: str) -> None:
    def execute(*statements: str) -> Any:
        return postgres.execute(*statements, database=postgres_database)

    execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    execute("INSERT INTO t SELECT i, repeat(md5(i::text), 30) FROM generate_series(1, 40000) i")
    given = postgres_support.options_for(postgres, postgres_database, r"public\.t", snapshotQueryTimeoutMs=5)
    with Engine(given) as engine:
        batch = engine.next()
        with pytest.raises(TransientSourceError) as raised:
            engine.read(*batch)
        assert raised.value.code == "TR-3018"
        assert "public.t" in raised.value.message
        engine.options = replace(given, snapshot_query_timeout_ms=None)
        assert len(rows_of(engine.read(*batch)[0])) == 40_000


def test_pages_become_smaller_until_the_server_is_in_time(large_shop: Shop) -> None:
    all_rows = SIDE * SIDE
    begun = time.monotonic()
    assert large_shop.rows(large_shop.options(), all_rows) == all_rows
    # a limit that some rows need, and not all
    limit_ms = max(5, int((time.monotonic() - begun) * 1000 / 20))
    with closing(registry.source(large_shop.options())) as source:
        (table,) = [found.schema for found in source.tables() if found.schema.id.table == "t"]
    options = large_shop.options(snapshotQueryTimeoutMs=limit_ms, retryTimeoutMs=20_000)
    with closing(registry.session(options)) as session:
        pages = list(session.pages(SnapshotSplit(table, None, None, {}, all_rows)))
    assert [row["id"] for page in pages for row in page.rows.to_pylist()] == list(range(all_rows))
    assert len(pages) > 1


def test_rows_that_stop_coming_end_in_time(postgres: Any, postgres_database: str) -> None:
    def execute(*statements: str) -> Any:
        return postgres.execute(*statements, database=postgres_database)

    execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    execute("INSERT INTO t SELECT i, repeat(md5(i::text), 60) FROM generate_series(1, 20000) i")
    with Switch(postgres) as switch:
        options = postgres_support.options_for(switch, postgres_database, r"public\.t", queryTimeoutMs=1500)
        with closing(registry.source(options)) as source:
            pages = source.read_table(source.tables()[0].schema, 100)
            assert len(next(pages).rows)
            switch.stall()
            wake = threading.Timer(30, switch.resume)
            wake.start()
            begun = time.monotonic()
            with pytest.raises(TimeoutError):
                for _ in pages:
                    pass
            assert time.monotonic() - begun < 20
            wake.cancel()
            switch.resume()


@pytest.mark.parametrize("product", ["mysql", "mariadb"])
def test_server_that_is_silent_for_too_long_is_left(product: str, request: pytest.FixtureRequest) -> None:
    name = request.getfixturevalue("database" if product == "mysql" else "mariadb_database")
    shop = mysql_shop(request.getfixturevalue(product), name)
    shop.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    options = shop.options(lockTimeoutMs=60_000, queryTimeoutMs=1500, retryTimeoutMs=300)
    with closing(registry.source(options)) as source:
        table = source.tables()[0].schema
    with (
        shop.locked(),
        closing(registry.session(options)) as session,
        pytest.raises(TransientSourceError) as raised,
    ):
        list(session.pages(SnapshotSplit(table, None, None, {}, 1000)))
    assert raised.value.code in ("TR-3002", "TR-3018")  # whoever is first
    assert "queryTimeoutMs" in raised.value.hint
