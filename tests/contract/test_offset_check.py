"""An offset that somebody sets: each server says whether its log has the position."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import pytest

from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import ConfigError
from tailrace.pipeline.offset_check import require_in_log
from tests.recovery.test_postgres_schema import stream
from tests.support.engine import Engine, options_for


def refused(options: Any, log: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        require_in_log(options, StreamOffset("initial", log))
    assert error.value.code == "TR-1310"
    assert re.search(problem, str(error.value.detail)), error.value.detail


def drained(engine: Engine) -> dict[str, Any]:
    """The position of a stream that has read its log, as its offset has it."""
    engine.plan.hold()
    while engine.next() is not None:
        pass
    engine.read_beyond()
    assert engine.offset.log is not None
    return dict(engine.offset.log)


@pytest.mark.parametrize("product", ["mysql", "mariadb"])
def test_position_must_be_between_transactions_of_the_servers_log(
    request: pytest.FixtureRequest, product: str
) -> None:
    server = request.getfixturevalue(product)
    database = request.getfixturevalue("database" if product == "mysql" else "mariadb_database")
    table = f"{database}.t"
    server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)", f"INSERT INTO {table} VALUES (1)")
    options = options_for(server, table)
    with Engine(options) as engine:
        drained(engine)
        server.execute(f"INSERT INTO {table} VALUES (3)")
        log = drained(engine)
    require_in_log(options, StreamOffset())
    require_in_log(options, StreamOffset("initial", log))
    server.execute(f"INSERT INTO {table} VALUES (2)")
    require_in_log(options, StreamOffset("initial", log))
    of_any_text = server.connect(charset="latin1")  # the shared server's log has statements in other charsets
    with closing(of_any_text) as connection, connection.cursor() as cursor:
        cursor.execute(f"SHOW BINLOG EVENTS IN '{log['file']}'")
        events = cursor.fetchall()
    commit = next(row for row in reversed(events) if row[2] == "Xid")
    require_in_log(options, StreamOffset("initial", {**log, "pos": commit[4]}))
    refused(options, {**log, "pos": commit[1]}, "within a transaction: the last .* before it ends at [0-9]+")
    refused(options, {**log, "pos": commit[4] - 1}, "within a transaction")
    refused(options, {**log, "pos": 10**9}, "the file has [0-9]+ bytes")
    refused(options, {**log, "file": log["file"][:-6] + "999999"}, "the server has the files")
    with pytest.raises(ConfigError) as error:
        require_in_log(options, StreamOffset("initial", {"lsn": "0/1"}))
    assert error.value.code == "TR-1301"


def test_position_must_be_in_the_log_that_the_slot_holds(postgres: Any, postgres_database: str) -> None:
    def run(*statements: str) -> None:
        postgres.execute(*statements, database=postgres_database)

    run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with stream(postgres, postgres_database, tables="public.t") as engine:
        log = drained(engine)
        options = engine.options
        run("INSERT INTO t VALUES (2)")
        later = drained(engine)
        engine.plan.commit(engine.offset)
    require_in_log(options, StreamOffset("initial", later))
    refused(options, {**log, "lsn": "FFFF/0"}, "the log ends at")
    refused(options, {**log, "lsn": "0/100"}, "the log behind it is gone")
    postgres.execute(f"SELECT pg_drop_replication_slot('slot_{postgres_database}')")
    refused(options, later, "the log behind it is gone")
