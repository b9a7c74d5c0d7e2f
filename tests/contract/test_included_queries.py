"""`include.query`: each change has the statement that made it, as the server logged it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from tailrace.model.change import OP_LETTERS, ChangeBatch
from tailrace.sources.mysql.binlog.dump import read_log
from tailrace.sources.mysql.checks.preflight import check
from tailrace.sources.mysql.wire.decoder import EventDecoder
from tailrace.sources.mysql.wire.rare import querytexts
from tailrace.sources.preflight import Severity
from tailrace_dev.servers import MariaDbServer, MySqlServer
from tests.support import logged
from tests.support.databases import global_variable
from tests.support.engine import Engine, options_for

Server = MySqlServer | MariaDbServer
#: (table, operation, id, statement) of a change.
Line = tuple[str, str, int, str | None]

_TABLES = (
    "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(100))",
    "CREATE TABLE b (id INT PRIMARY KEY, v VARCHAR(100))",
    "CREATE TABLE other (id INT PRIMARY KEY, v VARCHAR(100))",
)


def _lines(batches: list[ChangeBatch]) -> list[Line]:
    """The changes of `a` and `b` in the order of the log."""
    found = []
    for batch in batches:
        queries = [None] * len(batch) if batch.query is None else batch.query.to_pylist()
        images = zip(batch.image("before").to_pylist(), batch.image("after").to_pylist(), strict=True)
        ids = [(after or before)["id"] for before, after in images]
        seqs = batch.origin.column("seq").to_pylist()
        names = [batch.table.id.table] * len(batch)
        ops = [OP_LETTERS[op] for op in batch.op.to_pylist()]
        found += zip(seqs, names, ops, ids, queries, strict=True)
    return [line[1:] for line in sorted(found, key=lambda line: line[0])]


def _logged(server: Server, database: str, work: Callable[[Any], None], **decoder: Any) -> list[Line]:
    """The changes that `work` makes to `a` and `b`."""
    start = logged.end_of_log(server)
    with closing(server.connect(database=database)) as connection, connection.cursor() as cursor:
        work(cursor)
    events = EventDecoder(
        captures=lambda t: t.database == database and t.table in ("a", "b"), queries=True, **decoder
    )
    blocks = read_log(logged.options_for(server, database), start, logged.end_of_log(server))
    return _lines([batch for block in blocks for batch in events.feed(block)])


def _work(cursor: Any, texts: str) -> list[Line]:
    """Statements of every kind; what their changes are expected to be."""

    def run(statement: str, *changes: tuple[str, str, int], known: bool = True) -> list[Line]:
        cursor.execute(statement)
        return [(*change, statement if known else None) for change in changes]

    made: list[Line] = []
    run("BEGIN")
    made += run(
        "INSERT INTO a VALUES (1, 'one'), (2, 'zwei äöü 漢 \U0001f600')", ("a", "c", 1), ("a", "c", 2)
    )
    run("INSERT INTO other VALUES (1, 'not captured')")
    made += run("INSERT INTO b SELECT id, v FROM a", ("b", "c", 1), ("b", "c", 2))
    made += run(
        "UPDATE a JOIN b USING (id) SET a.v = 'x', b.v = 'y' WHERE id = 1", ("a", "u", 1), ("b", "u", 1)
    )
    run(f"SET SESSION {texts} = OFF")
    made += run("UPDATE a SET v = 'without' WHERE id = 2", ("a", "u", 2), known=False)
    run(f"SET SESSION {texts} = ON")
    made += run("DELETE FROM b WHERE id = 2 /* a comment */", ("b", "d", 2))
    run("COMMIT")
    run(f"SET SESSION {texts} = OFF")
    made += run("INSERT INTO a VALUES (3, 'three')", ("a", "c", 3), known=False)
    run(f"SET SESSION {texts} = ON")
    run("UPDATE other SET v = 'last of its transaction'")
    made += run("REPLACE INTO b VALUES (1, 'again')", ("b", "u", 1))
    run("XA START 'q'")
    made += run("INSERT INTO a VALUES (4, 'xa')", ("a", "c", 4))
    made += run("UPDATE a SET v = 'xa, too' WHERE id = 4", ("a", "u", 4))
    run("XA END 'q'")
    run("XA PREPARE 'q'")
    run("XA COMMIT 'q'")
    return made


_TEXTS = {"mysql": "binlog_rows_query_log_events", "mariadb": "binlog_annotate_row_events"}


def _all_kinds(server: Server, database: str, **decoder: Any) -> None:
    expected: list[Line] = []
    with closing(server.connect(database=database)) as connection, connection.cursor() as cursor:
        for statement in _TABLES:
            cursor.execute(statement)
    with global_variable(server, _TEXTS[server.product], "ON"):
        found = _logged(
            server, database, lambda c: expected.extend(_work(c, _TEXTS[server.product])), **decoder
        )
    assert found == expected


@pytest.mark.parametrize("decoder", [{}, {"batch_rows": 1}], ids=["whole", "row by row"])
def test_changes_have_their_statements(mysql: MySqlServer, database: str, decoder: dict[str, Any]) -> None:
    _all_kinds(mysql, database, **decoder)


def test_changes_of_compressed_transactions_have_their_statements(mysql: MySqlServer, database: str) -> None:
    with global_variable(mysql, "binlog_transaction_compression", "ON"):
        _all_kinds(mysql, database)


@pytest.mark.parametrize("compressed", ["OFF", "ON"])
def test_changes_of_mariadb_have_their_statements(
    mariadb: MariaDbServer, mariadb_database: str, compressed: str
) -> None:
    with (
        global_variable(mariadb, "log_bin_compress", compressed),
        global_variable(mariadb, "log_bin_compress_min_len", "10"),
    ):
        _all_kinds(mariadb, mariadb_database)


def test_a_statement_that_is_not_utf8_has_replacement_characters(mysql: MySqlServer, database: str) -> None:
    mysql.execute(f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY, v VARBINARY(9))")
    with global_variable(mysql, "binlog_rows_query_log_events", "ON"):
        found = _logged(mysql, database, lambda c: c.execute(b"INSERT INTO a VALUES (1, _binary'\xff\xfe')"))
    assert found == [("a", "c", 1, "INSERT INTO a VALUES (1, _binary'��')")]


def test_a_batch_ends_before_its_statements_take_too_much(
    mysql: MySqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(querytexts, "MOST_TEXT", 10_000)
    mysql.execute(f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY, v TEXT)")
    long = "INSERT INTO a VALUES " + ", ".join(f"({i}, '{'x' * 30}')" for i in range(100, 200))
    with global_variable(mysql, "binlog_rows_query_log_events", "ON"):
        batches = logged.changes_during(
            mysql,
            database,
            lambda: mysql.execute(f"USE `{database}`", "INSERT INTO a VALUES (1, '')", long),
            queries=True,
        )
    assert len(long) > 3_000
    assert len(batches) > 30
    assert [line[3] for line in _lines(batches)] == ["INSERT INTO a VALUES (1, '')"] + [long] * 100
    assert max(sum(map(len, b.query.to_pylist())) for b in batches if b.query is not None) <= 10_000


@pytest.mark.parametrize("parallel", [{}, {"logParallelism": 2, "partitioner": "hash"}], ids=["one", "hash"])
def test_a_repeated_batch_has_the_same_statements(
    mysql: MySqlServer, database: str, parallel: dict[str, Any]
) -> None:
    mysql.execute(f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY, v INT)")
    mysql.execute(f"INSERT INTO `{database}`.a VALUES (-1, 0)")
    options = {"shape": "cells", "include.query": "true", **parallel}

    with (
        global_variable(mysql, "binlog_rows_query_log_events", "ON"),
        Engine(options_for(mysql, rf"{database}\.a", **options)) as engine,
    ):
        batch = engine.next()
        assert batch is not None
        snapshot, _ = engine.read(*batch)
        assert _lines(snapshot) == [("a", "r", -1, None)]
        with closing(mysql.connect(database=database)) as connection, connection.cursor() as cursor:
            for i in range(20):
                cursor.execute(f"INSERT INTO a VALUES ({i}, 0)")
                cursor.execute(f"UPDATE a SET v = v + 1, id = id + 1000 WHERE id = {i}")
            connection.commit()
        found: list[Line] = []
        while len(found) < 60:
            if (batch := engine.next()) is not None:
                first, again = engine.read(*batch)[1], engine.read(*batch)[1]
                assert _lines(first) == _lines(again)
                found += _lines(first)
        assert [line[3] for line in found][:3] == [
            "INSERT INTO a VALUES (0, 0)",
            *["UPDATE a SET v = v + 1, id = id + 1000 WHERE id = 0"] * 2,
        ]


def test_a_server_that_does_not_log_statements_is_found(mysql: MySqlServer, database: str) -> None:

    mysql.execute(f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY)")
    options = options_for(mysql, rf"{database}\.a", **{"shape": "cells", "include.query": "true"})
    (finding,) = [f for f in check(options) if f.code == "TR-1091"]
    assert (finding.severity, finding.check) == (Severity.ERROR, "binlog_rows_query_log_events")
    with global_variable(mysql, "binlog_rows_query_log_events", "ON"):
        assert finding.remedy == "SET PERSIST binlog_rows_query_log_events = ON;"
        assert all(f.severity is Severity.OK for f in check(options) if f.check == finding.check)


def test_a_mariadb_server_that_does_not_log_statements_is_found(
    mariadb: MariaDbServer, mariadb_database: str
) -> None:

    mariadb.execute(f"CREATE TABLE `{mariadb_database}`.a (id INT PRIMARY KEY)")
    given = {"shape": "cells", "include.query": "true", "url": mariadb.url}
    with global_variable(mariadb, "binlog_annotate_row_events", "OFF"):
        options = options_for(mariadb, rf"{mariadb_database}\.a", **given)
        (finding,) = [f for f in check(options) if f.check == "binlog_annotate_row_events"]
    assert (finding.severity, finding.code) == (Severity.ERROR, "TR-1091")
