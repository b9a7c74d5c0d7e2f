"""A server that accepts only short statements: what fits works, what does not is named with its remedy."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from tailrace.errors import SourceError
from tailrace.sources.mysql.checks.preflight import check
from tests.support.databases import global_variable
from tests.support.engine import Engine, Held, options_for


@pytest.fixture(params=["mysql", "mariadb"])
def place(request):
    """A server and a database on it."""
    database = "database" if request.param == "mysql" else "mariadb_database"
    return request.getfixturevalue(request.param), request.getfixturevalue(database)


@contextmanager
def short_statements(server):
    """The server accepts 1 KiB: a packet that fits into its buffer is never too long."""
    with (
        global_variable(server, "max_allowed_packet", "1024"),
        global_variable(server, "net_buffer_length", "1024"),
    ):
        yield


def table(server, database, length, rows=60):
    values = ", ".join(f"('{n:03d}{'x' * (length - 3)}', 0)" for n in range(rows))
    server.execute(
        f"CREATE TABLE {database}.t (k VARCHAR(600) CHARACTER SET latin1 PRIMARY KEY, v INT)",
        f"INSERT INTO {database}.t VALUES {values}",
        *(f"CREATE TABLE {database}.t{n}{'_' * 50} (id INT PRIMARY KEY)" for n in range(8)),
    )
    return f"{database}.t"


def read_all(engine):
    while engine.offset.is_new or engine.offset.tables:
        if batch := engine.next():
            engine.read(*batch)


def test_short_keys_are_read_with_short_statements(place):
    server, database = place
    name = table(server, database, 20)
    options = options_for(server, f"{database}.*", snapshotChunkRows=10)
    with short_statements(server), Engine(options) as engine:
        assert any(f.check == "max_allowed_packet" for f in check(options))
        sink = Held(engine, ("k",))
        sink.take(*engine.read(*engine.next()))
        server.execute(f"UPDATE {name} SET v = v + 1")
        engine.plan.hold()
        while (batch := engine.next()) is not None:
            sink.take(*engine.read(*batch))
    assert len(sink.state) == 60
    assert {row["v"] for row in sink.state.values()} == {1}


def test_key_that_fits_into_no_statement_is_an_error_with_the_remedy(place):
    server, database = place
    name = table(server, database, 590)
    with (
        short_statements(server),
        Engine(options_for(server, name, snapshotChunkRows=10, retryTimeoutMs=1000)) as engine,
        pytest.raises(SourceError, match="longer than the server accepts") as caught,
    ):
        read_all(engine)
    assert "max_allowed_packet = 67108864" in caught.value.hint
