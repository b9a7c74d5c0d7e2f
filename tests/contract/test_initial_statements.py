"""Sessions begin with `database.initial.statements`, and what the server refuses is an error."""

from __future__ import annotations

from contextlib import closing

import pytest

from tailrace.errors import SourceError
from tailrace.sources.mysql import connection as mysql_connection
from tailrace.sources.postgres import connection as postgres_connection
from tests.support import engine
from tests.support import postgres as postgres_tables

NAME = "database.initial.statements"


@pytest.mark.parametrize("product", ["mysql", pytest.param("mariadb", marks=pytest.mark.slow)])
def test_session_of_mysql_begins_with_statements(request: pytest.FixtureRequest, product: str) -> None:
    server = request.getfixturevalue(product)
    options = engine.options_for(server, "a.b", **{NAME: "SET optimizer_search_depth = 7"})
    connection = mysql_connection.connect(options, purpose="a test")
    with closing(connection), connection.cursor() as cursor:
        cursor.execute("SELECT @@optimizer_search_depth, @@time_zone")
        assert cursor.fetchone() == (7, "+00:00")
    options = engine.options_for(server, "a.b", **{NAME: "SET ROLE nobody_has_it"})
    with pytest.raises(SourceError, match=r"running database\.initial\.statements"):
        mysql_connection.connect(options, purpose="a test")


def test_session_of_postgresql_begins_with_statements(postgres, postgres_database) -> None:
    def options(statements: str):
        return postgres_tables.options_for(postgres, postgres_database, "a.b", **{NAME: statements})

    connection = postgres_connection.connect(options("SET work_mem = '3MB'"), purpose="a test")
    with closing(connection):
        assert connection.value("SELECT current_setting('work_mem')") == "3MB"
    connection = postgres_connection.connect(options("SET work_mem = '3MB'"), purpose="x", replication=True)
    connection.close()
    with pytest.raises(SourceError, match=r"running database\.initial\.statements"):
        postgres_connection.connect(options("SET ROLE nobody_has_it"), purpose="a test")
