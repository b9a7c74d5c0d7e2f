"""PostgreSQL into Iceberg tables, with TPC-H's data: `python -m bench.tpch [SCALES...]`.

Tables `lineitem` and `orders` of each scale factor are copied into Iceberg tables of mode upsert; then come
the changes: one in a hundred orders and its line items is updated, one in a thousand is deleted, one in a
thousand is new. At the end sums over both tables are compared with the source's. The data is made by
tpchgen-cli (PyPI).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from bench import spark_runs
from bench.peers import toolkit
from bench.report import Figure, show
from tailrace.config.sinks import IcebergSettings
from tailrace.sinks.base import StreamId
from tailrace.sinks.iceberg.catalog import open_catalog
from tailrace.sinks.iceberg.sink import IcebergSink
from tailrace.sinks.route import Router
from tailrace_dev.servers import PostgresServer, start_postgres

_GENERATOR = "4.0.0"
_DATABASE = "tpch"
_SERVER = {"shared_buffers": "1GB", "max_wal_size": "16GB"}
_TABLES = {
    "orders": """
        o_orderkey bigint PRIMARY KEY, o_custkey bigint NOT NULL, o_orderstatus char(1) NOT NULL,
        o_totalprice numeric(15, 2) NOT NULL, o_orderdate date NOT NULL, o_orderpriority char(15) NOT NULL,
        o_clerk char(15) NOT NULL, o_shippriority int NOT NULL, o_comment varchar(79) NOT NULL
    """,
    "lineitem": """
        l_orderkey bigint NOT NULL, l_partkey bigint NOT NULL, l_suppkey bigint NOT NULL,
        l_linenumber int NOT NULL, l_quantity numeric(15, 2) NOT NULL,
        l_extendedprice numeric(15, 2) NOT NULL,
        l_discount numeric(15, 2) NOT NULL, l_tax numeric(15, 2) NOT NULL, l_returnflag char(1) NOT NULL,
        l_linestatus char(1) NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL,
        l_receiptdate date NOT NULL, l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL,
        l_comment varchar(44) NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber)
    """,
}
#: Columns that are summed up, per table: the key and one that is updated.
_SUMS = {"orders": ("o_orderkey", "o_totalprice"), "lineitem": ("l_orderkey", "l_quantity")}
#: Keys of new orders: TPC-H's are sparse, up to six million for each scale factor.
_NEW = 1_000_000_000
_CHANGES = (
    "UPDATE orders SET o_totalprice = o_totalprice + 1 WHERE o_orderkey % 100 = 1",
    "UPDATE lineitem SET l_quantity = l_quantity + 1 WHERE l_orderkey % 100 = 1",
    "DELETE FROM orders WHERE o_orderkey % 1000 = 2",
    "DELETE FROM lineitem WHERE l_orderkey % 1000 = 2",
    f"INSERT INTO orders SELECT o_orderkey + {_NEW}, {{orders}} FROM orders WHERE o_orderkey % 1000 = 3",
    (
        f"INSERT INTO lineitem SELECT l_orderkey + {_NEW}, {{lineitem}} FROM lineitem"
        " WHERE l_orderkey % 1000 = 3"
    ),
)


#: Scale factors, one after the other.
SCALES = (1.0, 5.0)


def measure_all(spark: SparkSession, scales: Sequence[float] = SCALES) -> Iterator[Figure]:
    """The figures of these scale factors, each in a database of its own."""
    with start_postgres(options=_SERVER) as server:
        for scale in scales:
            yield from measure(server, spark, scale)


def measure(server: PostgresServer, spark: SparkSession, scale: float) -> Iterator[Figure]:
    """The figures of a scale factor."""
    rows = _fill(server, scale)
    section, stream = f"TPC-H, scale {scale:g}, PostgreSQL to Iceberg", StreamId("tpch", uuid.uuid4().hex)
    with tempfile.TemporaryDirectory() as path:
        run = _run(server, spark, path, stream)
        yield _figure(section, f"snapshot of {rows:,} rows", rows, "rows/s", run)
        changed = _change(server)
        run = _run(server, spark, path, stream)
        yield _figure(section, f"{changed:,} changes", changed, "changes/s", run)
        for table, columns in _SUMS.items():
            held = _sums(path, table, columns)
            assert held == _source_sums(server, table, columns), f"`{table}` is not equal: {held}"
    server.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active",
        database=_DATABASE,
    )


def _run(server: PostgresServer, spark: SparkSession, path: str, stream: StreamId) -> spark_runs.Run:
    options = {
        "url": f"postgresql://{server.host}:{server.port}/{_DATABASE}",
        "user": server.user,
        "password": server.password,
        "tables": r"public\.(orders|lineitem)",
        "shape": "cells",
        "tlsMode": "disabled",
        "slotName": "tpch",
        "publicationName": "tpch",
    }
    with closing(IcebergSink(IcebergSettings(f"{path}/lake"), Router([]))) as sink:
        return spark_runs.into_sink(spark, options, sink, Path(path, "checkpoint"), stream)


def _figure(section: str, name: str, count: int, unit: str, run: spark_runs.Run) -> Figure:
    used = run.usage
    return Figure(
        section,
        name,
        count / run.stream_s,
        unit,
        cpu_s=dict(used.cpu_s),
        peak_rss_mb=dict(used.peak_rss_mb),
        notes={"batches": run.batches, "seconds": run.stream_s},
    )


def _fill(server: PostgresServer, scale: float) -> int:
    """Make the tables with TPC-H's rows; how many they have."""
    server.execute(f"DROP DATABASE IF EXISTS {_DATABASE}", f"CREATE DATABASE {_DATABASE}")
    generator = toolkit.python(f"tpchgen-{_GENERATOR}", f"tpchgen-cli=={_GENERATOR}").with_name("tpchgen-cli")
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)  # the server reads them, as another user
        command = [
            str(generator),
            "csv",
            "-s",
            f"{scale:g}",
            f"--tables={','.join(_TABLES)}",
            "--output-dir",
            made,
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for table, columns in _TABLES.items():
            server.execute(
                f"CREATE TABLE {table} ({columns})",
                f"COPY {table} FROM '{made}/{table}.csv' (FORMAT csv, HEADER)",
                f"ANALYZE {table}",
                database=_DATABASE,
            )
    return sum(int(_one(server, f"SELECT COUNT(*) FROM {table}")[0]) for table in _TABLES)


def _change(server: PostgresServer) -> int:
    """Change both tables; how many rows."""
    listed = (
        "SELECT string_agg(column_name, ', ' ORDER BY ordinal_position) FROM information_schema.columns"
        " WHERE table_name = '{}' AND ordinal_position > 1"
    )
    others = {table: _one(server, listed.format(table))[0] for table in _TABLES}
    changed = 0
    with closing(server.connect(database=_DATABASE)) as connection, closing(connection.cursor()) as cursor:
        for statement in _CHANGES:
            cursor.execute(statement.format(**others))
            changed += cursor.rowcount
    return changed


def _sums(path: str, table: str, columns: tuple[str, str]) -> list[str]:
    """Rows and sums of a table in the lake."""
    catalog = open_catalog(IcebergSettings(f"{path}/lake"), f"{path}/lake")
    found = catalog.load_table(f"public.{table}").scan(selected_fields=columns).to_arrow()
    return [str(found.num_rows), *(str(pc.sum(found.column(name)).as_py()) for name in columns)]


def _source_sums(server: PostgresServer, table: str, columns: tuple[str, str]) -> list[str]:
    sums = ", ".join(f"SUM({name})" for name in columns)
    return [str(value) for value in _one(server, f"SELECT COUNT(*), {sums} FROM {table}")]


def _one(server: PostgresServer, statement: str) -> Any:
    with closing(server.connect(database=_DATABASE)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(statement)
        return cursor.fetchone()


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as scratch:
        spark = spark_runs.session(Path(scratch))
        for figure in measure_all(spark, [float(text) for text in sys.argv[1:]] or SCALES):
            show(figure)
        spark.stop()


if __name__ == "__main__":
    main()
