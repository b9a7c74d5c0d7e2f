"""The Iceberg sink: what a batch brings to a target, as one commit."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    ValidationException,
)
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    LessThanOrEqual,
    Reference,
)
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from tailrace.config.secret import Secret
from tailrace.config.sinks import IcebergSettings, WriteMode
from tailrace.errors import SinkError, StateError, TransientSinkError
from tailrace.observe.failpoints import failpoint
from tailrace.sinks.base import Capabilities, CellBatch, Delivery, Order, Unit, Written
from tailrace.sinks.columns import follow, stored_schema
from tailrace.sinks.iceberg.columns import held_columns, require_promotions, storable, without_ids
from tailrace.sinks.iceberg.compaction import compact
from tailrace.sinks.iceberg.files import Place, write_cells
from tailrace.sinks.iceberg.maintenance import expire
from tailrace.sinks.iceberg.rewrite import insert_files, kept_files, last_changes
from tailrace.sinks.parts import SNAPSHOT, Part
from tailrace.sinks.targets import TargetPool
from tailrace.sinks.unpack import UPSERT_FIELDS, last_rows, log_fields, log_rows, snapshot_rows
from tailrace.spark.checkpoint import Directory, absolute, is_local
from tailrace.transform.route import Router

_STREAM, _MODE, _BATCH = "tailrace.stream", "tailrace.mode", "tailrace.batch"


class IcebergSink:
    """Writes each table to the Iceberg table of its target's name.

    Args:
        settings: where and how.
        router: names the targets.
    """

    def __init__(self, settings: IcebergSettings, router: Router) -> None:
        self._settings = settings
        self._root = absolute(settings.path)
        if is_local(self._root):
            self._root = f"file://{self._root}"
        self._pool = TargetPool(router, settings.parallelism)
        self._catalog: Catalog | None = None
        # One commit at a time: a catalog in SQLite knows no more.
        self._lock = threading.Lock()

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
        catalog = self._catalog = self._catalog or _catalog(self._settings, self._root)

        def write(name: str, parts: list[Part]) -> None:
            target = _Target(name, self._settings.mode, self._root, catalog, batch, self._lock)
            target.write(parts)
            target.maintain(self._settings)

        return self._pool.write(batch.parts, write)

    def close(self) -> None:
        """See `Sink.close`."""
        self._pool.close()
        if self._catalog is not None:
            self._catalog.close()


def _catalog(settings: IcebergSettings, root: str) -> Catalog:
    """The catalog that is set, else one in a file beside the tables."""
    given = {name: Secret(value).resolve() for name, value in settings.catalog.items()}
    if given:
        return load_catalog("tailrace", **given)
    if not is_local(root):
        raise SinkError(
            f"an Iceberg sink at {root} needs a catalog",
            "without one the catalog is a SQLite file, and that needs a local path",
            "catalog: {type: rest, uri: ...} in the sink's section",
        )
    directory = absolute(root)
    Directory(directory).write("_tailrace/iceberg.txt", "The catalog of the tables in this directory.\n")
    uri = f"sqlite:///{directory}/_tailrace/iceberg.db"
    return load_catalog("tailrace", type="sql", uri=uri, warehouse=root)


@dataclass
class _Target:
    """One table, for one batch."""

    name: str
    mode: WriteMode
    root: str
    catalog: Catalog
    batch: CellBatch
    lock: threading.Lock
    _added: list[str] = field(default_factory=list)
    _removed: list[DataFile] = field(default_factory=list)

    def write(self, parts: list[Part]) -> None:
        """Write the batch, unless the table has it."""
        with self.lock:
            table = self._open(parts[0])
        if int(table.properties.get(_BATCH, "-1")) >= self.batch.id:
            return
        with self.lock:
            columns = self._follow(table, parts)
        held = held_columns(table.schema())
        data = Place(table.io, f"{table.location()}/data", held)
        changed: list[Part] = []
        for part in parts:
            if self.mode is WriteMode.UPSERT and part.kind != SNAPSHOT:
                changed.append(part)
            else:
                unpack = snapshot_rows(columns) if self.mode is WriteMode.UPSERT else log_rows(columns)
                self._added += write_cells(part.cells_of(self.batch.frame), unpack, data)
        scratch = self._rewrite(table, columns, changed, data) if changed else []
        self._commit(table)
        for path in scratch:
            table.io.delete(path)
        failpoint("sink.table")

    def maintain(self, settings: IcebergSettings) -> None:
        """Join small files and expire old snapshots, if it is due."""
        now = time.time()
        if settings.optimize_interval is not None:
            with self.lock:
                table = self.catalog.load_table(self._identifier())
            with _refused_when_slower(self.name):
                compact(self.batch.spark, table, settings.optimize_interval, now, self.lock)
        if settings.expire_interval is not None:
            with _refused_when_slower(self.name), self.lock:
                table = self.catalog.load_table(self._identifier())
                expire(table, settings.expire_interval, settings.snapshot_retention_hours, now)

    # ---- the table -----------------------------------------------------------------------------------

    def _identifier(self) -> tuple[str, ...]:
        namespace, _, short = self.name.rpartition(".")
        return (*(namespace or "default").split("."), short)

    def _open(self, part: Part) -> Table:
        identifier = self._identifier()
        try:
            table = self.catalog.load_table(identifier)
        except NoSuchTableError:
            return self._create(identifier, part)
        found = table.properties.get(_STREAM)
        stream = self.batch.stream.query
        if found != stream or table.properties.get(_MODE) != self.mode:
            raise StateError(
                f"target `{self.name}` is not this stream's",
                f"found a table of stream {found or 'none'} in mode `{table.properties.get(_MODE)}`, "
                f"needed one of stream {stream} in mode `{self.mode}`",
                "use another catalog or path, go on with that stream's checkpoint, or drop the table",
            )
        return table

    def _create(self, identifier: tuple[str, ...], part: Part) -> Table:
        shape = part.shapes[0]
        if self.mode is WriteMode.UPSERT and not shape.key:
            raise SinkError(
                f"table `{part.table}` has no key",
                "mode upsert needs one to find the row of a change",
                "add a primary key, or use `mode: changelog`",
            )
        columns = storable(stored_schema(shape))
        self.catalog.create_namespace_if_not_exists(identifier[:-1])
        return self.catalog.create_table(
            identifier,
            columns if self.mode is WriteMode.UPSERT else log_fields(columns),
            location=f"{self.root}/{'/'.join(identifier)}",
            properties={
                _STREAM: self.batch.stream.query,
                _MODE: str(self.mode),
                "tailrace.pipeline": self.batch.stream.pipeline,
                "write.metadata.delete-after-commit.enabled": "true",
            },
        )

    def _follow(self, table: Table, parts: Sequence[Part]) -> pa.Schema:
        """Let the table follow the parts' shapes; the source's columns that it then has."""
        columns = self._columns(table)
        for part in parts:
            for shape in part.shapes:
                changes = follow(self.name, columns, storable(stored_schema(shape)))
                require_promotions(self.name, changes, columns)
                if changes:
                    wanted = pa.schema([pa.field(c.name, c.type) for c in changes])
                    if self.mode is WriteMode.CHANGELOG:
                        wanted = wanted.append(pa.field("_before", pa.struct(list(wanted))))
                    with table.update_schema() as update:
                        update.union_by_name(wanted)
                    columns = self._columns(table)
        return columns

    def _columns(self, table: Table) -> pa.Schema:
        held = without_ids(held_columns(table.schema()))
        if self.mode is WriteMode.UPSERT:
            return held
        return pa.schema(list(held.field("_before").type))

    # ---- writing -------------------------------------------------------------------------------------

    def _rewrite(self, table: Table, columns: pa.Schema, parts: list[Part], data: Place) -> list[str]:
        """Bring changes into the table's files; files that were needed for it only."""
        key = parts[-1].shapes[-1].key
        fields = pa.schema([*columns, *UPSERT_FIELDS])
        place = Place(table.io, f"{table.location()}/changes", fields)
        files = [
            path
            for part in parts
            for path in write_cells(part.cells_of(self.batch.frame), last_rows(columns, key), place)
        ]
        changes = last_changes(files, key, place)
        within: BooleanExpression = AlwaysTrue()
        if pa.types.is_integer(columns.field(key[0]).type):
            first = Reference(key[0])
            within = And(
                GreaterThanOrEqual(term=first, value=changes.low),
                LessThanOrEqual(term=first, value=changes.high),
            )
        tasks = {task.file.file_path: task for task in table.scan(row_filter=within).plan_files()}
        added, lacking = insert_files(self.batch.spark, changes, data, place)
        self._added += added
        kept = kept_files(self.batch.spark, list(tasks), changes, lacking, key=key, place=data)
        for path, new in kept.items():
            if tasks[path].delete_files:
                raise SinkError(
                    f"target `{self.name}` has delete files, which another engine has written",
                    "mode upsert rewrites data files, and what they delete would come back",
                    "rewrite them there (rewrite_data_files with delete-file-threshold 1), then start again",
                )
            self._removed.append(tasks[path].file)
            self._added += new
        return [*files, changes.keys, *lacking]

    def _commit(self, table: Table) -> None:
        said = {
            _STREAM: self.batch.stream.query,
            _BATCH: str(self.batch.id),
            "tailrace.end": json.dumps(self.batch.end, separators=(",", ":")),
        }
        metadata = table.metadata
        added = [parquet_file_to_data_file(table.io, metadata, path) for path in self._added]
        with _refused_when_slower(self.name), self.lock, table.transaction() as transaction:
            transaction.set_properties({_BATCH: str(self.batch.id)})
            update = transaction.update_snapshot(snapshot_properties=said)
            if added or self._removed:
                with update.overwrite() if self._removed else update.merge_append() as snapshot:
                    for file in added:
                        snapshot.append_data_file(file)
                    for file in self._removed:
                        snapshot.delete_data_file(file)


@contextmanager
def _refused_when_slower(name: str) -> Iterator[None]:
    """A commit that another writer was faster than is a TransientSinkError."""
    try:
        yield
    except (CommitFailedException, CommitStateUnknownException, ValidationException) as error:
        raise TransientSinkError(
            f"target `{name}` was not committed", f"{type(error).__name__}: {error}"
        ) from error
