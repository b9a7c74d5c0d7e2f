"""One target: its parts of a batch written once, its pending changes merged."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tailrace.config.sinks import WriteMode
from tailrace.errors import SinkError, StateError
from tailrace.failpoints import failpoint
from tailrace.model.cell import SNAPSHOT
from tailrace.model.paths import file_name
from tailrace.model.table import TableSchema
from tailrace.sinks.base import CellBatch, StreamId
from tailrace.sinks.delta.merge import merge
from tailrace.sinks.delta.pending import WAITING, Pending, changes_path
from tailrace.sinks.delta.rows import NewRows, StagedFiles
from tailrace.sinks.delta.table import DeltaTable, TableDefinition, all_names
from tailrace.sinks.delta.table_mode import Form
from tailrace.sinks.delta.transaction import DeltaState, Mark
from tailrace.sinks.delta.upsert import are_whole, upsert
from tailrace.sinks.paths import below, one_place
from tailrace.sinks.tables.columns import follow, require_free, stored_schema
from tailrace.sinks.tables.parquet import DataFile, rolling
from tailrace.sinks.tables.staging import Recipe
from tailrace.spark.cells import TableBatch, Unpack, spark_schema
from tailrace.spark.checkpoint import is_local
from tailrace.spark.jvm import in_session

_KEY = "tailrace.key"
#: The property that has a target's name, of its table and of its changes.
TARGET = "tailrace.target"


@dataclass(frozen=True)
class Point:
    """How far a stream has come.

    Args:
        batch: a batch's number.
        end: the stream offset at its end.
    """

    batch: int
    end: object

    def mark(self, app: str, query: str, **said: str) -> Mark:
        """The mark of a commit that brings a target up to here."""
        text = json.dumps({"batch": self.batch, "end": self.end, **said}, separators=(",", ":"))
        return Mark(app, self.batch, query, text)


@dataclass(frozen=True)
class _Changes:
    """Changes that are to be merged.

    Args:
        files: paths of their files, where tasks reach them by a path.
        rows: they themselves.
        columns: the source's columns.
        key: those that tell rows apart.
    """

    files: Callable[[], list[str]]
    rows: Callable[[], DataFrame]
    columns: pa.Schema
    key: Sequence[str]


@dataclass
class DeltaTarget:
    """One Delta table and the changes that wait for it.

    Args:
        name: the target's.
        root: the sink's path.
        path: of the table, below it.
        form: what it holds.
        stream: whose it is.
        session: its own, so that settings of one commit do not reach another's.
        cluster: whether a new table is clustered by its key.
    """

    name: str
    root: str
    path: str
    form: Form
    stream: StreamId
    session: SparkSession
    cluster: bool = False
    #: What merges have taken since somebody asked, seconds.
    merging_s: float = field(default=0.0, init=False)
    #: The source's columns that the table had last, None where tasks do not write its files.
    columns: pa.Schema | None = field(default=None, init=False)

    @property
    def table(self) -> DeltaTable:
        """The table itself."""
        return DeltaTable(self.session, below(self.root, self.path))

    @cached_property
    def pending(self) -> Pending:
        """The changes that wait."""
        properties = {
            "tailrace.stream": self.stream.query,
            "tailrace.mode": str(self.form.mode),
            TARGET: self.name,
        }
        return Pending(DeltaTable(self.session, changes_path(self.root, self.path)), properties)

    @property
    def waiting(self) -> Mapping[int, int]:
        """Changes that wait, by batch; none of a mode that appends."""
        return self.pending.batches if self.form.merges else {}

    def version(self) -> int:
        """The newest version of the table."""
        state = self.table.state()
        assert state is not None
        return state.version

    def recipe(self, kind: str, shape: TableSchema, columns: pa.Schema, directory: str) -> Recipe[DataFile]:
        """How tasks write rows of a shape that the table follows already.

        Args:
            kind: SNAPSHOT or LOG.
            shape: the shape.
            columns: `columns` of this target.
            directory: where the files go.
        """
        unpack, fields = self._rows_of(kind, columns, shape)
        return Recipe(shape, unpack, partial(rolling, fields, directory))

    def write(
        self,
        batch: CellBatch,
        parts: list[TableBatch],
        staged: MutableMapping[tuple[str, str], StagedFiles],
        *,
        merge_now: bool,
    ) -> None:
        """Write each part that is not in the table yet; changes may be left to wait.

        Args:
            batch: the batch.
            parts: what of it is this target's.
            staged: what is in files already, by table and kind, made by `recipe`; what is used is taken out.
            merge_now: whether changes are to be in the table at once.

        Raises:
            SinkError: the table has no key, or cannot follow its source.
            StateError: it is not this stream's.
        """
        state = self._open(parts[0])
        point = Point(batch.id, batch.end)
        for part in parts:
            app = f"tailrace/{self.stream.query}/{_in_setting(str(part.table))}/{part.kind}"
            mark = point.mark(app, self.stream.query, table=str(part.table), part=part.kind)
            waits = self.form.merges and part.kind != SNAPSHOT
            if state.transactions.get(mark.app, -1) >= mark.version or (waits and self.pending.has(mark)):
                continue
            columns = self._follow(part, state)
            staging = staged.pop((str(part.table), part.kind), None)
            rows = NewRows(
                lambda part=part: in_session(part.cells_of(batch.frame), self.session),  # type: ignore[misc]
                *self._rows_of(part.kind, columns, part.shapes[-1]),
                staging if staging is not None and staging.columns == columns else None,
            )
            if not waits:
                self.table.append(rows, mark)
            elif merge_now and not self.pending and is_local(self.root):
                self._merge(rows, columns, part, mark)
            else:
                self.pending.add(rows, part.changes, mark)
            self.columns = columns if self.table.is_direct() else None
            failpoint("sink.table")

    def merge_pending(self, point: Point) -> None:
        """Merge what waits.

        Args:
            point: how far the stream has come: no batch that has been written is later.
        """
        if not self.pending:
            return
        state = self._state()
        mark = point.mark(f"tailrace/{self.stream.query}/merge", self.stream.query, part="merge")
        merged = state.transactions.get(mark.app, -1)
        if any(batch > merged for batch in self.pending.batches):
            started = time.monotonic()
            columns = self.form.columns(self.table.schema())
            key = json.loads(state.properties[_KEY])
            changes = _Changes(
                lambda: self.pending.files(merged), lambda: self.pending.changes(merged), columns, key
            )
            self._bring_in(changes, mark)
            self.merging_s += time.monotonic() - started
            failpoint("sink.merged")
        self.pending.forget(mark)

    # ---- the table -----------------------------------------------------------------------------------

    def _open(self, part: TableBatch) -> DeltaState:
        """Make the table if it is not there; its state."""
        state = self.table.state()
        if state is None:
            self._create(part)
            return self._state()
        held = state.properties
        if held.get("tailrace.stream") != self.stream.query or held.get("tailrace.mode") != self.form.mode:
            found = "a table that Tailrace did not make"
            if "tailrace.stream" in held:
                found = f"a table of stream {held['tailrace.stream']} in mode `{held.get('tailrace.mode')}`"
            raise StateError(
                f"target `{self.name}` at {self.table.path} is not this stream's",
                f"found {found}, needed one of stream {self.stream.query} in mode `{self.form.mode}`",
                "use another sink path, go on with that stream's checkpoint, or delete the table",
            )
        if held.get(TARGET, self.name) != self.name:
            raise one_place(self.name, held[TARGET], self.table.path)
        return state

    def _state(self) -> DeltaState:
        state = self.table.state()
        if state is None:
            raise StateError(
                f"target `{self.name}` at {self.table.path} is gone",
                "there is no Delta table any more, and the stream has written to it",
                "bring it back, or begin a new stream with a new checkpoint",
            )
        return state

    def _create(self, part: TableBatch) -> None:
        shape = part.shapes[0]
        if self.form.merges and not shape.key:
            raise SinkError(
                f"table `{part.table}` has no key",
                f"mode {self.form.mode} needs one to find the row of a change",
                "add a primary key, or use `mode: changelog`",
            )
        require_free(shape, self._own, f"mode {self.form.mode}")
        columns = stored_schema(shape)
        properties = {
            "tailrace.stream": self.stream.query,
            "tailrace.pipeline": self.stream.pipeline,
            "tailrace.mode": str(self.form.mode),
            TARGET: self.name,
            _KEY: json.dumps(list(shape.key)),
            "delta.enableDeletionVectors": str(self.form.merges).lower(),
        }
        key = shape.key if self.cluster else ()
        self.table.create(TableDefinition(self.form.fields(columns), properties, cluster_by=key))

    @property
    def _own(self) -> list[str]:
        """Names of columns that the table, or what waits for it, has beside the source's."""
        nothing = pa.schema([])
        waiting = [*self.form.changes(nothing).names, *WAITING] if self.form.merges else []
        return [*all_names(self.form.fields(nothing)), *waiting]

    def _follow(self, part: TableBatch, state: DeltaState) -> pa.Schema:
        """Let the table follow the part's shapes; the source's columns that it then has."""
        stored = self.table.schema()
        missing = self.form.missing(stored)
        if missing:
            self.table.change(missing)
        held = self.form.columns(stored)
        for shape in part.shapes:
            require_free(shape, self._own, f"mode {self.form.mode}")
            changes = follow(self.name, held, stored_schema(shape))
            if changes:
                self.table.change(changes, self.form.within)
                held = self.form.columns(self.table.schema())
        key = list(part.shapes[-1].key)
        if self.form.merges and key != json.loads(state.properties[_KEY]):
            if self.pending:  # they are told apart by the key that they were logged under
                self.merge_pending(Point(max(self.pending.batches), None))
            self.table.set(_KEY, json.dumps(key))
        return held

    # ---- writing -------------------------------------------------------------------------------------

    def _rows_of(self, kind: str, columns: pa.Schema, shape: TableSchema) -> tuple[Unpack, pa.Schema]:
        return self.form.snapshot(columns) if kind == SNAPSHOT else self.form.log(columns, shape.key)

    def _merge(self, rows: NewRows, columns: pa.Schema, part: TableBatch, mark: Mark) -> None:
        """Merge changes that nothing waits before.

        They are put into files first: they are read more than once.
        """
        started = time.monotonic()
        with self._scratch("changes") as directory:
            files = rows.into(directory)
            changes = _Changes(
                lambda: [f"{directory}/{file.name}" for file in files],
                lambda: self.session.read.schema(spark_schema(rows.fields)).parquet(directory),
                columns,
                part.shapes[-1].key,
            )
            self._bring_in(changes, mark)
        self.merging_s += time.monotonic() - started

    def _bring_in(self, changes: _Changes, mark: Mark) -> None:
        """Merge changes: by tasks alone where they can, else by MERGE."""
        if self.form.mode is WriteMode.UPSERT and self.table.takes_vectors():
            files = changes.files()
            if are_whole(files):
                with self._scratch("keys") as scratch:
                    upsert(self.table, files, changes.columns, key=changes.key, mark=mark, scratch=scratch)
                return
        merge(self.table, self.form.mode, changes.rows(), changes.columns, key=changes.key, mark=mark)

    @contextmanager
    def _scratch(self, name: str) -> Iterator[str]:
        """A directory for what a merge needs on the way."""
        directory = f"{below(f'{self.root}/_tailrace/merging', self.path)}/{name}"
        shutil.rmtree(directory, ignore_errors=True)  # a process that was killed leaves it
        Path(directory).mkdir(parents=True)
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def _in_setting(name: str) -> str:
    """A name as part of a Spark setting, in which Spark would expand `${env:NAME}`."""
    return f"={file_name(name)}" if "${" in name or name.startswith("=") else name
