"""The log archive of real servers: whole, exact, and read where the server has purged its log."""

from __future__ import annotations

import signal
import time
from datetime import UTC, datetime

import pytest
from deltalake import DeltaTable

from tailrace.config.secret import Secret
from tailrace.errors import PositionLostError, StateError
from tailrace.sources import registry
from tailrace.sources.archive.archive import Archive
from tailrace.sources.mysql.binlog import segment_builder
from tailrace.sources.mysql.binlog.segment_builder import read_index
from tailrace.sources.mysql.start import starting
from tailrace.sources.preflight import Severity
from tailrace_dev.servers import start_mysql
from tests.support.archives import (
    ArchiveProcess,
    archive_and_purge,
    archive_to_end,
    require_equal,
)
from tests.support.engine import Engine, changes_of, options_for, whole_log
from tests.support.logged import end_of_log, files, flush_and_purge
from tests.support.pipelines import PipelineProcess
from tests.support.replication import catch_up, primary_of, promote, replica_of, share_password
from tests.support.switch import Switch
from tests.support.wait import wait_until
from tests.support.workload import SUBJECTS, Writers, fill

KEY = "5a" * 32

pytestmark = pytest.mark.usefixtures("_soon")


@pytest.fixture(params=["mysql", "mariadb"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def name(request, server):
    fixture = "database" if server is request.getfixturevalue("mysql") else "mariadb_database"
    return request.getfixturevalue(fixture)


def write(server, name, rounds=3):
    """Several files of the log, with a large transaction, a rollback and a schema change."""
    table = f"{name}.t"
    server.execute(f"CREATE TABLE IF NOT EXISTS {table} (id INT PRIMARY KEY AUTO_INCREMENT, a INT, b TEXT)")
    for number in range(rounds):
        server.execute(
            f"INSERT INTO {table} (a, b) SELECT seq.n, REPEAT('x', 500) FROM (WITH RECURSIVE s AS "
            f"(SELECT 1 AS n UNION ALL SELECT n + 1 FROM s WHERE n < 400) SELECT n FROM s) AS seq",
            f"UPDATE {table} SET a = a + 1 WHERE a < 10",
            f"DELETE FROM {table} WHERE id % 7 = {number}",
            f"ALTER TABLE {table} ADD COLUMN c{server_count(server)} INT DEFAULT {number}",
            "FLUSH BINARY LOGS",
        )


def server_count(server):
    """A number that no column of the tests has yet."""
    return time.monotonic_ns()


def drained(engine, server, changes):
    """Read until the log's end of now, add what was read."""
    status = "SHOW BINARY LOG STATUS" if "mysql" in type(server).__name__.lower() else "SHOW MASTER STATUS"
    file, pos = server.execute(status)[0][:2]

    def step():
        batch = engine.next()
        if batch is not None:
            changes.extend(changes_of(engine.read(*batch)[1]))
        log = engine.offset.log
        return log is not None and (log["file"], log["pos"]) >= (file, pos)

    wait_until(step, 60, "the log's end")


def test_archive_equals_the_log_whatever_the_size_of_its_segments(server, name, tmp_path, monkeypatch):
    flush_and_purge(server)
    write(server, name)
    options = options_for(server, rf"{name}\.t")
    whole = archive_to_end(options, tmp_path / "whole")
    monkeypatch.setattr(segment_builder, "_KEPT_BYTES", 10_000)  # a transaction is written before it ends
    small = archive_to_end(options, tmp_path / "small", segment_bytes=2000)
    assert require_equal(whole, server) == require_equal(small, server) == 3
    assert len(small.segments) > len(whole.segments)
    assert sum(s.transactions for s in small.segments) == sum(s.transactions for s in whole.segments)
    # every transaction is in the index once, with its offsets
    for segment in small.segments:
        table, ddl = read_index(small.index(segment), segment.file)
        assert len(table) == segment.transactions
        ends = table.column("end").to_pylist()
        assert ends == sorted(set(ends))
        assert all(segment.start <= at < segment.end for at in table.column("start").to_pylist())
        assert all("ALTER" in d.text or "CREATE" in d.text or "DROP" in d.text for d in ddl)
    changes = [d for s in small.segments for d in read_index(small.index(s), s.file)[1]]
    assert sum(d.text.startswith("ALTER TABLE") and name in d.text for d in changes) == 3
    # nothing new: no transaction is written again (MariaDB may have logged a checkpoint)
    again = archive_to_end(options, tmp_path / "small", segment_bytes=2000)
    added = again.segments[len(small.segments) :]
    assert again.segments[: len(small.segments)] == small.segments
    assert sum(s.transactions for s in added) == 0


def test_stream_reads_what_the_server_has_purged(server, name, tmp_path):
    table = rf"{name}\.t"
    where = tmp_path / "archive"
    write(server, name, 1)
    options = options_for(server, table, archive=where, maxBytesPerTrigger=60_000)
    with Engine(options) as engine:
        wait_until(lambda: engine.next() is None and bool(engine.offset.done), 60, "the snapshot")
        begun = engine.offset
        write(server, name)
        planned = engine.next()
        assert planned is not None
        first = changes_of(engine.read(*planned)[1])
        changes = []
        drained(engine, server, changes)
        end = engine.offset
    expected = whole_log(options_for(server, table), begun.log, end.log)
    assert first + changes == expected
    archive_and_purge(options, where, server, segment_bytes=20_000)
    # a batch that was planned from the server is read from the archive, exactly
    with Engine(options) as engine:
        assert changes_of(engine.read(*planned)[1]) == first
    assert whole_log(options, begun.log, end.log) == expected
    # and the stream goes on: from the archive, then from the server
    server.execute(f"UPDATE {name}.t SET a = -1 WHERE id < 20")
    with Engine(options) as engine:
        engine.offset = begun
        found = []
        drained(engine, server, found)
        assert found[: len(expected)] == expected
        assert {after["a"] for _, _, after, _ in found[len(expected) :]} == {-1}
    with Engine(options_for(server, table)) as engine:
        engine.offset = begun
        with pytest.raises(PositionLostError, match="no longer"):
            drained(engine, server, [])


def test_new_stream_begins_at_a_time_in_the_archive_with_the_columns_of_that_time(
    server, name, tmp_path, monkeypatch
):
    monkeypatch.setattr(starting, "_STAMP_MARGIN_US", 0)
    table, where = f"{name}.t", tmp_path / "archive"
    server.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, old_name INT, gone VARCHAR(10))",
        f"INSERT INTO {table} VALUES (1, 1, 'before')",
    )
    inserted = int(time.time())
    wait_until(lambda: time.time() > inserted + 1, 5, "the next second: MariaDB's times have no fraction")
    start = datetime.fromtimestamp(inserted + 1, UTC).isoformat()
    server.execute(f"UPDATE {table} SET gone = 'then', old_name = 2")
    archive_and_purge(options_for(server, table), where, server)
    server.execute(
        f"ALTER TABLE {table} RENAME COLUMN old_name TO new_name, DROP COLUMN gone",
        f"INSERT INTO {table} VALUES (2, 5)",
    )
    archive_and_purge(options_for(server, table), where, server)
    options = options_for(server, table, archive=where, startingPosition=f"timestamp:{start}")
    with Engine(options) as engine:
        changes = []
        drained(engine, server, changes)
    assert [(op, after) for op, _, after, _ in changes] == [
        ("u", {"id": 1, "old_name": 2, "gone": "then"}),
        ("c", {"id": 2, "new_name": 5}),
    ]
    assert changes[0][1] == {"id": 1, "old_name": 1, "gone": "before"}


def test_gap_is_an_error_that_names_it(server, name, tmp_path):
    table, where = rf"{name}\.t", tmp_path / "archive"
    write(server, name, 1)
    options = options_for(server, table, archive=where)
    with Engine(options) as engine:
        wait_until(lambda: engine.next() is None and bool(engine.offset.done), 60, "the snapshot")
        begun = engine.offset
    archive_to_end(options, where)
    end = Archive(str(where), None).segments[-1]
    server.execute("FLUSH BINARY LOGS", f"INSERT INTO {name}.t (a) VALUES (1)")
    lost = files(server)[-1]
    newest = flush_and_purge(server)
    with pytest.raises(PositionLostError) as caught:
        archive_to_end(options, where)
    assert caught.value.code == "TR-8208"
    assert f"`{end.file}:{end.end}`" in caught.value.message
    archive_to_end(options, where, allow_gap=True)
    found = Archive(str(where), None).segments
    assert [s.begins for s in found].count(True) == 2
    assert found[-1].file == newest
    assert lost not in {s.file for s in found}
    flush_and_purge(server)
    with Engine(options) as engine:
        engine.offset = begun
        with pytest.raises(PositionLostError) as missing:
            drained(engine, server, [])
    assert missing.value.code == "TR-4120"
    assert end.file in missing.value.message
    assert newest in str(missing.value.detail)


@pytest.mark.parametrize(
    "point",
    ["archive.segment", pytest.param("archive.committed", marks=pytest.mark.slow), "archive.expired"],
)
def test_archiver_that_is_killed_goes_on_without_gap_or_repeat(mysql, database, tmp_path, point):
    flush_and_purge(mysql)
    write(mysql, database)
    expires = ("--expire-after", "0s") if point == "archive.expired" else ()
    process = ArchiveProcess(tmp_path, mysql, tmp_path / "a", "--segment-size", "10k", *expires)
    for _ in range(2):
        process.once(point)
        Archive(str(tmp_path / "a"), None)  # whole, whatever was left
    code, out, err = process.once()
    assert code == 0, err
    assert "segment" in out
    archive = Archive(str(tmp_path / "a"), None)
    left = {f"segments/{name}" for name in archive.store.names("segments")}
    assert left == {segment.name for segment in archive.segments}
    if expires:
        assert {s.file for s in archive.segments} == {files(mysql)[-1]}
    else:
        assert require_equal(archive, mysql) == 3
    code, out, err = ArchiveProcess(tmp_path, mysql, tmp_path / "a").once(None, "--list")
    assert code == 0
    assert f'"segments": {len(archive.segments)}' in out


@pytest.mark.slow
def test_running_archiver_follows_a_restart_of_the_server_and_ends_on_request(tmp_path):
    with primary_of("mysql") as server:
        write(server, "shop", 1)
        where = tmp_path / "a"
        with ArchiveProcess(tmp_path, server, where, "--every", "1s").start() as process:

            def has(text):
                lines.append(process.stdout.readline())
                return text in lines[-1]

            lines = []
            wait_until(lambda: has(files(server)[-1]), 60, "the newest file")
            server.restart()
            write(server, "shop", 1)
            newest = files(server)[-1]
            wait_until(lambda: has(newest), 60, "the file after the restart")
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            process.communicate()
        archive = archive_to_end(options_for(server, "shop.t"), where)
        assert require_equal(archive, server) >= 3
        assert [s.begins for s in archive.segments].count(True) == 1


def test_expired_part_of_the_log_is_an_error(mysql, database, tmp_path):
    where = tmp_path / "a"
    write(mysql, database, 1)
    options = options_for(mysql, rf"{database}\.t", archive=where)
    start = end_of_log(mysql)
    write(mysql, database, 2)
    archive_and_purge(options, where, mysql)
    mysql.execute(f"INSERT INTO {database}.t (a) VALUES (1)")
    archive_to_end(options, where, expire_s=0)
    with pytest.raises(PositionLostError) as caught:
        whole_log(options, start.to_json(), end_of_log(mysql).to_json())
    assert caught.value.code == "TR-4120"


@pytest.mark.slow
@pytest.mark.parametrize("product", ["mysql", "mariadb"])
def test_archiver_follows_a_failover_and_streams_read_what_the_new_server_has_purged(product, tmp_path):
    subject, table, where = SUBJECTS[2], "shop.busy", tmp_path / "a"
    with primary_of(product) as primary:
        fill(primary, table, subject, 500)
        with replica_of(primary) as other, Switch(primary) as address:
            options = options_for(address, table, archive=where)
            with Writers(primary, table, subject, count=2, pause_s=0.005):
                archive_to_end(options, where)
            catch_up(other, primary)
            promote(other)
            address.point(other)
            primary.kill()
            with Writers(other, table, subject, count=2, pause_s=0.005):
                other.execute(f"DELETE FROM {table} LIMIT 5")
                archive = archive_to_end(options, where)
            servers = [s.server for s in archive.segments if s.begins]
            assert len(servers) == len(set(servers)) == 2
            start = options_for(address, table, startingPosition="earliest")
            with Engine(start) as engine:
                engine.next()
            archive_and_purge(options, where, other)
            before = [s for s in archive.segments if s.server == servers[0]][-1].gtids_after
            with Engine(
                options_for(address, table, archive=where, startingPosition=f"gtid:{before}")
            ) as engine:
                changes = []
                drained(engine, other, changes)
                assert changes


@pytest.mark.slow
def test_archive_without_gtids_does_not_go_on_in_the_log_of_another_server(tmp_path):
    off = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}
    with start_mysql(options=off) as first, start_mysql(options=off) as second, Switch(first) as address:
        share_password(second, first)
        options = options_for(address, ".*")
        archive_to_end(options, tmp_path)
        address.point(second)
        with pytest.raises(StateError) as caught:
            archive_to_end(options, tmp_path)
        assert caught.value.code == "TR-8209"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_pipeline_goes_on_behind_a_purge_and_its_target_is_exact(mysql, database, tmp_path):
    table, where = f"{database}.t", tmp_path / "archive"
    settings = {"archive": str(where), "archive-key": "${env:ARCHIVE_KEY}"}
    run = PipelineProcess(tmp_path, mysql, table, mode="changelog", env={"ARCHIVE_KEY": KEY}, **settings)
    write(mysql, database, 1)
    assert run.run() == 0, run.output()
    mysql.execute(f"UPDATE {table} SET a = 77 WHERE id < 100", "FLUSH BINARY LOGS")
    archive_and_purge(options_for(mysql, table), where, mysql, key=Secret(KEY))
    mysql.execute(f"DELETE FROM {table} WHERE id % 5 = 0")
    archive_and_purge(options_for(mysql, table), where, mysql, key=Secret(KEY))
    assert run.run(timeout_s=600) == 0, run.output()
    changes = DeltaTable(str(run.targets / table)).to_pyarrow_table().to_pylist()
    rows = {}
    for change in sorted(changes, key=lambda change: change["_seq"]):
        if change["_op"] == "d":
            del rows[change["id"]]
        else:
            rows[change["id"]] = change["a"]
    assert rows == dict(mysql.execute(f"SELECT id, a FROM {table}"))
    assert KEY not in (run.output() + "".join(p.read_text("utf-8", "replace") for p in logs(tmp_path)))


def logs(directory):
    """The log files and checkpoints of a pipeline."""
    return [p for p in directory.rglob("*") if p.is_file() and p.suffix not in (".parquet", ".crc")]


@pytest.mark.slow
def test_xa_transactions_are_read_from_the_archive(mysql, database, tmp_path):
    """A row that is prepared in one file of the log and committed in a later one, both purged."""
    table, where = f"{database}.t", tmp_path / "archive"
    mysql.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT)")
    options = options_for(mysql, table, archive=where)
    with Engine(options) as engine:
        wait_until(lambda: engine.next() is None and bool(engine.offset.done), 60, "the snapshot")
        begun = engine.offset
    with mysql.connect() as connection, connection.cursor() as cursor:
        for statement in (
            "XA START 'x'",
            f"INSERT INTO {table} VALUES (1, 1)",
            "XA END 'x'",
            "XA PREPARE 'x'",
        ):
            cursor.execute(statement)
    mysql.execute("FLUSH BINARY LOGS", f"INSERT INTO {table} VALUES (2, 2)")
    archive_and_purge(options, where, mysql)
    mysql.execute("XA COMMIT 'x'")
    archive_and_purge(options, where, mysql)
    with Engine(options) as engine:
        engine.offset = begun
        changes = []
        drained(engine, mysql, changes)
    assert [after["id"] for _, _, after, _ in changes] == [2, 1]


@pytest.mark.slow
def test_compressed_transactions_are_archived_and_restored(mysql, database, tmp_path):
    table, where = f"{database}.t", tmp_path / "archive"
    mysql.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, a TEXT)")
    options = options_for(mysql, table, archive=where)
    start = end_of_log(mysql)
    mysql.execute(
        "SET SESSION binlog_transaction_compression = ON",
        f"INSERT INTO {table} VALUES (1, REPEAT('x', 50000))",
    )
    expected = whole_log(options, start.to_json(), end_of_log(mysql).to_json())
    archive_and_purge(options, where, mysql)
    assert whole_log(options, start.to_json(), end_of_log(mysql).to_json()) == expected
    assert len(expected) == 1


def test_check_says_what_the_archive_lacks(mysql, database, tmp_path):
    table, where = f"{database}.t", tmp_path / "archive"
    write(mysql, database, 1)

    def finding(**given):
        options = options_for(mysql, table, archive=where, **given)
        return next(f for f in registry.check(options) if f.check == "archive")

    assert (finding().severity, finding().code) == (Severity.WARNING, "TR-8207")
    Archive(str(where), None, create=True)
    assert (finding().severity, finding().code) == (Severity.WARNING, "TR-8213")
    archive_to_end(options_for(mysql, table), where)
    assert finding().severity is Severity.OK
    wrong = finding(archiveKey=KEY)
    assert (wrong.severity, wrong.code) == (Severity.ERROR, "TR-8206")
    assert KEY not in str(wrong)
    write(mysql, database, 1)
    flush_and_purge(mysql)
    assert (finding().severity, finding().code) == (Severity.WARNING, "TR-8208")
    assert not [f for f in registry.check(options_for(mysql, table)) if f.check == "archive"]
