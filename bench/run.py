"""One run of the benchmark: which figures are taken, in which order, against what."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from bench import data, drains, lakes, latency, memory, replicas, report, spark_runs
from bench.data import LogPart
from bench.drains import Drain
from bench.peers.figures import beside
from bench.processes import cpu_seconds
from bench.report import Figure
from bench.servers import Server
from bench.spark_runs import Run
from bench.works import SNAPSHOT, WORKS, Made, Work
from tailrace.config.options import parse_options
from tailrace.formats.row import row_schema
from tailrace.model.split import SnapshotSplit
from tailrace.reader.snapshot import BATCH_ROWS, read_snapshot
from tailrace.sources import registry
from tailrace.spark.row_layouts import TableRowLayout

SECTIONS = (*(work.key for work in WORKS), "peers", "latency", "memory", "replicas", "lakes")
#: Least share of the yardstick: one and two connections' drain, pre-made batches.
CELLS_SHARE, CELLS_SHARE_OF_TWO, ROW_SHARE = 1.0, 0.65, 0.8
#: Least row events per second, by work.
EVENTS_PER_S = {"bulk": 1_000_000, "single": 200_000}
#: Largest latency at a rate of commits per second: median, 99th percentile.
LATENCY_MS = {50: (500, None), 1000: (250, 800)}


class Bench:
    """One run.

    Args:
        server: what is measured.
        spark: the session.
        sizes: the command line.
        scratch: directory for what is made on the way.
    """

    def __init__(self, server: Server, spark: SparkSession, sizes: argparse.Namespace, scratch: Path) -> None:
        self.figures: list[Figure] = []
        self._server = server
        self._spark = spark
        self._sizes = sizes
        self._scratch = scratch
        self._connection = server.connect()
        self._ceiling = 0.0

    def run(self) -> None:
        """All sections asked for."""
        data.prepare(self._connection)
        data.fill_items(self._connection, self._sizes.rows)
        self._warm_up()
        named = [work for work in WORKS if work.key in self._sizes.only]
        for work in named or (WORKS if "peers" in self._sizes.only else ()):
            self._work(work)
        if "latency" in self._sizes.only:
            self._latency()
        if "replicas" in self._sizes.only:
            for figure in replicas.measure(self._server, self._spark, self._sizes.rows):
                self._add(figure)
        if "lakes" in self._sizes.only:
            for figure in lakes.measure(self._server, self._spark, self._sizes.rows, self._sizes.bulk):
                self._add(figure)
        if "memory" in self._sizes.only:
            size = self._sizes.megabytes * 1_000_000
            self.figures += memory.measure(self._server, self._spark, self._sizes.rows, size)

    def _warm_up(self) -> None:
        """The first query of a Spark process compiles plans and loads classes: shown, not counted."""
        part = data.bulk_log(self._connection, 3000)
        start = f"file:{part.file}:{part.start}"
        for name in ("first query of the process", "second query"):
            run = spark_runs.tailrace(
                self._spark, self._server.options("events", "row", startingPosition=start)
            )
            self._add(
                Figure("start-up", f"{name}, {run.rows} events", run.wall_s, "s", cpu_s=run.usage.cpu_s)
            )

    def _work(self, work: Work) -> None:
        """A work's own section if it is asked for, and the peers' lines if they are."""
        events = getattr(self._sizes, "rows" if work is SNAPSHOT else work.key)
        made = work.make(self._connection, events)
        cells = None
        if work.key in self._sizes.only:
            cells = self._snapshot(made) if made.part is None else self._log(made, made.part)
        if "peers" in self._sizes.only:
            ours = {
                "cells": cells or self._shape(made, "cells", None),
                "debezium": self._shape(made, "debezium", None),
            }
            limit_s = self._sizes.peer_seconds
            for figure in beside(self._server, made, ours, limit_s, self._server_cpu):
                self._add(figure)

    def _snapshot(self, made: Made) -> Figure:
        section, rows = made.section, made.events
        whole = ["SELECT * FROM items"]
        halves = [f"SELECT * FROM items WHERE id {side} {rows // 2}" for side in ("<=", ">")]
        single = self._drain(
            section, "drain, binary protocol", rows, lambda: self._select(whole, binary=True)
        )
        self._drain(section, "drain, text protocol", rows, lambda: self._select(whole, binary=False))
        double = self._drain(
            section, "drain, binary protocol, 2 connections", rows, lambda: self._select(halves, binary=True)
        )
        cells = self._shape(made, "cells", single, share=CELLS_SHARE)
        ratio = cells.value / double
        self._add(
            Figure(
                section,
                "Tailrace cells to noop (of the drain, 2 connections)",
                cells.value,
                "rows/s",
                ratio=ratio,
                target=f"≥ {CELLS_SHARE_OF_TWO}",
                met=ratio >= CELLS_SHARE_OF_TWO,
            )
        )
        ceiling = self._premade(section, rows)
        self._stream(
            section,
            "Tailrace row to noop (of pre-made)",
            rows,
            lambda: spark_runs.tailrace(self._spark, self._server.options("items", "row")),
            ceiling,
            share=ROW_SHARE,
        )
        return cells

    def _log(self, made: Made, part: LogPart) -> Figure:
        raw = self._drain(
            made.section, "drain of the dump", part.events, lambda: drains.binlog(self._server.connect, part)
        )
        cells = self._shape(made, "cells", raw, least=EVENTS_PER_S.get(made.work.key))
        if made.work.one_table:
            self._shape(made, "row", raw)
        return cells

    def _shape(
        self,
        made: Made,
        shape: str,
        drain: float | None,
        *,
        share: float | None = None,
        least: float | None = None,
    ) -> Figure:
        """A stream of the work in a shape to `noop`, compared with a drain's rate if there is one."""
        part = made.part
        start = {} if part is None else {"startingPosition": f"file:{part.file}:{part.start}"}
        options = self._server.options(made.work.tables, shape, **start)
        return self._stream(
            made.section,
            f"Tailrace {shape} to noop" + ("" if drain is None else " (of the drain)"),
            made.events,
            partial(spark_runs.tailrace, self._spark, options),
            drain,
            share=share,
            least=least,
            system=f"Tailrace {shape}",
        )

    def _latency(self) -> None:
        first = 1
        for rate, (most_p50, most_p99) in LATENCY_MS.items():
            options = self._server.options("ticks", "row", startingPosition="latest")
            found = latency.measure(
                self._spark,
                options,
                self._server.arguments,
                rate=rate,
                seconds=self._sizes.seconds,
                first=first,
            )
            first += 10_000_000
            section = f"latency, {found.rate:.0f} commits/s, {found.events} events"
            self._add(
                Figure(
                    section,
                    "commit to foreachBatch, p50",
                    found.p50_ms,
                    "ms",
                    target=f"≤ {most_p50}",
                    met=found.p50_ms <= most_p50,
                )
            )
            self._add(
                Figure(
                    section,
                    "commit to foreachBatch, p99",
                    found.p99_ms,
                    "ms",
                    target="" if most_p99 is None else f"≤ {most_p99}",
                    met=None if most_p99 is None else found.p99_ms <= most_p99,
                )
            )
            self._add(Figure(section, "commit to foreachBatch, longest", found.max_ms, "ms"))
            self._add(Figure(section, "batch with the sink's collect, p50", 1000 * found.batch_s, "ms"))

    # ---- one line each ----

    def _select(self, statements: list[str], *, binary: bool) -> Drain:
        return drains.select(self._server.connect, statements, binary=binary)

    def _drain(self, section: str, name: str, rows: int, drain: Callable[[], Drain]) -> float:
        """TableRowLayout per second of the median drain."""
        results, cpu = [], []
        drain()
        for _ in range(self._sizes.repeat):
            before = self._server_cpu()
            results.append(drain())
            cpu.append(self._server_cpu() - before)
        rates = [rows / result.seconds for result in results]
        middle = _middle(rates)
        self._add(
            Figure(
                section,
                name,
                rates[middle],
                "rows/s",
                (min(rates), max(rates)),
                cpu_s={"mysqld": cpu[middle]},
                notes={"MB/s": results[middle].bytes / results[middle].seconds / 1e6},
            )
        )
        return rates[middle]

    def _stream(
        self,
        section: str,
        name: str,
        rows: int,
        stream: Callable[[], Run],
        yardstick: float | None,
        *,
        share: float | None = None,
        least: float | None = None,
        system: str = "",
    ) -> Figure:
        """The median run."""
        runs, cpu = [], []
        for _ in range(self._sizes.repeat):
            before = self._server_cpu()
            runs.append(stream())
            cpu.append(self._server_cpu() - before)
            assert runs[-1].rows == rows, f"{runs[-1].rows} of {rows} rows came through"
        rates = [run.rows / run.stream_s for run in runs]
        middle = _middle(rates)
        rate, ratio = rates[middle], rates[middle] / yardstick if yardstick else None
        target = f"≥ {share}" if share else f"≥ {report.number(least)} rows/s" if least else ""
        met = ratio >= share if share and ratio else rate >= least if least else None
        figure = Figure(
            section,
            name,
            rate,
            "rows/s",
            (min(rates), max(rates)),
            ratio,
            target,
            met,
            {**runs[middle].usage.cpu_s, "mysqld": cpu[middle]},
            _largest([run.usage.peak_rss_mb for run in runs]),
            {
                "batches": runs[middle].batches,
                "rows/s by the clock, with the start of the query": rows / runs[middle].wall_s,
                "phases_s": dict(runs[middle].phases_s),
                "bytes of messages": runs[middle].message_bytes,
            },
            system,
        )
        self._add(figure)
        return figure

    def _premade(self, section: str, rows: int) -> float:
        """Spark's own limit with the schema of shape `row`; rows per second."""
        file = self._scratch / "premade.arrows"
        batch = self._row_batch()
        with pa.ipc.new_stream(str(file), batch.schema) as writer:
            writer.write_batch(batch)
        batches = rows // len(batch) // spark_runs.TASKS * spark_runs.TASKS
        return self._stream(
            section,
            "pre-made row batches to noop",
            batches * len(batch),
            lambda: spark_runs.premade(self._spark, file, batches),
            None,
        ).value

    def _row_batch(self) -> pa.RecordBatch:
        """The first rows of `items` in shape `row`."""
        options = parse_options(self._server.options("items", "row"))
        source = registry.source(options)
        table = source.tables()[0].schema
        split = SnapshotSplit(table, None, None, source.log_end().to_json(), BATCH_ROWS)
        session = registry.session(options)
        batch = next(iter(TableRowLayout(table).rows(read_snapshot(split, session, exact=False))))
        session.close()
        assert batch.schema == row_schema(table)
        return batch

    def _server_cpu(self) -> float:
        return (cpu_seconds(self._server.pid) or 0.0) if self._server.pid else 0.0

    def _add(self, figure: Figure) -> None:
        self.figures.append(figure)
        report.show(figure)


def _middle(values: Sequence[float]) -> int:
    """Index of the (lower) median."""
    return values.index(statistics.median_low(values))


def _largest(peaks: Sequence[dict[str, float]]) -> dict[str, float]:
    return {role: max(p.get(role, 0.0) for p in peaks) for role in {r for p in peaks for r in p}}
