"""The server could not log changes and says so: an INCIDENT event, from a real server.

A change of a table without transactions that is larger than `max_binlog_stmt_cache_size` is in the table, and
cannot be logged. MySQL then writes INCIDENT.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.errors import PositionLostError
from tailrace_dev.servers import start_mysql
from tests.recovery.test_mysql_purged_batch import engine_for
from tests.support.engine import Engine, options_for
from tests.support.rereading import Target
from tests.support.wait import wait_until

TABLE = "shop.t"


@pytest.fixture(scope="module")
def own() -> Iterator[Any]:
    """A server of its own: an incident ends every stream that reads past it."""
    options = {"binlog_stmt_cache_size": "4096", "max_binlog_stmt_cache_size": "4096"}
    with start_mysql(options=options) as server:
        server.execute("CREATE DATABASE shop")
        yield server


@pytest.fixture
def table(own: Any) -> Iterator[str]:
    own.execute(
        f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, v VARCHAR(200)) ENGINE = MyISAM",
        f"INSERT INTO {TABLE} VALUES (1, 'one'), (2, 'two'), (3, 'three')",
        "RESET BINARY LOGS AND GTIDS",
    )
    yield TABLE
    own.execute(f"DROP TABLE {TABLE}")


def lose_changes(own: Any) -> None:
    rows = ", ".join(f"({number}, '{'x' * 150}')" for number in range(100, 200))
    with pytest.raises(Exception, match="max_binlog_stmt_cache_size"):
        own.execute(f"INSERT INTO {TABLE} VALUES {rows}")
    with own.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        files = [row[0] for row in cursor.fetchall()]
        kinds = []
        for file in files:
            cursor.execute(f"SHOW BINLOG EVENTS IN '{file}'")
            kinds += [row[2] for row in cursor.fetchall()]
    assert "Incident" in kinds


@pytest.mark.parametrize("chunk", [100, 1], ids=["after the snapshot", "during the snapshot"])
def test_stream_goes_on_behind_an_incident_and_equals_its_table(
    own: Any, table: str, tmp_path: Any, chunk: int
) -> None:
    """Although the log does not hold all that the table has."""
    options = options_for(own, table, onPositionLost="refresh", snapshotChunkRows=chunk)
    with engine_for(options, tmp_path) as engine:
        target = Target(engine, table)
        target.step()
        if chunk == 100:
            target.drain(own)
        own.execute(f"DELETE FROM {table} WHERE id = 1", f"UPDATE {table} SET v = '2' WHERE id = 2")
        lose_changes(own)
        own.execute(f"DELETE FROM {table} WHERE id IN (3, 100)", f"INSERT INTO {table} VALUES (4, 'four')")
        wait_until(lambda: [target.step()] and engine.offset.gaps, 30, "the position to be lost")
        target.drain(own)
        target.equals(own)
        own.execute(f"DELETE FROM {table} WHERE id = 101", f"INSERT INTO {table} VALUES (5, 'five')")
        target.drain(own)
        target.equals(own)


def test_stream_that_is_not_to_go_on_ends_with_a_lost_position(own: Any, table: str) -> None:
    with Engine(options_for(own, table)) as engine:
        target = Target(engine, table)
        target.drain(own)
        lose_changes(own)
        with pytest.raises(PositionLostError, match="INCIDENT") as lost:
            target.drain(own)
    assert lost.value.code == "TR-4108"
    assert "onPositionLost: refresh" in str(lost.value)
