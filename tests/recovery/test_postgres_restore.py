"""`tailrace restore` of PostgreSQL tables: exactly as they were at a time, or a refusal."""

from __future__ import annotations

import random
import stat
from collections import Counter
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tailrace.cli import cli
from tailrace.config.secret import Secret
from tailrace.errors import (
    ConfigError,
    PositionLostError,
    SourceError,
    StateError,
    TransientSourceError,
)
from tailrace.model.table import TableId
from tailrace.pipeline.postgres_restore import restored
from tailrace.sources.archive.bases import bases
from tailrace.sources.postgres.archiving import builder
from tailrace.sources.postgres.archiving.keeping import keep_base
from tailrace.sources.postgres.archiving.moment import Moment
from tailrace.sources.postgres.replication import incoming
from tailrace.sources.postgres.replication.archive.segment import WalArchive
from tailrace.sources.postgres.snapshot.snapshots import Snapshots
from tests.support.archives import ArchiveProcess, archive_wal_to_end
from tests.support.databases import named_rows
from tests.support.postgres import options_for

KEY = "11" * 32
TABLE = TableId("public", "t")

pytestmark = pytest.mark.usefixtures("_soon")


@pytest.fixture
def run(postgres, postgres_database):
    def execute(*statements):
        return postgres.execute(*statements, database=postgres_database)

    execute(
        "CREATE TYPE mood AS ENUM ('sad', 'glad')",
        "CREATE TABLE t (id int, part int, a int, b text, large text, c numeric(10, 2), m mood, "
        "at timestamptz DEFAULT clock_timestamp(), PRIMARY KEY (id, part))",
        "ALTER TABLE t ALTER large SET STORAGE EXTERNAL",
        "CREATE TABLE other (id serial PRIMARY KEY, d text)",
        "INSERT INTO t SELECT n, n % 3, n, 'row ' || n, repeat(n::text || '-', 1000 + n), n / 4.0, 'glad' "
        "FROM generate_series(0, 119) n",
    )
    return execute


@pytest.fixture
def options(postgres, postgres_database, tmp_path):
    where = tmp_path / "archive"
    return options_for(postgres, postgres_database, r"public\..*", archive=where, archiveKey=KEY)


def archive(options, **given):
    return archive_wal_to_end(options, options.archive, Secret(KEY), **given)


def base(options):
    return keep_base(options, WalArchive(options.archive, Secret(KEY)))


def change(run, seed, rounds=25):
    """Random changes: of values, of large values, of keys, of several tables at once."""
    draw = random.Random(seed)
    for number in range(rounds):
        low = draw.randrange(120)
        run(
            draw.choice(
                [
                    f"UPDATE t SET a = a + {number}, m = 'sad' WHERE id BETWEEN {low} AND {low + 9}",
                    f"UPDATE t SET large = repeat('{number},', 1500) WHERE id BETWEEN {low} AND {low + 3}",
                    f"UPDATE t SET large = NULL WHERE id = {low}",
                    f"UPDATE t SET part = part + 10, b = 'moved' WHERE id BETWEEN {low} AND {low + 4}",
                    f"UPDATE t SET id = id + 1000 WHERE id = {low}",
                    "UPDATE t SET id = id - 1000 WHERE id >= 1000",
                    f"DELETE FROM t WHERE id BETWEEN {low} AND {low + 3}",
                    f"INSERT INTO t VALUES ({low}, 0, -1, 'new', repeat('n', 5000)) ON CONFLICT DO NOTHING",
                    (
                        f"BEGIN; DELETE FROM t WHERE id = {low}; INSERT INTO other (d) VALUES ('x'); "
                        f"INSERT INTO t (id, part) VALUES ({low}, 99); UPDATE t SET part = 98 "
                        "WHERE part = 99; SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; "
                        "DELETE FROM t WHERE part = 98; COMMIT"
                    ),
                    "BEGIN; UPDATE t SET a = 0; ROLLBACK",
                ]
            )
        )


def rows_of(postgres, database):
    with postgres.connect(database=database) as connection:
        cursor = connection.cursor()
        return {(r["id"], r["part"]): r for r in named_rows(cursor, "SELECT * FROM t")}


def moment(run):
    """The server's time, microseconds, between two transactions."""
    return int(run("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8 + 1")[0][0])


def found(options, at_us):
    result = restored(options, TABLE, at_us)
    rows = [row for part in result.rows for row in part.to_pylist()]
    keyed = {(r["id"], r["part"]): r for r in rows}
    assert len(keyed) == len(rows)
    return keyed, result.source


def refused(options, at_us, code="TR-8211"):
    with pytest.raises((SourceError, ConfigError)) as caught:
        found(options, at_us)
    assert caught.value.code == code
    return f"{caught.value.message}: {caught.value.detail}"


@pytest.fixture
def _small_pieces(monkeypatch):
    monkeypatch.setattr(incoming, "_RECEIVE", 20_000)
    monkeypatch.setattr(builder, "_KEPT_BYTES", 50_000)


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize("identity", ["DEFAULT", pytest.param("FULL", marks=pytest.mark.slow)])
def test_table_is_restored_from_bases_and_the_log_whatever_happened_to_it_since(
    postgres, postgres_database, run, options, identity
):
    run(f"ALTER TABLE t REPLICA IDENTITY {identity}")
    archive(options)
    base(options)
    moments, seeds = [], count()

    def go_on(*statements):
        change(run, next(seeds))
        run(*statements)
        moments.append((moment(run), rows_of(postgres, postgres_database)))

    go_on()
    go_on()
    archive(options, segment_bytes=30_000)
    go_on()
    second = base(options)
    go_on()
    go_on(
        "BEGIN; INSERT INTO t (id, part) VALUES (-5, 1); TRUNCATE t; "
        "INSERT INTO t (id, part) VALUES (-5, 2); "
        "INSERT INTO t SELECT n, 0, n FROM generate_series(0, 119) n; COMMIT"
    )
    go_on("VACUUM FULL t")
    archive(options, segment_bytes=30_000)
    go_on()  # of this the archive has nothing: the server is read
    for at_us, expected in moments:
        rows, source = found(options, at_us)
        assert rows == expected
        assert "the base at" in source
    # what is altered now was the same when the archiver looked last, and nobody knows how long after it
    run("ALTER TABLE t ADD COLUMN n int DEFAULT 7")
    archive(options)
    assert all(found(options, at_us)[0] == expected for at_us, expected in moments[:-1])
    assert "was altered before" in refused(options, moments[-1][0])
    third = base(options)
    assert "was altered before" in refused(options, moments[-1][0])
    at_us, expected = moment(run), rows_of(postgres, postgres_database)
    change(run, next(seeds))
    fourth = base(options)
    run("DROP TABLE t")
    archive(options)
    rows, source = found(options, at_us)
    assert rows == expected
    assert third.position["lsn"] in source
    assert second.position["lsn"] != fourth.position["lsn"]
    assert all(found(options, at_us)[0] == expected for at_us, expected in moments[:3])
    assert "was dropped" in refused(options, moment(run))


def test_what_the_log_does_not_tell_is_noticed(postgres, postgres_database, run, options):
    archive(options)
    base(options)
    run("UPDATE t SET a = 1")
    sure = moment(run), rows_of(postgres, postgres_database)
    base(options)
    unnoticed = {
        "ALTER PUBLICATION tailrace DROP TABLE t; UPDATE t SET a = 2; "
        "ALTER PUBLICATION tailrace ADD TABLE t": "its publication was",
        "ALTER TABLE t ALTER a TYPE int USING a + 1": "was altered",
        "ALTER TYPE mood RENAME VALUE 'glad' TO 'happy'": "was altered",
        "ALTER PUBLICATION tailrace SET (publish = 'insert'); UPDATE t SET a = 3; "
        "ALTER PUBLICATION tailrace SET (publish = 'insert, update, delete, truncate')": "publication",
        "ALTER TABLE t RENAME TO u; UPDATE u SET a = 4; ALTER TABLE u RENAME TO t": "renamed",
        "ALTER TABLE t RENAME TO old; CREATE TABLE t (LIKE old INCLUDING ALL)": "created again",
    }
    for statements, why in unnoticed.items():
        for statement in statements.split("; "):
            run(statement)
        run("UPDATE t SET a = 5")
        at_us = moment(run)
        archive(options)
        assert why in refused(options, at_us), statements
        base(options)
        run("UPDATE t SET a = 6")
        at_us, expected = moment(run), rows_of(postgres, postgres_database)
        assert found(options, at_us)[0] == expected
    assert found(options, sure[0])[0] == sure[1]


def test_base_whose_snapshot_is_gone_or_whose_table_is_rewritten_meanwhile_is_to_be_kept_again(
    options, run, monkeypatch
):
    archive(options)
    with closing(Moment(options)) as moment:
        run("VACUUM FULL t")
        with pytest.raises(TransientSourceError, match="was rewritten") as rewritten:
            list(moment.rows(TABLE))
    within = Snapshots.within
    monkeypatch.setattr(
        Snapshots, "within", lambda self, wait_s: replace(within(self, wait_s), name="00000000-00000000-1")
    )
    with pytest.raises(TransientSourceError, match="is gone") as gone:
        Moment(options)
    assert rewritten.value.hint == gone.value.hint == "repeat the command"


def test_another_replica_identity_between_is_noticed(postgres, postgres_database, run, options):
    run("ALTER TABLE other ALTER d SET NOT NULL", "ALTER TABLE t ALTER a SET NOT NULL")
    run("CREATE UNIQUE INDEX by_a ON t (a)")
    archive(options)
    base(options)
    run(
        "ALTER TABLE t REPLICA IDENTITY USING INDEX by_a",
        "UPDATE t SET id = id + 500 WHERE id < 5",
        "ALTER TABLE t REPLICA IDENTITY DEFAULT",
        "UPDATE t SET b = 'x'",
    )
    at_us = moment(run)
    archive(options)
    assert "REPLICA IDENTITY" in refused(options, at_us)


def test_table_that_was_dropped_is_restored_up_to_the_last_look_of_the_archiver(
    postgres, postgres_database, run, options
):
    archive(options)
    base(options)
    run("UPDATE t SET a = 1")
    early = moment(run), rows_of(postgres, postgres_database)
    run("TRUNCATE t", "INSERT INTO t (id, part) VALUES (1, 1), (2, 2)")
    late = moment(run), rows_of(postgres, postgres_database)
    archive(options)
    unseen = moment(run)
    run("DROP TABLE t", "INSERT INTO other (d) VALUES ('x')")
    archive(options)
    assert "was dropped" in (told := refused(options, unseen))
    assert "it was the same" in told
    run("CREATE TABLE t (id int, part int, PRIMARY KEY (id, part))")
    run("ALTER PUBLICATION tailrace ADD TABLE t", "INSERT INTO t VALUES (7, 7)")
    archive(options)
    base(options)
    run("INSERT INTO t VALUES (8, 8)")
    again = moment(run), rows_of(postgres, postgres_database)
    archive(options)
    for at_us, expected in (early, late, again):
        assert found(options, at_us)[0] == expected


def test_table_without_a_key_is_restored_with_the_number_of_each_of_its_rows(
    postgres, postgres_database, run, options
):
    run(
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ALTER id DROP NOT NULL, ALTER part DROP NOT NULL",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t SELECT * FROM t WHERE id < 20",
    )
    archive(options)
    base(options)
    moments = []
    for statements in (
        ["DELETE FROM t WHERE ctid IN (SELECT min(ctid) FROM t WHERE id < 10 GROUP BY id)"],
        ["INSERT INTO t SELECT * FROM t WHERE id < 30", "UPDATE t SET a = NULL WHERE id BETWEEN 20 AND 25"],
        ["BEGIN; INSERT INTO t (id) VALUES (500), (500); DELETE FROM t WHERE id = 500; COMMIT"],
        ["UPDATE t SET id = 7, part = NULL WHERE id BETWEEN 7 AND 9", "UPDATE t SET b = b"],
        ["TRUNCATE t", "INSERT INTO t (id) VALUES (1), (1), (NULL)"],
    ):
        run(*statements)
        moments.append((moment(run), counted(run("SELECT * FROM t"))))
    archive(options)
    for at_us, expected in moments:
        rows = [
            tuple(row.values()) for part in restored(options, TABLE, at_us).rows for row in part.to_pylist()
        ]
        assert counted(rows) == expected


def counted(rows):
    return Counter(map(tuple, rows))


def test_what_the_archiver_sees_counts_once_all_transactions_of_then_have_ended(
    postgres, postgres_database, run, options
):
    archive(options)
    base(options)
    with closing(postgres.connect(database=postgres_database, autocommit=False)) as connection:
        cursor = connection.cursor()
        cursor.execute("INSERT INTO other (d) VALUES ('open')")
        run("UPDATE t SET a = 1")
        at_us = moment(run)
        run("UPDATE t SET a = 2")
        archive(options)
        run("ALTER TABLE t ADD COLUMN n int")
        connection.commit()
    assert "was altered" in refused(options, at_us)


@pytest.mark.slow
def test_partitioned_table_is_restored_as_one_and_a_partition_that_is_emptied_is_noticed(
    postgres, postgres_database, run, options
):
    run(
        "DROP TABLE t",
        "CREATE TABLE t (id int, part int, v text, PRIMARY KEY (id, part)) PARTITION BY RANGE (part)",
        "CREATE TABLE t0 PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (10) TO (20)",
        "INSERT INTO t SELECT n, n % 20, repeat('v', n) FROM generate_series(0, 99) n",
    )
    archive(options)
    base(options)
    run("UPDATE t SET part = (part + 7) % 20 WHERE id % 3 = 0", "DELETE FROM t WHERE id % 5 = 0")
    at_us, expected = moment(run), rows_of(postgres, postgres_database)
    run("UPDATE t SET v = 'later'")
    assert found(options, at_us)[0] == expected
    base(options)
    run("TRUNCATE t1", "UPDATE t SET v = 'last'")
    assert "was altered" in refused(options, moment(run))
    assert found(options, at_us)[0] == expected


def test_gap_other_times_and_damage_are_errors(postgres, postgres_database, run, options):
    early = moment(run)
    first = archive(options)
    base(options)
    run("UPDATE t SET a = 7")
    sure = moment(run), rows_of(postgres, postgres_database)
    run("UPDATE t SET a = 8")
    archive(options)
    active = f"SELECT NOT active FROM pg_replication_slots WHERE slot_name = '{first.slot}'"
    postgres.wait_until(active, bool, database=postgres_database)
    run(f"SELECT pg_drop_replication_slot('{first.slot}')", "UPDATE t SET a = 9")
    within = moment(run)
    with pytest.raises(PositionLostError) as lost:
        found(options, within)
    assert lost.value.code == "TR-4120"
    run("UPDATE t SET a = 10")
    archive(options, allow_gap=True)
    behind = moment(run)
    run("UPDATE t SET a = 11")
    archive(options)
    assert found(options, sure[0])[0] == sure[1]
    assert "not, or not wholly, in the archive" in refused(options, behind)
    for at_us in (early, within, moment(run) + 3_600_000_000):
        refused(options, at_us, "TR-8217")
    with pytest.raises(ConfigError) as other:
        restored(
            options_for(
                postgres,
                postgres_database,
                "public.*",
                publicationName="o",
                archive=options.archive,
                archiveKey=KEY,
            ),
            TABLE,
            sure[0],
        )
    assert other.value.code == "TR-8215"
    kept = WalArchive(options.archive, Secret(KEY))
    (path,) = (p for p in kept.store.names("bases") if p.endswith("-000001"))
    with (Path(options.archive) / "bases" / path).open("r+b") as opened:
        opened.seek(30)
        opened.write(b"\0\0\0\0")
    with pytest.raises(StateError) as damaged:
        found(options, sure[0])
    assert damaged.value.code == "TR-8204"
    # a base before which the log has expired is removed with it
    archive(options, expire_s=0)
    assert bases(WalArchive(options.archive, Secret(KEY))) == []


def test_commands_restore_a_table_after_kills_of_the_archiver(
    postgres, postgres_database, run, tmp_path, monkeypatch
):
    monkeypatch.setenv("TEST_PASSWORD", postgres.password)
    where = tmp_path / "archive"
    process = ArchiveProcess(
        tmp_path,
        postgres,
        where,
        "--segment-size",
        "20k",
        type="postgresql",
        database=postgres_database,
        archive=str(where),
        **{"publication-name": "tailrace", "tables": "public.*"},
    )
    file, target = str(tmp_path / "archive.yaml"), tmp_path / "t.parquet"
    command = CliRunner().invoke
    result = command(cli, ["archive", file, "--once"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    result = command(cli, ["archive", file, "--base"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "2 tables" in result.output
    change(run, 5)
    expected, at_us = rows_of(postgres, postgres_database), moment(run)
    run("DELETE FROM t")
    process.once("archive.segment")
    result = command(cli, ["archive", file, "--once"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    arguments = ["restore", file, "--table", "public.t", "--at", str(at_us // 1000 + 1), "--to", str(target)]
    result = command(cli, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert f"{len(expected)} rows of public.t" in result.output
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert {(r["id"], r["part"]): r for r in pq.read_table(target).to_pylist()} == expected
