"""PostgreSQL: a table's snapshot and a log of 1000-row transactions, beside raw drains and Debezium.

    python -m bench.postgres [rows] [events] [repetitions]

The yardsticks are drained from raw sockets by as many connections as Tailrace has tasks for a table (COPY in
binary form), and by one (START_REPLICATION, pgoutput in binary form, from where the stream's slot begins).
A first run of some thousand rows warms up what a running stream has warm.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench import report, spark_runs
from bench.peers import peers, watch
from bench.peers.toolkit import UnavailableError
from bench.report import Figure
from tailrace.config.options import SourceOptions, parse_options
from tailrace.sources.postgres.connection import connect
from tailrace.sources.postgres.position import lsn_text
from tailrace.sources.postgres.replication import slot
from tailrace_dev.servers import PostgresServer, start_postgres

DATABASE = "tailrace_bench"
#: Least share of the drains; row events per second that do, too; how many times Debezium's rate.
SHARE, EVENTS, TIMES = 0.6, 300_000, 5.0
_SERVER = {"shared_buffers": "512MB", "max_wal_size": "8GB", "max_wal_senders": "20"}
_COLUMNS = """
    id bigint PRIMARY KEY, customer int NOT NULL, quantity int NOT NULL, price numeric(12, 2) NOT NULL,
    weight double precision, sku varchar(24) NOT NULL, title varchar(80) NOT NULL, note varchar(200),
    active boolean NOT NULL, day date NOT NULL, created timestamp(3) NOT NULL, updated timestamptz NOT NULL
"""
_ROW = """
    n, n * 7919 % 100003, n % 500, n % 1000000 / 100.0, CASE WHEN n % 10 > 0 THEN n / 3.0 END,
    'SKU-' || n * 31 % 999983, 'Product number ' || n || ' of a shop',
    CASE WHEN n % 4 > 0 THEN repeat('note ', 1 + n::int % 12) END, n % 2 = 1,
    date '2020-01-01' + n::int % 1500,
    timestamp '2024-01-01 00:00:00.123' + n * interval '1 second',
    timestamptz '2024-06-01 00:00:00.123456Z' + n % 10000000 * interval '1 second'
"""
_LOG = f"""
DO $$ BEGIN
    FOR i IN 0..{{transactions}} - 1 LOOP
        INSERT INTO events SELECT {_ROW} FROM generate_series(i * 1000 + 1::bigint, i * 1000 + 1000) AS n;
        COMMIT;
        UPDATE events SET quantity = quantity + 1, price = price + 1 WHERE id > i * 1000;
        COMMIT;
        DELETE FROM events WHERE id > i * 1000;
        COMMIT;
    END LOOP;
END $$
"""
_RECEIVE_BYTES = 1 << 20
#: What a pipeline's sinks do: their tasks read.
_TO_SINK = "cells to a sink's tasks"
#: In the last transaction, of a table that is published and not captured.
_MARK = b"the end of the log"


class Bench:
    """One server and what is measured on it."""

    def __init__(self, server: PostgresServer, spark: SparkSession | None, repetitions: int) -> None:
        self._server = server
        self._spark = spark
        self._repetitions = repetitions
        self._slots = 0

    def fill(self, rows: int) -> None:
        """Make the tables, one of them with so many rows."""
        self._server.execute(f"DROP DATABASE IF EXISTS {DATABASE}", f"CREATE DATABASE {DATABASE}")
        self._execute(
            f"CREATE TABLE items ({_COLUMNS})",
            f"CREATE TABLE events ({_COLUMNS})",
            f"INSERT INTO items SELECT {_ROW} FROM generate_series(1::bigint, {rows}) AS n",
            "VACUUM ANALYZE items",
        )

    def warm_up(self) -> None:
        """Read what there is, unmeasured."""
        spark_runs.tailrace(self._spark, self._options("items", "cells", startingPosition="snapshot"))

    def snapshot(self, rows: int) -> None:
        """The table's rows."""
        section = f"PostgreSQL, snapshot, {rows:,} rows"
        ranges = [
            (rows * i // spark_runs.TASKS, rows * (i + 1) // spark_runs.TASKS)
            for i in range(spark_runs.TASKS)
        ]
        drained = self._drain(section, "raw binary COPY", rows, lambda: self._copy(ranges))
        ours = 0.0
        for shape in ("cells", "row"):
            options = self._options("items", shape, startingPosition="snapshot")
            rate = self._stream(section, f"{shape} to noop", rows, options, drained=drained)
            ours = max(ours, rate)
        ours = max(
            ours, self._stream(section, _TO_SINK, rows, {**options, "shape": "cells"}, drained=drained)
        )
        self._peer(section, rows, ours, table="items", snapshot="initial_only")

    def log(self, events: int) -> None:
        """Row events, from a slot that was made before them."""
        transactions = events // 3000
        events = transactions * 3000
        section = f"PostgreSQL, log, {events:,} row events"
        first = self._options("events", "cells", startingPosition="earliest")
        self._make_slot(first)
        self._execute(
            _LOG.format(transactions=transactions), f"INSERT INTO marks VALUES ('{_MARK.decode()}')"
        )
        drained = self._drain(section, "raw START_REPLICATION", events, lambda: self._replicate(first))
        ours = 0.0
        for name, shape in (("cells to noop", "cells"), ("row to noop", "row"), (_TO_SINK, "cells")):
            options = {**first, "shape": shape}
            ours = max(ours, self._stream(section, name, events, options, drained=drained, least=EVENTS))
        self._peer(section, events, ours, table="events", snapshot="no_data", of=first)

    def recorded_log(self, events: int) -> bytes:
        """What the server sends of a log of row events, in the protocol's frames."""
        self.fill(1)
        first = self._options("events", "cells", startingPosition="earliest")
        self._make_slot(first)
        self._execute(
            _LOG.format(transactions=events // 3000), f"INSERT INTO marks VALUES ('{_MARK.decode()}')"
        )
        kept = bytearray()
        self._replicate(first, kept)
        return bytes(kept)

    # ---- one figure each -----------------------------------------------------------------------------

    def _drain(self, section: str, name: str, events: int, drain: Callable[[], int]) -> float:
        rates, size = [], 0
        for _ in range(self._repetitions):
            begin = time.perf_counter()
            size = drain()
            rates.append(events / (time.perf_counter() - begin))
        rate = statistics.median(rates)
        report.show(Figure(section, name, rate, "rows/s", (min(rates), max(rates)), notes={"bytes": size}))
        return rate

    def _stream(
        self,
        section: str,
        name: str,
        events: int,
        options: Mapping[str, str],
        *,
        drained: float,
        least: float = float("inf"),
    ) -> float:
        runs = []
        for _ in range(self._repetitions):
            given = dict(options)
            if "slotName" in given:  # each run reads the same log: by a slot that nobody has read
                given["slotName"] = self._copy_of(given["slotName"])
            read = spark_runs.counted if name == _TO_SINK else spark_runs.tailrace
            runs.append(read(self._spark, given))
            if "slotName" in given:
                self._drop_slot(given["slotName"])
            assert runs[-1].rows == events, f"{runs[-1].rows} of {events}"
        rates = [events / run.stream_s for run in runs]
        rate = statistics.median(rates)
        run = runs[min(range(len(rates)), key=lambda i: abs(rates[i] - rate))]
        share = rate / drained
        met = (share >= SHARE or rate >= least) if name == _TO_SINK else None
        report.show(
            Figure(
                section,
                f"Tailrace, {name} (of the drain)",
                rate,
                "rows/s",
                (min(rates), max(rates)),
                share,
                f"≥ {SHARE:g}" if name == _TO_SINK else "",
                met,
                run.usage.cpu_s,
                run.usage.peak_rss_mb,
            )
        )
        return rate

    def _peer(
        self,
        section: str,
        events: int,
        ours: float,
        *,
        table: str,
        snapshot: str,
        of: Mapping[str, str] | None = None,
    ) -> None:
        name = "debezium"
        if of is None:
            self._execute(
                f"DROP PUBLICATION IF EXISTS {name}", f"CREATE PUBLICATION {name} FOR TABLE {table}"
            )
        task = {
            "host": self._server.host,
            "port": str(self._server.port),
            "user": self._server.user,
            "password": self._server.password,
            "database": DATABASE,
            "tables": rf"public\.{table}",
            "slot": name if of is None else self._copy_of(of["slotName"]),
            "publication": name if of is None else of["publicationName"],
            "snapshot": snapshot,
            "expected": str(events),
        }
        peer = peers.DEBEZIUM_POSTGRES
        try:
            run = watch.run(peer, task, 15.0)
        except (UnavailableError, watch.PeerFailedError) as error:
            print(f"{peer.name} did not run: {error}")
            return
        ratio = ours / run.best_rate
        report.show(
            Figure(
                section,
                f"{peer.name} {peer.version} (Tailrace ÷ it)",
                run.best_rate,
                "rows/s",
                ratio=ratio,
                target=f"≥ {TIMES:g}",
                met=ratio >= TIMES,
                cpu_s={"peer": run.cpu_s},
                peak_rss_mb={"peer": run.peak_rss_mb},
            )
        )

    # ---- drains --------------------------------------------------------------------------------------

    def _copy(self, ranges: list[tuple[int, int]]) -> int:
        sizes: list[int] = []

        def drain(low: int, high: int) -> None:
            with closing(self._connect()) as connection:
                connection.begin_copy(
                    f"COPY (SELECT * FROM items WHERE id > {low} AND id <= {high}) TO STDOUT (FORMAT binary)"
                )
                # CopyDone, CommandComplete and ReadyForQuery end it
                sizes.append(_received(connection.socket, lambda tail: tail.endswith(b"Z\0\0\0\x05I")))

        threads = [threading.Thread(target=drain, args=one) for one in ranges]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(sizes)

    def _replicate(self, options: Mapping[str, str], kept: bytearray | None = None) -> int:
        parsed = parse_options(options)
        with closing(self._connect(replication=True)) as connection:
            there = slot.read(connection, parsed.slot)
            assert there is not None
            assert there.confirmed is not None
            name = slot.copy(connection, parsed.slot)
            connection.begin_copy(
                f"START_REPLICATION SLOT \"{name}\" LOGICAL {lsn_text(there.confirmed)} (proto_version '1',"
                f" publication_names '{parsed.publication}', binary 'true')"
            )
            return _received(connection.socket, lambda tail: _MARK in tail, kept)

    # ---- the server ----------------------------------------------------------------------------------

    def _options(self, table: str, shape: str, **more: str) -> dict[str, str]:
        slot_name = (
            {}
            if more.get("startingPosition") == "snapshot"
            else {"slotName": "bench", "publicationName": "bench"}
        )
        return {
            "url": f"postgresql://{self._server.host}:{self._server.port}/{DATABASE}",
            "user": self._server.user,
            "password": self._server.password,
            "tables": rf"public\.{table}",
            "shape": shape,
            "tlsMode": "disabled",
            **slot_name,
            **more,
        }

    def _make_slot(self, options: Mapping[str, str]) -> None:
        self._execute(
            "CREATE TABLE marks (mark text PRIMARY KEY)",
            f"CREATE PUBLICATION {options['publicationName']} FOR TABLE events, marks",
            f"SELECT pg_create_logical_replication_slot('{options['slotName']}', 'pgoutput')",
        )

    def _copy_of(self, name: str) -> str:
        self._slots += 1
        made = f"{name}_{self._slots}"
        self._execute(f"SELECT pg_copy_logical_replication_slot('{name}', '{made}')")
        return made

    def _drop_slot(self, name: str) -> None:
        of_it = f"FROM pg_replication_slots WHERE slot_name = '{name}'"
        self._server.wait_until(f"SELECT active {of_it}", lambda active: not active, timeout_s=60)
        self._execute(f"SELECT pg_drop_replication_slot('{name}')")

    def _connect(self, *, replication: bool = False) -> Any:
        options: SourceOptions = parse_options(self._options("items", "cells"))
        return connect(options, purpose="drain", replication=replication)

    def _execute(self, *statements: str) -> None:
        self._server.execute(*statements, database=DATABASE)


def _received(socket: Any, ends: Callable[[bytes], bool], kept: bytearray | None = None) -> int:
    """Receive until what came ends so; how many bytes. They are appended to `kept`, or thrown away."""
    room = bytearray(_RECEIVE_BYTES)
    view, size = memoryview(room), 0
    while count := socket.recv_into(view):
        size += count
        if kept is not None:
            kept += view[:count]
        if ends(bytes(view[max(0, count - 256) : count])):
            break
    return size


def main() -> None:
    """Measure and print."""
    rows, events, repetitions = (
        int(text) for text in [*sys.argv[1:], *("2000000", "3000000", "3")[len(sys.argv) - 1 :]]
    )
    print(report.machine())
    with start_postgres(options=_SERVER) as server, tempfile.TemporaryDirectory() as scratch:
        spark = spark_runs.session(Path(scratch))
        bench = Bench(server, spark, repetitions)
        bench.fill(10_000)
        bench.warm_up()
        bench.fill(rows)
        bench.snapshot(rows)
        bench.log(events)
        spark.stop()


if __name__ == "__main__":
    main()
