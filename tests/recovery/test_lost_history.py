"""Servers that lack transactions which the stream has read: a definite error, never a wrong target."""

from __future__ import annotations

import logging
import shutil
import subprocess
import time

import pytest

from tailrace.errors import PositionLostError
from tailrace_dev.servers import start_mariadb, start_mysql
from tests.support.engine import Engine, changes_of, options_for

START = {"mysql": start_mysql, "mariadb": start_mariadb}


@pytest.fixture(params=START)
def server(request):
    options = {"sync_binlog": "1", "innodb_flush_log_at_trx_commit": "0"}
    with START[request.param](options=options) as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        yield server


def until(engine, last):
    """Read up to the row `last`."""
    seen = []
    deadline = time.monotonic() + 40
    while last not in seen:
        assert time.monotonic() < deadline, "neither the row nor an error came"
        batch = engine.next()
        if batch is not None:
            snapshot, log = engine.read(*batch)
            seen += [after["id"] for _, _, after, _ in changes_of([*snapshot, *log])]
    return seen


def refused(engine, message):
    with pytest.raises(PositionLostError, match=message) as caught:
        until(engine, None)
    return caught.value


def test_crash_that_can_undo_logged_transactions_ends_the_stream(server, caplog):
    options = options_for(server, "d.t")
    with Engine(options) as engine:
        engine.read(*engine.next())
        server.execute("INSERT INTO d.t VALUES (1)")
        until(engine, 1)
        server.restart()
        server.execute("INSERT INTO d.t VALUES (2)", "FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (3)")
        until(engine, 3)  # neither a shutdown nor a new file is a crash
        offset = engine.offset
        server.kill()
        server.start()
        error = refused(engine, "the server crashed")
        assert "innodb_flush_log_at_trx_commit is 0" in error.detail
    server.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    with caplog.at_level(logging.WARNING), Engine(options) as engine:
        engine.offset = offset
        server.execute("INSERT INTO d.t VALUES (4)")
        until(engine, 4)
    assert any("the server crashed" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    "running",
    [
        pytest.param(True, id="running"),
        pytest.param(False, id="restarted", marks=pytest.mark.slow),  # the end of the other one
    ],
)
def test_server_restored_from_a_backup_ends_the_stream(server, tmp_path, running):
    server.stop()
    subprocess.run(["cp", "-a", server.data, tmp_path / "backup"], check=True)
    server.start()
    options = options_for(server, "d.t", retryTimeoutMs=60_000)
    with Engine(options) as engine:
        engine.read(*engine.next())
        server.execute("INSERT INTO d.t VALUES (1)", "INSERT INTO d.t VALUES (2)")
        until(engine, 2)
        offset = engine.offset
        if not running:
            engine.plan.close()
        server.stop()
        shutil.rmtree(server.data)
        subprocess.run(["cp", "-a", tmp_path / "backup", server.data], check=True)
        server.start()
        server.execute("INSERT INTO d.t VALUES (3)")
        if running:
            refused(engine, "has lost transactions that the stream has read")
    with Engine(options) as engine:
        engine.offset = offset
        refused(engine, "has lost transactions that the stream has read")
