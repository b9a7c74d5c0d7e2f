"""The demo on one page: a busy server into Delta tables, killed on the way, verified as equal.

    server ─▶ shop filled ─▶ writers ─▶ pipeline ─▶ SIGKILL in a snapshot batch ─▶ pipeline again
          ─▶ snapshot done ─▶ a while of changes ─▶ verify under load ─▶ writers stop ─▶ caught up ─▶ verify

Server, writers and pipeline are separate processes, and the pipeline is the `tailrace run` that a user would
type. All of them end with the demo, also on Ctrl-C, unless it is to keep them.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.config.load import load_pipeline
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import TailraceError
from tailrace.sources import registry
from tailrace_dev.demo.directory import DemoDirectory
from tailrace_dev.demo.processes import Process
from tailrace_dev.demo.products import shop
from tailrace_dev.demo.screen import Screen, Step
from tailrace_dev.demo.shop import DATABASE, TABLES, Sizes
from tailrace_dev.demo.stream import StreamFiles
from tailrace_dev.servers import DevServer

#: Time limit of a step, in seconds.
STEP_TIMEOUT_S = 600.0
#: The writers' target rate, in transactions per second.
RATE = 60
#: How long a batch runs before it is killed, unless it has already written a file.
_KILL_AFTER_S = 1.5


@dataclass
class Demo:
    """One run.

    Args:
        product: the source, one of `products.PRODUCTS`.
        directory: for all its files.
        rows: approximate number of rows in the shop.
        seconds: how long to write changes after the snapshot.
        keep: whether server and pipeline keep running afterwards.
        screen: shows its progress.
    """

    product: str
    directory: Path
    rows: int
    seconds: float
    keep: bool
    screen: Screen

    def __post_init__(self) -> None:
        self.home = DemoDirectory(self.directory.absolute())
        self.shop = shop(self.product)
        self.sizes = Sizes.of(self.rows)
        self.files = StreamFiles(self.home.checkpoint, self.home.tables)
        self.killed: list[tuple[int, int]] = []
        self.lag_from = 0

    def run(self) -> bool:
        """Run the demo; returns whether source and target were equal both times.

        Raises:
            TailraceError: a process could not be started, or a step did not end in time.
        """
        started = time.monotonic()
        self.home.prepare()
        with ExitStack() as stack:
            server = self._server(stack)
            self._fill(server)
            self._write_pipeline(server)
            writers = self._writers(server)
            stack.callback(writers.stop, signal.SIGTERM)
            pipeline = self._pipeline_killed_once(stack)
            self._wait_for_snapshot(pipeline)
            self._let_changes_flow(pipeline)
            under_load = self._verify(
                "while writers write and the pipeline runs", "--table", rf"{DATABASE}\.(orders|customers)"
            )
            self._stop_writers(writers)
            self._catch_up(pipeline)
            if not self.keep:
                self._stop_pipeline(pipeline)
            at_end = self._verify("after the last change")
            self._summary(server, pipeline, under_load, at_end, time.monotonic() - started)
            if self.keep:
                stack.pop_all()
        return under_load and at_end

    # ---- the steps, in order -------------------------------------------------------------------------

    def _server(self, stack: ExitStack) -> DevServer:
        with self.screen.step(f"starting {self.shop.title} (the first time, it is downloaded)") as step:
            # detached or not, it is removed unless the demo is to keep it
            server = self.shop.start(detached=self.keep)
            stack.callback(server.remove)
            step.text = f"{self.shop.title} {server.version} runs at {server.url}"
        return server

    def _fill(self, server: DevServer) -> None:
        total = sum(self.sizes.rows.values())
        with self.screen.step(f"filling a shop of {len(TABLES)} tables with {total:,} rows") as step:
            self.shop.create(server)
            with ThreadPoolExecutor(2, "fill") as pool:
                try:
                    for job in [pool.submit(self.shop.fill, server, table, self.sizes) for table in TABLES]:
                        job.result()
                except BaseException:
                    server.kill()  # or the pool would wait for the running statements
                    raise
            step.text = f"shop filled: {', '.join(f'{n:,} {t}' for t, n in self.sizes.rows.items())}"

    def _write_pipeline(self, server: DevServer) -> None:
        self.shop.admit(server, self.home.make_password())
        # about five batches on any machine, so that there is one to kill
        chunk_rows = max(1000, self.rows // (4 * (os.cpu_count() or 1)))
        self.home.write_pipeline(self.shop.source, server.host, server.port, chunk_rows)

    def _writers(self, server: DevServer) -> Process:
        numbers = (self.sizes.orders, self.sizes.customers, self.sizes.products, RATE)
        arguments = ["-m", "tailrace_dev.demo.writers", self.product, server.host, str(server.port)]
        arguments += ["tailrace", str(self.home.password), *map(str, numbers), str(self.home.stats)]
        writers = Process(arguments, self.home.root / "writers.log")
        self.screen.note(f"writers started: {RATE} transactions a second, process {writers.pid}")
        return writers

    def _pipeline_killed_once(self, stack: ExitStack) -> Process:
        with self.screen.step("starting the pipeline") as step:
            pipeline = self._start_pipeline(stack)
            batch, cursor = self._wait(step, pipeline, self._batch_to_kill)
            read = sum(t.rows for t in cursor.tables.values()) + sum(n or 0 for n in cursor.done.values())
            files, until = self.files.data_files(), time.monotonic() + _KILL_AFTER_S
            while self.files.data_files() == files and time.monotonic() < until:
                time.sleep(0.02)
            processes = pipeline.kill()
            self.killed.append((batch, processes))
            self.files.committed()
            step.text = (
                f"pipeline started, and killed during batch {batch} of the snapshot"
                f" (SIGKILL to all its {processes} processes, after about {read:,} rows)"
            )
        with self.screen.step("restarting the pipeline") as step:
            pipeline = self._start_pipeline(stack)
            self._wait(step, pipeline, lambda: self._has_committed(batch))
            step.text = f"pipeline restarted: batch {batch} done, exactly as planned"
        return pipeline

    def _start_pipeline(self, stack: ExitStack) -> Process:
        log_file = str(self.home.root / "spark.log")
        arguments = ["-m", "tailrace", "run", str(self.home.pipeline), "--log-file", log_file]
        pipeline = Process(arguments, self.home.root / "pipeline.log")
        stack.callback(pipeline.stop, signal.SIGINT)
        return pipeline

    def _batch_to_kill(self) -> tuple[int, StreamOffset] | None:
        """A running snapshot batch that is not the first."""
        running = self.files.running_batch()
        return running if running is not None and running[0] >= 2 else None

    def _has_committed(self, batch: int) -> bool:
        self.files.committed()
        return batch in self.files.batches or max(self.files.batches, default=-1) > batch

    def _wait_for_snapshot(self, pipeline: Process) -> None:
        with self.screen.step("snapshot and changes, batch by batch") as step:

            def done() -> bool:
                end = self.files.committed()
                return end is not None and not end.tables and len(end.done) == len(TABLES)

            self._wait(step, pipeline, done)
            self.lag_from = max(self.files.batches) + 1
            rate, rows = self._snapshot_rate()
            step.text = f"snapshot done: {rows:,} rows, {rate:,.0f} rows/s, changes merged on the way"

    def _let_changes_flow(self, pipeline: Process) -> None:
        with self.screen.step("changes flow") as step:
            until = time.monotonic() + self.seconds
            self._wait(step, pipeline, lambda: time.monotonic() >= until)
            step.text = f"changes flowed for {self.seconds:.0f} s: {self._lag_text()}"

    def _verify(self, when: str, *arguments: str) -> bool:
        output = self.home.root / "verify.log"
        output.unlink(missing_ok=True)
        with ExitStack() as stack, self.screen.step(f"verifying {when}") as step:
            process = Process(["-m", "tailrace", "verify", str(self.home.pipeline), *arguments], output)
            stack.callback(process.kill)
            self._wait(step, None, lambda: process.exit_code is not None)
            verdict = {0: "equal", 1: "DIFFERENT"}.get(process.exit_code or 0, "failed")
            step.text = f"verified {when}: source and target are {verdict}"
            if verdict == "failed":
                process.require_running("verify")
        self.screen.output(output.read_text(encoding="utf-8"))
        return process.exit_code == 0

    def _stop_writers(self, writers: Process) -> None:
        if not writers.stop(signal.SIGTERM):
            writers.require_running("the writers' process")
        stats = self._stats()
        self.screen.note(
            f"writers stopped after {stats['transactions']:,} transactions, {stats['changes']:,} changed rows"
        )

    def _catch_up(self, pipeline: Process) -> None:
        source = registry.source(load_pipeline(self.home.pipeline).source)
        last = source.log_end().order

        def caught_up() -> bool:
            end = self.files.committed()
            return end is not None and end.log is not None and source.position(end.log).order >= last

        with self.screen.step("waiting until the target holds the last change") as step:
            self._wait(step, pipeline, caught_up)
            step.text = "the target holds the last change"

    def _stop_pipeline(self, pipeline: Process) -> None:
        with self.screen.step("stopping the pipeline") as step:
            if not pipeline.stop(signal.SIGINT):
                pipeline.require_running("the pipeline")
            step.text = "pipeline stopped by SIGINT, between two batches"

    # ---- output ----------------------------------------------------------------------------------------

    def _summary(
        self, server: DevServer, pipeline: Process, under_load: bool, at_end: bool, seconds: float
    ) -> None:
        rate, rows = self._snapshot_rate()
        written, stats = self.files.written(), self._stats()
        changed = f"{stats['changes']:,} rows in {stats['transactions']:,} transactions at the source"
        equal = {True: "[green]equal[/]", False: "[bold red]DIFFERENT[/]"}
        batch, processes = self.killed[0]
        self.screen.summary(
            [
                ("snapshot", f"{rows:,} rows, {rate:,.0f} rows/s"),
                ("changes", f"{changed}; {sum(written.changes.values()):,} rows merged"),
                ("lag", self._lag_text()),
                ("killed", f"once, in batch {batch} of {max(self.files.batches) + 1}, {processes} processes"),
                ("verified", f"under load: {equal[under_load]}, at the end: {equal[at_end]}"),
                ("took", f"{seconds:.0f} s"),
                ("tables", str(self.home.tables)),
                ("pipeline", str(self.home.pipeline)),
                ("logs", f"{self.home.root}/*.log"),
            ]
        )
        self.screen.snippet("Query the tables (python):", self.home.snippet())
        if self.keep:
            self.screen.snippet(
                "Still running; to stop:",
                f"kill -INT {pipeline.pid}               # the pipeline\n"
                f"tailrace dev stop {server.name}     # {self.shop.title} at {server.url},"
                f" user {server.user},\n"
                f"                                       # password in {server.password_file}",
            )

    def _snapshot_rate(self) -> tuple[float, int]:
        """Rows per second, without the killed batch, and the total of rows."""
        return self.files.snapshot_rate({batch for batch, _ in self.killed})

    def _lag_text(self) -> str:
        lags = self.files.lags_ms(self.lag_from)
        if not lags:
            return "no batch yet to measure the lag"
        return f"{statistics.median(lags):,.0f} ms behind the source (median), {lags[-1]:,.0f} ms (maximum)"

    def _stats(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.home.stats.read_text(encoding="utf-8"))
        return found

    def _wait(self, step: Step, pipeline: Process | None, condition: Callable[[], Any]) -> Any:
        """Wait for a true value of `condition`, and show the stream's progress."""
        end = time.monotonic() + STEP_TIMEOUT_S
        while True:
            found = condition()
            if found:
                return found
            if pipeline is not None:
                pipeline.require_running("the pipeline")
            if time.monotonic() > end:
                raise TailraceError(
                    f"a step of the demo took more than {STEP_TIMEOUT_S:.0f} s ({step.text})",
                    hint=f"see the logs in {self.home.root}",
                    code="TR-9002",
                )
            step.update(f"{step.text} {self._progress()}")
            time.sleep(0.05)

    def _progress(self) -> str:
        end = self.files.committed()
        if end is None:
            return ""
        parts = [f"batch {max(self.files.batches)}"]
        parts += [
            f"{name.rpartition('.')[2]} {min(99, 100 * t.rows // max(1, t.estimated))} %"
            for name, t in end.tables.items()
        ]
        return f"[dim]({', '.join(parts)})[/]"
