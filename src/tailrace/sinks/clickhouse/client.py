"""Statements for a server, by `clickhouse-connect`. Every one that the sink sends may be sent again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.config.sinks import ClickHouseSettings
from tailrace.errors import SinkError, TransientSinkError
from tailrace.extras import require
from tailrace.printable import shortened
from tailrace.sinks.clickhouse.sql import name

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_CONNECT_S, _STATEMENT_S = 10, 3600
#: Rows are to be durable, and visible, once an INSERT has returned; each one that we send is meant.
_INSERT = {"async_insert": 0, "insert_deduplicate": 0}
#: ... of a part of a change log, which the server remembers by its token.
_PART = {"async_insert": 0, "insert_deduplicate": 1}
#: Lists of keys are long, and so are those of columns.
_LONG = {"max_query_size": 1 << 28, "max_ast_elements": 1 << 20}
#: Binary values are no text.
_SELECT = {**_LONG, "output_format_arrow_string_as_string": 0}
#: ClickHouse's codes of errors that pass: time limits, overload, the network, lack of room.
_PASSING = (159, 160, 202, 209, 210, 241, 242, 243, 252, 319, 394, 425, 439, 473, 999)
#: ... of users who are unknown, or lack a right.
_REJECTED = (192, 193, 194, 195, 497, 516)
#: ... of tables and databases that are gone.
_GONE = (60, 81, 218)


class ClickHouseClient:
    """A connection to a server, made when it is needed; copied to tasks.

    Args:
        settings: the sink's settings.
    """

    def __init__(self, settings: ClickHouseSettings) -> None:
        require(settings.extra, f"sink `{settings.type}`")
        password = None if settings.password is None else settings.password.resolved()
        self._settings, self._password = settings, password
        self._client: Client | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    def run(self, statement: str, settings: Mapping[str, Any] | None = None) -> None:
        """Run a statement without a result.

        Raises:
            TransientSinkError: the server does not answer, or cannot at present.
            SinkError: it refuses the statement.
        """
        with _errors(shows=True):
            self._connected().command(statement, settings={**_LONG, **(settings or {})})

    def require_synchronous_inserts(self) -> None:
        """Check that rows are there once an INSERT has returned.

        Raises:
            SinkError: the server does not let us ask for that.
        """
        with _errors(shows=True):
            answer = self._connected().raw_query(
                "SELECT toUInt8(getSetting('async_insert'))",
                settings={"async_insert": 0},
                fmt="ArrowStream",
            )
        with pa.ipc.open_stream(answer) as reader:
            is_asynchronous = reader.read_all().column(0)[0].as_py()
        if is_asynchronous:
            raise SinkError(
                "ClickHouse would insert rows asynchronously",
                f"found async_insert = {is_asynchronous} though the sink asks for 0",
                "allow the user to change async_insert, or set it to 0 in the user's profile",
                code="TR-7711",
            )

    def insert_select(self, statement: str) -> None:
        """Run an INSERT from a SELECT; see `run`."""
        self.run(statement, _INSERT)

    def select(self, query: str) -> pa.Table:
        """The result of a SELECT, texts as bytes; see `run`."""
        with _errors(shows=True):
            answer = self._connected().raw_query(query, settings=dict(_SELECT), fmt="ArrowStream")
        with pa.ipc.open_stream(answer) as reader:
            return reader.read_all()

    def stream(self, query: str) -> Iterator[pa.RecordBatch]:
        """The result of a SELECT part by part; see `select`."""
        with _errors(shows=True):
            answer: Any = self._connected().raw_stream(query, settings=dict(_SELECT), fmt="ArrowStream")
        with closing(answer), pa.ipc.open_stream(answer) as reader:
            yield from reader

    def insert(self, table: str, rows: pa.Table, *, token: str | None = None) -> None:
        """Insert rows, in one block.

        Args:
            table: the table's name, quoted.
            rows: some of its columns.
            token: names the block: the server inserts it once. None: rows may come again.

        Raises:
            TransientSinkError: the server does not answer, or cannot at present; or the table is gone.
            SinkError: it refuses the rows.
        """
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows.combine_chunks())
        columns = [name(column) for column in rows.schema.names]
        settings = _INSERT if token is None else {**_PART, "insert_deduplication_token": token}
        with _errors(shows=False):  # its reasons may have values
            self._connected().raw_insert(table, columns, sink.getvalue(), dict(settings), "Arrow")

    def _connected(self) -> Client:
        if self._client is None:
            from clickhouse_connect import get_client  # noqa: PLC0415 - an extra

            settings = self._settings
            self._client = get_client(
                host=settings.address[1],
                port=settings.address[2],
                interface=settings.address[0],
                username=settings.user,
                password=self._password.resolve() if self._password else "",
                ca_cert=settings.tls_ca,
                settings=dict(settings.connection_settings),
                compress=False,
                tz_source="server",  # we read no times as Python's: no warning about the local zone
                autogenerate_session_id=False,  # tasks need none, and one would run a statement at a time
                connect_timeout=_CONNECT_S,
                send_receive_timeout=_STATEMENT_S,
                show_clickhouse_errors="scrub",
            )
        return self._client

    def close(self) -> None:
        """End the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None


@contextmanager
def _errors(*, shows: bool) -> Iterator[None]:
    """The driver's errors as ours; `shows`: whether the server's reason may be shown."""
    from clickhouse_connect.driver.exceptions import ClickHouseError, DatabaseError  # noqa: PLC0415

    try:
        yield
    except ClickHouseError as error:
        code = error.code if isinstance(error, DatabaseError) else None
        label = f"error {code}" if code is not None else type(error).__name__
        named = getattr(error, "name", None)
        found = f"{label} ({named})" if named else label
        if shows or code is None:
            found = f"{found}: {shortened(' '.join(str(error).split()))}"
        if code in _GONE:
            raise table_gone(found) from error
        if code is None or code in _PASSING:
            raise TransientSinkError(
                "ClickHouse does not answer",
                found,
                "check that the server runs, has room, and that `url` is its address",
                code="TR-7701",
            ) from error
        if code in _REJECTED:
            raise SinkError(
                "ClickHouse rejects the user",
                found,
                "check `user` and `password`, and the user's rights",
                code="TR-7702",
            ) from error
        raise SinkError(
            "ClickHouse refuses a statement", found, "remove the cause", code="TR-7703"
        ) from error


def table_gone(found: str) -> TransientSinkError:
    """The error for a table that somebody has dropped."""
    return TransientSinkError(
        "a table has been dropped while it was written",
        found,
        "the batch is written again, and the table created anew",
        code="TR-7704",
    )
