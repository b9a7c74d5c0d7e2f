"""A Spark standalone cluster on this machine."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyspark

from tests.support.wait import wait_until

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
REGISTERED = "Successfully registered with master"


class Cluster:
    """Master and workers as processes of their own; ended with the block.

    Args:
        directory: for logs and the workers' files.
        workers: number of workers, of one core each.
        without: environment variables that they do not get.
        defaults: lines of their `spark-defaults.conf`.
    """

    def __init__(
        self, directory: Path, workers: int, *, without: tuple[str, ...] = (), defaults: str = ""
    ) -> None:
        self._conf = directory / "conf"
        self._conf.mkdir()
        (self._conf / "spark-defaults.conf").write_text(defaults)
        self._directory = directory
        self._without = ("PYSPARK_SUBMIT_ARGS", "PYTHONDONTWRITEBYTECODE", *without)
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def __enter__(self) -> Cluster:
        log = self._start(
            "master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0"
        )
        self.master = self._wait(log, STARTED)[1]
        for n in range(self._workers):
            log = self._start(
                f"worker-{n}",
                "org.apache.spark.deploy.worker.Worker",
                *("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"),
                *("--work-dir", str(self._directory / f"work-{n}")),
                self.master,
            )
            self._wait(log, re.compile(REGISTERED))
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, name: str, *arguments: str) -> Path:
        log = self._directory / f"{name}.log"
        env = {k: v for k, v in os.environ.items() if k not in self._without}
        with log.open("wb") as output:
            self._processes.append(
                subprocess.Popen(
                    [str(SPARK_CLASS), *arguments],
                    env={
                        **env,
                        "PYSPARK_PYTHON": sys.executable,
                        "SPARK_NO_DAEMONIZE": "1",
                        # as of the pipelines' own JVMs: they live for seconds
                        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
                        "SPARK_CONF_DIR": str(self._conf),
                    },
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        return log

    @staticmethod
    def _wait(log: Path, pattern: re.Pattern[str]) -> re.Match[str]:
        return wait_until(
            lambda: pattern.search(log.read_text(errors="replace")),
            90,
            lambda: log.read_text(errors="replace")[-2000:],
        )
