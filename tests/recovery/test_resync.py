"""A request to read a table again, of a stream that lags: rows that are gone, unlogged, leave the target."""

from __future__ import annotations

import pytest

from tailrace.enumerator.request import Request
from tailrace.model.signal import Signal
from tests.recovery.test_postgres_schema import stream
from tests.support.engine import Engine, options_for, rows_of
from tests.support.rereading import Requests, Target, read
from tests.support.wait import wait_until


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


def conditional(id_, table, where):
    data = {
        "data-collections": [table],
        "additional-conditions": [{"data-collection": table, "filter": where}],
    }
    return Request(id_, (), "signal", signal=Signal(id_, "execute-snapshot", data))


def next_batch(engine):
    return wait_until(engine.next, 30, "a batch")


def values(target):
    return {row["id"]: row["v"] for row in target.rows}


@pytest.mark.parametrize("product", ["mysql", "mariadb", "postgres"])
def test_only_rows_with_the_condition_are_corrected_and_none_is_deleted(request, product):
    if product == "postgres":
        server, database = request.getfixturevalue("postgres"), request.getfixturevalue("postgres_database")
        table, run = "public.t", lambda *sql: server.execute(*sql, database=database)
        open_ = lambda: stream(server, database, tables="public.t", snapshotChunkRows=4)  # noqa: E731
    else:
        server = request.getfixturevalue(product)
        database = request.getfixturevalue("database" if product == "mysql" else "mariadb_database")
        table, run = f"{database}.t", server.execute
        open_ = lambda: Engine(options_for(server, table, snapshotChunkRows=4))  # noqa: E731
    rows = ", ".join(f"({i}, {i}, 'it''s')" for i in range(1, 13))
    run(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, s VARCHAR(9))",
        f"INSERT INTO {table} VALUES {rows}",
    )
    if product == "postgres":
        run("ALTER TABLE t REPLICA IDENTITY FULL")
    with open_() as engine:
        target = Target(engine, table)
        requests = engine.plan._requests._requests = Requests()
        target.drain_all()
        target.rows = [{**row, "v": -1} for row in target.rows] + [{"id": 99, "v": -1, "s": None}]

        requests.waiting.append(conditional("r1", table, "v > 6 AND s = 'it''s'"))
        target.drain_all()
        assert values(target) == {i: i if 6 < i < 13 else -1 for i in [*range(1, 13), 99]}

        # a row stops to match, and another begins to, between the plan of a batch and its SELECT
        requests.waiting.append(conditional("r2", table, "v < 3"))
        batch = next_batch(engine)
        while not (batch[1].again and batch[1].again[table].progress.rows):
            target.apply(*read(engine, batch), end=batch[1].to_json())
            batch = next_batch(engine)
        run(f"UPDATE {table} SET v = 300 WHERE id = 1", f"UPDATE {table} SET v = 0 WHERE id = 4")
        at_p, _ = engine.read(*batch)
        found = {row["id"]: row["v"] for row in rows_of(at_p)}
        assert {1: 1, 2: 2}.items() <= found.items()
        assert found.get(4, 4) == 4
        target.apply(*read(engine, batch), end=batch[1].to_json())
        target.drain_all()
        rest = {3: -1, 5: -1, 6: -1, 99: -1}
        assert values(target) == {1: 300, 2: 2, 4: 0, **{i: i for i in range(7, 13)}, **rest}


@pytest.mark.parametrize("product", ["mysql", "postgres"])
def test_condition_that_the_server_refuses_is_answered(request, product):
    if product == "postgres":
        server, database = request.getfixturevalue("postgres"), request.getfixturevalue("postgres_database")
        server.execute("CREATE TABLE t (id INT PRIMARY KEY, d DATE)", database=database)
        engine, table = stream(server, database, tables="public.t"), "public.t"
    else:
        server, table = request.getfixturevalue("mysql"), f"{request.getfixturevalue('database')}.t"
        server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, d DATE)")
        engine = Engine(options_for(server, table))
    with engine:
        target = Target(engine, table)
        requests = engine.plan._requests._requests = Requests()
        target.drain_all()
        for number, where in enumerate(("d = 'abc'", "id = = 3", "id IN (id, (id, id))")):
            requests.waiting.append(conditional(f"r{number}", table, where))
            while not (end := next_batch(engine)[1]).answers:
                pass
            assert end.again == {}
            assert "the server refuses the condition" in end.answers[0].reason


def test_rows_are_read_without_a_condition_that_fails_for_them(postgres, postgres_database):
    """Which collation to compare by is asked once there is a row, not when the statement is planned."""
    columns = 'id INT PRIMARY KEY, a TEXT COLLATE "C", b TEXT COLLATE "POSIX"'
    rows = "INSERT INTO t SELECT i, 'a', '0' || i FROM generate_series(1, 9) i"
    postgres.execute(f"CREATE TABLE t ({columns})", rows, database=postgres_database)
    with stream(postgres, postgres_database, tables="public.t") as engine:
        target = Target(engine, "public.t")
        requests = engine.plan._requests._requests = Requests()
        target.drain_all()
        target.rows = [{**row, "a": "damaged"} for row in target.rows]
        requests.waiting.append(conditional("r1", "public.t", "a < b"))
        target.drain_all()
        assert engine.offset.requests == ("r1",)
        target.equals(postgres, database=postgres_database)  # it holds for no row
