"""A request to read a table again, of a stream that lags: rows that are gone, unlogged, leave the target."""

from __future__ import annotations

import pytest

from tailrace.enumerator.request import Request
from tests.support.engine import Engine, options_for
from tests.support.rereading import Target
from tests.support.wait import wait_until


class Requests:
    def __init__(self):
        self.waiting = []

    def pending(self):
        return list(self.waiting)

    def remove(self, ids):
        self.waiting = [request for request in self.waiting if request.id not in ids]


@pytest.mark.parametrize("product", ["mysql", "mariadb"])
def test_row_that_was_created_and_then_deleted_unlogged_leaves_the_target(request, product):
    server = request.getfixturevalue(product)
    database = request.getfixturevalue("database" if product == "mysql" else "mariadb_database")
    table = f"{database}.t"
    server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)", f"INSERT INTO {table} VALUES (1), (2)")
    with Engine(options_for(server, table)) as engine:
        target = Target(engine, table)
        requests = engine.plan._requests._requests = Requests()
        target.drain_all()
        server.execute(
            f"INSERT INTO {table} VALUES (3)", "SET sql_log_bin = 0", f"DELETE FROM {table} WHERE id = 3"
        )
        requests.waiting.append(Request("r1", (table,)))
        target.drain_all()
        assert engine.offset.requests == ("r1",)
        target.equals(server)


@pytest.mark.parametrize("product", ["mysql", "mariadb"])
def test_request_takes_effect_where_nothing_follows_in_the_log(request, product):
    """The log's end is in a new file, in which no transaction is."""
    server = request.getfixturevalue(product)
    database = request.getfixturevalue("database" if product == "mysql" else "mariadb_database")
    table = f"{database}.t"
    server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)", f"INSERT INTO {table} VALUES (1), (2)")
    with Engine(options_for(server, table)) as engine:
        target = Target(engine, table)
        requests = engine.plan._requests._requests = Requests()
        target.drain_all()
        server.execute("SET sql_log_bin = 0", f"DELETE FROM {table} WHERE id = 1")
        server.execute("FLUSH BINARY LOGS")
        requests.waiting.append(Request("r1", (table,)))
        wait_until(lambda: target.step() and "r1" in engine.offset.requests, 15, "the request to be accepted")
        target.drain_all()
        target.equals(server)
