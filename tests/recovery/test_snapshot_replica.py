"""Rows from a replica (`snapshotUrl`), the log from its source: exact if that is late, lost or wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tailrace.errors import PreflightError, SourceError
from tailrace.sources.mysql.snapshot import row_server
from tailrace.sources.mysql.snapshot.row_server import RowServer
from tailrace.sources.mysql.source import MySqlSource
from tests.support.engine import Engine, options_for, rows_of
from tests.support.exactness import ROWS, BusyTable, wrong_batches
from tests.support.replication import catch_up, make_writable, primary_of, replica_of, stop_applying
from tests.support.rereading import Target
from tests.support.wait import wait_until
from tests.support.workload import SUBJECTS

pytestmark = pytest.mark.usefixtures("_soon")


class Pair:
    """A source and its replica.

    Args:
        source: the one server.
        replica: the other one.
    """

    def __init__(self, source: Any, replica: Any) -> None:
        self.source, self.replica = source, replica
        self.url = f"mysql://{replica.host}:{replica.port}"

    def options(self, tables: str, **given: Any) -> Any:
        return options_for(self.source, tables, snapshotUrl=self.url, **given)

    def rows_read(self) -> int:
        """How many rows the replica has read so far."""
        ((_, rows),) = self.replica.execute("SHOW GLOBAL STATUS LIKE 'Innodb_rows_read'")
        return int(rows)


class FromReplica(BusyTable):
    """A busy table whose rows are read from the replica."""

    pair: Pair

    def options(self, **given: Any) -> Any:
        return self.pair.options(self.name, **given)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with primary_of("mysql") as source, replica_of(source) as replica:
        yield Pair(source, replica)


@pytest.fixture
def busy(pair: Pair) -> Iterator[FromReplica]:
    pair.source.execute("CREATE DATABASE busy")
    table = FromReplica(pair.source, "busy", SUBJECTS[2])
    table.pair = pair
    yield table
    pair.source.execute("DROP DATABASE busy")


@contextmanager
def late(pair: Pair) -> Iterator[None]:
    """The replica applies in turns with pauses."""
    ended = threading.Event()

    def apply_in_turns() -> None:
        while not ended.wait(0.4):
            stop_applying(pair.replica)
            ended.wait(0.6)
            pair.replica.execute("START REPLICA SQL_THREAD")

    thread = threading.Thread(target=apply_in_turns)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_batches_are_exact_while_the_replica_is_late_and_its_rows_are_used(
    pair: Pair, busy: FromReplica
) -> None:
    before = pair.rows_read()
    assert wrong_batches(busy, fault=lambda _: late(pair), min_batches=6, least=2) == 0
    assert pair.rows_read() - before >= ROWS


@pytest.mark.slow  # the test of the test before
def test_without_the_wait_for_the_replica_batches_are_wrong(
    pair: Pair, busy: FromReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowServer, "shows", lambda *_: True)
    monkeypatch.setattr(MySqlSource, "rows_held", lambda _: "")

    @contextmanager
    def behind(_: Any) -> Iterator[None]:
        catch_up(pair.replica, pair.source)
        stop_applying(pair.replica)
        time.sleep(0.5)  # the writers go on
        try:
            yield
        finally:
            pair.replica.execute("START REPLICA SQL_THREAD")

    with pytest.raises(AssertionError):
        assert wrong_batches(busy, fault=behind, min_batches=6) == 0


def test_snapshot_waits_for_a_replica_that_is_lost_and_what_is_planned_comes_from_the_source(
    pair: Pair, busy: FromReplica
) -> None:
    def step() -> bool:
        busy.server.execute(f"DELETE FROM {busy.name} LIMIT 1")
        batch = engine.next()
        return batch is not None and bool(rows_of(engine.read(*batch)[0]))

    busy.fill()
    catch_up(pair.replica, pair.source)
    with Engine(busy.options(snapshotChunkRows=100), parallelism=1) as engine:
        wait_until(step, 60, "a batch with rows")
        batch = wait_until(engine.next, 60, "another one")
        pair.replica.kill()
        try:
            assert rows_of(engine.read(*batch)[0])  # from the source
            wait_until(lambda: step() is None or engine.plan.held_by, 60, "the loss to be seen")
            assert "cannot be reached" in engine.plan.held_by
            assert engine.offset.tables
            assert not any(step() for _ in range(3))
        finally:
            pair.replica.restart()
            pair.replica.execute("START REPLICA")
        wait_until(lambda: step() is None or not engine.offset.tables, 60, "the snapshot")


def test_schema_change_that_the_replica_does_not_have_yet(pair: Pair) -> None:
    values = ", ".join(f"({n}, {n})" for n in range(60))
    pair.source.execute(
        "CREATE TABLE shop.late (id INT PRIMARY KEY, v INT)", f"INSERT INTO shop.late VALUES {values}"
    )
    catch_up(pair.replica, pair.source)
    with Engine(pair.options("shop.late", snapshotChunkRows=10), parallelism=1) as engine:
        target = Target(engine, "shop.late")
        for _ in range(3):
            wait_until(target.step, 60, "a batch")
        stop_applying(pair.replica)
        pair.source.execute(
            "ALTER TABLE shop.late MODIFY v BIGINT, ADD COLUMN w INT NOT NULL DEFAULT 7",
            "UPDATE shop.late SET v = -1 WHERE id % 2",
        )
        threading.Timer(2, pair.replica.execute, ["START REPLICA SQL_THREAD"]).start()
        target.drain(pair.source)
        target.equals(pair.source)


def test_replica_with_a_transaction_of_its_own_stops_the_snapshot(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_server, "_SOURCE_WAIT_S", 1)
    pair.source.execute("CREATE TABLE shop.t (id INT PRIMARY KEY)", "INSERT INTO shop.t VALUES (1), (2), (3)")
    catch_up(pair.replica, pair.source)
    with Engine(pair.options("shop.t", snapshotChunkRows=1), parallelism=1) as engine:
        engine.read(*wait_until(engine.next, 60, "a batch"))
        make_writable(pair.replica)
        pair.replica.execute("INSERT INTO shop.t VALUES (99)")
        try:
            with pytest.raises(SourceError) as raised:
                _read_all(engine)
            assert raised.value.code == "TR-4143"
        finally:
            ((gtids,),) = pair.replica.execute(
                "SELECT GTID_SUBTRACT(@@gtid_executed, '" + _executed(pair.source) + "')"
            )
            pair.replica.execute("SET sql_log_bin = 0", "DELETE FROM shop.t WHERE id = 99")
        with pytest.raises(PreflightError, match="TR-2122"):
            Engine(pair.options("shop.t")).next()
    assert gtids
    _forgive(pair, gtids)


def test_replica_that_does_not_fit_is_refused(pair: Pair) -> None:
    pair.source.execute("CREATE TABLE shop.u (id INT PRIMARY KEY, v VARCHAR(9))")
    catch_up(pair.replica, pair.source)
    make_writable(pair.replica)
    pair.replica.execute("SET sql_log_bin = 0", "ALTER TABLE shop.u MODIFY v VARCHAR(20)")
    wrong = {
        f"mysql://{pair.source.host}:{pair.source.port}": "itself",
        pair.url: "table shop.u",
        "mysql://127.0.0.1:1": "a replica that this user can read",
    }
    for url, reason in wrong.items():
        with closing(Engine(options_for(pair.source, "shop.u", snapshotUrl=url))) as engine:
            with pytest.raises(PreflightError, match="TR-2122") as raised:
                engine.next()
            assert reason in str(raised.value.detail)
    pair.replica.execute("SET sql_log_bin = 0", "ALTER TABLE shop.u MODIFY v VARCHAR(9)")


def _read_all(engine: Engine) -> None:
    while not engine.offset.done:
        engine.read(*wait_until(engine.next, 60, "a batch"))


def _executed(server: Any) -> str:
    ((gtids,),) = server.execute("SELECT REPLACE(@@global.gtid_executed, '\\n', '')")
    return str(gtids)


def _forgive(pair: Pair, gtids: str) -> None:
    """Give the source an empty transaction for each of the replica's own."""
    for gtid in _single(gtids):
        pair.source.execute(f"SET gtid_next = '{gtid}'", "BEGIN", "COMMIT", "SET gtid_next = 'AUTOMATIC'")


def _single(gtids: str) -> Iterator[str]:
    uuid, _, ranges = gtids.replace("\n", "").partition(":")
    for each in ranges.split(":"):
        first, _, last = each.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield f"{uuid}:{number}"
