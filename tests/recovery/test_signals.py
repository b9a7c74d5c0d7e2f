"""Signals of the table of signals and of files, on each database: obeyed once, whatever is killed when."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.config.options import SourceOptions
from tailrace.enumerator.enumerator import Enumerator
from tailrace.enumerator.offset import StreamOffset
from tailrace.model.signal import Answer
from tailrace.pipeline.notifications import Batch, notifications
from tailrace.sources import registry
from tailrace.spark.requests import RequestDirectory
from tests.support import engine as mysql_engine
from tests.support import postgres as postgres_tables
from tests.support.engine import Engine, multiset
from tests.support.rereading import Target
from tests.support.wait import wait_until

pytestmark = pytest.mark.usefixtures("_soon")

ROWS = 120
COLUMNS = "(id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL)"


class Place:
    """A database with a table `t` of ROWS rows, and one for signals."""

    def __init__(self, request: pytest.FixtureRequest, product: str) -> None:
        names = {
            "mysql": "database",
            "mariadb": "mariadb_database",
            "postgres": "postgres_database",
        }
        self.server: Any = request.getfixturevalue(product)
        self.database = request.getfixturevalue(names[product])
        self.product = product
        schema = "public" if product == "postgres" else self.database
        self.of = {"database": self.database} if product == "postgres" else {}
        self.table, self.signals = f"{schema}.t", f"{schema}.debezium_signal"
        values = ", ".join(f"({n}, {n})" for n in range(ROWS))
        self.execute(
            f"CREATE TABLE {self.table} (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO {self.table} VALUES {values}",
            f"CREATE TABLE {self.signals} {COLUMNS}",
        )

    def execute(self, *statements: str) -> None:
        self.server.execute(*statements, **self.of)

    def options(self, **given: Any) -> SourceOptions:
        given = {"signal.data.collection": self.signals, "snapshotChunkRows": 20, **given}
        tables = given.pop("tables", self.table)
        if self.product == "postgres":
            return postgres_tables.options_for(self.server, self.database, tables, **given)
        return mysql_engine.options_for(self.server, tables, **given)

    def send(self, kind: str, id_: str, data: Any = None) -> None:
        """Insert a signal, and delete it at once: the log has it."""
        text = "NULL" if data is None else "'" + (data if isinstance(data, str) else json.dumps(data)) + "'"
        self.execute(
            f"INSERT INTO {self.signals} VALUES ('{id_}', '{kind}', {text})",
            f"DELETE FROM {self.signals} WHERE id = '{id_}'",
        )


class Stream:
    """A stream that is killed all the time, its target, and what it answers and tells."""

    def __init__(self, place: Place, requests: Path, *, kills: bool = True, **given: Any) -> None:
        self.place = place
        self.requests = RequestDirectory(str(requests))
        self.engine = Engine(place.options(**given), parallelism=1)
        self.target = Target(self.engine, place.table)
        self.kills = kills
        self.answers: list[Answer] = []
        self.told: list[tuple[str, str, str]] = []
        self.number = 0
        self.engine.plan._requests._requests = self.requests

    @property
    def offset(self) -> StreamOffset:
        return self.engine.offset

    def kill(self) -> None:
        """Another process takes over."""
        if not self.kills:
            return
        self.engine.plan.close()
        options = self.engine.options
        self.engine.plan = Enumerator(
            options, registry.source(options), parallelism=1, requests=self.requests
        )

    def step(self) -> bool:
        start = self.offset
        if self.engine.next() is None:
            return False
        self.engine.offset = start  # the process ended before Spark stored the offset
        self.kill()
        batch = wait_until(self.engine.next, 30, "the batch to be planned again")
        self.kill()
        first = self.engine.read(*batch)
        self.kill()
        again = self.engine.read(*batch)
        assert [multiset(part) for part in first] == [multiset(part) for part in again]
        assert {str(b.table.id) for part in first for b in part} <= {self.place.table}
        end = batch[1]
        self.target.apply(*first, end=end.to_json())
        self.answers += end.answers
        told = notifications(Batch("s", "p", self.number), start, end)
        assert told == notifications(Batch("s", "p", self.number), start, end)
        self.told += [(one.id, one.aggregate_type, one.type) for one in told]
        self.number += 1
        self.engine.plan.commit(end)
        return True

    def until(self, is_so: Callable[[], Any], what: str | Callable[[], str]) -> None:
        wait_until(lambda: self.step() is None or is_so(), 60, what)

    def snapshot(self) -> None:
        self.until(lambda: self.place.table in self.offset.done, "the snapshot")

    def answered(self, id_: str) -> Answer:
        self.until(lambda: any(a.id == id_ for a in self.answers), f"an answer to {id_}")
        (found,) = [a for a in self.answers if a.id == id_]
        return found

    def settled(self) -> None:
        """All that was written is in the target, and nothing is read again."""
        self.place.execute(f"UPDATE {self.place.table} SET v = v + 1 WHERE id = {ROWS - 1}")

        def is_equal() -> bool:
            if self.offset.signals or not all(reread.done for reread in self.offset.again.values()):
                return False
            try:
                self.target.equals(self.place.server, **self.place.of)
            except AssertionError:
                return False
            return True

        self.until(is_equal, lambda: f"the target to equal the table: {self.offset}, {self.target.rows}")


# MariaDB's signals are read by MySQL's code: a test run has one test of them
@pytest.fixture(params=["mysql", pytest.param("mariadb", marks=pytest.mark.slow), "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    return Place(request, request.param)


@pytest.fixture
def stream(place: Place, tmp_path: Path) -> Iterator[Stream]:
    stream = Stream(place, tmp_path / "requests")
    with closing(stream.engine):
        yield stream


@pytest.mark.parametrize("place", ["mysql", "mariadb", "postgres"], indirect=True)
def test_row_of_the_signal_table_has_a_table_read_again_once(place: Place, stream: Stream) -> None:
    stream.snapshot()
    stream.target.rows = [r for r in stream.target.rows if r["id"] != 7] + [{"id": 999, "v": 1}]
    place.send("execute-snapshot", "ad-hoc", {"data-collections": [place.table], "type": "incremental"})
    place.execute(f"UPDATE {place.table} SET v = 1000 WHERE id = 3")
    stream.until(lambda: stream.target.readings, "the reading")
    stream.settled()
    assert stream.target.readings == 1
    types = [type_ for id_, _, type_ in stream.told if id_ == "ad-hoc"]
    assert types[0] == "STARTED"
    assert types[-2:] == ["TABLE_SCAN_COMPLETED", "COMPLETED"]
    assert types.count("STARTED") == types.count("COMPLETED") == 1


def test_signal_from_a_file_is_obeyed_as_one_from_the_table(place: Place, stream: Stream) -> None:
    stream.snapshot()
    stream.target.rows = stream.target.rows[1:]
    stream.requests.add_signal({"id": "f1", "type": "resync", "data": {"data-collections": [place.table]}})
    stream.until(lambda: stream.target.readings, "the reading")
    stream.settled()
    assert stream.target.readings == 1
    assert stream.requests.pending() == []


def test_snapshot_that_is_paused_stops_and_goes_on_when_it_is_resumed(place: Place, tmp_path: Path) -> None:
    stream = Stream(place, tmp_path / "requests", kills=False, snapshotChunkRows=1)
    with closing(stream.engine):
        stream.until(lambda: stream.offset.tables, "the snapshot to begin")
        place.send("pause-snapshot", "p1")
        assert stream.answered("p1").status == "PAUSED"
        stream.kills = True
        read = stream.offset.tables[place.table].rows
        place.execute(f"UPDATE {place.table} SET v = -1 WHERE id = 0")
        place.send("log", "l1", {"message": "here: {}"})  # the stream goes on
        assert '"' in stream.answered("l1").reason
        assert stream.offset.tables[place.table].rows == read
        place.send("resume-snapshot", "p2")
        assert stream.answered("p2").status == "RESUMED"
        stream.kills = False
        stream.snapshot()
        stream.settled()
        assert ("Incremental Snapshot", "PAUSED") in {told[1:] for told in stream.told}


def test_reading_that_is_stopped_ends_and_the_stream_stays_right(place: Place, tmp_path: Path) -> None:
    stream = Stream(place, tmp_path / "requests", kills=False, snapshotChunkRows=1)
    with closing(stream.engine):
        stream.snapshot()
        place.send("execute-snapshot", "e1", {"data-collections": [place.table]})
        stream.until(lambda: stream.offset.again, "the reading")
        place.send("stop-snapshot", "s1", {"data-collections": [place.table], "type": "incremental"})
        assert stream.answered("s1").status == "STOPPED"
        assert stream.offset.again == {}
        stream.kills = True
        stream.settled()
        ends = [t for id_, _, t in stream.told if id_ in ("e1", "s1") and t in ("COMPLETED", "ABORTED")]
        assert ends == ["ABORTED"]


def test_table_is_parked_and_resumed_by_signals(place: Place, stream: Stream) -> None:
    stream.snapshot()
    place.send("park", "k1", {"data-collections": [place.table]})
    assert stream.answered("k1").tables == (place.table,)
    assert place.table in stream.offset.parked
    place.execute(f"DELETE FROM {place.table} WHERE id < 5")
    place.send("resume", "k2", {"data-collections": [place.table]})
    stream.until(lambda: place.table in stream.offset.done, "the table to be resumed")
    stream.settled()


WRONG = [
    ("execute-snapshot", "{"),
    ("execute-snapshot", "[]"),
    ("execute-snapshot", {"data-collections": ["no[.]such"]}),
    ("set-binlog-position", {"binlog_filename": "binlog.000001", "binlog_position": 4}),
    ("make-coffee", None),
]


def test_signals_that_cannot_be_obeyed_do_not_stop_the_stream(place: Place, tmp_path: Path) -> None:
    stream = Stream(place, tmp_path / "requests", kills=False)
    with closing(stream.engine):
        stream.snapshot()
        for number, (kind, data) in enumerate(WRONG):
            place.send(kind, f"w{number}", data)
        assert {stream.answered(f"w{number}").status for number in range(len(WRONG))} == {"ABORTED"}
        stream.settled()


def test_signal_table_with_other_columns_is_answered(place: Place, tmp_path: Path) -> None:
    place.execute(
        f"DROP TABLE {place.signals}", f"CREATE TABLE {place.signals} (id INT PRIMARY KEY, type INT)"
    )
    stream = Stream(place, tmp_path / "requests", kills=False)
    with closing(stream.engine):
        stream.snapshot()
        place.execute(f"INSERT INTO {place.signals} VALUES (1, 2)")
        stream.until(lambda: stream.answers, "an answer")
        assert "no type" in stream.answers[0].reason
        stream.settled()


def test_signals_of_a_transaction_with_other_rows_are_obeyed_in_order(place: Place, tmp_path: Path) -> None:
    stream = Stream(place, tmp_path / "requests", kills=False)
    with closing(stream.engine):
        stream.snapshot()
        place.execute(
            "BEGIN",
            f"INSERT INTO {place.table} VALUES (500, 1)",
            f"INSERT INTO {place.signals} VALUES ('a', 'pause-snapshot', NULL), ('b', 'resume-snapshot', '')",
            f"INSERT INTO {place.table} VALUES (501, 1)",
            "COMMIT",
        )
        stream.answered("b")
        assert [(a.id, a.status) for a in stream.answers] == [("a", "PAUSED"), ("b", "RESUMED")]
        assert not stream.offset.paused
        stream.settled()


def test_hundreds_of_signals_at_once_are_answered(place: Place, tmp_path: Path) -> None:
    stream = Stream(place, tmp_path / "requests", kills=False)
    with closing(stream.engine):
        stream.snapshot()
        values = ", ".join(f"('{n}', 'log', '{{\"message\": \"m\"}}')" for n in range(300))
        place.execute(f"INSERT INTO {place.signals} VALUES {values}")
        stream.until(lambda: len(stream.answers) >= 101, "answers")
        assert sum(a.status == "COMPLETED" for a in stream.answers) == 100
        assert "wait already" in next(a.reason for a in stream.answers if a.status == "ABORTED")
        stream.settled()


@pytest.fixture
def mysql_place(request: pytest.FixtureRequest) -> Place:
    return Place(request, "mysql")


def test_signals_of_compressed_and_of_xa_transactions_are_obeyed(mysql_place: Place, tmp_path: Path) -> None:
    place = mysql_place
    stream = Stream(place, tmp_path / "requests", kills=False)
    with closing(stream.engine):
        stream.snapshot()
        log = "VALUES ('{}', 'log', '{{\"message\": \"m\"}}')"
        place.execute(
            "SET SESSION binlog_transaction_compression = ON",
            f"INSERT INTO {place.signals} {log.format('packed')}",
        )
        assert stream.answered("packed").status == "COMPLETED"
        for xid, end in (("x1", "ROLLBACK"), ("x2", "COMMIT")):
            place.execute(
                f"XA START '{xid}'",
                f"INSERT INTO {place.signals} {log.format(xid)}",
                f"XA END '{xid}'",
                f"XA PREPARE '{xid}'",
            )
            place.execute(f"XA {end} '{xid}'")
        assert stream.answered("x2").status == "COMPLETED"
        assert [answer.id for answer in stream.answers] == ["packed", "x2"]
        stream.settled()


def test_signal_table_that_is_captured_is_delivered_too(place: Place, tmp_path: Path) -> None:
    tables = f"{place.table},{place.signals}"
    with closing(Engine(place.options(tables=tables), parallelism=1)) as engine:
        target = Target(engine, place.signals)
        wait_until(
            lambda: target.step() is None or engine.offset.done.keys() >= {place.signals}, 60, "snapshot"
        )
        place.execute(f"INSERT INTO {place.signals} VALUES ('both', 'pause-snapshot', NULL)")
        wait_until(lambda: target.step() is None or engine.offset.paused, 60, "the pause")
        target.equals(place.server, **place.of)
        assert [row["id"] for row in target.rows] == ["both"]


@pytest.fixture(params=["mysql", pytest.param("mariadb", marks=pytest.mark.slow)])
def rewindable_place(request: pytest.FixtureRequest) -> Place:
    return Place(request, request.param)


def test_log_waits_for_a_blocking_snapshot_whose_rows_are_as_of_one_position(
    rewindable_place: Place, tmp_path: Path
) -> None:
    place = rewindable_place
    stream = Stream(place, tmp_path / "requests", snapshotChunkRows=9)
    with closing(stream.engine):
        stream.snapshot()
        stream.settled()
        stream.target.rows = stream.target.rows[3:]
        data = {"data-collections": [place.table], "type": "blocking"}
        stream.requests.add_signal({"id": "b1", "type": "execute-snapshot", "data": data})
        wait_until(lambda: stream.step() is None or stream.offset.again, 60, "the reading")
        with closing(place.server.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(f"SELECT id, v FROM {place.table}")
            as_of = dict(cursor.fetchall())
        logs = [stream.offset.log]
        for number in range(200):
            if stream.offset.again[place.table].done:
                break
            place.execute(
                f"UPDATE {place.table} SET v = v + 1000, id = id + 0 WHERE id % 3 = {number % 3}",
                f"DELETE FROM {place.table} WHERE id = {ROWS - 2 - number}",
                f"INSERT INTO {place.table} VALUES ({1000 + number}, 1)",
            )
            assert stream.step()
            logs.append(stream.offset.log)
        assert len(logs) > 3
        assert all(log == logs[0] for log in logs)
        assert {row["id"]: row["v"] for row in stream.target.rows} == as_of
        stream.settled()
        assert stream.target.readings == 1


def test_schema_change_ends_the_wait_for_a_blocking_snapshot(rewindable_place: Place, tmp_path: Path) -> None:
    place = rewindable_place
    stream = Stream(place, tmp_path / "requests", kills=False, snapshotChunkRows=9)
    with closing(stream.engine):
        stream.snapshot()
        place.send("execute-snapshot", "b1", {"data-collections": [place.table], "type": "blocking"})
        stream.until(lambda: stream.offset.again, "the reading")
        log = stream.offset.log
        place.execute(f"ALTER TABLE {place.table} ADD COLUMN w INT NOT NULL DEFAULT 7")
        place.execute(f"UPDATE {place.table} SET v = -5 WHERE id < 20")
        stream.until(lambda: stream.offset.log != log, "the log to go on")
        stream.until(lambda: all(r.done for r in stream.offset.again.values()), "the reading")
        stream.settled()
        assert all(row["w"] == 7 for row in stream.target.rows)
