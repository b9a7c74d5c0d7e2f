"""Kinds of log that a real server writes: checksums switched, engines mixed, huge values, files purged."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.errors import PositionLostError, SourceError
from tailrace.model.change import OP_CREATE, OP_DELETE
from tailrace.sources.mysql.binlog.dump import read_log
from tailrace.sources.mysql.binlog.follower import BinlogFollower
from tailrace.sources.mysql.start.starting import log_end_position
from tailrace.sources.mysql.wire.decoder import EventDecoder
from tailrace_dev.servers import MySqlServer, start_mysql
from tailrace_dev.servers import mysql as mysql_devserver
from tests.support.binlog import all_ranges, file_bytes, options_of
from tests.support.logged import changes_during


@pytest.fixture(scope="module")
def own() -> Iterator[MySqlServer]:
    """A server of this module's own, without GTIDs: only there may one transaction mix engines."""
    options = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF", "max_allowed_packet": "128M"}
    with start_mysql(options=options) as server:
        server.execute(
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY, v LONGBLOB)",
            "CREATE TABLE d.m (id INT PRIMARY KEY) ENGINE = MyISAM",
            "CREATE TABLE d.other (id INT PRIMARY KEY) ENGINE = MyISAM",
        )
        yield server


@pytest.fixture(autouse=True)
def _empty(own: MySqlServer) -> None:
    own.execute("DELETE FROM d.t", "DELETE FROM d.m", "DELETE FROM d.other")


def test_checksums_may_be_switched_while_the_log_is_followed_and_read(own: MySqlServer) -> None:
    options = options_of(own)
    start = log_end_position(options)
    with closing(BinlogFollower(options, start, lambda t: t.database == "d")) as follower:
        follower.wait(0)  # it follows from here on
        for i, checksum in enumerate(["NONE", "CRC32", "NONE", "CRC32"]):
            own.execute(
                f"INSERT INTO d.t VALUES ({2 * i}, 'x')",
                f"SET GLOBAL binlog_checksum = {checksum}",
                f"INSERT INTO d.t VALUES ({2 * i + 1}, 'y')",
            )
        end = log_end_position(options)
        ranges = all_ranges(follower, start, end)
        assert sum(r.transactions for r in ranges) == 8
        pieces = follower.blocks(start, ranges[-1].end)
        assert pieces is not None
        assert {piece.checksum for piece in pieces} == {False, True}
    decoder = EventDecoder(captures=lambda t: t.database == "d")
    read = [b for block in read_log(options, start, end) for b in decoder.feed(block)]
    assert [i for b in read for i in b.image("after").field("id").to_pylist()] == list(range(8))


def test_a_value_of_64_mb_comes_whole(own: MySqlServer) -> None:
    own.execute("SET GLOBAL max_allowed_packet = 134217728")
    (batch,) = changes_during(
        own, "d", lambda: own.execute("INSERT INTO d.t VALUES (1, REPEAT(CHAR(7, 200), 33554432))")
    )
    value = batch.image("after").field("v")[0].as_buffer()
    assert value.size == 64 << 20
    assert value.to_pybytes() == b"\x07\xc8" * (32 << 20)


@pytest.mark.filterwarnings("ignore::pymysql.err.Warning")
def test_what_myisam_keeps_of_a_rolled_back_transaction_is_kept(own: MySqlServer) -> None:
    batches = changes_during(
        own,
        "d",
        lambda: own.execute(
            "BEGIN",
            "INSERT INTO d.t VALUES (1, 'a')",
            "SAVEPOINT s",
            "INSERT INTO d.t VALUES (2, 'b')",
            "INSERT INTO d.m VALUES (1)",
            "ROLLBACK TO s",
            "INSERT INTO d.t VALUES (3, 'c')",
            "COMMIT",
        ),
    )
    last: dict[str, set[int]] = {"t": set(), "m": set()}
    for batch in batches:
        for op, before, after in zip(
            batch.op.to_pylist(),
            batch.image("before").to_pylist(),
            batch.image("after").to_pylist(),
            strict=True,
        ):
            if op == OP_CREATE:
                last[batch.table.id.table].add(after["id"])
            elif op == OP_DELETE:
                last[batch.table.id.table].remove(before["id"])
    for table, ids in last.items():
        assert ids == {row[0] for row in own.execute(f"SELECT id FROM d.{table}")}


@pytest.mark.filterwarnings("ignore::pymysql.err.Warning")
def test_a_transaction_of_mixed_engines_that_ends_in_rollback_is_exact_or_refused(own: MySqlServer) -> None:
    statements = (
        "BEGIN",
        "INSERT INTO d.t VALUES (1, 'a')",
        "INSERT INTO d.m VALUES (1)",
        "ROLLBACK",
    )
    try:
        batches = changes_during(own, "d", lambda: own.execute(*statements))
    except SourceError as error:
        assert "rolled back" in str(error)  # noqa: PT017
    else:
        assert {b.table.id.table for b in batches} == {"m"}


def test_a_purge_of_a_file_that_is_still_needed_is_told_and_one_behind_is_not_felt(own: MySqlServer) -> None:
    options = options_of(own)
    own.execute("FLUSH BINARY LOGS")
    start = log_end_position(options)
    own.execute("INSERT INTO d.t VALUES (1, 'x')", "FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (2, 'x')")
    end = log_end_position(options)
    blocks = read_log(options, start, end)
    first = next(blocks)
    assert first.file == start.file
    own.execute(f"PURGE BINARY LOGS TO '{end.file}'")  # the reader has its connection in it
    rest = list(blocks)
    assert rest[-1].file == end.file
    with pytest.raises(PositionLostError, match="binlog"):
        next(read_log(options, start, end))


@pytest.fixture
def encrypted(monkeypatch: pytest.MonkeyPatch) -> Iterator[MySqlServer]:
    """A server that encrypts its log, by a keyring whose settings must lie beside the program."""
    program = mysql_devserver.mysql_program(None)
    basedir = next((a.partition("=")[2] for a in program.command if a.startswith("--basedir=")), None)
    if basedir is None or not (Path(basedir) / "lib/mysql/plugin/component_keyring_file.so").exists():
        pytest.skip("no server with component_keyring_file that can be copied")
    original = Path(basedir).parent
    # next to the program: the server may run as a user who cannot read our own temporary files
    with tempfile.TemporaryDirectory(prefix="encrypted-", dir=original.parent) as directory:
        Path(directory).chmod(0o755)
        keys = Path(directory, "keys")
        keys.mkdir()
        keys.chmod(0o777)
        copy = Path(directory, "server")
        shutil.copytree(original, copy, symlinks=True, copy_function=os.link)
        (copy / "usr/sbin/mysqld.my").write_text('{"components": "file://component_keyring_file"}')
        settings = {"path": str(keys / "keyring"), "read_only": False}
        (copy / "usr/lib/mysql/plugin/component_keyring_file.cnf").write_text(json.dumps(settings))
        command = [argument.replace(str(original), str(copy)) for argument in program.command]
        monkeypatch.setattr(
            start_mysql, "_program", lambda version: dataclasses.replace(program, command=command)
        )
        with start_mysql(options={"binlog_encryption": "ON"}) as server:
            server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v TEXT)")
            yield server


def test_an_encrypted_log_is_read_as_the_server_decrypts_it(encrypted: MySqlServer) -> None:
    options = options_of(encrypted)
    start = log_end_position(options)
    encrypted.execute("INSERT INTO d.t VALUES (1, 'readable')", "FLUSH BINARY LOGS", "DELETE FROM d.t")
    end = log_end_position(options)
    assert b"readable" not in file_bytes(encrypted, start.file)
    decoder = EventDecoder(captures=lambda t: t.database == "d")
    batches = [b for block in read_log(options, start, end) for b in decoder.feed(block)]
    assert [op for b in batches for op in b.op.to_pylist()] == [OP_CREATE, OP_DELETE]
    assert batches[0].image("after").to_pylist() == [{"id": 1, "v": "readable"}]
    with closing(BinlogFollower(options, start, lambda t: t.database == "d")) as follower:
        assert sum(r.transactions for r in all_ranges(follower, start, end)) == 2


@pytest.mark.slow
def test_a_log_file_beyond_4_gb_is_read_and_gone_on_from(own: MySqlServer) -> None:
    options = options_of(own)
    # BLACKHOLE keeps nothing but the log; files are cut between transactions only, so it takes one
    own.execute(
        "SET GLOBAL max_allowed_packet = 134217728", "CREATE TABLE d.b (v LONGBLOB) ENGINE = BLACKHOLE"
    )
    start = log_end_position(options)
    rows = 70
    insert = "INSERT INTO d.b SELECT REPEAT('x', 64 << 20)"
    own.execute("BEGIN", *[insert] * rows, "COMMIT")
    with closing(BinlogFollower(options, start, lambda t: t.database == "d")) as follower:
        (huge,) = all_ranges(follower, start, log_end_position(options))[:1]
        assert huge.transactions == 1
        assert huge.end.file == start.file
        assert huge.end.pos > 1 << 32
        own.execute("INSERT INTO d.t VALUES (1, 'behind')")
        end = log_end_position(options)
        (behind,) = [r for r in all_ranges(follower, huge.end, end) if r.transactions]
        assert behind.transactions == 1
    decoder = EventDecoder(captures=lambda t: t.database == "d")
    found = [b for block in read_log(options, huge.end, end) for b in decoder.feed(block)]
    assert [b.image("after").to_pylist() for b in found] == [[{"id": 1, "v": b"behind"}]]
    places: list[int] = []
    sizes = 0
    decoder = EventDecoder(captures=lambda t: t.database == "d")
    for block in read_log(options, start, huge.end):
        for batch in decoder.feed(block):
            places += batch.origin.column("pos").to_pylist()
            sizes += batch.image("after").field("v").nbytes
    assert len(places) == rows
    assert places == sorted(set(places))
    assert places[-1] > 1 << 32
    assert sizes > rows * (64 << 20)
