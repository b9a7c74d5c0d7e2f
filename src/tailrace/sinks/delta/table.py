"""One Delta table at a path: reads, creates, alters it and appends rows, whatever it holds."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, StringType, StructType

from tailrace.failpoints import failpoint
from tailrace.model.sparksql import identifier
from tailrace.sinks.base import StreamId
from tailrace.sinks.delta.checkpoints import Checkpoints
from tailrace.sinks.delta.first_version import first_files, require_empty
from tailrace.sinks.delta.rows import NewRows, StagedFiles
from tailrace.sinks.delta.transaction import (
    LEASE,
    CommitMark,
    DeltaSnapshot,
    DeltaState,
    DeltaTransaction,
)
from tailrace.sinks.lease import require_newest
from tailrace.sinks.tables.columns import AddColumn, WidenColumn
from tailrace.sinks.tables.former_columns import DropColumn, RenameColumn
from tailrace.sinks.tables.parquet import write_rows
from tailrace.sinks.tables.text_form import rows_as_text
from tailrace.spark.arrow_schema import arrow_schema
from tailrace.spark.cells import spark_schema
from tailrace.spark.checkpoint import is_local
from tailrace.spark.jvm import map_in_arrow
from tailrace.spark.sql import OwnSessions

#: How columns are named in files.
_MAPPING = "delta.columnMapping.mode"
#: Characters that Delta allows in column names only with column mapping.
_SPECIAL = frozenset(" ,;{}()\n\t=")


@dataclass
class DeltaTable:
    """A Delta table.

    Args:
        sessions: access it; their settings hold the mark of a MERGE's commit.
        path: its directory.
        checkpoints: whoever writes its log's checkpoints; None: Delta does with the commits.
    """

    sessions: OwnSessions
    path: str
    checkpoints: Checkpoints | None = None
    #: The newest state that was read, and whether this object has changed the table since.
    _known: DeltaState | None = field(default=None, init=False, repr=False, compare=False)
    _has_changed: bool = field(default=True, init=False, repr=False, compare=False)
    #: The version that `state` has found, for the next transaction.
    _found: DeltaSnapshot | None = field(default=None, init=False, repr=False, compare=False)
    #: What it will be: it is not made yet.
    _planned: TableDefinition | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def session(self) -> SparkSession:
        """The present thread's session."""
        return self.sessions.current

    @property
    def sql(self) -> str:
        """Its name in SQL."""
        self.make()
        return f"delta.{identifier(self.path)}"

    def state(self) -> DeltaState | None:
        """Its newest state, None if it does not exist; that of one that is planned is what it will be."""
        is_there = not is_local(self.path) or Path(self.path, "_delta_log").is_dir()
        self._found = DeltaSnapshot.newest(self.session, self.path) if is_there else None
        known = None if self._found is None else self._found.state(self._known)
        self._known = self._planned.state if known is None and self._planned is not None else known
        self._has_changed = False
        return self._known

    def held(self) -> DeltaState | None:
        """Its state as this object has last read or changed it, perhaps without others' later changes.

        `state` has Delta look through the whole directory of the log.
        """
        return self.state() if self._has_changed else self._known

    def note_change(self, state: DeltaState | None = None) -> None:
        """Take note of a change.

        Args:
            state: the state since; None: it is to be read.
        """
        self._has_changed, self._found = state is None, None
        if state is not None:
            self._known = state

    def read(self) -> DataFrame:
        """Its rows."""
        self.make()
        return self.session.read.format("delta").load(self.path)

    def begin(self) -> DeltaTransaction:
        """Begin a transaction; the first after `state` reads the version that it has found."""
        self.make()
        found, self._found = self._found, None
        is_table = found is not None and found.version >= 0
        on_commit = None if self.checkpoints is None else partial(self.checkpoints.committed, self.path)
        return DeltaTransaction(
            self.session,
            self.path,
            self.note_change,
            found if is_table else None,
            on_commit=on_commit,
        )

    def schema(self) -> pa.Schema:
        """Its columns."""
        state = self.held()
        assert state is not None
        return state.columns

    def claim(self, state: DeltaState, stream: StreamId) -> DeltaState:
        """Note the stream's lease, unless the table has it; the table's state then.

        Args:
            state: a state of the table.
            stream: the stream that writes it.

        Raises:
            LeaseLostError: it was written under a newer lease.
        """
        require_newest(self.path, state.lease, stream.lease)
        if not stream.lease or state.lease == stream.lease:
            return state
        app, metadata = f"tailrace/{stream.query}/lease", json.dumps({"lease": stream.lease})
        self.begin().claim(CommitMark(app, stream.lease, stream.query, metadata, stream.lease))
        new = self.state()
        assert new is not None
        return new

    # ---- schema --------------------------------------------------------------------------------------

    def create(self, table: TableDefinition) -> None:
        """Create it.

        Raises:
            StateError: its directory holds something else.
            TableChangedError: it exists.
        """
        self.plan(table)
        self.make()

    def plan(self, table: TableDefinition) -> None:
        """Create it with its first rows, in one commit, or when something else is done with it before.

        Raises:
            StateError: its directory holds something else.
        """
        require_empty(self.path)
        self._planned = table
        self.note_change()

    def make(self) -> None:
        """Create it now if it is planned only.

        Raises:
            StateError: its directory holds something else.
            TableChangedError: it exists.
        """
        if self._planned is not None:
            require_empty(self.path)
            self._creation().commit_new()

    def _creation(self) -> DeltaTransaction:
        """Begin the transaction that creates it."""
        planned, self._planned = self._planned, None
        assert planned is not None
        transaction = self.begin()
        transaction.create(planned.metadata, planned.cluster_by)
        return transaction

    def change(
        self,
        changes: Iterable[AddColumn | WidenColumn | RenameColumn | DropColumn],
        within: Sequence[str] = ("",),
    ) -> None:
        """Alter columns in place; renaming and dropping them needs `columnMapping`.

        Args:
            changes: the changes.
            within: prefixes of the columns to change: empty, or `name.` of a struct.
        """
        self.note_change()
        for change in changes:
            if isinstance(change, WidenColumn):
                self.set("delta.enableTypeWidening", "true")
            for prefix in within:
                self.session.sql(f"ALTER TABLE {self.sql} {_alteration(change, prefix)}")

    def set(self, name: str, value: str) -> None:
        """Set a property."""
        self.note_change()
        self.session.sql(f"ALTER TABLE {self.sql} SET TBLPROPERTIES ({text(name)} = {text(value)})")

    def become_text(self, names: Collection[str], within: Sequence[str], mark: CommitMark) -> None:
        """Make columns text, with their values as text: all rows are written anew, in one commit.

        Args:
            names: the columns.
            within: prefixes of the columns to change, as of `change`.
            mark: the mark of the commit.
        """
        frame = self.read()
        schema = StructType.fromJson(frame.schema.jsonValue())
        for prefix in within:
            fields = schema if not prefix else schema[prefix.removesuffix(".")].dataType
            assert isinstance(fields, StructType)
            for column in fields:
                if column.name in names:
                    column.dataType = StringType()
        arrow = arrow_schema(schema)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield rows_as_text(batch, arrow)

        self._replace(map_in_arrow(frame, run, schema), mark)

    def empty_as(self, columns: pa.Schema, mark: CommitMark, partition_by: str) -> None:
        """Give a table without rows other columns, in one commit."""
        frame = self.session.createDataFrame([], spark_schema(columns))
        self._replace(frame, mark, partition_by)

    def _replace(self, frame: DataFrame, mark: CommitMark, *partition_by: str) -> None:
        writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        if partition_by:
            writer = writer.partitionBy(*partition_by)
        self.note_change()
        detail = self.session.sql(f"DESCRIBE DETAIL {self.sql}").select("clusteringColumns").first()
        with self.marked(mark):
            writer.save(self.path)
        if detail is not None and detail[0]:  # which the new schema has put an end to
            listed = ", ".join(map(identifier, detail[0]))
            self.session.sql(f"ALTER TABLE {self.sql} CLUSTER BY ({listed})")

    # ---- rows ----------------------------------------------------------------------------------------

    def append(self, rows: NewRows, mark: CommitMark, partition: Mapping[str, int] | None = None) -> None:
        """Append rows, unless the table has a commit with `mark`.

        Args:
            rows: the rows to append.
            mark: the mark of the commit.
            partition: their partition, if the table is partitioned.
        """
        partition = partition or {}
        if self._planned is not None and rows.staged is not None and self.is_direct():
            self._create_with(rows.staged, mark)
            return
        self.make()
        if self.is_direct():
            self._commit([file.action(partition) for file in rows.into(self.path)], mark)
            return
        frame = rows.frame()
        for name, value in partition.items():
            frame = frame.withColumn(name, f.lit(value).cast("long"))
        with self.marked(mark):
            frame.write.format("delta").mode("append").save(self.path)

    def _create_with(self, staged: StagedFiles, mark: CommitMark) -> None:
        require_empty(self.path)
        with first_files(self.path, [file.name for file in staged.files]):
            files = staged.into(self.path)
            failpoint("sink.files")
            self._creation().commit([file.action({}) for file in files], mark)

    def append_rows(self, rows: pa.RecordBatch, mark: CommitMark) -> None:
        """Append rows of the driver, unless the table has a commit with `mark`."""
        if self.is_direct():
            files = write_rows([rows], rows.schema, self.path)
            self._commit([file.action({}) for file in files], mark)
            return
        with self.marked(mark):
            frame = self.session.createDataFrame(pa.Table.from_batches([rows]))
            frame.write.format("delta").mode("append").save(self.path)

    @contextmanager
    def marked(self, mark: CommitMark) -> Iterator[None]:
        """Give commits of the session this mark.

        Raises:
            LeaseLostError: the table was written under a newer lease. One that is noted after a statement has
                begun makes Delta refuse its commit.
        """
        self.make()
        state = self.state() if mark.lease else None
        if state is not None:
            require_newest(self.path, state.lease, mark.lease)
        conf = {
            "spark.databricks.delta.write.txnAppId": mark.app,
            "spark.databricks.delta.write.txnVersion": str(mark.version),
            # Spark expands `${env:NAME}` in the values of settings, and tables may have such names.
            "spark.databricks.delta.commitInfo.userMetadata": mark.metadata.replace("${", "\\u0024{"),
            # Changes are merged from files that nothing modifies.
            "spark.databricks.delta.merge.materializeSource": "none" if is_local(self.path) else "auto",
        }
        for name, value in conf.items():
            self.session.conf.set(name, value)
        try:
            yield
        finally:
            self.note_change()
            for name in conf:
                self.session.conf.unset(name)

    def _commit(self, added: Sequence[str], mark: CommitMark) -> None:
        """Commit files that were written for the columns that are held.

        Raises:
            TableChangedError: another writer has changed columns meanwhile.
        """
        state, transaction = self.held(), self.begin()
        if transaction.has(mark):
            return
        if state is not None:
            transaction.require_columns(state)
        transaction.commit(added, mark)

    def is_direct(self) -> bool:
        """Whether tasks write its files, by path."""
        if not is_local(self.path):
            return False
        state = self.held()
        return state is not None and state.properties.get(_MAPPING, "none") == "none"

    def maps_columns(self) -> bool:
        """Whether its columns have other names in files, and can be renamed and dropped in place."""
        return self._property(_MAPPING, "none") != "none"

    def widens_types(self) -> bool:
        """Whether the types of its columns can be widened in place."""
        return self._property("delta.enableTypeWidening", "false") == "true"

    def map_columns(self) -> None:
        """Let its columns have other names in files than they have in the table."""
        self.set(_MAPPING, "name")

    def tracks_rows(self) -> bool:
        """Whether each of its rows has an id that stays the same."""
        return self._property("delta.enableRowTracking", "false") == "true"

    def _property(self, name: str, default: str) -> str:
        state = self.held()
        return default if state is None else state.properties.get(name, default)

    def allows_vectors(self) -> bool:
        """Whether tasks may also delete its rows, with deletion vectors.

        Not if a user has enabled the change data feed, which records updates.
        """
        state = self.held()
        held = state.properties if state is not None else {}
        deletes = held.get("delta.enableDeletionVectors") == "true"
        return self.is_direct() and deletes and held.get("delta.enableChangeDataFeed") != "true"


def of_lease(stream: StreamId) -> dict[str, str]:
    """The properties by which a new table has the stream's lease."""
    return {LEASE: str(stream.lease)} if stream.lease else {}


def path_of(file: Mapping[str, Any], root: str) -> str:
    """The path of a data file.

    Args:
        file: its `add` action, with a URI that is relative unless tables share files.
        root: the table's directory.
    """
    return str(Path(root) / unquote(urlparse(file["path"]).path))


@dataclass(frozen=True)
class TableDefinition:
    """The definition of a new table.

    Args:
        columns: its columns.
        properties: its properties.
        partition_by: the partition column.
        cluster_by: the clustering columns.
    """

    columns: pa.Schema
    properties: Mapping[str, str]
    partition_by: str | None = None
    cluster_by: Sequence[str] = field(default=())

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        """Its metadata, as contents of Delta's action."""
        properties = dict(self.properties)
        if any(_SPECIAL & set(name) for name in all_names(self.columns)):
            properties[_MAPPING] = "name"
        return {
            "schemaString": spark_schema(self.columns).json(),
            "partitionColumns": [] if self.partition_by is None else [self.partition_by],
            "configuration": properties,
        }

    @cached_property
    def state(self) -> DeltaState:
        """The state of a table that is planned by it."""
        return DeltaState(self.metadata["configuration"], {}, -1, "", self.metadata["schemaString"])


def all_names(columns: Iterable[pa.Field]) -> Iterator[str]:
    """The names of columns and of fields of structs."""
    for column in columns:
        yield column.name
        if pa.types.is_struct(column.type):
            yield from all_names(column.type)


def _alteration(change: AddColumn | WidenColumn | RenameColumn | DropColumn, prefix: str) -> str:
    """A change of a column in SQL."""
    match change:
        case AddColumn(name, type_):
            return f"ADD COLUMN {prefix}{identifier(name)} {_ddl_of(type_)}"
        case WidenColumn(name, type_):
            return f"ALTER COLUMN {prefix}{identifier(name)} TYPE {_ddl_of(type_)}"
        case RenameColumn(old, new):
            return f"RENAME COLUMN {prefix}{identifier(old)} TO {identifier(new)}"
        case DropColumn(old):
            return f"DROP COLUMN {prefix}{identifier(old)}"


def _ddl_of(type_: pa.DataType) -> str:
    return _ddl(spark_schema(pa.schema([("c", type_)]))[0].dataType)


def _ddl(type_: DataType) -> str:
    """A type in SQL, whatever characters its field names contain."""
    if isinstance(type_, StructType):
        return f"struct<{', '.join(f'{identifier(c.name)}: {_ddl(c.dataType)}' for c in type_)}>"
    if isinstance(type_, ArrayType):
        return f"array<{_ddl(type_.elementType)}>"
    return type_.simpleString()


def text(value: str) -> str:
    """An SQL text literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
