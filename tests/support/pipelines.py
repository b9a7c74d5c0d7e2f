"""`tailrace run` as a separate process: started, killed at a failpoint, restarted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tailrace.failpoints import VARIABLE
from tailrace_dev.servers.server import wait_until

#: How long a pipeline may take to its first report, on a loaded machine.
FIRST_REPORT_S = 120


class PipelineProcess:
    """A pipeline file in `directory` and the runs of it.

    Args:
        directory: for the file, checkpoint and targets.
        server: the captured dev server.
        tables: patterns of the tables.
        mode: `upsert` or `changelog`, of Delta tables.
        sink: another sink instead, or several.
        pipeline: further settings of the pipeline.
        env: further variables of its process.
        sections: further sections of the file.
        python: the interpreter of its process.
        source: further options of the source.
    """

    def __init__(
        self,
        directory: Path,
        server,
        tables: str,
        *,
        mode: str = "upsert",
        sink: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        pipeline: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        sections: Mapping[str, Any] | None = None,
        python: str | Path = sys.executable,
        **source: Any,
    ) -> None:
        self._python = python
        self.directory = directory
        self.targets = directory / "tables"
        self.file = directory / "pipeline.yaml"
        self._log = directory / "output.txt"
        self._kills = 0
        self._running: subprocess.Popen[bytes] | None = None
        given = sink or {"type": "delta", "path": str(self.targets), "mode": mode}
        sinks = dict(given) if isinstance(given, Mapping) else [dict(each) for each in given]
        self.file.write_text(
            yaml.safe_dump(
                {
                    "source": {
                        "type": "mysql",
                        "hostname": server.host,
                        "port": server.port,
                        "username": server.user,
                        "password": "${env:TEST_PASSWORD}",
                        "tables": tables,
                        **source,
                    },
                    "sink": sinks,
                    "pipeline": {
                        "name": "test",
                        "checkpoint": str(self.targets / "_tailrace" / "checkpoint"),
                        "trigger": "available-now",
                        "parallelism": 2,
                        **(pipeline or {}),
                    },
                    **(sections or {}),
                }
            )
        )
        self._env = {
            k: v for k, v in os.environ.items() if k not in ("PYSPARK_SUBMIT_ARGS", "PYTHONDONTWRITEBYTECODE")
        }
        # these JVMs live for seconds: the second compiler would cost more than it saves
        self._env |= {"TEST_PASSWORD": server.password, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
        self._env |= env or {}

    def run_for(self, seconds: float) -> None:
        """Run for some time, then kill everything at once, unless it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.run(timeout_s=seconds)

    def work_for(self, seconds: float) -> None:
        """Run for some time after its first report on a batch, then kill everything, unless it has ended."""

        def kill_in_time() -> None:
            wait_until(lambda: self.reports() > before or ended.is_set(), FIRST_REPORT_S)
            ended.wait(seconds)
            self.kill()

        before, ended = self.reports(), threading.Event()
        killer = threading.Thread(target=kill_in_time)
        killer.start()
        try:
            self.run()
        finally:
            ended.set()
            killer.join()

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of its process."""
        return self._env

    def reports(self) -> int:
        """How many reports on batches the runs have printed."""
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        return text.count(" · batch ") + text.count(" · complete up to ")

    def run(self, *, failpoint: str | None = None, victim: str = "self", timeout_s: float = 240) -> int:
        """Run until it ends by itself; returns the exit code (negative: the signal that ended it)."""
        env = dict(self._env)
        if failpoint is not None:
            self._kills += 1
            token = self.directory / f"kill-{self._kills}"
            env[VARIABLE] = f"{failpoint}={victim}@{token}"
        with self._log.open("ab") as output:
            process = subprocess.Popen(
                [str(self._python), "-m", "tailrace", "run", str(self.file)],
                env=env,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running = process
            try:
                code = process.wait(timeout_s)
            finally:
                with contextlib.suppress(ProcessLookupError):  # the children of a killed driver
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if failpoint is not None:
            assert token.exists(), f"{failpoint} was not reached\n{self.output()}"
        return code

    def command(self, name: str, *arguments: str) -> int:
        """Call another command with the pipeline's file; returns the exit code."""
        with self._log.open("ab") as output:
            return subprocess.run(
                [sys.executable, "-m", "tailrace", name, str(self.file), *arguments],
                env=self._env,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=60,
            ).returncode

    @property
    def pid(self) -> int | None:
        """The process id of the current run, None before the first."""
        return None if self._running is None else self._running.pid

    def kill(self) -> None:
        """Kill the current run; called from another thread than `run`."""
        assert self._running is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._running.pid, signal.SIGKILL)

    def output(self) -> str:
        """The end of the runs' output."""
        return self._log.read_text(errors="replace")[-4000:] if self._log.exists() else ""


def delta_rows(spark, path: Path) -> list[dict[str, Any]]:
    """The rows of a Delta table."""
    return [row.asDict() for row in spark.read.format("delta").load(str(path)).collect()]
