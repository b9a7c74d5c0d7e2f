"""Limits of reading tables, on real servers: the stream sees how busy they are, and keeps to its rates."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tailrace.config.options import SourceOptions
from tailrace.errors import SourceError
from tailrace.model.split import SnapshotSplit
from tailrace.model.table import TableId
from tailrace.sources import registry
from tests.support import postgres as postgres_support
from tests.support.engine import Engine, changes_of, options_for, rows_of
from tests.support.wait import wait_until

ROWS = 3000
PRODUCTS, OTHERS, SLOW = ("mysql", "mariadb", "postgres"), ("mariadb", "postgres"), pytest.mark.slow


@dataclass
class Shop:
    """A table `t` with rows of a hundred and some bytes.

    Args:
        product: of the server.
        schema: the table's database or schema.
        execute: runs statements there.
        options: makes the options of a stream.
        sleep: a statement that takes some seconds.
        work: a statement that keeps the server busy for some tenths of a second.
        user: makes a user with the privileges of a stream, and drops it.
    """

    product: str
    schema: str
    execute: Callable[..., Any]
    options: Callable[..., SourceOptions]
    sleep: str
    work: str
    user: Callable[[], Any]


# MariaDB differs in privileges only; in the rest it is read by MySQL's code
@pytest.fixture(params=["mysql", pytest.param("mariadb", marks=SLOW), "postgres"])
def shop(request: pytest.FixtureRequest) -> Shop:
    server = request.getfixturevalue(request.param)
    if request.param == "postgres":
        name = request.getfixturevalue("postgres_database")

        def execute(*statements: str) -> Any:
            return server.execute(*statements, database=name)

        @contextmanager
        def user() -> Iterator[dict[str, str]]:
            execute(f"CREATE ROLE u_{name} LOGIN REPLICATION PASSWORD 'secret'")
            yield {"user": f"u_{name}", "password": "secret"}
            execute(f"DROP ROLE u_{name}")

        def options(**given: Any) -> SourceOptions:
            return postgres_support.options_for(server, name, r"public\.t", **given)

        schema, sleep = "public", "SELECT pg_sleep(4)::text"
        work = "SELECT count(*)::int4 FROM generate_series(1, 1000000)"
    else:
        name = request.getfixturevalue("database" if request.param == "mysql" else "mariadb_database")

        def execute(*statements: str) -> Any:
            return server.execute(f"USE {name}", *statements)

        @contextmanager
        def user() -> Iterator[dict[str, str]]:
            execute(f"CREATE USER 'u_{name}'@'%' IDENTIFIED BY 'secret'")
            yield {"user": f"u_{name}", "password": "secret"}
            execute(f"DROP USER 'u_{name}'@'%'")

        def options(**given: Any) -> SourceOptions:
            return options_for(server, rf"{name}\.t", **given)

        schema, sleep, work = name, "SELECT SLEEP(4)", "SELECT BENCHMARK(200000, SHA2('a', 512))"
    execute("CREATE TABLE t (id INT PRIMARY KEY, v CHAR(100))")
    rows = ", ".join(f"({i}, '{str(i % 10) * 100}')" for i in range(ROWS))
    execute(f"INSERT INTO t VALUES {rows}")
    execute("ANALYZE t" if request.param == "postgres" else "ANALYZE TABLE t")
    return Shop(request.param, schema, execute, options, sleep, work, user)


@contextmanager
def busy(shop: Shop, sessions: int) -> Iterator[None]:
    """Sessions that each run a statement for some seconds."""
    with ExitStack() as stack:
        for _ in range(sessions):
            thread = threading.Thread(target=shop.execute, args=(shop.sleep,))
            thread.start()
            stack.callback(thread.join)
        yield


@contextmanager
def working(shop: Shop, sessions: int) -> Iterator[None]:
    """Sessions of others that run statements without pauses."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            shop.execute(*[shop.work] * 4)

    with ExitStack() as stack:
        for _ in range(sessions):
            thread = threading.Thread(target=work)
            thread.start()
            stack.callback(thread.join)
        stack.callback(stop.set)
        yield


def test_others_that_work_are_told_from_those_that_sleep_and_from_the_stream(shop: Shop) -> None:
    source = registry.source(shop.options())
    watch = source.load_watch()
    assert watch is not None
    with closing(source), closing(watch):
        wait_until(lambda: watch.others() == 0, 5, "what ran before")
        before = source.activity().sessions
        own = threading.Thread(target=source.heartbeat, args=(shop.work,))
        with busy(shop, 3):
            wait_until(lambda: source.activity().sessions >= before + 3, 3, "sessions that sleep")
            wait_until(lambda: watch.others() == 0, 3, "all of them asleep")
            own.start()
            while own.is_alive():
                assert watch.others() == 0
            own.join()
            with working(shop, 3):
                wait_until(lambda: (watch.others() or 0) >= 2, 5, "sessions that work")


@pytest.mark.parametrize("shop", PRODUCTS, indirect=True)
def test_others_are_known_without_a_privilege_to_see_them(shop: Shop) -> None:
    with shop.user() as user:
        if shop.product != "postgres":
            shop.execute(f"GRANT REPLICATION SLAVE ON *.* TO '{user['user']}'@'%'")
        source = registry.source(shop.options(**user))
        watch = source.load_watch()
        assert watch is not None
        with closing(source), closing(watch), working(shop, 3):
            if shop.product == "mariadb":
                # it does not say which replicas there are
                wait_until(lambda: watch.others() is None, 10, "sessions that are hidden")
            else:
                wait_until(lambda: (watch.others() or 0) >= 1.5, 10, "sessions that work")


@pytest.mark.parametrize("shop", PRODUCTS, indirect=True)
def test_busy_server_is_read_slowly_and_to_the_end(shop: Shop) -> None:
    with working(shop, 3), Engine(shop.options(snapshotProtection="auto")) as engine:
        engine.plan.hold()
        found, shares, slowed = [], set(), ""
        while (batch := engine.next()) is not None:
            splits = [s for s in engine.plan.splits(*batch) if isinstance(s, SnapshotSplit)]
            shares |= {split.time_share for split in splits}
            slowed = slowed or engine.plan.slowed_by
            found.extend(row["id"] for row in rows_of(engine.read(*batch)[0]))
    assert sorted(found) == list(range(ROWS))
    assert "snapshotProtection" in slowed
    assert engine.plan.slowed_by == ""
    assert all(share is not None and share < 0.5 for share in shares)


def test_sessions_that_run_a_statement_are_counted(shop: Shop) -> None:
    with closing(registry.source(shop.options())) as source:
        before = source.activity().sessions
        with busy(shop, 4):
            wait_until(lambda: source.activity().sessions >= before + 4, 3, "four sessions")
        assert source.activity().replica_lag_s is None


def test_size_of_a_row_is_known(shop: Shop) -> None:
    with closing(registry.source(shop.options())) as source:
        size = source.row_bytes(TableId(shop.schema, "t"))
        assert size is not None
        assert 100 <= size <= 250


@pytest.mark.parametrize("shop", PRODUCTS, indirect=True)
def test_user_who_may_not_see_replication_is_told_the_privilege(shop: Shop) -> None:
    with shop.user() as user:
        given = shop.options(snapshotMaxReplicaLag=5, **user)
        with closing(registry.source(given)) as source:
            with pytest.raises(SourceError) as raised:
                source.activity()
            assert raised.value.code == "TR-3102"
            text = f"{raised.value.hint} {raised.value.detail}"
            assert any(
                word in text
                for word in ("pg_monitor", "REPLICATION CLIENT", "SLAVE MONITOR", "REPLICA MONITOR")
            )


@pytest.mark.parametrize("option", ["Rows", pytest.param("Bytes", marks=pytest.mark.slow)])
def test_rows_are_read_at_the_rate_and_the_log_at_once(shop: Shop, option: str) -> None:
    limit = {"Rows": "750", "Bytes": str(750 * 150)}[option]
    with Engine(shop.options(**{f"snapshotMax{option}PerSecond": limit})) as engine:
        begun, read, seen_after = time.monotonic(), 0, []
        inserted = None
        while not engine.offset.done:
            batch = engine.next()
            if batch is None:
                time.sleep(0.02)
                continue
            rows, changes = (rows_of(engine.read(*batch)[0]), changes_of(engine.read(*batch)[1]))
            read += len(rows)
            if inserted is None:
                shop.execute("UPDATE t SET v = 'changed' WHERE id = 0")
                inserted = time.monotonic()
            elif changes:
                seen_after.append(time.monotonic() - inserted)
                assert [c[0] for c in changes] == ["u"]
        assert read == ROWS
        took = time.monotonic() - begun
        # a second's worth is there at the start, and the last chunk is paid for afterwards
        assert 1.0 < took < 60
        assert len(seen_after) == 1


def test_nothing_is_read_while_the_server_is_busy_and_the_log_goes_on(shop: Shop) -> None:
    source = registry.source(shop.options())
    most = source.activity().sessions + 2  # the stream's own reader of the log
    with closing(source), busy(shop, 6), Engine(shop.options(snapshotMaxActiveSessions=most)) as engine:
        wait_until(lambda: source.activity().sessions > most, 3, "six sessions")
        batch = engine.next()
        assert batch is not None
        assert not rows_of(engine.read(*batch)[0])
        assert "active sessions, more than snapshotMaxActiveSessions" in engine.plan.held_by
        shop.execute("INSERT INTO t VALUES (99999, 'late')")

        def finished() -> bool:
            batch = engine.next()
            if batch is not None:
                found.extend(row["id"] for row in rows_of(engine.read(*batch)[0]))
            return bool(engine.offset.done)

        found: list[int] = []
        wait_until(finished, 30, "the snapshot")
        assert sorted(found) == [*range(ROWS), 99999]
        assert engine.plan.held_by == ""


def test_stream_that_ends_waits_for_its_rate_and_leaves_a_closed_window_alone(shop: Shop) -> None:
    with Engine(shop.options(snapshotMaxRowsPerSecond=1500)) as engine:
        engine.plan.hold()
        read = 0
        while (batch := engine.next()) is not None:
            read += len(rows_of(engine.read(*batch)[0]))
        assert read == ROWS
    with Engine(shop.options(snapshotWindows=_closed_now())) as engine:
        engine.plan.hold()
        while (batch := engine.next()) is not None:
            assert not rows_of(engine.read(*batch)[0])
        assert list(engine.offset.tables) == [f"{shop.schema}.t"]
        assert engine.plan.held_by.startswith("outside of snapshotWindows")


@pytest.mark.parametrize("shop", ["mysql", *(pytest.param(p, marks=SLOW) for p in OTHERS)], indirect=True)
def test_log_is_read_before_tables_while_the_server_holds_much_of_it(shop: Shop) -> None:
    options = shop.options(snapshotMaxHeldLogBytes="4m", snapshotChunkRows=50)
    with Engine(options, parallelism=1) as engine:
        batch = engine.next()
        assert batch is not None
        engine.read(*batch)
        for n in range(15):
            shop.execute(f"UPDATE t SET v = CONCAT(LEFT(v, 98), '{n:02}')")  # some 700 kB of log
        held = 0

        def finished() -> bool:
            nonlocal held
            batch = engine.next()
            if batch is None:
                return bool(engine.offset.done)
            rows, log = engine.read(*batch)
            if "snapshotMaxHeldLogBytes" in engine.plan.held_by:
                assert not rows_of(rows)
                held += 1
            return bool(engine.offset.done) and not log

        wait_until(finished, 60, "the snapshot")
        assert held >= 3
        assert engine.plan.held_by == ""


def _closed_now() -> str:
    """A window that opens in half a day."""
    hour = (time.localtime().tm_hour + 12) % 24
    return f"{hour:02}:00-{hour:02}:30"
