"""`tailrace restore`: a table exactly as it was at a time, whatever has happened to it since."""

from __future__ import annotations

import random
import stat
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tailrace.cli import cli
from tailrace.config.secret import Secret
from tailrace.errors import PositionLostError, SourceError, StateError
from tailrace.model.table import TableId
from tailrace.pipeline.restore import keep_base, restored
from tailrace.sources.archive.archive import Archive
from tailrace.sources.archive.bases import bases
from tailrace.sources.mysql.start import starting
from tests.support.archives import ArchiveProcess, archive_and_purge, archive_to_end
from tests.support.databases import named_rows
from tests.support.engine import options_for
from tests.support.wait import wait_until

KEY = "11" * 32


@pytest.fixture(params=["mysql", pytest.param("mariadb", marks=pytest.mark.slow)])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def table(request, server, monkeypatch):
    monkeypatch.setattr(starting, "_STAMP_MARGIN_US", 0)
    fixture = "database" if server is request.getfixturevalue("mysql") else "mariadb_database"
    return f"{request.getfixturevalue(fixture)}.t"


@pytest.fixture
def options(server, table, tmp_path):
    return options_for(server, table.replace(".", r"\."), archive=tmp_path / "archive", archiveKey=KEY)


def create(server, table, rows=300):
    server.execute(
        f"CREATE TABLE {table} (id INT, part INT, a INT, b VARCHAR(40), c DECIMAL(10, 2), t TIME(3), "
        "PRIMARY KEY (id, part))",
        f"INSERT INTO {table} VALUES "
        + ", ".join(f"({i}, {i % 3}, {i}, 'row {i}', {i}.25, '-01:00:0{i % 10}.5')" for i in range(rows)),
    )


def change(server, table, seed, count=40):
    """Random changes of rows, keys among them."""
    draw = random.Random(seed)
    statements = []
    for _ in range(count):
        low = draw.randrange(300)
        statements.append(
            draw.choice(
                [
                    f"UPDATE {table} SET a = a + {draw.randrange(9)} WHERE id BETWEEN {low} AND {low + 9}",
                    f"DELETE FROM {table} WHERE id BETWEEN {low} AND {low + 3}",
                    f"INSERT IGNORE INTO {table} VALUES ({low}, 7, 0, NULL, NULL, NULL)",
                    f"UPDATE IGNORE {table} SET part = part + 10 WHERE id = {low}",
                    f"REPLACE INTO {table} VALUES ({low}, 0, -1, 'replaced', 1, '00:00:01')",
                ]
            )
        )
    server.execute(*statements)


def rows_of(server, table):
    with server.connect() as connection, connection.cursor() as cursor:
        return {(r["id"], r["part"]): r for r in named_rows(cursor, f"SELECT * FROM {table}")}


def moment():
    """A time in microseconds between two transactions: MariaDB knows whole seconds only."""
    now = int(time.time())
    wait_until(lambda: time.time() > now + 1.05, 10, "the next second")
    return (now + 1) * 1_000_000


def found(options, table, at_us):
    result = restored(options, TableId.parse(table), at_us)
    rows = [row for part in result.rows for row in part.to_pylist()]
    keyed = {(r["id"], r["part"]): r for r in rows}
    assert len(keyed) == len(rows)
    return keyed, result.source


def test_table_is_restored_from_its_rows_of_now_and_from_bases(server, table, options, tmp_path):
    where, key = tmp_path / "archive", Secret(KEY)
    server.execute("FLUSH BINARY LOGS")
    create(server, table)
    moments = []
    for seed in range(2):
        change(server, table, seed)
        expected = rows_of(server, table)
        moments.append((moment(), expected))
        if seed == 0:
            archive_and_purge(options, where, server, key=key)
            keep_base(options, Archive(str(where), key))
            server.execute(f"ALTER TABLE {table} ADD INDEX by_a (a)")  # rows stay as they are
    change(server, table, 9)
    archive_and_purge(options, where, server, key=key)
    for at_us, expected in moments:
        rows, source = found(options, table, at_us)
        assert source == "the rows of now"
        assert rows == expected
    # the table is gone: what it was is made from the base, forwards and backwards, or from its creation
    server.execute(f"DROP TABLE {table}")
    sources = []
    for at_us, expected in moments:
        rows, source = found(options, table, at_us)
        sources.append(source)
        assert rows == expected
    assert all("the base at" in source for source in sources)
    with pytest.raises(SourceError) as nothing:
        restored(options, TableId.parse(table), moment())
    assert nothing.value.code == "TR-8211"


def test_table_is_restored_from_its_creation_and_from_a_truncation(server, table, options, tmp_path):
    where, key = tmp_path / "archive", Secret(KEY)
    server.execute("FLUSH BINARY LOGS")
    create(server, table)
    change(server, table, 3)
    first = moment(), rows_of(server, table)
    server.execute(f"TRUNCATE {table}", f"INSERT INTO {table} VALUES (1, 1, 1, 'after', 1, NULL)")
    second = moment(), rows_of(server, table)
    server.execute(f"ALTER TABLE {table} DROP COLUMN b", f"UPDATE {table} SET a = 5")
    archive_and_purge(options, where, server, key=key)
    for at_us, expected in (first, second):
        rows, source = found(options, table, at_us)
        assert rows == expected
        assert "the empty table at" in source
    rows, source = found(options, table, moment())
    assert rows == rows_of(server, table)
    assert source == "the rows of now"


def test_schema_change_between_is_never_passed_over(mysql, database, tmp_path, monkeypatch):
    monkeypatch.setattr(starting, "_STAMP_MARGIN_US", 0)
    table, where = f"{database}.t", tmp_path / "archive"
    options = options_for(mysql, table, archive=where)
    create(mysql, table)
    mysql.execute("FLUSH BINARY LOGS")
    purge_from = mysql.execute("SHOW BINARY LOGS")[-1][0]
    mysql.execute(f"PURGE BINARY LOGS TO '{purge_from}'")
    archive_to_end(options, where)
    at_us = moment()
    mysql.execute(f"ALTER TABLE {table} MODIFY a BIGINT NOT NULL DEFAULT 5")
    with pytest.raises(SourceError) as caught:
        restored(options, TableId.parse(table), at_us)
    assert caught.value.code == "TR-8211"
    assert "MODIFY" in caught.value.detail
    # a base of before helps, one of behind does not
    keep_base(options, Archive(str(where), None))
    with pytest.raises(SourceError):
        restored(options, TableId.parse(table), at_us)
    with pytest.raises(PositionLostError):
        restored(options, TableId.parse(table), 1_000_000)


def test_damaged_base_is_an_error(mysql, database, tmp_path, monkeypatch):
    monkeypatch.setattr(starting, "_STAMP_MARGIN_US", 0)
    table, where = f"{database}.t", tmp_path / "archive"
    options = options_for(mysql, table, archive=where)
    mysql.execute("FLUSH BINARY LOGS")
    create(mysql, table, 5)
    archive_to_end(options, where)
    keep_base(options, Archive(str(where), None))
    expected = rows_of(mysql, table)
    at_us = moment()
    mysql.execute(f"DROP TABLE {table}")
    assert found(options, table, at_us)[0] == expected
    (path,) = where.glob("bases/*-000000")
    good = path.read_bytes()
    for at in (0, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(StateError) as caught:
            found(options, table, at_us)
        assert caught.value.code == "TR-8204"
    path.unlink()
    with pytest.raises(StateError, match="missing"):
        found(options, table, at_us)
    # a base behind which the log has expired is removed with it
    mysql.execute("FLUSH BINARY LOGS", f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    archive = archive_to_end(options, where, expire_s=0)
    assert bases(archive) == []
    assert archive.store.names("bases") == []


def test_command_writes_a_private_parquet_file(mysql, database, tmp_path, monkeypatch):
    table, where = f"{database}.t", tmp_path / "archive"
    monkeypatch.setattr(starting, "_STAMP_MARGIN_US", 0)
    monkeypatch.setenv("TEST_PASSWORD", mysql.password)
    mysql.execute("FLUSH BINARY LOGS")
    create(mysql, table, 20)
    expected = rows_of(mysql, table)
    at_us = moment()
    mysql.execute(f"DELETE FROM {table}")
    ArchiveProcess(tmp_path, mysql, where, archive=str(where))
    file, target = str(tmp_path / "archive.yaml"), tmp_path / "t.parquet"
    run = CliRunner().invoke
    result = run(cli, ["archive", file, "--once"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    result = run(cli, ["archive", file, "--base"], catch_exceptions=False)
    assert "base" in result.output
    arguments = ["restore", file, "--table", table, "--at", str(at_us // 1000), "--to", str(target)]
    result = run(cli, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "20 rows" in result.output
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    read = pq.read_table(target)
    assert {(r["id"], r["part"]): r for r in read.to_pylist()} == expected
    assert read.schema.field("c").type == pa.decimal128(10, 2)
    assert run(cli, arguments).exit_code == 2  # it does not write over a file
