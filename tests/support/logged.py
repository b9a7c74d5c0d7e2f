"""The decoded log, for tests against a real server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pyarrow as pa

from tailrace.config.options import SourceOptions
from tailrace.model.change import OP_CREATE, OP_DELETE, ChangeBatch
from tailrace.model.table import TableSchema
from tailrace.sources.mysql.binlog.dump import read_log
from tailrace.sources.mysql.catalog import tables
from tailrace.sources.mysql.connection import connect
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.mysql.snapshot.statement import Selection
from tailrace.sources.mysql.wire.decoder import EventDecoder
from tailrace_dev.servers import MySqlServer
from tests.support import engine
from tests.support.wait import wait_until

_STATUS = {"mysql": "SHOW BINARY LOG STATUS", "mariadb": "SHOW MASTER STATUS"}


def options_for(mysql: MySqlServer, database: str) -> SourceOptions:
    return engine.options_for(mysql, f"{database}\\..*")


def end_of_log(mysql: MySqlServer) -> MySqlPosition:
    file, pos, *_ = mysql.execute(_STATUS[mysql.product])[0]
    return MySqlPosition(file, int(pos))


def files(server: Any) -> list[str]:
    """The files of the server's log."""
    return [row[0] for row in server.execute("SHOW BINARY LOGS")]


def purge(server: Any) -> str:
    """Let the server forget all of its log but the newest file; return that."""
    newest = files(server)[-1]

    def is_forgotten() -> bool:  # a file stays while a connection reads it, and while a checkpoint needs it
        server.execute(f"PURGE BINARY LOGS TO '{newest}'")
        return files(server) == [newest]

    def left() -> str:
        return f"{files(server)} are left, {newest} was the newest; {server.execute('SHOW PROCESSLIST')}"

    wait_until(is_forgotten, 60, left)
    return newest


def flush_and_purge(server: Any) -> str:
    """Let the server forget all of its log but a new file; return that."""
    server.execute("FLUSH BINARY LOGS")
    return purge(server)


def changes_during(
    mysql: MySqlServer, database: str, work: Callable[[], Any], **decoder: Any
) -> list[ChangeBatch]:
    """Every change that `work` makes to tables of the database."""
    start = end_of_log(mysql)
    work()
    return changes_between(mysql, database, start, end_of_log(mysql), **decoder)


def changes_between(
    mysql: MySqlServer, database: str, start: MySqlPosition, end: MySqlPosition, **decoder: Any
) -> list[ChangeBatch]:
    events = EventDecoder(captures=lambda t: t.database == database, **decoder)
    return [b for block in read_log(options_for(mysql, database), start, end) for b in events.feed(block)]


def captured(
    mysql: MySqlServer, database: str, zero_dates: Callable[[str], str | None] = lambda _: None
) -> dict[str, TableSchema]:
    """The schemas of the database's tables by name, from the catalog."""
    with closing(mysql.connect()) as connection:
        found = tables(connection, lambda name: name.startswith(f"{database}."), zero_dates)
    return {t.schema.id.table: t.schema for t in found}


def selected(mysql: MySqlServer, schema: TableSchema, order: str) -> pa.StructArray:
    """The table's rows, as a snapshot reads them."""
    columns = ", ".join(f"`{c.name}`" for c in schema.columns)
    sql = f"SELECT {columns} FROM `{schema.id.database}`.`{schema.id.table}` ORDER BY `{order}`"
    options = options_for(mysql, schema.id.database)
    with closing(connect(options, purpose="test")) as connection, Selection(connection, sql, schema) as rows:
        return pa.concat_arrays(list(rows))


def both_ways(
    mysql: MySqlServer,
    database: str,
    *statements: str,
    key: str = "id",
    zero_dates: Callable[[str], str | None] = lambda _: None,
) -> pa.StructArray:
    """The rows of table `t` after statements in one session: the log has the same as a SELECT."""
    batches = changes_during(mysql, database, lambda: mysql.execute(*statements), zero_dates=zero_dates)
    schema = captured(mysql, database, zero_dates)["t"]
    assert {b.table for b in batches} == {schema}
    logged = final_rows(batches, key)
    logged.validate(full=True)
    found = selected(mysql, schema, key)
    found.validate(full=True)
    assert logged.type == found.type
    names = [f.name for f in found.type]
    assert [n for n in names if not logged.field(n).equals(found.field(n))] == []
    return found


def final_rows(batches: list[ChangeBatch], key: str) -> pa.StructArray:
    """The last after image of each key, ordered by key, of changes of one shape; deleted ones left out."""
    last: dict[Any, tuple[int, int]] = {}
    for i, batch in enumerate(batches):
        ops = batch.op.to_pylist()
        before, after = batch.image("before").field(key), batch.image("after").field(key)
        for row, op in enumerate(ops):
            if op != OP_CREATE:
                last.pop(before[row].as_py(), None)
            if op != OP_DELETE:
                last[after[row].as_py()] = i, row
    rows = pa.concat_arrays([b.image("after") for b in batches])
    first = [0]
    for batch in batches:
        first.append(first[-1] + len(batch))
    return rows.take(pa.array([first[i] + row for _, (i, row) in sorted(last.items())], pa.int64()))
