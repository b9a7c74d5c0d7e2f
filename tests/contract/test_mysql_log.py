"""The log of a real MySQL: read exactly, followed, and found positions in."""

import struct
import threading
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tailrace.errors import ConfigError, PositionLostError, ServerChangedError, StateError
from tailrace.sources.mysql.binlog import dump
from tailrace.sources.mysql.binlog import follower as follower_module
from tailrace.sources.mysql.binlog import relay as relay_module
from tailrace.sources.mysql.binlog.dump import DumpStream, read_log
from tailrace.sources.mysql.binlog.follower import BinlogFollower
from tailrace.sources.mysql.binlog.relay import RelayedEvents
from tailrace.sources.mysql.connection import connect, raw_socket
from tailrace.sources.mysql.gtid import GtidSet
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.mysql.start.starting import log_end_position, position_by_gtids, starting_position
from tailrace.sources.mysql.xa import prepared
from tests.support.binlog import all_ranges, bytes_of, file_bytes, first_event, options_of, read_bytes
from tests.support.wait import wait_until
from tests.support.xa import end as end_prepared
from tests.support.xa import end_all, prepare


@pytest.fixture
def table(mysql, database):
    mysql.execute(f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY AUTO_INCREMENT, v LONGBLOB)")
    return f"`{database}`.t"


def insert(mysql, table, count=1):
    mysql.execute(*[f"INSERT INTO {table} (v) VALUES ('x')"] * count)


def test_range_is_exactly_the_bytes_of_the_files_over_rotations(mysql, table):
    options = options_of(mysql)
    insert(mysql, table)
    start = log_end_position(options)
    insert(mysql, table, 3)
    mysql.execute("FLUSH BINARY LOGS")
    insert(mysql, table, 2)
    mysql.execute("FLUSH BINARY LOGS")
    insert(mysql, table, 2)
    end = log_end_position(options)
    insert(mysql, table)
    found = read_bytes(options, start, end)
    assert [start.file_number + i for i in range(3)] == [int(f.rpartition(".")[2]) for f in found]
    for file, (pos, data) in found.items():
        disk = file_bytes(mysql, file)
        stop = end.pos if file == end.file else len(disk)
        assert pos == (start.pos if file == start.file else 4)
        skip = first_event(disk) - pos if pos == 4 else 0
        assert data[skip:] == disk[pos + skip : stop]


def test_row_of_20_mb_comes_through_whole(mysql, table):
    options = options_of(mysql)
    start = log_end_position(options)
    mysql.execute(f"INSERT INTO {table} (v) VALUES (REPEAT('ab', 10 << 20)), ('y')")
    insert(mysql, table)
    end = log_end_position(options)
    (pos, data), *none = read_bytes(options, start, end).values()
    assert not none
    assert data == file_bytes(mysql, start.file)[start.pos : end.pos]
    assert pos == start.pos
    assert len(data) > 20 << 20


@pytest.mark.parametrize("mode", ["disabled", "preferred"])
def test_range_is_the_same_with_and_without_tls(mysql, table, mode):
    options = options_of(mysql, tlsMode=mode)
    start = log_end_position(options)
    mysql.execute(f"INSERT INTO {table} (v) VALUES (REPEAT('ab', 1 << 20))")
    insert(mysql, table, 20)
    end = log_end_position(options)
    (_, data), *_ = read_bytes(options, start, end).values()
    assert data == file_bytes(mysql, start.file)[start.pos : end.pos]


def test_place_too_far_for_the_command_is_walked_to(mysql, table, monkeypatch):
    options = options_of(mysql)
    insert(mysql, table, 5)
    start = log_end_position(options)
    insert(mysql, table, 5)
    mysql.execute("FLUSH BINARY LOGS")
    insert(mysql, table, 5)
    end = log_end_position(options)
    expected = read_bytes(options, start, end)
    monkeypatch.setattr("tailrace.sources.mysql.binlog.dump._FARTHEST", 100)
    found = read_bytes(options, start, end)
    assert found[start.file] == expected[start.file]
    assert found[end.file][1][200:] == expected[end.file][1][200:]


def test_range_that_ends_inside_an_event_is_refused(mysql, table):
    options = options_of(mysql)
    start = log_end_position(options)
    insert(mysql, table)
    end = log_end_position(options)
    crooked = MySqlPosition(end.file, end.pos - 1, server=end.server)
    with pytest.raises(PositionLostError, match="no event of the binary log ends at"):
        read_bytes(options, start, crooked)


def test_range_of_another_server_is_refused(mysql, table):
    options = options_of(mysql)
    insert(mysql, table)
    end = log_end_position(options)
    start = MySqlPosition(end.file, 4, server="3e11fa47-71ca-11e1-9e33-c80aa9429562")
    with pytest.raises(ServerChangedError, match="another server answers"):
        list(read_log(options, start, end))


def test_stream_goes_on_when_a_replica_takes_its_identity(mysql, table):
    options = options_of(mysql, serverId="4000000001")
    start = log_end_position(options)
    stream = DumpStream(options, start.file, start.pos, blocking=True)
    got, threads = [], []

    def run():
        got.extend((b.pos, b.buffer[b.start : b.end].tobytes()) for b in stream.blocks())

    threads.append(threading.Thread(target=run, daemon=True))
    threads[0].start()
    insert(mysql, table)
    wait_until(lambda: got)
    ours = [row for row in mysql.execute("SHOW REPLICAS") if row[0] == 4000000001]
    assert len(ours) == 1
    with closing(connect(options, purpose="taking the identity")) as thief:
        with thief.cursor() as cursor:
            cursor.execute("SET @replica_uuid = %s, @slave_uuid = %s", (ours[0][4], ours[0][4]))
            cursor.execute("SET @source_binlog_checksum = 'CRC32'")
        thief._execute_command(0x12, struct.pack("<IHI", 4, 0, 4000000001) + start.file.encode())
        raw_socket(thief).recv(100)
        insert(mysql, table, 5)
        end = log_end_position(options)
        wait_until(lambda: got[-1][0] + len(got[-1][1]) >= end.pos)
    stream.close()
    threads[0].join(10)
    assert not threads[0].is_alive()
    assert b"".join(data for _, data in got) == file_bytes(mysql, start.file)[start.pos : end.pos]


def follower_of(mysql, database, start, **given):
    options = options_of(mysql, **given)
    return BinlogFollower(options, start, lambda t: t.database == database and t.table != "other")


def test_ranges_follow_each_other_and_carry_the_gtids_up_to_their_ends(mysql, database, table):
    options = options_of(mysql)
    start = log_end_position(options)
    insert(mysql, table, 5)
    mysql.execute("FLUSH BINARY LOGS")
    insert(mysql, table, 5)
    end = log_end_position(options)
    with closing(follower_of(mysql, database, start)) as follower:
        singles = all_ranges(follower, start, end, max_bytes=1)
    assert [r.transactions for r in singles if r.transactions] == [1] * 10
    assert singles[-1].end.gtids == end.gtids
    for found in singles:
        if found.transactions:
            again = position_by_gtids(options, GtidSet.parse(found.end.gtids))
            assert again.gtids == found.end.gtids
            assert again.order >= found.end.order  # the head of the next file is the same place
            assert (
                starting_position(
                    options_of(mysql, startingPosition=f"file:{found.end.file}:{found.end.pos}")
                )
                == found.end
            )
    with closing(follower_of(mysql, database, start)) as follower:
        wait_until(lambda: follower.head().order >= end.order)
        (whole,) = all_ranges(follower, start, end)
    assert whole.end == singles[-1].end
    assert whole.captured_bytes == sum(r.captured_bytes for r in singles)


def test_batch_ends_before_a_schema_change_and_the_next_one_starts_with_it(mysql, database, table):
    options = options_of(mysql)
    start = log_end_position(options)
    insert(mysql, table, 2)
    mysql.execute(f"CREATE TABLE `{database}`.other (id INT)")  # not captured
    insert(mysql, table, 1)
    mysql.execute(f"ALTER TABLE {table} ADD COLUMN a INT")
    insert(mysql, table, 1)
    mysql.execute(f"ALTER TABLE {table} ADD COLUMN b INT", f"TRUNCATE {table}")
    insert(mysql, table, 1)
    end = log_end_position(options)
    with closing(follower_of(mysql, database, start)) as follower:
        wait_until(lambda: follower.head().order >= end.order)
        found = all_ranges(follower, start, end)
    assert [(r.transactions, len(r.ddl), len(r.later_ddl)) for r in found] == [
        (4, 0, 3),
        (2, 1, 2),
        (1, 1, 1),
        (2, 1, 0),
    ]
    assert [str(t) for t in found[1].ddl[0].tables] == [f"{database}.t"]


def test_rows_of_captured_tables_are_counted_for_the_row_limit(mysql, database, table):
    mysql.execute(f"CREATE TABLE `{database}`.other (id INT)")
    options = options_of(mysql)
    start = log_end_position(options)
    wide = "(v) VALUES ('a'), (NULL), ('ccc'), ('dd')"
    mysql.execute(
        f"INSERT INTO {table} {wide}",
        f"INSERT INTO `{database}`.other VALUES (1), (2), (3)",
        f"UPDATE {table} SET v = 'changed' WHERE id <= 3",
        f"DELETE FROM {table}",
        f"INSERT INTO {table} {wide}",
    )
    end = log_end_position(options)
    with closing(follower_of(mysql, database, start, maxRowsPerTrigger="7")) as follower:
        wait_until(lambda: follower.head().order >= end.order)
        found = all_ranges(follower, start, end, max_rows=7)
    with closing(follower_of(mysql, database, start, maxRowsPerTrigger="1")) as follower:
        single = all_ranges(follower, start, end, max_rows=1)
    assert [(r.transactions, r.rows) for r in found] == [(3, 7), (1, 4), (1, 4)]
    assert [r.rows for r in single] == [4, 0, 3, 4, 4]


def test_held_events_and_slices_cover_a_range_exactly(mysql, database, table):
    options = options_of(mysql)
    start = log_end_position(options)
    insert(mysql, table, 40)
    end = log_end_position(options)
    with closing(follower_of(mysql, database, start)) as follower:
        wait_until(lambda: follower.head().order >= end.order)
        (found,) = all_ranges(follower, start, end)
        held = follower.blocks(start, found.end)
        slices = follower.boundaries(start, found.end, 4)
        assert follower.lag_bytes(start) == end.pos - start.pos
        assert follower.caught_up(found.end)
    assert b"".join(p.data for p in held) == file_bytes(mysql, start.file)[start.pos : end.pos]
    assert len(slices) == 4
    assert slices[-1] == found.end
    sizes = [b.pos - a.pos for a, b in zip([start, *slices], slices, strict=False)]
    assert max(sizes) < 2 * min(sizes)
    parts = [read_bytes(options, a, b) for a, b in zip([start, *slices], slices, strict=False)]
    assert b"".join(part[start.file][1] for part in parts) == held[0].data


def relayed_bytes(described):
    events = RelayedEvents.of(described)
    if events is None:
        return None
    with events:
        return bytes_of(events.blocks())


def test_relay_has_every_byte_of_a_range_over_rotations(mysql, database, table):
    options = options_of(mysql)
    insert(mysql, table)
    start = log_end_position(options)
    insert(mysql, table, 3)
    mysql.execute(f"INSERT INTO {table} (v) VALUES (REPEAT('ab', 10 << 20)), ('y')", "FLUSH BINARY LOGS")
    insert(mysql, table, 30)
    mysql.execute("FLUSH BINARY LOGS")
    insert(mysql, table, 2)
    end = log_end_position(options)
    with closing(follower_of(mysql, database, start)) as follower:
        wait_until(lambda: follower.head().order >= end.order)
        at, count = start, 0
        while at.order < end.order:
            found = follower.end_after(at, max_bytes=2000, max_rows=None, upto=end)
            described = follower.relayed(at, found.end)
            assert relayed_bytes(described) == read_bytes(options, at, found.end)
            at, before, count = found.end, at, count + 1
        assert count > 5
        follower.end_after(at, max_bytes=None, max_rows=None)
        assert follower.relayed(before, at) is None, "the batch is done"
    assert relayed_bytes(described) is None, "the follower is gone"


def test_transaction_larger_than_the_relay_is_read_from_the_server(mysql, database, table, monkeypatch):
    monkeypatch.setattr(follower_module, "RELAY_BYTES", 4 << 20)
    options = options_of(mysql, maxBytesPerTrigger="4m")
    start = log_end_position(options)
    rows = f"INSERT INTO {table} (v) VALUES (REPEAT('ab', 1 << 20))"
    mysql.execute("BEGIN", *[rows] * 9, "COMMIT")
    between = log_end_position(options)
    insert(mysql, table, 9)
    end = log_end_position(options)
    with closing(follower_of(mysql, database, start, maxBytesPerTrigger="4m")) as follower:
        wait_until(lambda: follower.head().order >= end.order)
        assert follower.relayed(start, between) is None
        assert relayed_bytes(follower.relayed(between, end)) == read_bytes(options, between, end)


def test_backlog_goes_through_a_small_relay(mysql, database, table, monkeypatch):
    """The follower waits for tasks, and tasks that read nothing do not stop it."""
    monkeypatch.setattr(follower_module, "RELAY_BYTES", 4 << 20)
    monkeypatch.setattr(relay_module, "_PIECE_BYTES", 1 << 19)
    options = options_of(mysql, maxBytesPerTrigger="1m")
    start = log_end_position(options)
    mysql.execute(*[f"INSERT INTO {table} (v) VALUES (REPEAT('ab', 50000))"] * 300)
    end = log_end_position(options)
    for reads in (True, False):
        with closing(follower_of(mysql, database, start, maxBytesPerTrigger="1m")) as follower:
            at, offered, count = start, 0, 0
            while at.order < end.order:
                found = follower.end_after(at, max_bytes=1 << 20, max_rows=None)
                if found is None:
                    assert follower.wait(20)
                    continue
                described = follower.relayed(at, found.end)
                count += 1
                offered += described is not None
                if reads and described is not None:
                    assert relayed_bytes(described) == read_bytes(options, at, found.end)
                at = found.end
        assert count >= 27
        assert offered == count if reads else 3 < offered < count / 2


def test_follower_that_must_not_run_ahead_still_gives_everything(mysql, database, table):
    options = options_of(mysql)
    start = log_end_position(options)
    insert(mysql, table, 30)
    end = log_end_position(options)
    with closing(follower_of(mysql, database, start, maxBytesPerTrigger="1")) as follower:
        found = all_ranges(follower, start, end, max_bytes=1)
    assert sum(r.transactions for r in found) == 30
    assert found[-1].end.gtids == end.gtids


def test_new_transaction_is_seen_within_moments(mysql, database, table):
    start = log_end_position(options_of(mysql))
    with closing(follower_of(mysql, database, start)) as follower:
        assert not follower.wait(0.2)
        insert(mysql, table)
        assert follower.wait(5)
        found = follower.end_after(start, max_bytes=None, max_rows=None)
        assert found.transactions == 1
        assert found.end.ts_ms > 0
        assert follower.end_after(found.end, max_bytes=None, max_rows=None) is None


def test_transactions_of_others_alone_do_not_end_the_wait_unless_they_are_much(mysql, database, table):
    def others(rows):
        mysql.execute(*[f"INSERT INTO `{database}`.other VALUES (REPEAT('ab', 300000))"] * rows)
        end = log_end_position(options_of(mysql))
        wait_until(lambda: follower.head().order >= end.order)

    def waited_s(timeout_s):
        begun = time.monotonic()
        follower.wait_for_changes(timeout_s)
        return time.monotonic() - begun

    mysql.execute(f"CREATE TABLE `{database}`.other (v LONGTEXT)")
    start = log_end_position(options_of(mysql))
    with closing(follower_of(mysql, database, start)) as follower:
        others(3)
        assert waited_s(0.3) >= 0.3
        for statement in (f"INSERT INTO {table} (v) VALUES ('x')", f"ALTER TABLE {table} ADD n INT"):
            mysql.execute(statement)
            assert waited_s(20) < 10
            others(1)
            assert waited_s(20) < 10  # the change has not been taken
            start = follower.end_after(start, max_bytes=None, max_rows=None).end
            while (found := follower.end_after(start, max_bytes=None, max_rows=None)) is not None:
                start = found.end
            assert waited_s(0.3) >= 0.3
        others(20)
        assert waited_s(20) < 10
        assert not follower.end_after(start, max_bytes=None, max_rows=None).has_changes
        assert waited_s(0.3) >= 0.3


def test_follower_of_another_servers_position_says_so(mysql, database):
    end = log_end_position(options_of(mysql))
    elsewhere = MySqlPosition(end.file, end.pos, server="3e11fa47-71ca-11e1-9e33-c80aa9429562")
    with closing(follower_of(mysql, database, elsewhere)) as follower:
        follower.wait(20)
        with pytest.raises(ServerChangedError, match="another server answers"):
            follower.head()


def test_stream_that_is_closed_while_it_connects_ends(mysql, table, monkeypatch):
    position = log_end_position(options_of(mysql))
    stream = DumpStream(options_of(mysql), position.file, position.pos, blocking=True)

    def closed_meanwhile(*given, **named):
        connection = connect(*given, **named)
        stream.close()
        return connection

    monkeypatch.setattr(dump, "connect", closed_meanwhile)
    thread = threading.Thread(target=lambda: list(stream.blocks()), daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_bug_in_the_followers_thread_is_reported(mysql, database, table):
    start = log_end_position(options_of(mysql))
    insert(mysql, table)

    def broken(table_id):
        raise ZeroDivisionError

    with closing(BinlogFollower(options_of(mysql), start, broken)) as follower:
        follower.wait(20)
        with pytest.raises(StateError, match="crashed"):
            follower.head()


def test_starting_positions_name_the_same_places(mysql, database, table):
    mysql.execute("FLUSH BINARY LOGS")
    insert(mysql, table, 2)
    here = log_end_position(options_of(mysql))
    time.sleep(0.002)
    moment = datetime.now(UTC)
    insert(mysql, table, 2)

    def at(text):
        return starting_position(options_of(mysql, startingPosition=text))

    assert at(f"timestamp:{moment.isoformat()}").order == here.order
    assert at(f"gtid:{here.gtids}").order == here.order
    assert at(f"file:{here.file}:{here.pos}").gtids == here.gtids
    for offset in (here.pos, here.pos + 1, here.pos + 70):  # within its GTID event, and behind it
        assert at(f"file-at-or-before:{here.file}:{offset}").order == here.order
    assert at(f"file-at-or-before:{here.file}:{here.pos - 1}").order < here.order
    with pytest.raises(ConfigError, match="is not in the log"):
        at(f"file-at-or-before:{here.file}:{10**9}")
    with pytest.raises(PositionLostError):
        at("file-at-or-before:no-such-file.000001:4")
    assert at("latest") == log_end_position(options_of(mysql))
    assert at("earliest").order <= here.order
    assert at("timestamp:2100-01-01").order == at("latest").order
    with pytest.raises(ConfigError, match="is not between two transactions"):
        at(f"file:{here.file}:{here.pos - 10}")
    with pytest.raises(StateError, match="has not executed all requested GTIDs"):
        at("gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5")


def test_positions_carry_what_is_prepared_and_open_as_it_is_found_in_the_log(mysql, table, monkeypatch):
    monkeypatch.setattr(prepared, "_SHORT_S", 0)
    options = options_of(mysql)
    insert(mysql, table)
    start = starting_position(replace(options, starting_position="latest"))
    try:
        for number in range(6):
            prepare(mysql, f"'{number}'", f"INSERT INTO {table} (v) VALUES ('x')")
            if number == 3:
                mysql.execute("FLUSH BINARY LOGS")
            if number % 2:
                end_prepared(mysql, "COMMIT" if number == 3 else "ROLLBACK", f"'{number - 1}'")
        insert(mysql, table)
        with closing(BinlogFollower(options, start, lambda _: True)) as follower:
            ends = [
                found.end for found in all_ranges(follower, start, log_end_position(options), max_bytes=1)
            ]
            head = follower.head()
        assert [len(end.prepared) for end in ends if end.file == ends[0].file][:4] == [1, 2, 1, 2]
        assert [len(end.prepared) for end in ends][-1] == len(head.prepared) == 3
        for end in ends:
            assert prepared.prepared_at(options, end) == end.prepared
    finally:
        end_all(mysql)
