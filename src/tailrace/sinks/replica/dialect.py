"""What a database must provide to hold replicas, and what can go wrong with it.

A dialect is plain data that tasks get a copy of; a session is a connection of it, used by one thread. Rows
go in by one of four verbs:

    insert   rows with new keys
    upsert   rows that replace those with their keys
    update   parts of rows: columns that they lack stay as they are; keys that are not there are passed over
    delete   keys whose rows go (rows hold the key's columns alone)

either at once (`WriteSession.write`), in the running transaction, or by way of a table beside the target
that is filled first (`stage`) and brought in later (`merge`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import pyarrow as pa

from tailrace.errors import SinkError, SourceError, TailraceError, TransientSinkError
from tailrace.model.table import Column
from tailrace.sinks.replica.encode import Writer
from tailrace.sinks.replica.target_schema import TargetSchema


class RowOperation(StrEnum):
    """What is done with rows."""

    INSERT = "insert"
    UPSERT = "upsert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True)
class TableName:
    """A table's place in the target: database (MySQL) or schema (PostgreSQL), and name."""

    schema: str
    table: str


class RefusalError(Exception):
    """The database does not take some of the rows.

    Args:
        reason: why, without any value.
        column: the column concerned, "" if it is not known.
        is_duplicate: a row with that key is there already.
    """

    def __init__(self, reason: str, column: str = "", *, is_duplicate: bool = False) -> None:
        super().__init__(reason, column, is_duplicate)
        self.reason = reason
        self.column = column
        self.is_duplicate = is_duplicate


class WriteSession(Protocol):
    """A connection."""

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a statement.

        Raises:
            RefusalError: a value is not taken.
            TransientSinkError: another try may succeed.
            SinkError: the server refuses.
        """

    def write(self, verb: RowOperation, place: TableName, shape: TargetSchema, rows: pa.Table) -> None:
        """Do `verb` with `rows` in the running transaction; their columns are those of `columns_of`.

        Here and below `shape` is what rows of `verb` hold: the table's, an UPDATE's without what they lack.
        """

    def stage(self, name: TableName, verb: RowOperation, place: TableName, shape: TargetSchema) -> None:
        """Make the table `name`, for rows of `verb` on their way to `place`."""

    def fill(self, name: TableName, columns: Sequence[Column], rows: pa.Table) -> None:
        """Put rows into a table that `stage` made."""

    def merge(self, name: TableName, verb: RowOperation, place: TableName, shape: TargetSchema) -> None:
        """Do `verb` with the rows of a table that `stage` made."""

    def columns(self, place: TableName) -> list[str]:
        """The columns of a table, in order; empty if there is none."""

    def key(self, place: TableName) -> list[str]:
        """The columns of its primary key, in order."""

    def close(self) -> None:
        """Say goodbye."""


class Dialect(Protocol):
    """A database as a target."""

    @property
    def name_type(self) -> str:
        """SQL type of a name, which may be a key."""

    @property
    def text_type(self) -> str:
        """SQL type of any text."""

    @property
    def serial_type(self) -> str:
        """SQL type of a key that counts up."""

    def connect(self) -> WriteSession:
        """A session that is in no transaction.

        Raises:
            TransientSinkError: nobody answers.
            SinkError: the server refuses the user.
        """

    def place(self, target: str) -> TableName:
        """Where the target of that name is.

        Raises:
            SinkError: it cannot be.
        """

    @property
    def notes(self) -> str:
        """The database or schema of what Tailrace notes."""

    def quote(self, name: str) -> str:
        """A name in SQL."""

    def name(self, place: TableName) -> str:
        """A table's full name in SQL."""

    def literal(self, value: str | int | None) -> str:
        """A value in SQL."""

    def writer(self, column: Column) -> Writer:
        """How a column's values are written."""

    def make_schema(self, schema: str) -> list[str]:
        """Statements that make a database or schema where it is not there."""

    def create(self, place: TableName, shape: TargetSchema) -> list[str]:
        """Statements that make a table for `shape`, where it is not there yet.

        Raises:
            SinkError: the database cannot hold it.
        """

    def alter(
        self, place: TableName, held: TargetSchema, wanted: TargetSchema, there: Sequence[str]
    ) -> list[str]:
        """Statements that let a table follow.

        Args:
            place: the table.
            held: what it holds.
            wanted: what it shall hold.
            there: the columns that it has by now: an earlier try may have added some.
        """

    def hold(self, sql: str, *, shared: bool) -> str:
        """A SELECT that locks the rows it finds until the transaction ends."""


def columns_of(verb: RowOperation, shape: TargetSchema) -> tuple[Column, ...]:
    """The columns that rows of a verb have."""
    return shape.key_columns if verb is RowOperation.DELETE else shape.columns


#: What a source's hints call settings that a sink has too.
_OPTION = re.compile(r"\b(tls[A-Z]\w+|allow[A-Z]\w+|serverPublicKeyFile)\b")


def _as_setting(found: re.Match[str]) -> str:
    return "sink." + re.sub(r"[A-Z]", lambda m: "-" + m[0].lower(), found[0])


def as_sink_error(error: TailraceError, doing: str, grants: str) -> TailraceError:
    """A source's connection error as one of a sink: sources know best what a server's numbers mean.

    Args:
        error: what a source's `translate` made of it.
        doing: what was done.
        grants: what the user needs.
    """
    if not isinstance(error, SourceError):
        return error
    detail = error.detail
    if error.retryable:
        return TransientSinkError(error.message, detail, error.hint)
    hint = error.hint and (grants if "GRANT" in error.hint else _OPTION.sub(_as_setting, error.hint))
    return SinkError(error.message or f"{doing} failed", detail, hint)
