"""The log archive of a real PostgreSQL server: whole, exact, and read where no slot has the log."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pg8000.exceptions import DatabaseError

from tailrace.config.secret import Secret
from tailrace.errors import ConfigError, PositionLostError, PreflightError
from tailrace.sources.postgres.archiving import builder
from tailrace.sources.postgres.checks import preflight
from tailrace.sources.postgres.connection import connect
from tailrace.sources.postgres.position import parse_lsn
from tailrace.sources.postgres.replication import incoming, timeline
from tailrace.sources.postgres.replication.archive.archived import ArchivedLog
from tailrace.sources.postgres.replication.archive.segment import WalArchive
from tailrace.sources.postgres.replication.incoming import Incoming
from tailrace.sources.postgres.replication.stream import ReplicationStream
from tailrace.sources.postgres.starting import begin_slot, log_end_position
from tailrace.sources.preflight import Severity
from tests.recovery.test_postgres_rejoin import drop_slot
from tests.support.archives import ArchiveProcess, archive_wal_to_end, messages_of
from tests.support.engine import Engine, changes_of, whole_log
from tests.support.postgres import SUBJECTS, fill, options_for
from tests.support.replication import has_slot, postgres_of, promote_standby, standby_of
from tests.support.switch import Switch
from tests.support.wait import wait_until

KEY = "5a" * 32

pytestmark = pytest.mark.usefixtures("_soon")


@pytest.fixture
def run(postgres, postgres_database):
    def execute(*statements):
        return postgres.execute(*statements, database=postgres_database)

    execute(
        "CREATE TABLE t (id int PRIMARY KEY, a int, b text, c numeric(10, 2))",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "CREATE TABLE other (id serial PRIMARY KEY, at timestamptz, d bytea)",
    )
    return execute


def write(run, rounds=3, default=" DEFAULT 5"):
    """Transactions of all kinds: large, rolled back in part, with schema changes, messages, interleaved."""
    for _ in range(rounds):
        first = run("SELECT coalesce(max(id), 0) + 1 FROM t")[0][0]
        run(
            f"INSERT INTO t (id, a, b, c) SELECT n, n, repeat('x', 300), n / 7.0 "
            f"FROM generate_series({first}, {first + 299}) n",
            "UPDATE t SET a = a + 1 WHERE a % 50 = 0",
            f"DELETE FROM t WHERE id % 7 = 1 AND id >= {first}",
            "INSERT INTO other (at, d) VALUES (now(), '\\x00ff')",
            "SELECT pg_logical_emit_message(false, 'alone', 'outside')",
            "BEGIN; INSERT INTO t (id) VALUES (-1); SAVEPOINT s; INSERT INTO t (id) VALUES (-2); "
            "ROLLBACK TO s; SELECT pg_logical_emit_message(true, 'within', 'x'); "
            "DELETE FROM t WHERE id = -1; COMMIT",
            "BEGIN; DELETE FROM t; ROLLBACK",
            f"ALTER TABLE t ADD COLUMN c{first} int{default}",
            f"INSERT INTO t (id) VALUES ({first + 299 + 1})",
            "TRUNCATE other",
        )


def transactions(messages):
    """Messages by transactions, without those that look up the log's end.

    A server repeats a description whenever a table's catalog entries are touched, then or now: such repeats
    are left out.
    """
    found, known = [], {}
    for lsn, message in messages:
        if message[:1] == b"R":
            if known.get(message[1:5]) == message:
                continue
            known[message[1:5]] = message
        if message[:1] == b"B" or not found or found[-1][-1][1][:1] == b"C" or found[-1][0][1][:1] == b"M":
            found.append([])
        found[-1].append((lsn, message))
    return [its for its in found if not any(b"tailrace\0" in message for _, message in its)]


def sent_by_server(options, slot, end, start=None):
    """The messages that the server sends from a position on, or from where a slot begins."""
    options = replace(options, slot_name=slot, publication_name=options.publication)
    start = start or begin_slot(replace(options, starting_position="earliest"))
    stream = ReplicationStream(options, start, binary=False, own_slot=False, all_messages=True)
    with closing(stream):
        received = Incoming(stream, lambda _: True, start.lsn, lambda _: True)
        data = b""
        while received.head < end.lsn:
            came = received.next(1)
            data += b"" if came is None else came[1]
    return transactions(messages_of(data))


def drained(engine, changes):
    """Read until the log's end of now, add what was read."""
    end = log_end_position(engine.options).lsn

    def step():
        batch = engine.next()
        if batch is not None:
            changes.extend(changes_of(engine.read(*batch)[1]))
        return engine.offset.log is not None and parse_lsn(engine.offset.log["lsn"]) >= end

    wait_until(step, 60, "the log's end")


def archived(archive):
    """The messages of an archive, without the preambles; checks the index."""
    found = []
    for segment in archive.segments:
        content = b"".join(archive.pieces(segment))
        assert len(content) == segment.content
        found += messages_of(content[segment.preamble :])
        preamble = messages_of(content[: segment.preamble])
        assert all(message[:1] == b"R" for _, message in preamble)
        table = archive.transactions(segment)
        starts, ends, commits = (table.column(n).to_pylist() for n in ("start", "end", "commit_lsn"))
        assert all(segment.start <= lsn < segment.end for lsn in commits)
        for start, end, lsn in zip(starts, ends, commits, strict=True):
            its = messages_of(content[start:end])
            assert (its[0][1][:1], its[-1][1][:1]) in {(b"B", b"C"), (b"M", b"M")}
            if its[0][1][:1] == b"B":
                assert int.from_bytes(its[0][1][1:9], "big") == lsn
    return transactions(found)


def test_archive_equals_what_the_server_sends_whatever_the_size_of_its_segments(
    postgres, postgres_database, run, tmp_path, monkeypatch
):
    options = options_for(postgres, postgres_database, "public.*")
    kinds = {"whole": {}, "small": {"segment_bytes": 2000}, "sealed": {"key": Secret(KEY)}}
    for name, given in kinds.items():
        archive_wal_to_end(options, tmp_path / name, **given)
    begin_slot(
        replace(options, slot_name="reference", publication_name="tailrace", starting_position="earliest")
    )
    # enough of it: a segment ends where what was received at once ends
    write(run, rounds=6)
    monkeypatch.setattr(incoming, "_RECEIVE", 4_000)
    monkeypatch.setattr(builder, "_KEPT_BYTES", 10_000)  # a transaction is written before it ends
    found = {name: archive_wal_to_end(options, tmp_path / name, **given) for name, given in kinds.items()}
    expected = sent_by_server(options, "reference", log_end_position(options))
    assert {message[:1] for its in expected for _, message in its} >= set(map(bytes, zip(b"BCRIUDTM")))
    for archive in found.values():
        assert archived(archive) == expected
    small = found["small"].segments
    assert len(small) > len(found["whole"].segments) + 5
    for before, segment in pairwise(small):
        assert segment.continues(before)
    # nothing new but messages that look up the log's end: no transaction is written again
    again = archive_wal_to_end(options, tmp_path / "small")
    assert again.segments[: len(small)] == small
    assert archived(again) == expected
    # each slot is confirmed what its archive has, and no more
    for archive in (found["whole"], found["sealed"], again):
        confirmed = run(
            "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots "
            f"WHERE slot_name = '{archive.slot}'"
        )
        assert archive.segments[0].start < int(confirmed[0][0]) <= archive.segments[-1].end


@pytest.mark.slow
def test_session_that_begins_anywhere_in_the_archive_gets_what_the_server_would_send_it(
    postgres, postgres_database, run, tmp_path, monkeypatch
):
    options = options_for(postgres, postgres_database, "public.*")
    archive_wal_to_end(options, tmp_path, segment_bytes=2000)
    begin = begin_slot(
        replace(options, slot_name="anywhere", publication_name="tailrace", starting_position="earliest")
    )
    write(run)
    monkeypatch.setattr(incoming, "_RECEIVE", 4_000)
    archive = archive_wal_to_end(options, tmp_path, segment_bytes=2000)
    log_end = replace(log_end_position(options), lsn=archive.segments[-1].end)
    found = pa.concat_tables(map(archive.transactions, archive.segments))
    # that of a message outside of a transaction lies within its record: no session begins there
    is_commit = pc.greater(found.column("ts_us"), 0)
    commits = [lsn for lsn in found.filter(is_commit).column("commit_lsn").to_pylist() if lsn >= begin.lsn]
    for lsn in commits[:: len(commits) // 10]:
        start = replace(log_end, lsn=lsn)
        with closing(connect(options, purpose="a test", replication=True)) as connection:
            log = ArchivedLog(archive, timeline.read(connection, options), start)
        got = transactions(messages_of(b"".join(log.bytes_after(start))))
        assert got
        assert got == sent_by_server(options, "anywhere", log_end, start)[: len(got)]


def snapshot_read(engine):
    wait_until(lambda: engine.next() is None and bool(engine.offset.done), 60, "the snapshot")
    return engine.offset


def test_stream_reads_the_archive_when_its_slot_is_gone_and_goes_on_with_the_server(
    postgres, postgres_database, run, tmp_path
):
    where = tmp_path / "archive"
    options = options_for(postgres, postgres_database, r"public\.t", archive=where, maxBytesPerTrigger=60_000)
    run("INSERT INTO t VALUES (1, 1, 'x', 0.5)")
    archive_wal_to_end(options, where)
    with Engine(options) as engine:
        begun = snapshot_read(engine)
        write(run, default="")
        planned = engine.next()
        assert planned is not None
        first = changes_of(engine.read(*planned)[1])
        changes = []
        drained(engine, changes)
    expected = first + changes
    assert len(expected) > 900
    archive_wal_to_end(options, where, segment_bytes=20_000)
    drop_slot(postgres, postgres_database, run)
    # a batch that was planned with the slot is read from the archive, exactly
    with Engine(options) as engine:
        assert changes_of(engine.read(*planned)[1]) == first
    assert whole_log(options, begun.log, planned[1].log) == first
    # and the stream goes on: from the archive, then from the server, with a slot made anew
    run("UPDATE t SET a = -1 WHERE id BETWEEN 10 AND 30")
    for killed in (True, False):  # once as if it ended before its first batch
        with Engine(options) as engine:
            engine.offset = begun
            found = []
            if killed:
                engine.next()
                continue
            drained(engine, found)
            assert found[: len(expected)] == expected
            assert {after["a"] for _, _, after, _ in found[len(expected) :]} == {-1}
            assert len(found) > len(expected)
            at = engine.offset
    run("DELETE FROM t WHERE id BETWEEN 10 AND 30")
    with Engine(options_for(postgres, postgres_database, r"public\.t")) as engine:
        engine.offset = at
        found = []
        drained(engine, found)
        assert {op for op, *_ in found} == {"d"}
    drop_slot(postgres, postgres_database, run)
    with Engine(options_for(postgres, postgres_database, r"public\.t")) as engine:
        engine.offset = begun
        with pytest.raises(PositionLostError, match="no longer"):
            drained(engine, [])


def test_new_stream_begins_at_a_time_in_the_archive_with_the_columns_of_that_time(
    postgres, postgres_database, run, tmp_path
):
    where = tmp_path / "archive"
    options = options_for(postgres, postgres_database, r"public\.t", archive=where)
    archive_wal_to_end(options, where)
    run("INSERT INTO t VALUES (1, 1, 'before', 1)")
    start = datetime.fromtimestamp(run("SELECT extract(epoch FROM clock_timestamp())::float8")[0][0], UTC)
    run("UPDATE t SET b = 'then', a = 2")
    archive_wal_to_end(options, where)
    run(
        "ALTER TABLE t RENAME COLUMN a TO a_new",
        "ALTER TABLE t DROP COLUMN b",
        "INSERT INTO t VALUES (2, 5, 2)",
    )
    archive_wal_to_end(options, where)

    def read(position):
        given = replace(options, starting_position=position)
        with Engine(given) as engine:
            changes = []
            drained(engine, changes)
        drop_slot(postgres, postgres_database, run)
        return [(op, {n: v for n, v in after.items() if n != "c"}) for op, _, after, _ in changes]

    later = [("u", {"id": 1, "a": 2, "b": "then"}), ("c", {"id": 2, "a_new": 5})]
    assert read(f"timestamp:{start.isoformat()}") == later
    assert read("earliest") == [("c", {"id": 1, "a": 1, "b": "before"}), *later]
    lsn = WalArchive(str(where), None).segments[-1].bounds[0]
    assert read(f"lsn:{lsn}") == later[1:]
    for out_of_reach in ("2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"):
        given = replace(options, starting_position=f"timestamp:{out_of_reach}")
        with Engine(given) as engine, pytest.raises(ConfigError) as caught:
            engine.next()
        assert caught.value.code == "TR-8217"


def test_gap_is_an_error_that_names_it(postgres, postgres_database, run, tmp_path):
    where = tmp_path / "archive"
    options = options_for(postgres, postgres_database, r"public\.t", archive=where)
    archive = archive_wal_to_end(options, where)
    with Engine(options) as engine:
        begun = snapshot_read(engine)
    run("INSERT INTO t (id) VALUES (1)")
    archive_wal_to_end(options, where)
    end = WalArchive(str(where), None).segments[-1]
    run("INSERT INTO t (id) VALUES (2)")
    active = f"SELECT NOT active FROM pg_replication_slots WHERE slot_name = '{archive.slot}'"
    postgres.wait_until(active, bool, database=postgres_database)
    run(f"SELECT pg_drop_replication_slot('{archive.slot}')")
    with pytest.raises(PositionLostError) as caught:
        archive_wal_to_end(options, where)
    assert caught.value.code == "TR-8208"
    assert f"`{end.bounds[1]}`" in caught.value.message
    archive_wal_to_end(options, where, allow_gap=True)
    run("INSERT INTO t (id) VALUES (3)")
    archive_wal_to_end(options, where)
    found = WalArchive(str(where), None).segments
    assert [s.begins for s in found].count(True) == 2
    drop_slot(postgres, postgres_database, run)
    with Engine(options) as engine:
        engine.offset = begun
        with pytest.raises(PositionLostError) as missing:
            drained(engine, [])
    assert missing.value.code == "TR-4120"
    assert end.bounds[1] in str(missing.value.detail) + missing.value.message


def test_archive_of_another_publication_is_refused(postgres, postgres_database, run, tmp_path):
    options = options_for(postgres, postgres_database, r"public\.t", archive=tmp_path)
    archive_wal_to_end(options, tmp_path)
    other = replace(options, publication_name="other")
    with pytest.raises(ConfigError) as caught:
        archive_wal_to_end(other, tmp_path)
    assert caught.value.code == "TR-8215"
    (finding,) = [f for f in preflight.check(other) if f.check == "archive"]
    assert (finding.severity, finding.code) == (Severity.ERROR, "TR-8215")
    given = replace(other, starting_position="earliest")
    with Engine(given) as engine, pytest.raises(PreflightError, match="another publication"):
        engine.next()
    (finding,) = [f for f in preflight.check(options) if f.check == "archive"]
    assert finding.severity is Severity.OK


@pytest.mark.parametrize(
    "point",
    [
        "archive.segment",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("archive.committed", "archive.expired")),
    ],
)
def test_archiver_that_is_killed_goes_on_without_gap_or_repeat(
    postgres, postgres_database, run, tmp_path, point
):
    expires = ("--expire-after", "0s") if point == "archive.expired" else ()
    options = options_for(postgres, postgres_database, "public.*")
    where = tmp_path / "a"
    archive_wal_to_end(options, where)
    begin_slot(
        replace(options, slot_name="killed", publication_name="tailrace", starting_position="earliest")
    )
    write(run)
    process = ArchiveProcess(
        tmp_path,
        postgres,
        where,
        "--segment-size",
        "10k",
        *expires,
        type="postgresql",
        database=postgres_database,
        **{"publication-name": "tailrace", "tables": "public.*"},
    )
    for _ in range(2):
        process.once(point)
        WalArchive(str(where), None)  # whole, whatever was left
    code, out, err = process.once()
    assert code == 0, err
    assert "segment" in out
    archive = WalArchive(str(where), None)
    left = {f"segments/{name}" for name in archive.store.names("segments")}
    assert left == {segment.name for segment in archive.segments}
    if expires:
        assert len(archive.segments) == 1
    else:
        expected = sent_by_server(options, "killed", log_end_position(options))
        assert archived(archive) == expected
    code, out, err = process.once(None, "--list")
    assert code == 0
    assert f'"segments": {len(archive.segments)}' in out


@pytest.mark.slow
def test_archive_goes_on_after_a_failover_and_streams_read_it_there(tmp_path):
    where = tmp_path / "a"
    with postgres_of("18") as primary, Switch(primary) as address:
        fill(primary, "shop", SUBJECTS[0], 10, identity="FULL")
        options = options_for(address, "shop", "public.numbers", archive=where)
        archive = archive_wal_to_end(options, where)
        with Engine(options) as engine:
            begun = snapshot_read(engine)
        with standby_of(primary) as other:

            def copied():
                primary.execute("SELECT pg_log_standby_snapshot()")
                primary.execute("UPDATE numbers SET v = v + 1", database="shop")
                archive_wal_to_end(options, where)
                return has_slot(other, archive.slot)

            wait_until(copied, 60, "the copy of the archive's slot")
            end = primary.execute("SELECT pg_current_wal_lsn()::text")[0][0]
            other.wait_until(f"SELECT pg_last_wal_replay_lsn() >= '{end}'::pg_lsn", bool)
            primary.kill()
            promote_standby(other)
            address.point(other)
            other.execute("DELETE FROM numbers WHERE id < 8", database="shop")
            archive_wal_to_end(options, where)
            segments = WalArchive(str(where), None).segments
            assert [s.begins for s in segments].count(True) == 1
            assert {s.timelines.rpartition(" ")[2] for s in segments} == {"1", "2"}
            with suppress(DatabaseError):  # it may have been copied
                other.execute("SELECT pg_drop_replication_slot('slot_shop')")
            with Engine(options) as engine:
                engine.offset = begun
                changes = []
                drained(engine, changes)
            assert [op for op, *_ in changes].count("d") == 4
            assert changes[0][0] == "u"
