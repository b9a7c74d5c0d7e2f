"""Delta's log through its JVM classes: a table's state, and commits that PySpark has no call for.

Written against Delta 4.4.0; each function says which public call would end it.
"""

# ruff: noqa: SLF001
from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession


@dataclass(frozen=True)
class DeltaState:
    """A Delta table's newest state.

    Args:
        properties: table properties.
        transactions: last version written per application (`txn` actions).
        version: its number.
    """

    properties: Mapping[str, str]
    transactions: Mapping[str, int]
    version: int


def delta_state(session: SparkSession, path: str) -> DeltaState | None:
    """The state of the Delta table at `path`, None if there is none. DeltaTable tells no transactions."""
    jvm: Any = session._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, path)
    if not log.tableExists():
        return None
    nothing = jvm.scala.Option.empty()
    snapshot = log.update(False, nothing, nothing)
    return DeltaState(
        _map(snapshot.metadata().configuration()), _transactions(snapshot), int(snapshot.version())
    )


def clear_unmade(session: SparkSession, path: str) -> None:
    """Delete what a process has left at `path` that was killed while it made a Delta table there.

    Delta writes a table's first commit under a name of its own before it is one, and would take what is left
    of it for a table. A log that holds anything else stays.
    """
    jvm: Any = session._jvm
    log = jvm.org.apache.hadoop.fs.Path(path, "_delta_log")
    files = log.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
    if not files.exists(log):
        return
    for found in files.listStatus(log):
        name = found.getPath().getName()
        is_empty = found.isDirectory() and not list(files.listStatus(found.getPath()))
        if not is_empty and not (name.startswith(".") and name.endswith((".tmp", ".crc"))):
            return
    files.delete(log, True)


def _transactions(snapshot: Any) -> dict[str, int]:
    """Last version written per application.

    From the version's checksum file where it has them: `snapshot.transactions()` is a Spark job over the
    whole log, for each new version.
    """
    checksum = snapshot.checksumOpt()
    known = checksum.get().setTransactions() if checksum.isDefined() else checksum
    if known.isEmpty():
        return {app: int(version) for app, version in _map(snapshot.transactions()).items()}
    return {action.appId(): int(action.version()) for action in _each(known.get())}


@dataclass(frozen=True)
class Mark:
    """What makes a commit of a batch recognisable.

    Args:
        app: `txn`'s application id.
        version: its version: the batch's number.
        query: the stream's id.
        said: the commit's `userMetadata`, JSON.
    """

    app: str
    version: int
    query: str
    said: str


class DeltaTransaction:
    """A change of the Delta table at `path`: what is read of it now, and one commit.

    Delta refuses the commit if another one has changed meanwhile what was read.
    """

    def __init__(self, session: SparkSession, path: str) -> None:
        jvm: Any = session._jvm
        jvm.org.apache.spark.sql.SparkSession.setActiveSession(session._jsparkSession)
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, path)
        self._jvm, self._session = jvm, session
        self._transaction = log.startTransaction()

    def has(self, mark: Mark) -> bool:
        """Whether a commit with `mark` is in the table."""
        # As `txnVersion` notes it, which would ask for `snapshot.transactions()`.
        self._transaction.readTxn().addOne(mark.app)
        return _transactions(self._transaction.snapshot()).get(mark.app, -1) >= mark.version

    def files(self) -> list[dict[str, Any]]:
        """The table's files: what Delta's protocol has in an `add` action."""
        self._transaction.readWholeTable()
        files = self._transaction.snapshot().allFiles().collectAsList()
        return [json.loads(file.json())["add"] for file in files]

    def commit(self, actions: Sequence[str], mark: Mark) -> None:
        """Commit `actions` (JSON texts) with `mark`."""
        delta = self._jvm.org.apache.spark.sql.delta
        txn = {"appId": mark.app, "version": mark.version, "lastUpdated": int(time.time() * 1000)}
        listed = self._jvm.java.util.ArrayList()
        for action in [json.dumps({"txn": txn}), *actions]:
            listed.add(delta.actions.Action.fromJson(action))
        operation = getattr(delta, "DeltaOperations$StreamingUpdate")(
            self._jvm.org.apache.spark.sql.streaming.OutputMode.Append(),
            mark.query,
            mark.version,
            self._jvm.scala.Option.apply(mark.said),
        )
        converters = self._jvm.scala.jdk.javaapi.CollectionConverters
        self._register(_metrics_of([json.loads(action) for action in actions]))
        self._transaction.commit(converters.asScala(listed).toSeq(), operation)

    def _register(self, values: Mapping[str, int]) -> None:
        """Have the table's history tell of the commit."""
        spark, sql = self._session._jsparkSession, self._jvm.org.apache.spark.sql
        metrics = self._jvm.java.util.HashMap()
        for name, value in values.items():
            metric = sql.execution.metric.SQLMetrics.createMetric(spark.sparkContext(), name)
            metric.set(value)
            metrics.put(name, metric)
        scala = self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(metrics)
        copied = getattr(self._jvm.scala.collection.immutable.Map, "from")(scala)
        self._transaction.registerSQLMetrics(spark, copied)


def _metrics_of(actions: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """What Delta's history tells of a streaming commit: new files, files gone, rows and bytes of new ones.

    A file that comes again with another deletion vector is neither new nor gone.
    """
    added = [action["add"] for action in actions if "add" in action]
    new = [file for file in added if "deletionVector" not in file]
    removed = {action["remove"]["path"] for action in actions if "remove" in action}
    return {
        "numAddedFiles": len(new),
        "numRemovedFiles": len(removed - {file["path"] for file in added}),
        "numOutputRows": sum(json.loads(file["stats"])["numRecords"] for file in new),
        "numOutputBytes": sum(file["size"] for file in new),
    }


def delta_conflict(error: Exception) -> str | None:
    """Why Delta refused a commit, if another writer's was the reason; else None.

    The `delta` package's exceptions would tell, but not of a Py4JJavaError.
    """
    java: Any = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    while java is not None:
        kind = java.getClass()
        while kind is not None:
            if kind.getSimpleName() == "DeltaConcurrentModificationException":
                return f"{java.getClass().getSimpleName()}: {str(java.getMessage()).splitlines()[0]}"
            kind = kind.getSuperclass()
        java = java.getCause()
    return None


def _map(scala: Any) -> dict[str, Any]:
    return {entry._1(): entry._2() for entry in _each(scala)}


def _each(scala: Any) -> Iterator[Any]:
    elements = scala.iterator()
    while elements.hasNext():
        yield elements.next()
