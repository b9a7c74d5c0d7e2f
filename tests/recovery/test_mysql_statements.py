"""Sessions that log statements instead of rows: what they may have changed is never left out silently."""

from __future__ import annotations

import io
import logging

import pymysql
import pytest

from tailrace.errors import SourceError
from tests.support.databases import global_variable
from tests.support.engine import Engine, changes_of, options_for

SET_UP = [
    "CREATE TABLE {d}.t (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE {d}.other (id INT PRIMARY KEY, v INT)",
    "CREATE TRIGGER {d}.fires AFTER INSERT ON {d}.other FOR EACH ROW INSERT INTO {d}.t VALUES (NEW.id, 1)",
    "CREATE FUNCTION {d}.f() RETURNS INT DETERMINISTIC BEGIN INSERT INTO {d}.t VALUES (7, 7); RETURN 1; END",
    "CREATE VIEW {d}.seen AS SELECT * FROM {d}.t",
    "CREATE TABLE {d}.parent (id INT PRIMARY KEY)",
    "CREATE TABLE {d}.child (id INT PRIMARY KEY, FOREIGN KEY(id) REFERENCES {d}.parent(id) ON DELETE CASCADE)",  # noqa: E501
    "INSERT INTO {d}.parent VALUES (1)",
    "INSERT INTO {d}.child VALUES (1)",
]
WRITES = {
    "named": "INSERT INTO {d}.t VALUES (1, 1)",
    "trigger": "INSERT INTO {d}.other VALUES (1, 1)",
    "function": "SELECT {d}.f()",
    "function-of-another-database": "DO {d}.f()",
    "view": "INSERT INTO {d}.seen VALUES (1, 1)",
    "cascade": "DELETE FROM {d}.parent",
    "query": "CREATE TABLE {d}.t2 SELECT 1 AS id",
    "load": "LOAD DATA LOCAL INFILE 'x' INTO TABLE {d}.other",
    "load-named": "LOAD DATA LOCAL INFILE 'x' INTO TABLE {d}.t",
}


@pytest.fixture(params=["mysql", "mariadb"])
def place(request):
    """A server, and a database on it with what writes to `t`."""
    name = request.param
    database = request.getfixturevalue("database" if name == "mysql" else "mariadb_database")
    server = request.getfixturevalue(name)
    with global_variable(server, "log_bin_trust_function_creators", "1"):
        server.execute(*(statement.format(d=database) for statement in SET_UP))
    with global_variable(server, "local_infile", "1"):
        yield server, database


class OneLine(pymysql.connections.Connection):
    """Sends one line, whatever file the server asks for."""

    def __init__(self, server, database, format_):
        super().__init__(
            host=server.host, port=server.port, user=server.user, password=server.password,
            database=database, local_infile=True, autocommit=True,
        )  # fmt: skip
        with self.cursor() as cursor:
            cursor.execute(f"SET SESSION binlog_format = {format_}")


@pytest.fixture(autouse=True)
def _loaded_file(monkeypatch):
    monkeypatch.setattr(pymysql.connections, "open", lambda *_: io.BytesIO(b"1\t1\n"), raising=False)


def written(server, database, statement, format_="STATEMENT"):
    connection = OneLine(server, database, format_)
    with connection, connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.filterwarnings("ignore::pymysql.err.Warning")
@pytest.mark.parametrize("how", WRITES)
def test_statement_that_may_have_changed_a_captured_table_ends_the_stream(place, how):
    server, database = place
    with Engine(options_for(server, rf"{database}\.(t\d*|child)")) as engine:
        engine.read(*engine.next())
        written(server, database, WRITES[how].format(d=database))
        server.execute(f"INSERT INTO {database}.t VALUES (100, 1)")
        with pytest.raises(SourceError, match="a statement instead of rows") as refused:
            until(engine, 100)
    assert database in refused.value.message
    assert "binlog_format = ROW" in refused.value.hint


@pytest.mark.filterwarnings("ignore::pymysql.err.Warning")
def test_mixed_session_with_an_unsafe_row_is_captured(place):
    server, database = place
    with Engine(options_for(server, rf"{database}\.t")) as engine:
        engine.read(*engine.next())
        written(server, database, f"INSERT INTO {database}.t VALUES (LENGTH(UUID()), 1)", "MIXED")
        server.execute(f"INSERT INTO {database}.t VALUES (100, 1)")
        assert until(engine, 100) == [36, 100]


@pytest.mark.filterwarnings("ignore::pymysql.err.Warning")
def test_statement_of_another_database_is_reported_and_the_stream_goes_on(place, caplog):
    server, database = place
    server.execute(f"CREATE DATABASE {database}_x", f"CREATE TABLE {database}_x.t (id INT)")
    try:
        with caplog.at_level(logging.WARNING), Engine(options_for(server, rf"{database}\.t")) as engine:
            engine.read(*engine.next())
            for number in (1, 2):
                written(server, f"{database}_x", f"INSERT INTO {database}_x.t VALUES ({number})")
            server.execute(f"INSERT INTO {database}.t VALUES (100, 1)")
            assert until(engine, 100) == [100]
        warnings = [record.getMessage() for record in caplog.records if "instead of rows" in record.msg]
        assert [f"`{database}_x`" in text for text in warnings] == [True]
    finally:
        server.execute(f"DROP DATABASE {database}_x")


def until(engine, last):
    """The ids of the rows that come, up to the row `last`."""
    seen = []
    while last not in seen:
        batch = engine.next()
        if batch is not None:
            snapshot, log = engine.read(*batch)
            assert not snapshot
            seen += [after["id"] for _, _, after, _ in changes_of(log)]
    return seen
