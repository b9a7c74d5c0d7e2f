"""Snapshot and changes into replicas: MySQL, MariaDB and PostgreSQL beside the source on the same machine.

The snapshot is table `items` as a whole. Then a third as many of its rows are changed, 1000 rows and more a
transaction: three fifths updates, a fifth inserts, a fifth deletes, each row once. What a batch has of a key
twice is brought in once, which would flatter. The replica is compared with the source at the end.

Beside PostgreSQL's a peer does the same (`peers/replica.py`).
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench import data, spark_runs
from bench.peers.replica import ReplicaPeer
from bench.processes import tree_cpu_seconds
from bench.report import Figure
from bench.servers import Server
from tailrace.config.model import RouteRule
from tailrace.config.secret import Secret
from tailrace.config.sinks import MySqlSettings, PostgresSettings
from tailrace.sinks.base import StreamId
from tailrace.sinks.replica.sink import ReplicaSink
from tailrace.sinks.route import Router
from tailrace_dev.servers import start_mariadb, start_mysql, start_postgres

_BUFFER = {"innodb_buffer_pool_size": str(1 << 30), "innodb_redo_log_capacity": str(1 << 30)}
_MARIADB = {"innodb_buffer_pool_size": str(1 << 30), "innodb_log_file_size": str(1 << 30)}
_POSTGRES = {"shared_buffers": "512MB", "max_wal_size": "4GB"}


def measure(source: Server, spark: SparkSession, rows: int) -> Iterator[Figure]:
    """The figures of each target in turn; `items` has `rows` rows when it begins."""
    for name, start in (("MySQL", mysql), ("MariaDB", _mariadb), ("PostgreSQL", postgres)):
        with start() as (target, settings), closing(source.connect()) as connection:
            data.execute(connection, f"USE {data.DATABASE}")
            pair = (source, connection, target)
            yield from _one(name, pair, spark, settings, rows)


def _one(
    name: str, servers: tuple[Server, Any, Any], spark: SparkSession, settings: Any, rows: int
) -> Iterator[Figure]:
    source, connection, target = servers
    stream = StreamId("bench", uuid.uuid4().hex)
    routes = Router([RouteRule(r".*\.items", "replica.items")])
    with closing(ReplicaSink(settings, routes)) as sink, tempfile.TemporaryDirectory() as checkpoint:
        options = source.options("items", "cells")

        def servers_cpu() -> dict[str, float]:
            return {"source server": _cpu(source.pid), "target server": _cpu(target.state.pid)}

        def timed(what: str, rows: int) -> Figure:
            before = servers_cpu()
            run = spark_runs.into_sink(spark, options, sink, Path(checkpoint), stream)
            used = {role: seconds - before[role] for role, seconds in servers_cpu().items()}
            return _figure(name, what, run, rows, servers=used)

        peer = ReplicaPeer(source, target, servers_cpu) if name == "PostgreSQL" else None
        ours = timed("snapshot", rows)
        yield ours
        if peer:
            yield peer.snapshot(ours, rows, _sums(connection, data.DATABASE))
        place = data.new_file(connection)
        changes = _change(connection, rows)
        ours = timed("changes", changes)
        yield ours
        if peer:
            yield peer.changes(ours, changes, _sums(connection, data.DATABASE), place)
    wanted = _sums(connection, data.DATABASE)
    with closing(target.connect()) as replica:
        assert _sums(replica, "replica") == wanted, "the replica is not equal"


def _cpu(pid: int | None) -> float:
    # PostgreSQL has a process per connection
    return tree_cpu_seconds(pid) if pid else 0.0


def _figure(name: str, what: str, run: spark_runs.Run, rows: int, *, servers: dict[str, float]) -> Figure:
    rate = rows / run.stream_s
    return Figure(
        f"replica, {what}, {rows:,}",
        f"into {name}",
        rate,
        "rows/s",
        cpu_s={**run.usage.cpu_s, **servers},
        peak_rss_mb=dict(run.usage.peak_rss_mb),
        notes={
            "batches": run.batches,
            "rows/s by the clock, with the start of the query": rows / run.wall_s,
            "phases_s": dict(run.phases_s),
        },
    )


def _change(connection: Any, rows: int) -> int:
    """Change a third as many rows as the table has, each once; how many."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT MAX(id) FROM items")
        top = cursor.fetchone()[0] + 1
    transactions = max(rows // 3 // 5000, 1)
    step = rows // transactions // 4
    for i in range(transactions):
        # the table's rows from one end to the other, a stretch of them each time
        first = 1 + 4 * step * i
        updated = (
            f"id BETWEEN {first} AND {first + 3 * step - 1} AND id % {max(step // 1000, 1)} = 0 LIMIT 3000"
        )
        deleted = f"id BETWEEN {first + 3 * step} AND {first + 4 * step - 1} LIMIT 1000"
        data.execute(
            connection,
            f"UPDATE items SET {data.UPDATE} WHERE {updated}",
            f"DELETE FROM items WHERE {deleted}",
            f"INSERT INTO items {data.numbers(data.ROW, top + 1000 * i, top + 1000 * i + 999)}",
        )
    return transactions * 5000


def _sums(connection: Any, schema: str) -> tuple[str, ...]:
    """Rows and sums of columns: different where a row is missing, doubled or old."""
    with closing(connection.cursor()) as cursor:
        sums = "COUNT(*), SUM(id), SUM(quantity), SUM(price), COUNT(note), MAX(updated)"
        cursor.execute(f"SELECT {sums} FROM {schema}.items")
        row = cursor.fetchone()
    return tuple(str(value).split("+")[0] for value in row)


@contextmanager
def mysql() -> Iterator[tuple[Any, MySqlSettings]]:
    """A MySQL, and the settings of a sink that writes it."""
    with start_mysql(options=_BUFFER) as server:
        yield server, MySqlSettings(_url(server), server.user, Secret(server.password), tls_mode="disabled")


@contextmanager
def _mariadb() -> Iterator[tuple[Any, MySqlSettings]]:
    with start_mariadb(options=_MARIADB) as server:
        yield server, MySqlSettings(_url(server), server.user, Secret(server.password), tls_mode="disabled")


@contextmanager
def postgres() -> Iterator[tuple[Any, PostgresSettings]]:
    """A PostgreSQL, and the settings of a sink that writes it."""
    with start_postgres(options=_POSTGRES) as server:
        yield server, PostgresSettings(_url(server) + "/postgres", server.user, Secret(server.password))


def _url(server: Any) -> str:
    return f"{server.scheme}://{server.host}:{server.port}"
