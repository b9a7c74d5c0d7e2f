"""The Spark session of a pipeline: settings for streams of small batches, Delta's jars, a quiet terminal.

The user's settings win over ours. An existing session (a notebook, a test) is used as it is: Spark has one
session with these settings per process.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import ParamSpec

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from tailrace.cache import temporary_dir
from tailrace.config.secret import Secret, resolve_all
from tailrace.errors import ConfigError, TransientSourceError
from tailrace.java import require_java
from tailrace.machine import cores, memory_bytes
from tailrace.spark import RELEASE, RELEASES, fork_server, launch, local_files, log_records, object_stores
from tailrace.spark.archive import archive_options
from tailrace.spark.checkpoint import is_local
from tailrace.spark.daemon import PRELOAD
from tailrace.spark.interpreter import local_python
from tailrace.spark.jars import cached_jars
from tailrace.spark.jvm import map_in_arrow

_P = ParamSpec("_P")

#: Delta: the newest version with a published jar; the Python package may be newer.
DELTA_VERSION = "4.4.0"

#: Dependencies of Delta that Spark itself has, in other versions.
_PART_OF_SPARK = (
    "org.apache.spark:*",
    "org.apache.hadoop:*",
    "org.apache.parquet:*",
    "org.apache.logging.log4j:*",
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.module:*",
    "com.fasterxml.jackson.datatype:*",
    "org.scala-lang:*",
    "org.slf4j:*",
)


def delta_jars(release: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Delta's jars for a release of Spark: their directory in the cache, packages, excluded packages."""
    name = f"delta-{DELTA_VERSION}" + ("" if release == RELEASES[-1] else f"-spark-{release}")
    return name, (f"io.delta:delta-spark_{release}_2.13:{DELTA_VERSION}",), _PART_OF_SPARK


DELTA_JARS = delta_jars(RELEASE)

#: A JVM spends a third of its CPU time until the first batch on its second compiler, for code that it hardly
#: runs again. So code must run eight times as often as OpenJDK's own limits say; a busy one's does at once.
_LATE_OPTIMIZER = [
    "-XX:Tier4InvocationThreshold=40000",
    "-XX:Tier4MinInvocationThreshold=4800",
    "-XX:Tier4CompileThreshold=120000",
    "-XX:Tier4BackEdgeThreshold=320000",
]
#: Of a run that ends, and whose rows Python writes: it takes a third less CPU time, and no work is slower.
_ONE_COMPILER = ["-XX:TieredStopAtLevel=1"]

#: Settings of every session.
_CONF: dict[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variable.substitute": "false",
    "spark.sql.adaptive.enabled": "false",
    # Where an error's DataFrame was made: a line of Tailrace's, for ten calls of the JVM per column.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.sources.default": "parquet",
    # the default, INT96, changes PostgreSQL's infinite timestamps without an error
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    # A cell has up to a megabyte: a Python worker must receive only a few at a time. Rows are small, and a
    # worker must receive thousands of them.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
    "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "tailrace.spark.daemon",
}

#: What writes Delta's log on local disks, and what a user may have set instead: Delta refuses both.
_LOCAL_LOG_STORE, _LOG_STORE = "spark.delta.logStore.file.impl", "spark.delta.logStore.class"

#: Without files `.crc`, which double the number of files that a batch's commit writes to a local disk. Not
#: where object stores are written: their connectors keep blocks in local files and accept no other class.
#: Nor on YARN, whose client asks for the scheme that this class does not have. A Spark in one JVM has a
#: faster class (`local_files`).
RAW_LOCAL_FILES: dict[str, str] = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    # The default, by FileContext, asks for each file that it renames whether it is a link: a process each
    # time. This is as safe: either looks whether a file is there, and renames then.
    _LOCAL_LOG_STORE: "io.delta.storage.LocalLogStore",
}

_DELTA_CONF: dict[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}

#: The address that a local Spark listens on.
_LOOPBACK = "127.0.0.1"
#: PySpark's condition of a JVM that has ended before it could be reached.
_EXITED = "JAVA_GATEWAY_EXITED"
#: The master that is a cluster of Hadoop, found by its settings (HADOOP_CONF_DIR).
_YARN = "yarn"
#: Masters of a Spark that runs in one JVM.
_LOCAL = re.compile(r"local(\[.*\])?")
#: Spark's default of `spark.redaction.regex`, and the key of an archive.
_REDACTED = "(?i)secret|password|token|access[.]?key|archive[.]?key"


@dataclass
class StartingSession:
    """A session whose JVM starts while this process does other things: see `begin_session`."""

    _master: str
    _conf: Mapping[str, str]
    _environment: Mapping[str, str]
    _log_file: launch.SparkLog | None
    _jvm: launch.Jvm | None = None

    def begin(self) -> None:
        """Start the JVM, unless this process has one."""
        if not launch.is_running():
            # the fork server is found by the script that `local_python` writes
            python = self._conf.get("spark.pyspark.python", os.environ["PYSPARK_PYTHON"])
            forks = fork_server.is_available() and python == local_python() != sys.executable
            self._jvm = launch.begin(self._conf, self._environment, self._log_file, forks=forks)

    def session(self) -> SparkSession:
        """The session.

        Raises:
            ConfigError: the JVM, or Spark in it, does not start.
            TransientSourceError: the JVM has ended meanwhile; no other can be started in this process.
        """
        output = None if self._log_file is None else self._log_file.output
        with _sigint_kept(), _failure_explained(self._master, output):
            is_new = self._jvm is not None
            if is_new:
                self._connect()
            session = SparkSession.builder.config(map=dict(self._conf)).getOrCreate()
        if is_new and is_local_master(self._master):
            threading.Thread(target=_warm_up, args=(session,), name="tailrace-warm-up", daemon=True).start()
        return session

    def _connect(self) -> None:
        """Connect to the JVM, or to another one if it has ended: unless it was killed, that ends as well."""
        assert self._jvm is not None
        try:
            self._jvm.connect()
        except PySparkRuntimeError as error:
            if error.getCondition() != _EXITED:
                raise
            self._jvm.end(0)
            self.begin()
            self._jvm.connect()
        self._jvm = None

    def cancel(self) -> None:
        """End a JVM that no session was asked of."""
        if self._jvm is not None:
            self._jvm.process.kill()
            self._jvm.end(0)


def _warm_up(session: SparkSession) -> None:
    """Run a small job while nothing else is to be run: the first batch finds code loaded and workers started.

    That saves 0.9 s of the first batch, and costs no CPU time. Its failure is not the session's: if tasks
    cannot run, the first batch says so.
    """
    with suppress(Exception):  # the session may be stopped meanwhile
        map_in_arrow(session.range(2), _same, "id bigint").collect()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def begin_session(
    name: str,
    *,
    source: str | None = None,
    delta: bool = False,
    paths: Collection[str] = (),
    master: str | None = None,
    parallelism: int | None = None,
    log_file: Path | launch.SparkLog | None = None,
    extra_conf: Mapping[str, str] | None = None,
    brief: bool = False,
) -> StartingSession:
    """Begin to start a Spark session set up for Tailrace's streams.

    Args:
        name: the application's name.
        source: the scheme of the source's URL: its decoders are loaded ahead of tasks; None: MySQL's.
        delta: whether Delta tables are written or read.
        paths: the directories that it reads and writes: a local Spark gets a connector for object stores.
        master: Spark master; default: the environment's SPARK_MASTER, else a local Spark whose tasks are
            attempted up to four times.
        parallelism: cores of a local Spark; default: all.
        log_file: the file for Spark's warnings; None: the terminal, as Spark does.
        extra_conf: further settings; they win over ours. Secrets as `${env:NAME}` or `${file:PATH}`.
        brief: whether the JVM of a local Spark has little to do: its code is compiled for a quick start.

    Returns:
        The session that starts; `session` waits for it.

    Raises:
        ConfigError: Delta's jars are not in the cache and cannot be downloaded, a secret does not exist, or
            there is no directory for temporary files.
    """
    temporary_dir()
    # With it, every Python worker would compile all its modules again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    conf = {**_CONF, "spark.sql.shuffle.partitions": str(parallelism or cores())}
    master = master or os.environ.get("SPARK_MASTER") or local_master(parallelism)
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = local_python() if is_local_master(master) else sys.executable
    java_options = archive_options()
    environment = {} if source is None else {PRELOAD: source}
    if is_local_master(master):
        conf |= _local_conf()
        # The UI, if it is on, listens on this address; it has no setting for it.
        environment["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", _LOOPBACK)
        # Throughput counts, and G1 spends a tenth of two cores on the short-lived objects of a stream.
        java_options.append("-XX:+UseParallelGC")
        # Left alone, this collector lets the heap grow to its limit, and an idle stream keeps it: a gigabyte.
        java_options.append("-XX:MaxHeapFreeRatio=70")
        java_options += _ONE_COMPILER if brief else _LATE_OPTIMIZER
        # The JVM holds a batch once or twice: with Spark's default of a gigabyte, collections take half a
        # second. Every other way of setting the heap wins over this variable.
        os.environ.setdefault("SPARK_DRIVER_MEMORY", f"{_heap_mb()}m")
    elif source is not None:
        conf[f"spark.executorEnv.{PRELOAD}"] = source
        if isinstance(log_file, launch.SparkLog):
            for variable, value in log_records.settings(None, log_file.fields).items():
                conf[f"spark.executorEnv.{variable}"] = value
    if java_options:
        conf["spark.driver.defaultJavaOptions"] = " ".join(java_options)
    given = extra_conf or {}
    object_stores.use(given)
    jars = prefetch_jars() if delta else []
    if delta:
        conf |= _DELTA_CONF
    if is_local_master(master) and object_stores.needs_jars(paths, given):
        conf |= object_stores.S3_CONF
        jars += cached_jars(*object_stores.s3_jars(RELEASE))
    if all(map(is_local, paths)) and master != _YARN:
        conf |= RAW_LOCAL_FILES
        if is_local_master(master) and not launch.is_running():
            conf |= local_files.settings()
    conf |= _resolved(given)
    environment |= local_files.environment(conf)
    if _LOG_STORE in conf:
        conf.pop(_LOCAL_LOG_STORE, None)
    if jars:
        conf["spark.jars"] = ",".join(filter(None, [*map(str, jars), conf.get("spark.jars")]))
    conf |= {"spark.app.name": name, "spark.master": master}
    log_file = launch.SparkLog(log_file) if isinstance(log_file, Path) else log_file
    starting = StartingSession(master, conf, environment, log_file)
    starting.begin()
    return starting


def _waiting(begin: Callable[_P, StartingSession]) -> Callable[_P, SparkSession]:
    """`begin`, and the session itself."""

    @wraps(begin)
    def session(*args: _P.args, **kwargs: _P.kwargs) -> SparkSession:
        return begin(*args, **kwargs).session()

    return session


#: A Spark session set up for Tailrace's streams; parameters and errors: `begin_session`, `StartingSession`.
spark_session = _waiting(begin_session)


def local_master(parallelism: int | None = None) -> str:
    """The master of a local Spark whose tasks are attempted up to four times; default: all cores."""
    return f"local[{parallelism or cores()},4]"


def is_local_master(master: str) -> bool:
    """Whether `master` is a Spark that runs in one JVM."""
    return _LOCAL.fullmatch(master) is not None


def _local_conf() -> dict[str, str]:
    """Settings of a Spark on this machine alone, which no other machine needs to reach."""
    mask = os.umask(0o077)
    os.umask(mask)
    return {
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
        # With a secret that Spark generates for each run and does not store.
        "spark.authenticate": "true",
        # Hadoop has a umask of its own.
        "spark.hadoop.fs.permissions.umask-mode": f"{mask:03o}",
    }


def _resolved(given: Mapping[str, str]) -> dict[str, str]:
    """The user's settings, with secrets redacted in Spark's UI, event log and plans."""
    resolved = resolve_all(given, "pipeline.spark")
    names = [name.removeprefix("spark.hadoop.") for name, text in given.items() if Secret(text).is_reference]
    if names:
        # Hadoop's settings appear twice: by Spark's names and by Hadoop's.
        exactly = [rf"^(spark\.hadoop\.)?{re.escape(name)}$" for name in names]
        redacted = resolved.get("spark.redaction.regex", _REDACTED)
        resolved["spark.redaction.regex"] = "|".join([redacted, *exactly])
    return resolved


def _heap_mb() -> int:
    """The default JVM heap: a quarter of the memory, from one to four gigabytes."""
    return min(max(memory_bytes() >> 22, 1 << 10), 4 << 10)


@contextmanager
def _failure_explained(master: str, log_file: Path | None) -> Iterator[None]:
    """Find the reason of a JVM, or a Spark in it, that does not start: PySpark reports none."""
    try:
        yield
    except Py4JJavaError as error:
        raise _not_started(master, log_file) from error
    except (Py4JError, ConnectionError) as error:
        raise TransientSourceError(
            "Spark's JVM has ended while Spark started",
            None,
            f"see {log_file or 'the terminal'}, or the system's log, for the reason",
            code="TR-8001",
        ) from error
    except PySparkRuntimeError as error:
        if error.getCondition() != _EXITED:
            raise
        require_java()
        raise ConfigError(
            "Spark's JVM did not start",
            f"its output is in {log_file or 'the terminal'}",
            "a Java option in the pipeline's `spark` settings or in the environment may be wrong",
            code="TR-1206",
        ) from None


def _not_started(master: str, log_file: Path | None) -> ConfigError:
    """Spark's JVM runs, and Spark in it does not start."""
    where = log_file or "the terminal"
    if is_local_master(master):
        return ConfigError(
            "Spark did not start",
            f"its log is in {where}",
            "one of the pipeline's `spark` settings may be wrong",
            code="TR-1206",
        )
    return ConfigError(
        f"Spark did not start on the cluster `{master}`",
        f"its log is in {where}",
        "check that a master runs at this address, that this machine reaches it, and that both have the same"
        " version of Spark; without `master`, a pipeline runs on a local Spark",
        code="TR-1206",
    )


def stop_session(session: SparkSession, patience_s: float = 60) -> None:
    """Stop Spark, and its JVM if `spark_session` started it. A JVM that has already ended is no error.

    Args:
        session: the session.
        patience_s: how long the JVM may take before it is killed, seconds.
    """
    with suppress(Py4JError, ConnectionError):
        session.stop()
    launch.end(patience_s)


def prefetch_jars() -> list[Path]:
    """Delta's jars, from the cache.

    Raises:
        ConfigError: they are not in the cache and cannot be downloaded.
    """
    return cached_jars(*DELTA_JARS)


@contextmanager
def _sigint_kept() -> Iterator[None]:
    """Restore the program's handler of SIGINT, which a SparkContext replaces by its own."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if before is not signal.default_int_handler and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)
