"""Delta's log through its JVM classes: a table's state, and commits for which PySpark has no call.

Written against Delta 4.4.0.
"""

# ruff: noqa: SLF001
from __future__ import annotations

import json
import re
import threading
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
#: After how many commits a checkpoint is due; Delta's default is 10.
_CHECKPOINT_INTERVAL = "delta.checkpointInterval"
#: How Delta names a violated CHECK constraint.
_CHECK = re.compile(r"CHECK constraint (\S+) \(")


class TableChangedError(Exception):
    """Another writer has changed a table between two steps that belong together."""


class _Classes:
    """Classes of a JVM, and methods of them.

    Py4J asks the JVM for each part of a class' name, and for its methods, each time they are written. That
    takes 0.1 ms, as a call does, and as what frees the object that a call gives: most of a small commit.
    """

    def __init__(self, gateway: Any) -> None:
        jvm = gateway.jvm
        spark, delta = jvm.org.apache.spark, jvm.org.apache.spark.sql.delta
        self.action = delta.actions.Action
        self.any = jvm.scala.reflect.ManifestFactory.Any()
        self.append = spark.sql.streaming.OutputMode.Append()
        self.array_list = jvm.java.util.ArrayList
        self.checkpoint_hook = getattr(getattr(delta.hooks, "CheckpointHook$"), "MODULE$")
        self.constraints = delta.constraints.Constraints
        self.as_scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala
        self.create_table = getattr(delta, "DeltaOperations$CreateTable")
        self.delta_log = delta.DeltaLog
        self.for_table = delta.DeltaLog.forTable
        self.hash_map = jvm.java.util.HashMap
        self.mapper = delta.util.JsonUtils.mapper()
        self.metrics = spark.sql.execution.metric.SQLMetrics
        self.nothing = jvm.scala.Option.empty()
        self.option = jvm.scala.Option.apply
        self.path = jvm.org.apache.hadoop.fs.Path
        self.schema_utils = delta.schema.SchemaUtils
        self.set_active_session = spark.sql.SparkSession.setActiveSession
        self.streaming_update = getattr(delta, "DeltaOperations$StreamingUpdate")
        self.to_json = delta.util.JsonUtils.toJson
        self.to_map = getattr(jvm.scala.collection.immutable.Map, "from")
        self.wrap_array = jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray
        #: The classes of lists of actions, by the actions' names in the log.
        self.lists = {
            name: gateway.new_array(getattr(delta.actions, class_), 0).getClass()
            for name, class_ in _ACTIONS.items()
        }

    def log_of(self, session: SparkSession, path: str) -> Any:
        """The log of the Delta table at `path`; what is asked of it may be Spark jobs of this thread."""
        self.set_active_session(session._jsparkSession)
        return self.for_table(session._jsparkSession, path)

    def newest(self, session: SparkSession, path: str) -> Any:
        """The newest snapshot of the Delta table at `path`; its version is -1 if there is none."""
        # `tableExists` tells what this process saw last: others create tables, and remove them
        return self.log_of(session, path).update(False, self.nothing, self.nothing)

    def contents(self, value: Any) -> Any:
        """What Delta writes as JSON for a value of its own, or of a sequence or Option of such."""
        return json.loads(self.to_json(value, self.any))

    def actions(self, actions: Iterable[Mapping[str, Any]]) -> Any:
        """Scala's sequence of actions: those of one name by one call.

        Args:
            actions: the actions as in the log.
        """
        by_name: dict[str, list[Any]] = {}
        for action in actions:
            ((name, contents),) = action.items()
            by_name.setdefault(name, []).append(contents)
        found = None
        for name, contents in by_name.items():
            listed = self.mapper.readValue(json.dumps(contents), self.lists[name])
            of_name = self.wrap_array(listed)
            found = of_name if found is None else found.appendedAll(of_name)
        return self.seq([]) if found is None else found

    def seq(self, items: Iterable[Any]) -> Any:
        """Scala's sequence of items."""
        listed = self.array_list()
        for item in items:
            listed.add(item)
        return self.as_scala(listed).toSeq()


@lru_cache(maxsize=1)
def _classes(gateway: Any) -> _Classes:
    return _Classes(gateway)


def _of(session: SparkSession) -> _Classes:
    return _classes(session._sc._gateway)


#: The names of a commit's actions in the log, and their classes.
_ACTIONS = {
    "add": "AddFile",
    "domainMetadata": "DomainMetadata",
    "remove": "RemoveFile",
    "txn": "SetTransaction",
}


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

    @classmethod
    def of(cls, metadata: Mapping[str, Any], transactions: Mapping[str, int], version: int) -> DeltaState:
        """The state of a version with this metadata (the contents of its action)."""
        return cls(metadata["configuration"], transactions, version, metadata["id"], metadata["schemaString"])

    @property
    def columns(self) -> pa.Schema:
        """Its columns."""
        return _columns(self.schema)

    @property
    def lease(self) -> int:
        """The newest lease under which it was written; 0: none."""
        return int(self.properties.get(LEASE, "0"))


@lru_cache(maxsize=1024)
def _columns(schema: str) -> pa.Schema:
    return arrow_schema(StructType.fromJson(json.loads(schema)))


def delta_state(session: SparkSession, path: str, known: DeltaState | None = None) -> DeltaState | None:
    """The state of the Delta table at `path`, None if there is none.

    The public DeltaTable class does not expose transactions.

    Args:
        session: a session.
        path: the table's directory.
        known: an earlier state: nothing is read if it is the newest.
    """
    return DeltaSnapshot.newest(session, path).state(known)


class DeltaSnapshot:
    """One version of a Delta table, of which everything is asked once.

    Args:
        java: the classes.
        snapshot: Delta's snapshot.
    """

    def __init__(self, java: _Classes, snapshot: Any) -> None:
        self._java, self.snapshot = java, snapshot

    @classmethod
    def newest(cls, session: SparkSession, path: str) -> DeltaSnapshot:
        """The newest one of the table at `path`; its version is -1 if there is none."""
        java = _of(session)
        return cls(java, java.newest(session, path))

    @cached_property
    def version(self) -> int:
        """Its number; -1: there is no table."""
        return int(self.snapshot.version())

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The table's metadata, as the contents of its action."""
        noted: dict[str, Any] | None = self._checksum.get("metadata")
        return noted or _contents(self.snapshot.metadata(), "metaData")

    @cached_property
    def transactions(self) -> Mapping[str, int]:
        """The last version written by each application."""
        if self.version < 0:
            return {}
        noted = self._checksum.get("setTransactions")
        if noted is None:
            return {app: int(version) for app, version in _map(self.snapshot.transactions()).items()}
        return {action["appId"]: action["version"] for action in noted}

    @cached_property
    def files(self) -> list[dict[str, Any]]:
        """The table's files, as the contents of their `add` actions."""
        noted: list[dict[str, Any]] | None = self._checksum.get("allFiles")
        return self._java.contents(self.snapshot.allFiles().collectAsList()) if noted is None else noted

    @property
    def lacks_files_in_checksum(self) -> bool:
        """Whether its checksum file does not name the table's files."""
        return bool(self._checksum) and self._checksum.get("allFiles") is None

    @cached_property
    def _checksum(self) -> dict[str, Any]:
        """What its checksum file has: of small tables everything.

        Delta itself gives transactions and files by a Spark job over the whole log, for each new version.
        """
        return self._java.contents(self.snapshot.checksumOpt()) or {}

    def state(self, known: DeltaState | None) -> DeltaState | None:
        """The table's state, None if there is no table.

        Args:
            known: an earlier state, which is given if it is that of this version.
        """
        if self.version < 0:
            return None
        if known is not None and known.version == self.version and known.id == self.snapshot.metadata().id():
            return known
        return DeltaState.of(self.metadata, self.transactions, self.version)


def write_checkpoint(session: SparkSession, path: str) -> None:
    """Write a checkpoint of the newest version of the Delta table at `path`, and delete expired versions.

    A table that is gone stays so: Delta would write the last version that it has seen.
    """
    java = _of(session)
    snapshot = java.newest(session, path)
    if int(snapshot.version()) >= 0:
        java.log_of(session, path).checkpoint(snapshot, java.nothing)


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
    java = _of(session)
    log = java.log_of(session, path)
    found = DeltaSnapshot(java, log.getSnapshotAt(version, java.nothing, java.nothing, False))
    schema = json.loads(found.metadata["schemaString"])
    features = found.snapshot.protocol().readerFeatures()
    return DeltaVersion(
        found.files,
        {field["name"]: _name_in_files(schema, field["name"]) for field in schema["fields"]},
        found.metadata["partitionColumns"],
        frozenset(_each(features.get())) if features.isDefined() else frozenset(),
    )


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
        actions: actions, as in the log.
        cluster_by: the columns by which it is clustered.
    """

    actions: Sequence[Mapping[str, Any]]
    cluster_by: Sequence[str]


class DeltaTransaction:
    """A transaction on the Delta table at `path`: reads, and one commit.

    Delta refuses the commit if another commit has changed meanwhile what was read.

    Args:
        session: a session.
        path: the table's directory.
        committed: called after a commit, with the table's state, None if it is not known.
        snapshot: the version that it reads; None: the newest.
        on_commit: called after each commit with the version, and after how many a checkpoint is due: it sees
            to them; None: Delta writes them with the commits.
    """

    def __init__(
        self,
        session: SparkSession,
        path: str,
        committed: Callable[[DeltaState | None], None],
        snapshot: DeltaSnapshot | None = None,
        *,
        on_commit: Callable[[int, int], None] | None = None,
    ) -> None:
        self._on_commit = on_commit
        self._java, self._session, self._path = _of(session), session, path
        self._committed = committed
        self._begin(snapshot)
        is_first = is_local(path) and self._snapshot.version == 0
        if is_first and self._snapshot.lacks_files_in_checksum and complete_first_checksum(path):
            self._java.delta_log.invalidateCache(session._jsparkSession, self._java.path(path))
            self._begin(None)
        #: Of a new table: what the commit needs besides its metadata.
        self._new: _NewTable | None = None
        self._alters = False

    def _begin(self, snapshot: DeltaSnapshot | None) -> None:
        java, log = self._java, self._java.log_of(self._session, self._path)
        if snapshot is None:
            self._transaction = log.startTransaction()
            self._snapshot = DeltaSnapshot(java, self._transaction.snapshot())
        else:
            read = java.option(snapshot.snapshot)
            self._transaction, self._snapshot = log.startTransaction(java.nothing, read), snapshot

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
        if self._snapshot.version >= 0:
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
        actions: list[Mapping[str, Any]] = []
        if cluster_by:
            schema = json.loads(self._transaction.metadata().schemaString())
            columns = [[_name_in_files(schema, name)] for name in cluster_by]
            named = {"clusteringColumns": columns, "domainName": _CLUSTERING}
            text = json.dumps(named, separators=(",", ":"))
            domain = {"domain": _CLUSTERING, "configuration": text, "removed": False}
            actions.append({"domainMetadata": domain})
        self._new = _NewTable(actions, cluster_by)

    def has(self, mark: CommitMark) -> bool:
        """Whether the table has a commit with `mark`."""
        # As `txnVersion` does, which would call `snapshot.transactions()`.
        self._transaction.readTxn().addOne(mark.app)
        return self._snapshot.transactions.get(mark.app, -1) >= mark.version

    def files(self) -> list[dict[str, Any]]:
        """The table's files, as the contents of their `add` actions."""
        self._transaction.readWholeTable()
        return self._snapshot.files

    def read(self) -> DataFrame:
        """The table's rows, as the transaction found them."""
        self._transaction.readWholeTable()
        reader = self._session.read.format("delta").option("versionAsOf", self._snapshot.version)
        return reader.load(self._path)

    def metadata(self) -> dict[str, Any]:
        """The table's metadata, as the contents of its action."""
        return self._snapshot.metadata

    def require_columns(self, state: DeltaState) -> None:
        """Refuse to go on unless the table has the columns of a state, under the same names in files.

        Raises:
            TableChangedError: it has others.
        """
        if self._snapshot.metadata["schemaString"] != state.schema:
            raise TableChangedError(f"the columns of {self._path} are others than in version {state.version}")

    def alter(self, metadata: Mapping[str, Any]) -> None:
        """Have the commit give the table this metadata; files are written by it from now on."""
        action = self._java.action.fromJson(json.dumps({"metaData": metadata}))
        self._transaction.updateMetadata(action, False)
        self._alters = True

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
        clustered = java.option(java.seq(names)) if cluster_by else java.nothing
        operation = java.create_table(self._transaction.metadata(), False, False, clustered)
        self._commit(self._new.actions, operation)

    def commit(self, actions: Sequence[str], mark: CommitMark) -> None:
        """Commit `actions` (JSON texts) with `mark`; of a new table, its first rows.

        Raises:
            LeaseLostError: the table was written under a newer lease.
        """
        if mark.lease and self._new is None:
            noted = self._snapshot.metadata["configuration"].get(LEASE, "0")
            require_newest(self._path, int(noted), mark.lease)
        java = self._java
        txn = {"appId": mark.app, "version": mark.version, "lastUpdated": int(time.time() * 1000)}
        of_new = [] if self._new is None else self._new.actions
        operation = java.streaming_update(java.append, mark.query, mark.version, java.option(mark.metadata))
        given = [json.loads(action) for action in actions]
        self._register(_metrics_of(given))
        self._commit([*of_new, {"txn": txn}, *given], operation, mark)

    def _commit(
        self, actions: Iterable[Mapping[str, Any]], operation: Any, mark: CommitMark | None = None
    ) -> None:
        listed, state = self._java.actions(actions), None
        interval = self._leave_out_checkpoint()
        if self._new is not None:
            self._session.conf.set(_FILES_IN_CHECKSUM, "false")
        try:
            version = int(self._transaction.commit(listed, operation))
            state = self._state_after(version, mark)
            if interval and self._on_commit is not None:
                self._on_commit(version, interval)
        finally:
            self._committed(state)  # it may have been made although the call failed
            if self._new is not None:
                self._session.conf.unset(_FILES_IN_CHECKSUM)

    def _leave_out_checkpoint(self) -> int:
        """Have the commit write none if somebody else sees to them; after how many one is due, else 0."""
        version = self._snapshot.version + 1
        if self._on_commit is None or not version:
            return 0
        interval = int(self._snapshot.metadata["configuration"].get(_CHECKPOINT_INTERVAL, "10"))
        if version % interval == 0:  # else Delta writes none
            self._transaction.postCommitHooks().subtractOne(self._java.checkpoint_hook)
        return interval

    def _state_after(self, version: int, mark: CommitMark | None) -> DeltaState | None:
        """The table's state after the commit; None if others' commits came before, or it has no mark."""
        before = self._snapshot
        if mark is None or version != before.version + 1:
            return None
        is_same = self._new is None and not self._alters
        metadata = before.metadata if is_same else _contents(self._transaction.metadata(), "metaData")
        return DeltaState.of(metadata, {**before.transactions, mark.app: mark.version}, version)

    def _register(self, values: Mapping[str, int]) -> None:
        """Show the commit's metrics in the table's history."""
        spark = self._session._jsparkSession
        if (metrics := getattr(_OF_THREAD, "metrics", None)) is None or metrics.java is not self._java:
            metrics = _OF_THREAD.metrics = _Metrics(self._java, spark.sparkContext(), values)
        for name, value in values.items():
            metrics.by_name[name].set(value)
        self._transaction.registerSQLMetrics(spark, metrics.all)


class _Metrics:
    """Metrics of commits, one after the other.

    Args:
        java: the classes.
        context: the Spark context.
        names: their names.
    """

    def __init__(self, java: _Classes, context: Any, names: Iterable[str]) -> None:
        self.java = java
        self.by_name = {name: java.metrics.createMetric(context, name) for name in names}
        made = java.hash_map()
        for name, metric in self.by_name.items():
            made.put(name, metric)
        self.all = java.to_map(java.as_scala(made))


#: The metrics of the commits that a thread makes.
_OF_THREAD = threading.local()


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
    java = _of(session)
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
