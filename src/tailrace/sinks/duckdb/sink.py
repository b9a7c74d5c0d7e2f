"""The sink of DuckDB: one transaction per batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa

from tailrace.config.sinks import DuckDbSettings, WriteMode
from tailrace.errors import SinkError, StateError
from tailrace.failpoints import failpoint
from tailrace.model.change import OP_DELETE, OP_LETTERS, SNAPSHOT
from tailrace.model.key import no_key
from tailrace.model.table import TableId
from tailrace.sinks.base import Capabilities, CellBatch, Delivery, Order, Unit, Written
from tailrace.sinks.claims import Claims
from tailrace.sinks.duckdb import change_log, sql, state, upsert
from tailrace.sinks.duckdb.client import connected, scratch
from tailrace.sinks.duckdb.seen import KeysTable
from tailrace.sinks.duckdb.table import TABLE, Table, place, require_names
from tailrace.sinks.lease import require_newest
from tailrace.sinks.route import Router
from tailrace.sinks.single_pass import Schemas, SinglePass
from tailrace.sinks.tables.columns import held_names, merged_schema
from tailrace.sinks.tables.former_columns import (
    former_columns,
    kept_columns,
    missed_columns,
    require_unneeded,
)
from tailrace.sinks.tables.parquet import DataFile, rolling, write_cells
from tailrace.sinks.tables.rereads import Refresh, refreshes_by_target
from tailrace.sinks.tables.rows import UPSERT_FIELDS, last_rows, log_fields, log_rows, snapshot_rows
from tailrace.sinks.tables.scratch import Scratch
from tailrace.sinks.tables.staging import Recipe, StagedBatch, stage
from tailrace.sinks.tables.targets import (
    TargetPool,
    add_targets_without_rows,
    by_target,
    following,
    of_one_table,
    written,
)
from tailrace.spark.cells import TableBatch, Unpack
from tailrace.spark.checkpoint import absolute

#: Paths of files with the rows of a batch, by table and kind.
_Files = Mapping[tuple[str, str], list[str]]


class DuckSink:
    """Writes each table to the table named after its target.

    Args:
        settings: the sink's settings.
        router: names the targets.
    """

    def __init__(self, settings: DuckDbSettings, router: Router) -> None:
        self._settings = settings
        self._claims = Claims(router, self._locations, {sql.OWN_SCHEMA: "a schema that the sink needs"})
        self._pool = TargetPool(self._claims, settings.parallelism)
        self._single_pass = SinglePass()
        self._scratch = Scratch(scratch(settings))
        self._router = router

    @property
    def capabilities(self) -> Capabilities:
        """See `Sink.capabilities`."""
        holds_rows = self._settings.mode is WriteMode.UPSERT
        return Capabilities(
            Delivery.EXACTLY_ONCE, Order.BY_SEQ, Unit.BATCH, holds_rows=holds_rows, follows_schema=True
        )

    @property
    def pending_rows(self) -> int:
        """See `Sink.pending_rows`: readers see what is durable."""
        return 0

    def claim(self, tables: Iterable[TableId]) -> None:
        """See `Sink.claim`."""
        self._claims.add(tables)

    def _locations(self, table: TableId) -> list[str]:
        # names that differ by case are one for DuckDB
        schema, name = (part.lower() for part in place(self._router.target(table)))
        return [schema if schema == sql.OWN_SCHEMA else f'"{schema}"."{name}"'.replace("/", "\\")]

    def write(self, batch: CellBatch) -> list[Written]:
        """See `Sink.write`."""
        Path(absolute(self._settings.database)).parent.mkdir(parents=True, exist_ok=True)
        self._scratch.begin(batch.stream.lease)
        with self._scratch.directory("staged") as directory:
            return self._single_pass.write(
                batch,
                one_pass=partial(self._one_pass, batch, directory),
                commit=partial(self._commit, batch),
                write_found=partial(self._write_found, batch, directory),
            )

    def close(self) -> None:
        """See `Sink.close`."""
        self._pool.close()
        self._scratch.close()

    # ---- files ---------------------------------------------------------------------------------------

    @contextmanager
    def _one_pass(
        self, batch: CellBatch, directory: str, schemas: Schemas
    ) -> Iterator[StagedBatch[list[str]]]:
        """Stage the rows of a batch that is expected to hold `schemas`."""
        recipes = {}
        for key, schema in schemas.items():
            unpack, fields = self._rows(key[1], merged_schema("", [schema]), schema.key)
            recipes[key] = Recipe(schema, unpack, partial(rolling, fields, directory))
        yield stage(batch.columns_once("cell"), recipes, lambda _, files: _paths(directory, files))

    def _write_found(self, batch: CellBatch, directory: str) -> list[Written]:
        files: dict[tuple[str, str], list[str]] = {}

        def write(part: TableBatch) -> None:
            with of_one_table([part.table]):
                for schema in part.schemas:
                    require_names(schema, self._settings.mode)
                columns = merged_schema(self._router.target(part.table), part.schemas)
                unpack, fields = self._rows(part.kind, columns, part.schemas[-1].key)
                made = write_cells(part.cells_of(batch.frame), unpack, fields, directory)
                files[str(part.table), part.kind] = _paths(directory, made)

        found = batch.table_batches
        by_target(found, self._claims)  # claims them
        self._pool.run([partial(write, part) for part in found])
        return self._commit(batch, StagedBatch(is_complete=True, table_batches=found, files=files))

    def _rows(self, kind: str, columns: pa.Schema, key: tuple[str, ...]) -> tuple[Unpack, pa.Schema]:
        """How tasks make rows of changes, and the rows' columns."""
        if self._settings.mode is WriteMode.CHANGELOG:
            return log_rows(columns), log_fields(columns)
        if kind == SNAPSHOT:
            return snapshot_rows(columns), columns
        return last_rows(columns, key), pa.schema([*columns, *UPSERT_FIELDS])

    # ---- the transaction -----------------------------------------------------------------------------

    def _commit(self, batch: CellBatch, held: StagedBatch[list[str]]) -> list[Written]:
        work = by_target(held.table_batches, self._claims)
        readings = refreshes_by_target(batch, self._claims)
        ended = [name for name, found in readings.items() if any(r.reread.done for r in found)]
        add_targets_without_rows(work, batch, self._claims, ended)
        if not work:
            return []
        with connected(self._settings) as connection, _transaction(connection):
            state.prepare(connection)
            notes = state.read(connection)
            for name, parts in work.items():
                tables = self._claims.of(name)
                with of_one_table({part.table for part in parts} or tables):
                    target = _Target(
                        Table(connection, name, self._settings.mode),
                        self._settings,
                        batch,
                        tables,
                        notes.get(name),
                        readings.get(name, ()),
                    )
                    target.write(parts, held.files)
        return written(work)


def _paths(directory: str, files: Iterable[DataFile]) -> list[str]:
    return [f"{directory}/{file.name}" for file in files]


@contextmanager
def _transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """What is done in this context is done at once, or not at all."""
    connection.execute("BEGIN TRANSACTION")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@dataclass
class _Target:
    """One table, for one batch."""

    table: Table
    settings: DuckDbSettings
    batch: CellBatch
    #: All tables that it holds.
    tables: Sequence[TableId]
    note: state.TargetNote | None
    #: Its tables that are read again.
    readings: Sequence[Refresh]

    def write(self, parts: Sequence[TableBatch], files: _Files) -> None:
        """Write the batch, unless the table has it."""
        self._require_own()
        lease = self.batch.stream.lease
        if self.note is not None:
            require_newest(self.table.target, self.note.lease, lease)
        if self.table.exists():
            assert self.note is not None
            if self.note.batch >= self.batch.id:
                return
            self._follow(parts)
        elif parts:
            self._create(parts)
        else:
            return
        key = self._key(parts)
        if self.settings.mode is WriteMode.UPSERT:
            self._upsert(parts, files, key)
        else:
            self._append(parts, files, key)
        if self.readings and key:
            self._end_readings(key)
        assert self.note is not None
        state.write(self.table.connection, self.note.written(self.batch.id, key, lease))
        upsert.forget(self.table.connection)
        failpoint("sink.table")

    def _follow(self, parts: Sequence[TableBatch]) -> None:
        """Change the table to fit the batch."""
        self._follow_former_columns(parts)
        for part in parts:
            # of several tables in a target, only this one goes wrong
            with of_one_table([part.table]), following(part.table, self.tables):
                for schema in part.schemas:
                    self.table.follow(schema, self.settings.on_incompatible_type, self.batch.following)

    def _require_own(self) -> None:
        """Reject a table that is not this stream's.

        Raises:
            StateError: it is not.
        """
        name, stream, mode = self.table.target, self.batch.stream.query, str(self.settings.mode)
        found = self.note
        ours = found is not None and (found.stream, found.mode) == (stream, mode)
        if not ours and (self.table.exists() or found is not None):
            raise StateError(
                f"target `{name}` is not this stream's",
                f"found a table of stream {found.stream if found else 'none'} in mode"
                f" `{found.mode if found else 'none'}`, needed one of stream {stream} in mode `{mode}`",
                "use another database, continue with that stream's checkpoint, or drop the table and its row"
                f" in {sql.OWN_SCHEMA}.targets",
                code="TR-6101",
            )

    def _create(self, parts: Sequence[TableBatch]) -> None:
        """Create the table for the rows of all parts."""
        for part in parts:
            if self.settings.mode is WriteMode.UPSERT and not part.schemas[0].key:
                needs = "mode upsert needs one to find the row of a change"
                raise no_key(part.table, needs, "use `mode: changelog`")
        name = self.table.target
        self.batch.creates(name, self.tables)
        self.table.create(merged_schema(name, [schema for part in parts for schema in part.schemas]))
        KeysTable(self.table, ()).drop()
        self.note = state.TargetNote(name, self.batch.stream.query, str(self.settings.mode), -1)

    def _follow_former_columns(self, parts: Sequence[TableBatch]) -> None:
        """Rename and drop the columns that the source has renamed and dropped."""
        if self.settings.mode is not WriteMode.UPSERT:
            return  # a log of changes keeps them
        name = self.table.target
        if len(self.tables) != 1:  # of which only one has changed
            self.batch.keeps_columns(name, self.tables)
            return
        held, source = self.table.columns().names, str(self.tables[0])
        changes = former_columns(self.batch.column_events, source, held)
        if kept_columns(self.batch.column_events, source, held, changes):
            self.batch.lacks_columns(name, self.tables)
        if self.batch.drops_columns:
            old = {change.old for change in changes}
            changes += [c for c in missed_columns(parts, source, held) if c.old not in old]
        for change in changes:
            try:
                self.table.change(change)
            except duckdb.DependencyException as error:
                require_unneeded(self.batch.policy, name, change.old, error, self.tables[0])

    def _key(self, parts: Sequence[TableBatch]) -> tuple[str, ...]:
        """The key's columns in the table; empty if there is none."""
        assert self.note is not None
        columns = self.table.columns()
        found = {tuple(held_names(columns, part.schemas[-1].key)) for part in parts}
        if len(found) > 1 and self.settings.mode is WriteMode.UPSERT:
            listed = " and ".join(sorted(f"({', '.join(key)})" for key in found))
            raise SinkError(
                f"target `{self.table.target}` has changes of two keys in one batch",
                f"its tables have the keys {listed}",
                "give the tables the same key, or route them to targets of their own",
                code="TR-7002",
            )
        return found.pop() if len(found) == 1 else tuple(held_names(columns, self.note.key))

    def _upsert(self, parts: Sequence[TableBatch], files: _Files, key: tuple[str, ...]) -> None:
        columns, changed = self.table.columns(), list[upsert.ChangedRows]()
        for part in parts:
            paths = files.get((str(part.table), part.kind), [])
            held = merged_schema(self.table.target, part.schemas).names
            own = zip(held, held_names(columns, held), strict=True)
            pairs = [(theirs, ours) for theirs, ours in own if ours in columns.names]
            given = [name for name, _ in pairs]
            if not paths:
                continue
            if part.kind == SNAPSHOT:
                rows = f"SELECT {sql.names(given)} FROM {sql.files(paths)}"
                self.table.insert([name for _, name in pairs], rows)
            else:
                changed.append(upsert.ChangedRows(str(part.table), given, paths))
        if changed:
            upsert.merge(self.table, changed, key)
        seen = KeysTable(self.table, key)
        for refresh in self.readings:
            query = f"SELECT {sql.names(key)} FROM {self.table.path} WHERE false"
            if changed:
                query = (
                    f"SELECT {sql.names(key)} FROM last WHERE _op <> {OP_DELETE}"
                    f" AND {sql.name(TABLE)} = {sql.text(str(refresh.table))}"
                )
            seen.add(refresh, query)

    def _append(self, parts: Sequence[TableBatch], files: _Files, key: tuple[str, ...]) -> None:
        seen = KeysTable(self.table, key)
        for part in parts:
            paths = files.get((str(part.table), part.kind), [])
            if not paths:
                continue
            columns = merged_schema(self.table.target, part.schemas)
            change_log.append(self.table, columns.names, paths)
            for refresh in self.readings if key and part.kind != SNAPSHOT else ():
                if refresh.table == part.table:
                    given = held_names(columns, key)
                    renamed = ", ".join(
                        f"{sql.name(g)} AS {sql.name(k)}" for g, k in zip(given, key, strict=True)
                    )
                    rows = f"FROM {sql.files(paths)} WHERE _op <> '{OP_LETTERS[OP_DELETE]}'"
                    seen.add(refresh, f"SELECT DISTINCT {renamed} {rows}")

    def _end_readings(self, key: tuple[str, ...]) -> None:
        seen = KeysTable(self.table, key)
        failpoint("sink.seen")
        end = self.batch.end
        ts_ms = 0 if end is None else int(end["log"].get("ts_ms", 0))
        for refresh in self.readings:
            if refresh.reread.done:
                seen.add(refresh, f"SELECT {sql.names(key)} FROM {self.table.path} WHERE false")
                seen.end(refresh, ts_ms)
