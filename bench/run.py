"""One run of the benchmark: which figures are taken, in which order, against what."""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from bench import (
    batches,
    clusters,
    data,
    drains,
    lakes,
    latency,
    many_tables,
    memory,
    replicas,
    report,
    scale,
    small_tables,
    spark_runs,
    starts,
    topics,
    tpch,
    verification,
    visible,
)
from bench.data import LogPart
from bench.drains import Drain
from bench.peers.figures import beside
from bench.processes import cpu_seconds
from bench.report import Figure
from bench.servers import Server
from bench.spark_runs import Run
from bench.targets import judged
from bench.works import WORKS, Made, Work
from tailrace.config.options import parse_options
from tailrace.formats.row import row_schema
from tailrace.model.split import SnapshotSplit
from tailrace.reader.snapshot import BATCH_ROWS, read_snapshot
from tailrace.sources import registry
from tailrace.spark.row_layouts import TableRowLayout

SECTIONS = (
    *("starts", "small-tables"),
    *(work.key for work in WORKS),
    *("peers", "latency", "scale", "topics", "verification", "lakes", "memory", "replicas"),
)
#: What takes too long for a whole run: only where it is named.
LONG_SECTIONS = ("many-tables", "batches", "visible", "clusters", "tpch")
#: Commits per second at which latency is measured.
RATES = (50, 1000)
#: Bounds of the bars of the histogram of latencies, milliseconds.
LATENCIES_MS = (50, 75, 100, 125, 150, 200, 250, 300, 400, 600, 800, 1200)
_SMALL_TABLES = 100
#: The sections for which `items` is as large as the snapshot's work says.
_OF_LARGE = {"snapshot", "peers", "scale"}
#: Those that need it with as many rows as the sizes say.
_OF_ITEMS = {"verification", "lakes", "memory"}


class Bench:
    """One run.

    Args:
        server: what is measured.
        sizes: the command line.
        scratch: directory for what is made on the way.
    """

    def __init__(self, server: Server, sizes: argparse.Namespace, scratch: Path) -> None:
        self.figures: list[Figure] = []
        #: What each section has taken, seconds.
        self.took_s: Counter[str] = Counter()
        self._server = server
        self._spark: SparkSession
        self._sizes = sizes
        self._scratch = scratch
        self._connection = server.connect()

    def run(self) -> None:
        """All sections asked for."""
        data.prepare(self._connection)
        self._modules(self._processes())
        with self._timed("start-up"):
            if _OF_LARGE & set(self._sizes.only):
                data.fill_items(self._connection, self._sizes.snapshot)
            self._spark = spark_runs.session(self._scratch)
            self._warm_up()
        named = [work for work in WORKS if work.key in self._sizes.only]
        for work in named or (WORKS if "peers" in self._sizes.only else ()):
            self._work(work)
        if "latency" in self._sizes.only:
            with self._timed("latency"):
                self._latency()
        self._modules(self._of_logs())
        if _OF_ITEMS & set(self._sizes.only):
            with self._timed("start-up"):
                data.fill_items(self._connection, self._sizes.rows)
        self._modules(self._of_items())
        self._spark.stop()
        # a cluster's session has no jars of Delta: the one above could not follow it
        of_cluster = partial(clusters.measure_all, self._server, self._scratch, self._sizes.rows)
        self._modules({"clusters": of_cluster})

    def _modules(self, sections: Mapping[str, Callable[[], Iterable[Figure]]]) -> None:
        """Sections that have a module of their own, by name, if they are asked for."""
        for section, measured in sections.items():
            if section in self._sizes.only:
                with self._timed(section):
                    for figure in measured():
                        self._add(figure)

    @contextmanager
    def _timed(self, section: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self.took_s[section] += time.monotonic() - begun

    def _processes(self) -> Mapping[str, Callable[[], Iterable[Figure]]]:
        """What is measured of whole processes, before a session of our own takes memory."""
        server, scratch = self._server, self._scratch
        return {
            "starts": lambda: starts.measure(server, scratch / "starts", self._sizes.repeat),
            "small-tables": lambda: small_tables.measure(server, scratch / "small", _SMALL_TABLES),
            "many-tables": lambda: chain.from_iterable(
                many_tables.measure(server, scratch / "many", count) for count in many_tables.COUNTS
            ),
            "batches": lambda: chain.from_iterable(
                batches.measure(server, scratch / "batches", count) for count in batches.COUNTS
            ),
            "visible": lambda: visible.measure(server, scratch / "visible", self._sizes.seconds),
        }

    def _of_logs(self) -> Mapping[str, Callable[[], Iterable[Figure]]]:
        """What is measured with it, before `items` is made anew."""
        sizes, pair = self._sizes, (self._server, self._spark)
        return {
            "scale": lambda: scale.measure(*pair, sizes.snapshot),
            "topics": lambda: topics.measure(*pair, sizes.bulk // 2, sizes.repeat),
            "tpch": lambda: tpch.measure_all(self._spark),
        }

    def _of_items(self) -> Mapping[str, Callable[[], Iterable[Figure]]]:
        """What is measured with it and a table of usual size."""
        sizes, pair = self._sizes, (self._server, self._spark)
        lake = self._scratch / "verification"
        megabytes = sizes.megabytes * 1_000_000
        return {
            "verification": lambda: verification.measure(
                *pair, lake, sizes.rows, sizes.repeat, sink="delta", beside=False
            ),
            # from here on `items` changes
            "lakes": lambda: lakes.measure(*pair, sizes.rows, 5 * sizes.bulk // 6),
            "memory": lambda: memory.measure(*pair, data.count(self._connection, "items"), megabytes),
            "replicas": self._replicas,
        }

    def _replicas(self) -> Iterator[Figure]:
        """With half as many rows: three servers, and a peer, are slow to write."""
        rows = self._sizes.rows // 2
        data.fill_items(self._connection, rows)
        yield from replicas.measure(self._server, self._spark, rows)

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
        used = run.usage.cpu_s
        both = used.get("driver JVM", 0.0) + used.get("source process", 0.0)
        self._add(Figure("start-up", "CPU of JVM and source process, second query", both, "CPU s"))

    def _work(self, work: Work) -> None:
        """A work's own section if it is asked for, and the peers' lines if they are."""
        cells = None
        with self._timed(work.key):
            made = work.make(self._connection, getattr(self._sizes, work.key))
            if work.key in self._sizes.only:
                cells = self._snapshot(made) if made.part is None else self._log(made, made.part)
        if "peers" in self._sizes.only:
            with self._timed("peers"):
                if made.part is not None:
                    self._shape(made, "debezium", None)
                ours = {"cells": cells or self._counted(made), "debezium": self._messages(made)}
                limit_s = self._sizes.peer_seconds
                for figure in beside(self._server, made, ours, limit_s, self._server_cpu):
                    self._add(figure)

    def _snapshot(self, made: Made) -> Figure:
        section, rows = made.section, made.events
        whole = ["SELECT * FROM items"]
        halves = [f"SELECT * FROM items WHERE id {side} {rows // 2}" for side in ("<=", ">")]
        self._select(halves, binary=True)  # what the server has still to write of the table is written now
        single = self._drain(
            section, "drain, binary protocol", rows, lambda: self._select(whole, binary=True)
        )
        self._drain(section, "drain, text protocol", rows, lambda: self._select(whole, binary=False))
        double = self._drain(
            section, "drain, binary protocol, 2 connections", rows, lambda: self._select(halves, binary=True)
        )
        cells = self._shape(made, "cells", single)
        name = "Tailrace cells to noop (of the drain, 2 connections)"
        self._add(Figure(section, name, cells.value, "rows/s", ratio=cells.value / double))
        counted = self._counted(made)
        ceiling = self._premade(section, rows)
        self._stream(
            section,
            "Tailrace row to noop (of pre-made)",
            rows,
            lambda: spark_runs.tailrace(self._spark, self._server.options("items", "row")),
            ceiling,
        )
        return counted

    def _log(self, made: Made, part: LogPart) -> Figure:
        drains.binlog(self._server.connect, part)  # from the disk, if it is no longer in memory
        raw = self._drain(
            made.section, "drain of the dump", part.events, lambda: drains.binlog(self._server.connect, part)
        )
        # a target of these is a rate, the drain only a comparison
        cells = self._shape(made, "cells", None)
        share = cells.value / raw
        self._add(Figure(made.section, "cells, of the drain of the dump", cells.value, "rows/s", ratio=share))
        if made.work.one_table:
            self._shape(made, "row", raw)
        return self._counted(made)

    def _counted(self, made: Made) -> Figure:
        """A stream of the work in shape `cells` to tasks of a sink, with what a pipeline into Delta sets."""
        return self._to_tasks(made, "cells", spark_runs.counted, logParallelism="auto")

    def _messages(self, made: Made) -> Figure:
        """A stream of the work to tasks of a sink that make Debezium's messages of it."""
        return self._to_tasks(made, "debezium", spark_runs.messages)

    def _to_tasks(
        self, made: Made, shape: str, stream: Callable[[SparkSession, Mapping[str, str]], Run], **more: str
    ) -> Figure:
        return self._stream(
            made.section,
            f"Tailrace {shape} to a sink's tasks",
            made.events,
            partial(stream, self._spark, {**self._options(made, "cells"), **more}),
            None,
            system=f"Tailrace {shape}",
        )

    def _options(self, made: Made, shape: str) -> Mapping[str, str]:
        part = made.part
        start = {} if part is None else {"startingPosition": f"file:{part.file}:{part.start}"}
        return self._server.options(made.work.tables, shape, **start)

    def _shape(self, made: Made, shape: str, drain: float | None) -> Figure:
        """A stream of the work in a shape to `noop`, compared with a drain's rate if there is one."""
        return self._stream(
            made.section,
            f"Tailrace {shape} to noop" + ("" if drain is None else " (of the drain)"),
            made.events,
            partial(spark_runs.tailrace, self._spark, self._options(made, shape)),
            drain,
            system="" if shape == "cells" else f"Tailrace {shape}",
        )

    def _latency(self) -> None:
        first = 1
        for rate in RATES:
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
            section = f"latency, {rate} commits/s, {len(found.lags_ms)} events"
            shown = {"p50": found.part_ms(0.5), "p99": found.part_ms(0.99), "longest": found.lags_ms[-1]}
            for name, lag_ms in shown.items():
                notes = {"histogram": _histogram(found.lags_ms)} if name == "p50" else {}
                self._add(Figure(section, f"commit to foreachBatch, {name}", lag_ms, "ms", notes=notes))
            self._add(Figure(section, "batch with the sink's collect, p50", 1000 * found.batch_s, "ms"))
            self._add(Figure(section, "commits that were made", found.rate, "commits/s"))

    # ---- one line each ----

    def _select(self, statements: list[str], *, binary: bool) -> Drain:
        return drains.select(self._server.connect, statements, binary=binary)

    def _drain(self, section: str, name: str, rows: int, drain: Callable[[], Drain]) -> float:
        """TableRowLayout per second of the median drain."""
        results, cpu = [], []
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
        return self._add(
            Figure(
                section,
                name,
                rate,
                "rows/s",
                (min(rates), max(rates)),
                ratio,
                cpu_s={**runs[middle].usage.cpu_s, "mysqld": cpu[middle]},
                peak_rss_mb=_largest([run.usage.peak_rss_mb for run in runs]),
                notes={
                    "events": rows,
                    "batches": runs[middle].batches,
                    "rows/s by the clock, with the start of the query": rows / runs[middle].wall_s,
                    "phases_s": dict(runs[middle].phases_s),
                    "bytes of messages": runs[middle].message_bytes,
                },
                system=system,
            )
        )

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

    def _add(self, figure: Figure) -> Figure:
        figure = judged(figure)
        self.figures.append(figure)
        report.show(figure)
        return figure


def _histogram(lags_ms: Sequence[float]) -> dict[str, int]:
    """How many are up to each bound of LATENCIES_MS, and not up to the one before; the rest."""
    bounds = [*LATENCIES_MS, float("inf")]
    found = Counter(next(bound for bound in bounds if lag <= bound) for lag in lags_ms)
    return {f"{bound:g}": found[bound] for bound in bounds}


def _middle(values: Sequence[float]) -> int:
    """Index of the (lower) median."""
    return values.index(statistics.median_low(values))


def _largest(peaks: Sequence[dict[str, float]]) -> dict[str, float]:
    return {role: max(p.get(role, 0.0) for p in peaks) for role in {r for p in peaks for r in p}}
