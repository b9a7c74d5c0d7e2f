"""Delta's log through its JVM classes: a table's state, and commits for which PySpark has no call.

Written against Delta 4.4.0.
"""

# ruff: noqa: SLF001
from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tailrace.sinks.lease import require_newest
from tailrace.sinks.quarantine import violation_reason
from tailrace.spark.arrow_schema import arrow_schema

#: The property with the newest lease under which a table was written (`sinks.lease`).
LEASE = "tailrace.lease"
#: Whether a version's checksum file has its files. For a table's first version Delta finds them by a Spark job.
_FILES_IN_CHECKSUM = "spark.databricks.delta.allFilesInCrc.enabled"
#: Where the log keeps the columns by which a table is clustered, and what a table needs for it.
_CLUSTERING = "delta.clustering"
_CLUSTERED = {"delta.feature.clustering": "supported", "delta.feature.domainMetadata": "supported"}
#: How Delta names a violated CHECK constraint.
_CHECK = re.compile(r"CHECK constraint (\S+) \(")


@dataclass(frozen=True)
class DeltaState:
    """A Delta table's newest state.

    Args:
        properties: table properties.
        transactions: the last version written by each application (`txn` actions).
        version: the table's version.
        schema: its columns, as the JSON of Spark's type.
    """

    properties: Mapping[str, str]
    transactions: Mapping[str, int]
    version: int
    schema: str

    @cached_property
    def columns(self) -> pa.Schema:
        """Its columns."""
        return arrow_schema(StructType.fromJson(json.loads(self.schema)))

    @property
    def lease(self) -> int:
        """The newest lease under which it was written; 0: none."""
        return int(self.properties.get(LEASE, "0"))


def delta_state(session: SparkSession, path: str) -> DeltaState | None:
    """The state of the Delta table at `path`, None if there is none.

    The public DeltaTable class does not expose transactions.
    """
    jvm: Any = session._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, path)
    nothing = jvm.scala.Option.empty()
    # `tableExists` tells what this process saw last: others create tables, and remove them
    snapshot = log.update(False, nothing, nothing)
    if int(snapshot.version()) < 0:
        return None
    metadata = _contents(snapshot.metadata(), "metaData")
    version = int(snapshot.version())
    return DeltaState(metadata["configuration"], _transactions(snapshot), version, metadata["schemaString"])


def create_table(
    session: SparkSession, path: str, metadata: Mapping[str, Any], cluster_by: Sequence[str]
) -> None:
    """Create the Delta table at `path`, without rows.

    In one commit, as CREATE TABLE does, which takes several times as long: it analyses a plan, and looks
    into catalogs.

    Args:
        session: a session.
        path: its directory.
        metadata: its schema (`schemaString`), `partitionColumns` and `configuration`.
        cluster_by: the columns by which it is clustered.
    """
    jvm: Any = session._jvm
    delta, nothing = jvm.org.apache.spark.sql.delta, jvm.scala.Option.empty()
    jvm.org.apache.spark.sql.SparkSession.setActiveSession(session._jsparkSession)
    transaction = delta.DeltaLog.forTable(session._jsparkSession, path).startTransaction()
    action = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "createdTime": int(time.time() * 1000),
        **metadata,
    }
    if cluster_by:
        action["configuration"] = {**metadata["configuration"], **_CLUSTERED}
    transaction.updateMetadataForNewTable(_action(jvm, {"metaData": action}))
    actions = []
    if cluster_by:
        schema = json.loads(transaction.metadata().schemaString())
        columns = [[_name_in_files(schema, name)] for name in cluster_by]
        text = json.dumps({"clusteringColumns": columns, "domainName": _CLUSTERING})
        domain = {"domain": _CLUSTERING, "configuration": text, "removed": False}
        actions.append(_action(jvm, {"domainMetadata": domain}))
    clustered = jvm.scala.Option.apply(_seq(jvm, cluster_by)) if cluster_by else nothing
    operation = getattr(delta, "DeltaOperations$CreateTable")(transaction.metadata(), False, False, clustered)
    session.conf.set(_FILES_IN_CHECKSUM, "false")
    try:
        transaction.commit(_seq(jvm, actions), operation)
    finally:
        session.conf.unset(_FILES_IN_CHECKSUM)


@dataclass(frozen=True)
class DeltaVersion:
    """One version of a Delta table.

    Args:
        files: its data files, as the contents of their `add` actions.
        names_in_files: its columns, with their names in files.
        partition_columns: the columns that are not in files.
        reader_features: what readers must know, by Delta's names.
    """

    files: Sequence[Mapping[str, Any]]
    names_in_files: Mapping[str, str]
    partition_columns: Sequence[str]
    reader_features: frozenset[str]


def version_at(session: SparkSession, path: str, version: int) -> DeltaVersion:
    """A version that the Delta table at `path` has."""
    jvm: Any = session._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, path)
    nothing = jvm.scala.Option.empty()
    snapshot = log.getSnapshotAt(version, nothing, nothing, False)
    schema = json.loads(snapshot.metadata().schemaString())
    features = snapshot.protocol().readerFeatures()
    return DeltaVersion(
        _files(snapshot),
        {field["name"]: _name_in_files(schema, field["name"]) for field in schema["fields"]},
        list(_each(snapshot.metadata().partitionColumns())),
        frozenset(_each(features.get())) if features.isDefined() else frozenset(),
    )


def clear_unmade(session: SparkSession, path: str) -> None:
    """Delete the remains of a Delta table at `path` whose process was killed while it created the table.

    Delta writes a table's first commit under a temporary name, and would treat what is left of it as a table.
    A log that holds anything else stays.
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
    """The last version written by each application.

    Read from the version's checksum file if possible: `snapshot.transactions()` is a Spark job over the whole
    log, for each new version.
    """
    checksum = snapshot.checksumOpt()
    known = checksum.get().setTransactions() if checksum.isDefined() else checksum
    if known.isEmpty():
        return {app: int(version) for app, version in _map(snapshot.transactions()).items()}
    return {action.appId(): int(action.version()) for action in _each(known.get())}


def _files(snapshot: Any) -> list[dict[str, Any]]:
    """A version's files, as the contents of their `add` actions.

    Read from the version's checksum file if possible, which has those of small tables: `snapshot.allFiles()`
    is a Spark job over the whole log, for each new version.
    """
    checksum = snapshot.checksumOpt()
    known = checksum.get().allFiles() if checksum.isDefined() else checksum
    files = snapshot.allFiles().collectAsList() if known.isEmpty() else _each(known.get())
    return [_contents(file, "add") for file in files]


@dataclass(frozen=True)
class CommitMark:
    """Identifies the commit of a batch.

    Args:
        app: the application id of its `txn`.
        version: the version of its `txn`: the batch's number.
        query: the stream's id.
        metadata: the commit's `userMetadata`, JSON.
        lease: the lease under which it is made; 0: none.
    """

    app: str
    version: int
    query: str
    metadata: str
    lease: int = 0


class DeltaTransaction:
    """A transaction on the Delta table at `path`: reads, and one commit.

    Delta refuses the commit if another commit has changed meanwhile what was read.
    """

    def __init__(self, session: SparkSession, path: str) -> None:
        jvm: Any = session._jvm
        jvm.org.apache.spark.sql.SparkSession.setActiveSession(session._jsparkSession)
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, path)
        self._jvm, self._session, self._path = jvm, session, path
        self._transaction = log.startTransaction()

    def has(self, mark: CommitMark) -> bool:
        """Whether the table has a commit with `mark`."""
        # As `txnVersion` does, which would call `snapshot.transactions()`.
        self._transaction.readTxn().addOne(mark.app)
        return _transactions(self._transaction.snapshot()).get(mark.app, -1) >= mark.version

    def files(self) -> list[dict[str, Any]]:
        """The table's files, as the contents of their `add` actions."""
        self._transaction.readWholeTable()
        return _files(self._transaction.snapshot())

    def read(self) -> DataFrame:
        """The table's rows, as the transaction found them."""
        self._transaction.readWholeTable()
        version = int(self._transaction.snapshot().version())
        return self._session.read.format("delta").option("versionAsOf", version).load(self._path)

    def metadata(self) -> dict[str, Any]:
        """The table's metadata, as the contents of its action."""
        return _contents(self._transaction.metadata(), "metaData")

    def alter(self, metadata: Mapping[str, Any]) -> None:
        """Have the commit give the table this metadata; files are written by it from now on."""
        self._transaction.updateMetadata(_action(self._jvm, {"metaData": metadata}), False)

    def write(self, rows: DataFrame) -> list[dict[str, Any]]:
        """Write rows into new files, in Spark's tasks; the contents of their `add` actions."""
        written = self._transaction.writeFiles(rows._jdf)
        return [_contents(file, "add") for file in _each(written)]

    def claim(self, mark: CommitMark) -> None:
        """Note the mark's lease in the table: all commits that began before are refused from now on.

        Delta refuses a commit if the table's metadata has changed since it began.

        Raises:
            LeaseLostError: the table was written under a newer one.
        """
        metadata = self.metadata()
        noted = int(metadata["configuration"].get(LEASE, "0"))
        require_newest(self._path, noted, mark.lease)
        if noted < mark.lease:
            self.alter({**metadata, "configuration": metadata["configuration"] | {LEASE: str(mark.lease)}})
            self.commit([], mark)

    def commit(self, actions: Sequence[str], mark: CommitMark) -> None:
        """Commit `actions` (JSON texts) with `mark`.

        Raises:
            LeaseLostError: the table was written under a newer lease.
        """
        if mark.lease:
            noted = self._transaction.metadata().configuration().get(LEASE)
            require_newest(self._path, int(noted.get()) if noted.isDefined() else 0, mark.lease)
        delta = self._jvm.org.apache.spark.sql.delta
        txn = {"appId": mark.app, "version": mark.version, "lastUpdated": int(time.time() * 1000)}
        listed = [delta.actions.Action.fromJson(action) for action in [json.dumps({"txn": txn}), *actions]]
        operation = getattr(delta, "DeltaOperations$StreamingUpdate")(
            self._jvm.org.apache.spark.sql.streaming.OutputMode.Append(),
            mark.query,
            mark.version,
            self._jvm.scala.Option.apply(mark.metadata),
        )
        self._register(_metrics_of([json.loads(action) for action in actions]))
        self._transaction.commit(_seq(self._jvm, listed), operation)

    def _register(self, values: Mapping[str, int]) -> None:
        """Show the commit's metrics in the table's history."""
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
    """A streaming commit's metrics in Delta's history: files added and removed, rows and bytes added.

    A file whose deletion vector changes is neither added nor removed.
    """
    added = [action["add"] for action in actions if "add" in action]
    new = [file for file in added if "deletionVector" not in file]
    removed = {action["remove"]["path"] for action in actions if "remove" in action}
    return {
        "numAddedFiles": len(new),
        "numRemovedFiles": len(removed - {file["path"] for file in added}),
        "numOutputRows": sum(json.loads(file.get("stats") or "{}").get("numRecords", 0) for file in new),
        "numOutputBytes": sum(file["size"] for file in new),
    }


def removal(file: Mapping[str, Any], now_ms: int, *, changes_data: bool = True) -> dict[str, Any]:
    """The action that removes a file.

    Args:
        file: its `add` action.
        now_ms: the time, milliseconds since 1970 UTC.
        changes_data: whether the table's rows change.
    """
    kept = ("path", "partitionValues", "size", "deletionVector", "baseRowId", "defaultRowCommitVersion")
    remove = {"deletionTimestamp": now_ms, "dataChange": changes_data, "extendedFileMetadata": True}
    return {"remove": remove | {name: file[name] for name in kept if file.get(name) is not None}}


def needs(session: SparkSession, path: str, column: Sequence[str]) -> str | None:
    """What in the Delta table at `path` needs a column as it is; None: nothing does.

    Args:
        session: a session.
        path: the table's directory.
        column: the column's name, or the names on the way to a field of a struct.
    """
    jvm: Any = session._jvm
    delta, nothing = jvm.org.apache.spark.sql.delta, jvm.scala.Option.empty()
    snapshot = delta.DeltaLog.forTable(session._jsparkSession, path).update(False, nothing, nothing)
    metadata, spark = snapshot.metadata(), session._jsparkSession
    names = _seq(jvm, column)
    checks = _map(delta.constraints.Constraints.findDependentConstraints(spark, names, metadata))
    if checks:
        return f"CHECK constraint `{next(iter(checks)).removeprefix('delta.constraints.')}` reads it"
    generated = _map(
        delta.schema.SchemaUtils.findDependentGeneratedColumns(
            spark, names, snapshot.protocol(), metadata.schema()
        )
    )
    if generated:
        return f"generated column `{next(iter(generated))}` reads it"
    if column[0] in list(_each(metadata.partitionColumns())):
        return "the table is partitioned by it"
    if _name_in_files(json.loads(metadata.schemaString()), column[0]) in _clustering(snapshot):
        return "the table is clustered by it"
    return None


def _clustering(snapshot: Any) -> list[str]:
    """The names, in files, of the columns by which a table is clustered."""
    for domain in _each(snapshot.domainMetadata()):
        if domain.domain() == _CLUSTERING and not domain.removed():
            return [names[0] for names in json.loads(domain.configuration())["clusteringColumns"]]
    return []


def _name_in_files(schema: Mapping[str, Any], name: str) -> str:
    """A column's name in a table's files."""
    for field in schema["fields"]:
        if field["name"] == name:
            return str(field["metadata"].get("delta.columnMapping.physicalName", name))
    return name


def delta_conflict(error: Exception) -> str | None:
    """Why Delta refused a commit, if the reason was another writer's commit; else None.

    The `delta` package has exceptions for this, but they do not cover a Py4JJavaError.
    """
    java = _cause(error, "DeltaConcurrentModificationException")
    return None if java is None else f"{java.getClass().getSimpleName()}: {_first_line(java)}"


def delta_violation(error: Exception) -> str | None:
    """Which constraint Delta found violated by a row, None if it failed for another reason.

    Delta's own message holds the row's values.
    """
    java = _cause(error, "DeltaInvariantViolationException")
    if java is None:
        return None
    named = _CHECK.search(_first_line(java))
    return "it violates a constraint of the table" if named is None else violation_reason(named[1])


def _cause(error: Exception, kind: str) -> Any:
    """The first cause in the JVM that is of the class with the simple name `kind`, None if there is none."""
    java: Any = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    while java is not None:
        class_ = java.getClass()
        while class_ is not None:
            if class_.getSimpleName() == kind:
                return java
            class_ = class_.getSuperclass()
        java = java.getCause()
    return None


def _first_line(java: Any) -> str:
    return str(java.getMessage()).splitlines()[0]


def _contents(action: Any, kind: str) -> dict[str, Any]:
    """The contents of an action of the log."""
    found: dict[str, Any] = json.loads(action.json())[kind]
    return found


def _action(jvm: Any, action: Mapping[str, Any]) -> Any:
    """An action of the log, of its JSON."""
    return jvm.org.apache.spark.sql.delta.actions.Action.fromJson(json.dumps(action))


def _seq(jvm: Any, items: Iterable[Any]) -> Any:
    """Scala's sequence of items."""
    listed = jvm.java.util.ArrayList()
    for item in items:
        listed.add(item)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(listed).toSeq()


def _map(scala: Any) -> dict[str, Any]:
    return {entry._1(): entry._2() for entry in _each(scala)}


def _each(scala: Any) -> Iterator[Any]:
    elements = scala.iterator()
    while elements.hasNext():
        yield elements.next()
