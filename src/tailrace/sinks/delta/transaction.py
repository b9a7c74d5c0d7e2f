"""Delta's log through its JVM classes: a table's state, and commits for which PySpark has no call.

Written against Delta 4.4.0.
"""

# ruff: noqa: SLF001
from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tailrace.model.sparksql import identifier
from tailrace.sinks.delta.first_version import complete_first_checksum
from tailrace.sinks.lease import require_newest
from tailrace.sinks.quarantine import violation_reason
from tailrace.spark.arrow_schema import arrow_schema
from tailrace.spark.checkpoint import is_local

#: The property with the newest lease under which a table was written (`sinks.lease`).
LEASE = "tailrace.lease"
#: Whether a version's checksum file has its files; a Spark job finds those of a table's first version, so
#: `complete_first_checksum` does.
_FILES_IN_CHECKSUM = "spark.databricks.delta.allFilesInCrc.enabled"
#: Where the log keeps the columns by which a table is clustered, and what a table needs for it.
_CLUSTERING = "delta.clustering"
_CLUSTERED = {"delta.feature.clustering": "supported", "delta.feature.domainMetadata": "supported"}
#: How Delta names a violated CHECK constraint.
_CHECK = re.compile(r"CHECK constraint (\S+) \(")


class TableChangedError(Exception):
    """Another writer has changed a table between two steps that belong together."""


class _Classes:
    """Classes of a JVM: Py4J asks the JVM for each part of a class' name, each time it is written."""

    def __init__(self, jvm: Any) -> None:
        spark, delta = jvm.org.apache.spark, jvm.org.apache.spark.sql.delta
        self.action = delta.actions.Action
        self.any = jvm.scala.reflect.ManifestFactory.Any()
        self.array_list = jvm.java.util.ArrayList
        self.constraints = delta.constraints.Constraints
        self.converters = jvm.scala.jdk.javaapi.CollectionConverters
        self.create_table = getattr(delta, "DeltaOperations$CreateTable")
        self.delta_log = delta.DeltaLog
        self.hash_map = jvm.java.util.HashMap
        self.json = delta.util.JsonUtils
        self.metrics = spark.sql.execution.metric.SQLMetrics
        self.nothing = jvm.scala.Option.empty()
        self.option = jvm.scala.Option
        self.output_mode = spark.sql.streaming.OutputMode
        self.path = jvm.org.apache.hadoop.fs.Path
        self.schema_utils = delta.schema.SchemaUtils
        self.spark_session = spark.sql.SparkSession
        self.streaming_update = getattr(delta, "DeltaOperations$StreamingUpdate")
        self.to_map = getattr(jvm.scala.collection.immutable.Map, "from")

    def log_of(self, session: SparkSession, path: str) -> Any:
        """The log of the Delta table at `path`; what is asked of it may be Spark jobs of this thread."""
        self.spark_session.setActiveSession(session._jsparkSession)
        return self.delta_log.forTable(session._jsparkSession, path)

    def newest(self, session: SparkSession, path: str) -> Any:
        """The newest snapshot of the Delta table at `path`; its version is -1 if there is none."""
        # `tableExists` tells what this process saw last: others create tables, and remove them
        return self.log_of(session, path).update(False, self.nothing, self.nothing)

    def contents(self, actions: Any) -> list[dict[str, Any]]:
        """The contents of actions of one kind, in a sequence of Scala or Java, by one call for all."""
        found: list[dict[str, Any]] = json.loads(self.json.toJson(actions, self.any))
        return found

    def seq(self, items: Iterable[Any]) -> Any:
        """Scala's sequence of items."""
        listed = self.array_list()
        for item in items:
            listed.add(item)
        return self.converters.asScala(listed).toSeq()


@lru_cache(maxsize=1)
def _classes(jvm: Any) -> _Classes:
    return _Classes(jvm)


@dataclass(frozen=True)
class DeltaState:
    """A Delta table's newest state.

    Args:
        properties: table properties.
        transactions: the last version written by each application (`txn` actions).
        version: the table's version; -1: it is planned (`DeltaTable.plan`).
        id: the table's id, which another table at the same path does not have.
        schema: its columns, as the JSON of Spark's type.
    """

    properties: Mapping[str, str]
    transactions: Mapping[str, int]
    version: int
    id: str
    schema: str

    @cached_property
    def columns(self) -> pa.Schema:
        """Its columns."""
        return arrow_schema(StructType.fromJson(json.loads(self.schema)))

    @property
    def lease(self) -> int:
        """The newest lease under which it was written; 0: none."""
        return int(self.properties.get(LEASE, "0"))


def delta_state(session: SparkSession, path: str, known: DeltaState | None = None) -> DeltaState | None:
    """The state of the Delta table at `path`, None if there is none.

    The public DeltaTable class does not expose transactions.

    Args:
        session: a session.
        path: the table's directory.
        known: an earlier state: nothing is read if it is the newest.
    """
    java = _classes(session._jvm)
    snapshot = java.newest(session, path)
    version = int(snapshot.version())
    if version < 0:
        return None
    metadata = snapshot.metadata()
    if known is not None and known.version == version and known.id == metadata.id():
        return known
    contents = _contents(metadata, "metaData")
    return DeltaState(
        contents["configuration"],
        _transactions(java, snapshot),
        version,
        contents["id"],
        contents["schemaString"],
    )


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
    java = _classes(session._jvm)
    snapshot = java.log_of(session, path).getSnapshotAt(version, java.nothing, java.nothing, False)
    schema = json.loads(snapshot.metadata().schemaString())
    features = snapshot.protocol().readerFeatures()
    return DeltaVersion(
        _files(java, snapshot),
        {field["name"]: _name_in_files(schema, field["name"]) for field in schema["fields"]},
        list(_each(snapshot.metadata().partitionColumns())),
        frozenset(_each(features.get())) if features.isDefined() else frozenset(),
    )


def _transactions(java: _Classes, snapshot: Any) -> dict[str, int]:
    """The last version written by each application.

    Read from the version's checksum file if possible: `snapshot.transactions()` is a Spark job over the whole
    log, for each new version.
    """
    checksum = snapshot.checksumOpt()
    known = checksum.get().setTransactions() if checksum.isDefined() else checksum
    if known.isEmpty():
        return {app: int(version) for app, version in _map(snapshot.transactions()).items()}
    return {action["appId"]: action["version"] for action in java.contents(known.get())}


def _files(java: _Classes, snapshot: Any) -> list[dict[str, Any]]:
    """A version's files, as the contents of their `add` actions.

    Read from the version's checksum file if possible, which has those of small tables: `snapshot.allFiles()`
    is a Spark job over the whole log, for each new version.
    """
    checksum = snapshot.checksumOpt()
    known = checksum.get().allFiles() if checksum.isDefined() else checksum
    return java.contents(snapshot.allFiles().collectAsList() if known.isEmpty() else known.get())


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


@dataclass(frozen=True)
class _NewTable:
    """What the commit of a new table needs besides its metadata.

    Args:
        actions: actions, as JSON texts.
        cluster_by: the columns by which it is clustered.
    """

    actions: Sequence[str]
    cluster_by: Sequence[str]


class DeltaTransaction:
    """A transaction on the Delta table at `path`: reads, and one commit.

    Delta refuses the commit if another commit has changed meanwhile what was read.

    Args:
        session: a session.
        path: the table's directory.
        committed: called after a commit.
    """

    def __init__(self, session: SparkSession, path: str, committed: Callable[[], None]) -> None:
        self._java, self._session, self._path = _classes(session._jvm), session, path
        self._committed = committed
        self._transaction = self._java.log_of(session, path).startTransaction()
        if self._lacks_files_in_checksum() and complete_first_checksum(path):
            self._java.delta_log.invalidateCache(session._jsparkSession, self._java.path(path))
            self._transaction = self._java.log_of(session, path).startTransaction()
        #: Of a new table: what the commit needs besides its metadata.
        self._new: _NewTable | None = None

    def _lacks_files_in_checksum(self) -> bool:
        """Whether the table has its first version only, and that's checksum does not name its files."""
        snapshot = self._transaction.snapshot()
        if int(snapshot.version()) or not is_local(self._path):
            return False
        checksum = snapshot.checksumOpt()
        return bool(checksum.isDefined() and checksum.get().allFiles().isEmpty())

    def create(self, metadata: Mapping[str, Any], cluster_by: Sequence[str]) -> None:
        """Have the commit create the table.

        CREATE TABLE takes several times as long: it analyses a plan, and looks into catalogs.

        Args:
            metadata: its schema (`schemaString`), `partitionColumns` and `configuration`.
            cluster_by: the columns by which it is clustered.

        Raises:
            TableChangedError: the table exists.
        """
        java = self._java
        if int(self._transaction.snapshot().version()) >= 0:
            raise TableChangedError(f"another writer has created the table at {self._path}")
        action = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "createdTime": int(time.time() * 1000),
            **metadata,
        }
        if cluster_by:
            action["configuration"] = {**metadata["configuration"], **_CLUSTERED}
        self._transaction.updateMetadataForNewTable(java.action.fromJson(json.dumps({"metaData": action})))
        actions = []
        if cluster_by:
            schema = json.loads(self._transaction.metadata().schemaString())
            columns = [[_name_in_files(schema, name)] for name in cluster_by]
            named = {"clusteringColumns": columns, "domainName": _CLUSTERING}
            text = json.dumps(named, separators=(",", ":"))
            domain = {"domain": _CLUSTERING, "configuration": text, "removed": False}
            actions.append(json.dumps({"domainMetadata": domain}))
        self._new = _NewTable(actions, cluster_by)

    def has(self, mark: CommitMark) -> bool:
        """Whether the table has a commit with `mark`."""
        # As `txnVersion` does, which would call `snapshot.transactions()`.
        self._transaction.readTxn().addOne(mark.app)
        return _transactions(self._java, self._transaction.snapshot()).get(mark.app, -1) >= mark.version

    def files(self) -> list[dict[str, Any]]:
        """The table's files, as the contents of their `add` actions."""
        self._transaction.readWholeTable()
        return _files(self._java, self._transaction.snapshot())

    def read(self) -> DataFrame:
        """The table's rows, as the transaction found them."""
        self._transaction.readWholeTable()
        version = int(self._transaction.snapshot().version())
        return self._session.read.format("delta").option("versionAsOf", version).load(self._path)

    def metadata(self) -> dict[str, Any]:
        """The table's metadata, as the contents of its action."""
        return _contents(self._transaction.metadata(), "metaData")

    def require_columns(self, state: DeltaState) -> None:
        """Refuse to go on unless the table has the columns of a state, under the same names in files.

        Raises:
            TableChangedError: it has others.
        """
        if self._transaction.metadata().schemaString() != state.schema:
            raise TableChangedError(f"the columns of {self._path} are others than in version {state.version}")

    def alter(self, metadata: Mapping[str, Any]) -> None:
        """Have the commit give the table this metadata; files are written by it from now on."""
        action = self._java.action.fromJson(json.dumps({"metaData": metadata}))
        self._transaction.updateMetadata(action, False)

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

    def commit_new(self) -> None:
        """Commit a new table without rows."""
        assert self._new is not None
        java, cluster_by = self._java, self._new.cluster_by
        names = [name if name.isidentifier() else identifier(name) for name in cluster_by]
        clustered = java.option.apply(java.seq(names)) if cluster_by else java.nothing
        operation = java.create_table(self._transaction.metadata(), False, False, clustered)
        self._commit(self._new.actions, operation)

    def commit(self, actions: Sequence[str], mark: CommitMark) -> None:
        """Commit `actions` (JSON texts) with `mark`; of a new table, its first rows.

        Raises:
            LeaseLostError: the table was written under a newer lease.
        """
        if mark.lease:
            noted = self._transaction.metadata().configuration().get(LEASE)
            require_newest(self._path, int(noted.get()) if noted.isDefined() else 0, mark.lease)
        java = self._java
        txn = {"appId": mark.app, "version": mark.version, "lastUpdated": int(time.time() * 1000)}
        of_new = [] if self._new is None else self._new.actions
        operation = java.streaming_update(
            java.output_mode.Append(), mark.query, mark.version, java.option.apply(mark.metadata)
        )
        self._register(_metrics_of([json.loads(action) for action in actions]))
        self._commit([*of_new, json.dumps({"txn": txn}), *actions], operation)

    def _commit(self, actions: Iterable[str], operation: Any) -> None:
        listed = self._java.seq(self._java.action.fromJson(action) for action in actions)
        if self._new is not None:
            self._session.conf.set(_FILES_IN_CHECKSUM, "false")
        try:
            self._transaction.commit(listed, operation)
        finally:
            self._committed()  # it may have been made although the call failed
            if self._new is not None:
                self._session.conf.unset(_FILES_IN_CHECKSUM)

    def _register(self, values: Mapping[str, int]) -> None:
        """Show the commit's metrics in the table's history."""
        java, spark = self._java, self._session._jsparkSession
        context, metrics = spark.sparkContext(), java.hash_map()
        for name, value in values.items():
            metric = java.metrics.createMetric(context, name)
            metric.set(value)
            metrics.put(name, metric)
        self._transaction.registerSQLMetrics(spark, java.to_map(java.converters.asScala(metrics)))


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
    java = _classes(session._jvm)
    snapshot = java.newest(session, path)
    metadata, spark = snapshot.metadata(), session._jsparkSession
    names = java.seq(column)
    checks = _map(java.constraints.findDependentConstraints(spark, names, metadata))
    if checks:
        return f"CHECK constraint `{next(iter(checks)).removeprefix('delta.constraints.')}` reads it"
    generated = _map(
        java.schema_utils.findDependentGeneratedColumns(spark, names, snapshot.protocol(), metadata.schema())
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
    if isinstance(error, TableChangedError):
        return str(error)
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


def _map(scala: Any) -> dict[str, Any]:
    return {entry._1(): entry._2() for entry in _each(scala)}


def _each(scala: Any) -> Iterator[Any]:
    elements = scala.iterator()
    while elements.hasNext():
        yield elements.next()
