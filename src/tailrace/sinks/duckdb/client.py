"""Connections to a sink's database, and what DuckDB's errors mean."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from tailrace.config.sinks import DuckDbSettings
from tailrace.errors import SinkError, TransientSinkError
from tailrace.machine import memory_bytes
from tailrace.sinks.duckdb import sql
from tailrace.spark.checkpoint import absolute

#: Extensions are those that are installed: DuckDB would download others.
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


#: By file: DuckDB's own lock keeps other processes out, not other connections of this one.
_LOCKS: dict[str, threading.Lock] = defaultdict(threading.Lock)


def scratch(settings: DuckDbSettings) -> str:
    """The directory of files that exist while a batch is written."""
    return f"{absolute(settings.database)}.tailrace"


@contextmanager
def connected(settings: DuckDbSettings, *, read_only: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that has the database as `sql.DATABASE`.

    Raises:
        SinkError: DuckDB cannot open it, or refuses a statement.
        TransientSinkError: another process has it open.
    """
    file = absolute(settings.database)
    with _LOCKS[file], duckdb.connect(config=_CONFIG) as connection:
        try:
            connection.execute("SET TimeZone = 'UTC'")
            # a batch empties its directory at its begin, whoever reads
            spill = f"{scratch(settings)}.read" if read_only else scratch(settings)
            connection.execute(f"SET temp_directory = {sql.text(spill)}")
            connection.execute(f"SET memory_limit = '{_memory_mib()}MiB'")
            given = " (READ_ONLY)" if read_only else ""
            connection.execute(f"ATTACH {sql.text(file)} AS {sql.name(sql.DATABASE)}{given}")
        except duckdb.Error as error:
            raise _not_opened(settings, error) from None
        try:
            yield connection
        except duckdb.Error as error:
            raise SinkError(
                "DuckDB cannot write the batch",
                _described(error),
                "see the detail; if its disk is full, free some space and start the pipeline again",
                code="TR-7902",
            ) from None


def _memory_mib() -> int:
    """A quarter of the machine's memory: Spark has the rest, and what does not fit goes to files."""
    return memory_bytes() // 4 >> 20


def _not_opened(settings: DuckDbSettings, error: duckdb.Error) -> SinkError:
    if isinstance(error, duckdb.IOException) and "lock" in str(error):
        return TransientSinkError(
            f"`{settings.database}` is open in another program",
            "DuckDB lets one program in that writes, or several that read",
            "close it there; the batch is written then",
            code="TR-7901",
        )
    return SinkError(
        f"DuckDB cannot open `{settings.database}`",
        f"{type(error).__name__}: {str(error).partition(chr(10))[0]}",
        "the file must be one of DuckDB, of a version that this one reads, and its directory must exist",
        code="TR-7900",
    )


def _described(error: duckdb.Error) -> str:
    """An error of DuckDB, with its text if that cannot hold a row's values."""
    if isinstance(error, duckdb.IOException | duckdb.CatalogException | duckdb.BinderException):
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return type(error).__name__
