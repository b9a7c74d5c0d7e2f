"""The log under faults: a killed server, a purged log, transactions that are logged but not yet visible."""

import threading
from contextlib import closing

import pymysql
import pytest

from tailrace.errors import PositionLostError, PreflightError, SourceError, TransientSourceError
from tailrace.sources.mysql.binlog.dump import DumpStream
from tailrace.sources.mysql.binlog.follower import BinlogFollower
from tailrace.sources.mysql.binlog.visibility import Barrier, barrier_kind, high_watermark, wait_visible
from tailrace.sources.mysql.connection import connect
from tailrace.sources.mysql.start.starting import log_end_position, starting_position
from tailrace_dev.servers import start_mysql
from tests.support.binlog import file_bytes, first_event, options_of, read_bytes
from tests.support.wait import wait_until


@pytest.fixture(scope="module")
def own():
    """A server of this module's own, to be killed."""
    with start_mysql() as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)")
        yield server


@pytest.fixture(scope="module")
def without_gtids():
    """A server without GTIDs."""
    with start_mysql(options={"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}) as server:
        server.execute(
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
            "CREATE TABLE d.heartbeat (id INT PRIMARY KEY, ts TIMESTAMP(6) NOT NULL)",
            "CREATE USER plain IDENTIFIED BY 'secret'",
            "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO plain",
            "GRANT SELECT, INSERT, UPDATE ON d.* TO plain",
        )
        yield server


def test_stream_survives_a_killed_server_without_missing_or_repeating_an_event(own):
    options = options_of(own)
    start = log_end_position(options)
    stream = DumpStream(options, start.file, start.pos, blocking=True, server=start.server)
    got: dict[str, tuple[int, bytes]] = {}

    def run():
        for block in stream.blocks():
            pos, data = got.get(block.file, (block.pos, b""))
            assert block.pos == pos + len(data)
            got[block.file] = (pos, data + block.buffer[block.start : block.end].tobytes())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    stop = threading.Event()

    def write():
        while not stop.is_set():
            try:
                own.execute(*["INSERT INTO d.t (v) VALUES (1), (2), (3)"] * 20)
            except pymysql.err.MySQLError:
                stop.wait(0.05)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    for _ in range(2):
        seen = sum(len(data) for _, data in got.values())
        wait_until(lambda seen=seen: sum(len(data) for _, data in got.values()) > seen + 20_000)
        own.kill()
        own.start()
    stop.set()
    writer.join(20)
    own.execute("INSERT INTO d.t (v) VALUES (9)")
    end = log_end_position(options)
    wait_until(lambda: end.file in got and got[end.file][0] + len(got[end.file][1]) >= end.pos)
    stream.close()
    thread.join(20)
    assert not thread.is_alive()
    assert len(got) == 3
    for file, (pos, data) in got.items():
        disk = file_bytes(own, file)
        skip = first_event(disk) - pos if pos == 4 else 0
        stop_at = end.pos if file == end.file else len(disk)
        assert data[skip:] == disk[pos + skip : stop_at]
    again = read_bytes(options, start, end)
    assert {f: (p, d[first_event(d) :]) for f, (p, d) in again.items()} == {
        f: (p, d[first_event(d) :]) for f, (p, d) in got.items()
    }


def test_follower_goes_on_after_a_restart_and_counts_each_transaction_once(own):
    options = options_of(own)
    start = log_end_position(options)
    with closing(BinlogFollower(options, start, lambda _: True)) as follower:
        own.execute(*["INSERT INTO d.t (v) VALUES (1)"] * 10)
        wait_until(lambda: follower.wait(1))
        own.restart()
        own.execute(*["INSERT INTO d.t (v) VALUES (1)"] * 10)
        end = log_end_position(options)
        wait_until(lambda: follower.head().order >= end.order)
        found = follower.end_after(start, max_bytes=None, max_rows=None)
    assert found.transactions == 20
    assert found.end.gtids == end.gtids


def test_server_that_stays_away_ends_the_stream_with_a_transient_error(own):
    options = options_of(own, retryTimeoutMs="300")
    start = log_end_position(options)
    own.stop()
    try:
        with pytest.raises(TransientSourceError, match=r"no connection|connection was lost"):
            next(DumpStream(options, start.file, start.pos, blocking=True).blocks())
    finally:
        own.start()


def test_purged_position_is_lost_and_the_error_says_what_there_is(own):
    options = options_of(own)
    own.execute("INSERT INTO d.t (v) VALUES (1)")
    lost = log_end_position(options)
    own.execute("INSERT INTO d.t (v) VALUES (1)", "FLUSH BINARY LOGS")
    end = log_end_position(options)
    own.execute(f"PURGE BINARY LOGS TO '{end.file}'")
    with pytest.raises(PositionLostError) as caught:
        read_bytes(options, lost, end)
    assert f"no longer holds `{lost.file}:{lost.pos}`" in caught.value.message
    assert f"the oldest file the server has is `{end.file}`" in caught.value.detail
    assert end.server in caught.value.detail  # the purged GTIDs
    assert "onPositionLost: refresh" in caught.value.hint
    with closing(BinlogFollower(options, lost, lambda _: True)) as follower:
        follower.wait(20)
        with pytest.raises(PositionLostError):
            follower.head()
    with pytest.raises(PositionLostError, match="no longer holds all transactions after"):
        starting_position(options_of(own, startingPosition=f"gtid:{lost.gtids}"))


def test_offset_beyond_the_end_of_a_file_is_lost(own):
    end = log_end_position(options_of(own))
    with pytest.raises(PositionLostError, match="ends before offset"):
        next(DumpStream(options_of(own), end.file, end.pos + 99999, blocking=False).blocks())


def count(connection):
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM d.t")
        return cursor.fetchone()[0]


def test_logged_transaction_is_invisible_until_the_barrier_has_passed(own):
    """Design trap 1. Without `wait_visible` the SELECT misses a transaction that the log already has."""
    options = options_of(own)
    own.execute("SET GLOBAL binlog_group_commit_sync_delay = 1000000")
    try:
        start = log_end_position(options)
        with (
            closing(BinlogFollower(options, start, lambda _: True)) as follower,
            closing(connect(options, purpose="reading")) as reader,
        ):
            before = count(reader)
            writer = threading.Thread(target=own.execute, args=("INSERT INTO d.t (v) VALUES (7)",))
            writer.start()
            wait_until(lambda: high_watermark(reader)[1] > start.pos)
            assert count(reader) == before, "logged, and not visible"
            wait_until(lambda: follower.head().pos > start.pos)
            position = follower.head()
            early = count(reader)
            wait_visible(reader, options, position, 20)
            assert count(reader) == before + 1
            writer.join(20)
    finally:
        own.execute("SET GLOBAL binlog_group_commit_sync_delay = 0")
    assert early in (before, before + 1)  # by how the server's dump sees what is not yet synced


def test_barrier_that_takes_too_long_is_a_transient_error(own):
    options = options_of(own)
    here = log_end_position(options)
    gtids = here.gtids.replace(":1-", ":1-99999999:1-", 1)
    with (
        closing(connect(options, purpose="reading")) as reader,
        pytest.raises(TransientSourceError, match="not visible yet"),
    ):
        wait_visible(reader, options, type(here)(here.file, here.pos, gtids, here.server), 0.1)


@pytest.mark.parametrize("kind", [Barrier.LOG_STATUS, Barrier.HEARTBEAT])
def test_barriers_without_gtids_make_the_transaction_visible(without_gtids, kind):
    server = without_gtids
    given = {"user": "plain", "password": "secret", "heartbeatTable": "d.heartbeat"}
    options = options_of(server, **(given if kind is Barrier.HEARTBEAT else {}))
    start = log_end_position(options)
    assert start.gtids == ""
    server.execute("SET GLOBAL binlog_group_commit_sync_delay = 500000")
    try:
        with closing(connect(options, purpose="reading")) as reader:
            assert barrier_kind(reader, options) is kind
            before = count(reader)
            writer = threading.Thread(target=server.execute, args=("INSERT INTO d.t (v) VALUES (7)",))
            writer.start()
            wait_until(lambda: high_watermark(reader)[1] > start.pos)
            file, pos = high_watermark(reader)
            assert count(reader) == before, "logged, and not visible"
            wait_visible(reader, options, type(start)(file, pos, "", start.server), 20)
            assert count(reader) == before + 1
            writer.join(20)
    finally:
        server.execute("SET GLOBAL binlog_group_commit_sync_delay = 0")


@pytest.mark.parametrize("checksum", ["NONE", "CRC32"])
def test_log_without_gtids_and_with_or_without_checksums_is_followed(without_gtids, checksum):
    server = without_gtids
    options = options_of(server)
    start = log_end_position(options)
    server.execute("INSERT INTO d.t (v) VALUES (1), (2)")
    server.execute(f"SET GLOBAL binlog_checksum = {checksum}")  # begins a new file if it changes it
    server.execute("FLUSH BINARY LOGS", "INSERT INTO d.t (v) VALUES (1)", "ALTER TABLE d.t COMMENT 'x'")
    end = log_end_position(options)
    with closing(BinlogFollower(options, start, lambda t: t.database == "d")) as follower:
        wait_until(lambda: follower.head().order >= end.order)
        found = follower.end_after(start, max_bytes=None, max_rows=None)
        held = follower.blocks(start, found.end)
        assert found.transactions == 2
        assert [change.text for change in found.later_ddl] == ["ALTER TABLE d.t COMMENT 'x'"]
        last = follower.end_after(found.end, max_bytes=None, max_rows=None)
        assert last.end.order == end.order
        assert (last.end.gtids, last.end.file) == ("", end.file)
    assert held[-1].checksum is (checksum == "CRC32")
    for piece in held:
        assert piece.data == file_bytes(server, piece.file)[piece.pos : piece.end]
    for file, (pos, data) in read_bytes(options, start, end).items():
        disk = file_bytes(server, file)
        skip = first_event(disk) - pos if pos == 4 else 0
        assert data[skip:] == disk[pos + skip : pos + len(data)]


def test_without_any_barrier_the_error_names_the_remedies(without_gtids):
    options = options_of(without_gtids, user="plain", password="secret")
    here = log_end_position(options)
    with closing(connect(options, purpose="reading")) as reader:
        assert barrier_kind(reader, options) is Barrier.NONE
        with pytest.raises(PreflightError) as caught:
            wait_visible(reader, options, here, 1)
    assert "GRANT BACKUP_ADMIN" in caught.value.hint
    assert "CREATE TABLE" in caught.value.hint


def test_missing_privilege_for_the_log_is_named(own):
    own.execute("CREATE USER IF NOT EXISTS nobody IDENTIFIED BY 'secret'")
    end = log_end_position(options_of(own))
    options = options_of(own, user="nobody", password="secret")
    with pytest.raises(SourceError, match="privilege is missing") as caught:
        next(DumpStream(options, end.file, 4, blocking=False).blocks())
    assert "REPLICATION SLAVE" in str(caught.value)
