"""The columns of a table in each mode, and the rows that snapshot and log bring to it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tailrace.config.sinks import WriteMode
from tailrace.sinks.tables.columns import AddColumn
from tailrace.sinks.tables.rows import (
    CHANGE_FIELDS,
    UPSERT_FIELDS,
    VERSION_FIELDS,
    first_versions,
    last_rows,
    log_fields,
    log_rows,
    snapshot_rows,
    version_changes,
)
from tailrace.spark.cells import Unpack


@dataclass(frozen=True)
class TableLayout:
    """The layout of tables of one mode.

    Args:
        mode: the mode.
    """

    mode: WriteMode

    @property
    def merges(self) -> bool:
        """Whether changes are merged."""
        return self.mode is not WriteMode.CHANGELOG

    @property
    def keeps_history(self) -> bool:
        """Whether the table has values that its source no longer has."""
        return self.mode is not WriteMode.UPSERT

    @property
    def naming(self) -> tuple[str, ...]:
        """Columns of the table that hold names of the source's columns."""
        return () if self.merges else ("_absent", "_absent_before")

    @property
    def within(self) -> tuple[str, ...]:
        """Prefixes under which the table has the source's columns."""
        return ("",) if self.merges else ("", "_before.")

    def fields(self, columns: pa.Schema) -> pa.Schema:
        """All columns of a table if its source has `columns`."""
        match self.mode:
            case WriteMode.UPSERT:
                return columns
            case WriteMode.SCD2:
                return pa.schema([*columns, *VERSION_FIELDS])
            case WriteMode.CHANGELOG:
                return log_fields(columns)

    def columns(self, held: pa.Schema) -> pa.Schema:
        """The source's columns, of a table with columns `held`."""
        if self.mode is WriteMode.CHANGELOG:
            return pa.schema(list(held.field("_before").type))
        own = {field.name for field in self.fields(pa.schema([]))}
        return pa.schema([field for field in held if field.name not in own])

    def missing(self, held: pa.Schema) -> list[AddColumn]:
        """Columns that Tailrace adds and that a table of an older version lacks."""
        return [AddColumn(c.name, c.type) for c in self.fields(pa.schema([])) if c.name not in held.names]

    def snapshot(self, columns: pa.Schema) -> tuple[Unpack, pa.Schema]:
        """How snapshot rows are unpacked, and their columns; they are appended."""
        match self.mode:
            case WriteMode.UPSERT:
                return snapshot_rows(columns), columns
            case WriteMode.SCD2:
                return first_versions(columns), self.fields(columns)
            case WriteMode.CHANGELOG:
                return log_rows(columns), self.fields(columns)

    def log(self, columns: pa.Schema, key: tuple[str, ...]) -> tuple[Unpack, pa.Schema]:
        """How changes are unpacked, and their columns; they are merged if `merges`, else appended."""
        match self.mode:
            case WriteMode.UPSERT:
                return last_rows(columns, key), self.changes(columns)
            case WriteMode.SCD2:
                return version_changes(columns), self.changes(columns)
            case WriteMode.CHANGELOG:
                return log_rows(columns), self.fields(columns)

    def changes(self, columns: pa.Schema) -> pa.Schema:
        """All columns of changes to be merged."""
        return pa.schema([*columns, *(CHANGE_FIELDS if self.mode is WriteMode.SCD2 else UPSERT_FIELDS)])
