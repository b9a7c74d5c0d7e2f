"""Delta tables: one per target, each batch in them exactly once.

A batch is written part by part; a part is one table's snapshot rows or its changes, and one Delta commit:

    upsert      snapshot rows  append             changes  last change per key, then MERGE
    changelog   snapshot rows  append             changes  append

Each commit carries `txn` (appId = stream + table + part, version = batch number). A part whose batch number
is not above the table's last one for that appId is in the table already and is left out: so a batch that
comes again, after a crash between any two commits, adds what is missing and nothing else. Delta checks the
same inside its commit, for appends and for MERGE.

Each commit's `userMetadata` is JSON: `{"batch": 7, "end": {stream offset}, "table": ..., "part": ...}`. So
what a table holds can be told from the table alone: the state as of the greatest batch in its history.

A target belongs to the stream that made it: its properties say which (`tailrace.stream`), and another
stream's table, or one made by hand, is a StateError, never overwritten. Two tables routed to one target are
written one after the other; different targets by a pool of threads, each with its own Spark session, as
Delta takes `txn` and `userMetadata` of a MERGE from session settings.

What is appended is written by Python tasks as Parquet (`sinks.parquet`) and committed by the driver, without
passing through the JVM. Where tasks cannot reach the table by a path (an object store), or its columns are
mapped to other names, Spark writes: slower, with the same result.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from tailrace.config.model import DeltaSettings, WriteMode
from tailrace.errors import SinkError, StateError
from tailrace.model.change import OP_DELETE
from tailrace.observe.failpoints import failpoint
from tailrace.sinks.base import (
    Capabilities,
    CellBatch,
    Delivery,
    Order,
    StreamId,
    Unit,
    Written,
)
from tailrace.sinks.columns import AddColumn, follow, stored_schema
from tailrace.sinks.parquet import DataFile, write_cells
from tailrace.sinks.parts import SNAPSHOT, Part
from tailrace.sinks.targets import TargetPool
from tailrace.sinks.unpack import (
    MERGE_FIELDS,
    Unpack,
    last_rows,
    log_fields,
    log_rows,
    snapshot_rows,
    spark_schema,
    unpacked,
)
from tailrace.spark.checkpoint import absolute, is_local
from tailrace.spark.jvm import DeltaState, Mark, commit_to_delta, delta_state, in_session
from tailrace.transform.route import Router

#: Characters that Delta allows in column names only with column mapping.
_SPECIAL = frozenset(" ,;{}()\n\t=")


class DeltaSink:
    """Writes each table to the Delta table `path/<target>`.

    Args:
        settings: where and how.
        router: names the targets.
    """

    def __init__(self, settings: DeltaSettings, router: Router) -> None:
        self._settings = settings
        self._path = absolute(settings.path)
        self._pool = TargetPool(router, settings.parallelism)
        self._targets: dict[str, _Target] = {}

    @property
    def capabilities(self) -> Capabilities:
        """See `Sink.capabilities`."""
        return Capabilities(
            Delivery.EXACTLY_ONCE,
            Order.BY_SEQ,
            Unit.TARGET,
            holds_rows=self._settings.mode is WriteMode.UPSERT,
            follows_schema=True,
        )

    def write(self, batch: CellBatch) -> list[Written]:
        """See `Sink.write`."""
        return self._pool.write(batch, lambda name, parts: self._target(name, batch).write(batch, parts))

    def close(self) -> None:
        """See `Sink.close`."""
        self._pool.close()

    def _target(self, name: str, batch: CellBatch) -> _Target:
        if name not in self._targets:
            self._targets[name] = _Target(
                name,
                f"{self._path}/{name}",
                f"{self._path}/_tailrace/changes",
                self._settings.mode,
                batch.spark.newSession(),
                batch.stream,
            )
        return self._targets[name]


@dataclass
class _Target:
    """One Delta table; `session` is its own, so that settings of one commit do not reach another's."""

    name: str
    path: str
    changes: str
    mode: WriteMode
    session: SparkSession
    stream: StreamId

    @property
    def sql(self) -> str:
        return f"delta.{_quote(self.path)}"

    def write(self, batch: CellBatch, parts: list[Part]) -> None:
        """Write each part that is not in the table yet."""
        state = self._open(parts[0])
        direct = is_local(self.path) and "delta.columnMapping.mode" not in state.properties
        for part in parts:
            mark = self._mark(batch, part)
            if state.transactions.get(mark.app, -1) >= mark.version:
                continue
            columns = self._follow(part)
            cells = in_session(part.cells_of(batch.frame), self.session)
            if self.mode is WriteMode.UPSERT and part.kind != SNAPSHOT:
                self._merge(cells, columns, part, mark)
            elif self.mode is WriteMode.UPSERT:
                self._append(cells, snapshot_rows(columns), columns, mark, direct)
            else:
                self._append(cells, log_rows(columns), log_fields(columns), mark, direct)
            failpoint("sink.table")

    # ---- the table -----------------------------------------------------------------------------------

    def _open(self, part: Part) -> DeltaState:
        """Make the table if it is not there; its state.

        Raises:
            StateError: something that is not this stream's is there.
        """
        state = delta_state(self.session, self.path)
        if state is None:
            self._create(part)
            state = delta_state(self.session, self.path)
            assert state is not None
        held = state.properties
        if held.get("tailrace.stream") != self.stream.query or held.get("tailrace.mode") != self.mode:
            found = "a table that Tailrace did not make"
            if "tailrace.stream" in held:
                found = f"a table of stream {held['tailrace.stream']} in mode `{held.get('tailrace.mode')}`"
            raise StateError(
                f"target `{self.name}` at {self.path} is not this stream's",
                f"found {found}, needed one of stream {self.stream.query} in mode `{self.mode}`",
                "use another sink path, go on with that stream's checkpoint, or delete the table",
            )
        return state

    def _create(self, part: Part) -> None:
        shape = part.shapes[0]
        if self.mode is WriteMode.UPSERT and not shape.key:
            raise SinkError(
                f"table `{part.table}` has no key",
                "mode upsert needs one to find the row of a change",
                "add a primary key, or use `mode: changelog`",
            )
        columns = stored_schema(shape)
        fields = columns if self.mode is WriteMode.UPSERT else log_fields(columns)
        properties = {
            "tailrace.stream": self.stream.query,
            "tailrace.pipeline": self.stream.pipeline,
            "tailrace.mode": str(self.mode),
            "tailrace.key": json.dumps(list(shape.key)),
            "delta.enableDeletionVectors": str(self.mode is WriteMode.UPSERT).lower(),
        }
        if any(_SPECIAL & set(c.name) for c in shape.columns):
            properties["delta.columnMapping.mode"] = "name"
        listed = ", ".join(f"{_quote(c.name)} {c.dataType.simpleString()}" for c in spark_schema(fields))
        tags = ", ".join(f"{_text(k)} = {_text(v)}" for k, v in properties.items())
        self.session.sql(f"CREATE TABLE {self.sql} ({listed}) USING delta TBLPROPERTIES ({tags})")

    def _follow(self, part: Part) -> pa.Schema:
        """Let the table follow the part's shapes; the columns that it then has."""
        held = self._columns()
        for shape in part.shapes:
            changes = follow(self.name, held, stored_schema(shape))
            if not changes:
                continue
            for change in changes:
                kind = spark_schema(pa.schema([(change.name, change.type)]))[0].dataType.simpleString()
                names = [_quote(change.name)]
                if self.mode is WriteMode.CHANGELOG:
                    names.append(f"_before.{_quote(change.name)}")
                for name in names:
                    if isinstance(change, AddColumn):
                        self.session.sql(f"ALTER TABLE {self.sql} ADD COLUMN {name} {kind}")
                    else:
                        self.session.sql(
                            f"ALTER TABLE {self.sql} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
                        )
                        self.session.sql(f"ALTER TABLE {self.sql} ALTER COLUMN {name} TYPE {kind}")
            held = self._columns()
        return held

    def _columns(self) -> pa.Schema:
        """The source's columns in the table."""
        stored = self.session.read.format("delta").load(self.path).schema
        columns = to_arrow_schema(stored, timezone="UTC")
        if self.mode is WriteMode.UPSERT:
            return columns
        return pa.schema(list(columns.field("_before").type))

    # ---- writing -------------------------------------------------------------------------------------

    def _append(self, cells: DataFrame, unpack: Unpack, fields: pa.Schema, mark: Mark, direct: bool) -> None:
        if direct:
            files = write_cells(cells, unpack, fields, self.path)
            commit_to_delta(self.session, self.path, [file.action() for file in files], mark)
        else:
            with self._marked(mark):
                unpacked(cells, unpack, fields).write.format("delta").mode("append").save(self.path)

    def _merge(self, cells: DataFrame, columns: pa.Schema, part: Part, mark: Mark) -> None:
        """Bring the last change of each key into the table.

        The changes are put into files first: MERGE reads them twice, and their bounds let it pass over files
        of the table that cannot hold their keys.
        """
        key = part.shapes[-1].key
        fields = pa.schema([*columns, *MERGE_FIELDS])
        bounds = ""
        if not is_local(self.path):
            self._merge_rows(unpacked(cells, last_rows(columns, key), fields), columns, key, bounds, mark)
            return
        directory = f"{self.changes}/{self.name}-{mark.version}-{part.kind}"
        try:
            files = write_cells(cells, last_rows(columns, key), fields, directory)
            rows = self.session.read.schema(spark_schema(fields)).parquet(directory)
            bounds = _bounds(files, columns.field(key[0]))
            self._merge_rows(rows, columns, key, bounds, mark)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _merge_rows(
        self, rows: DataFrame, columns: pa.Schema, key: tuple[str, ...], bounds: str, mark: Mark
    ) -> None:
        row = f.struct(*(f.col(_quote(name)) for name in rows.columns))
        by_key = rows.groupBy(*(f.col(_quote(name)) for name in key))
        last = by_key.agg(f.max_by(row, "_seq").alias("_last")).select("_last.*")
        view = "tailrace_changes"
        last.createOrReplaceTempView(view)
        on = " AND ".join(f"t.{_quote(k)} = s.{_quote(k)}" for k in key) + bounds
        names = [_quote(name) for name in columns.names]
        with self._marked(mark):
            self.session.sql(
                f"MERGE INTO {self.sql} AS t USING {view} AS s ON {on}"
                f" WHEN MATCHED AND s._op = {OP_DELETE} THEN DELETE"
                f" WHEN MATCHED THEN UPDATE SET {', '.join(f't.{n} = s.{n}' for n in names)}"
                f" WHEN NOT MATCHED AND s._op <> {OP_DELETE} THEN INSERT ({', '.join(names)})"
                f" VALUES ({', '.join(f's.{n}' for n in names)})"
            )

    # ---- what a commit carries -----------------------------------------------------------------------

    def _mark(self, batch: CellBatch, part: Part) -> Mark:
        said = {"batch": batch.id, "end": batch.end, "table": str(part.table), "part": part.kind}
        query = self.stream.query
        app = f"tailrace/{query}/{part.table}/{part.kind}"
        return Mark(app, batch.id, query, json.dumps(said, separators=(",", ":")))

    @contextmanager
    def _marked(self, mark: Mark) -> Iterator[None]:
        """Commits of this session carry `mark`."""
        conf = {
            "spark.databricks.delta.write.txnAppId": mark.app,
            "spark.databricks.delta.write.txnVersion": str(mark.version),
            "spark.databricks.delta.commitInfo.userMetadata": mark.said,
            # The changes lie in files that nobody changes.
            "spark.databricks.delta.merge.materializeSource": "none" if is_local(self.path) else "auto",
        }
        for name, value in conf.items():
            self.session.conf.set(name, value)
        try:
            yield
        finally:
            for name in conf:
                self.session.conf.unset(name)


def _bounds(files: list[DataFile], field: pa.Field) -> str:
    """A condition that every row's key fulfils, for keys that begin with an integer."""
    stats = [json.loads(file.stats) for file in files]
    if not pa.types.is_integer(field.type) or any(field.name not in s["minValues"] for s in stats):
        return ""
    low = min(s["minValues"][field.name] for s in stats)
    high = max(s["maxValues"][field.name] for s in stats)
    name = _quote(field.name)
    return f" AND t.{name} >= {low} AND t.{name} <= {high}"


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
