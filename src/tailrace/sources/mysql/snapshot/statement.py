"""A SELECT by the binary protocol, run on the connection's own socket: packets in, Arrow arrays out.

    COM_STMT_PREPARE ──> id, definitions        COM_STMT_EXECUTE ──> definitions, rows ..., end

PyMySQL opens the connection and is then bypassed, as it makes a Python object of every value. The socket (TLS
or plain) is read with `recv_into` into one buffer, which the kernel of `wire.resultset` decodes in place.
Bytes that are not decoded yet move to the buffer's front.

Batches are bounded by rows and by bytes, so memory is bounded by them and by the longest row. A result that
is not needed to its end cannot be cancelled: the connection is reopened (`reconnect`), which also ends the
statement at the server.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NoReturn, Self

import numpy as np
import pyarrow as pa
import pymysql
from pymysql.constants import COMMAND

from tailrace.errors import DecodeError
from tailrace.kernels.columns import ColumnBuffers
from tailrace.kernels.memory import SLACK
from tailrace.model.table import TableSchema
from tailrace.sources.bounds import LOGIN_PACKET, LONGEST_ROW, Deadline
from tailrace.sources.mysql.connection import break_off, raw_socket, reconnect, translate
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.wire.kernels.resultset import (
    END,
    ERROR,
    FULL,
    LONGEST_PACKET,
    SPLIT_ROW,
    RowDecoder,
)
from tailrace.sources.mysql.wire.schema.definition import (
    column_definition,
    length_encoded,
    require_unchanged,
)

#: Bytes requested from the socket at once: the size of a second-level cache.
_RECEIVE_BYTES = 1 << 20
_MOST_COLUMNS = 4096


class PacketReader:
    """Reads packets from a socket through one growing buffer.

    What comes before rows has a deadline and is small. Rows may have LONGEST_ROW bytes, and any time in all.

    Args:
        sock: a blocking socket from which the answer to one command is read.
        silence_s: longest time in which no bytes of the rows come.
    """

    def __init__(self, sock: socket.socket, silence_s: float) -> None:
        self._sock = sock
        self._silence_s = silence_s
        self._deadline: Deadline | None = None
        self._buffer = np.empty(_RECEIVE_BYTES + SLACK, np.uint8)
        self._start = self._fill = 0
        self.number = 1

    def restart(self, deadline: Deadline | None) -> None:
        """Expect the answer to a new command, up to its rows until `deadline`."""
        self.number = 1
        self._deadline = deadline

    def expect_rows(self) -> None:
        """What comes next are rows."""
        self._deadline = None
        self._sock.settimeout(self._silence_s)

    @property
    def span(self) -> tuple[int, int]:
        """Addresses of the first received byte and behind the last one."""
        base = self._buffer.ctypes.data
        return base + self._start, base + self._fill

    def skip_to(self, address: int, number: int) -> None:
        """Release the bytes before `address`; the packet there has this number."""
        self._start = address - self._buffer.ctypes.data
        self.number = number

    def receive(self) -> None:
        """Wait for more bytes; those that are not decoded yet move to the buffer's front.

        Raises:
            OSError: the connection is lost, or the server is silent for too long.
        """
        left = self._fill - self._start
        if self._start:
            self._buffer[:left] = self._buffer[self._start : self._fill].copy()
            self._start, self._fill = 0, left
        if left == len(self._buffer) - SLACK:  # one packet is longer than the buffer
            longer = np.empty(min(4 * left, LONGEST_PACKET + 4) + SLACK, np.uint8)
            longer[:left] = self._buffer[:left]
            self._buffer = longer
        if self._deadline is not None:
            self._sock.settimeout(self._deadline.left())
        got = self._sock.recv_into(self._buffer.data[left:-SLACK])
        if not got:
            raise ConnectionResetError("the server closed the connection")
        self._fill += got

    def packet(self, most: int | None = None) -> np.ndarray:
        """The next packet's payload, its parts joined: uint8, SLACK bytes longer than the payload.

        Args:
            most: bytes that it may have; None: LONGEST_ROW.

        Raises:
            OSError: the connection is lost.
            DecodeError: packets are not numbered in turn, or this one is too long.
        """
        parts: list[np.ndarray] = []
        total, most = 0, most or LONGEST_ROW
        while True:
            self._need(4)
            header = int.from_bytes(self._buffer.data[self._start : self._start + 4], "little")
            if header >> 24 != self.number:
                raise DecodeError("packets of a SELECT are not numbered in turn", code="TR-3017")
            length = header & LONGEST_PACKET
            total += length
            if total > most:
                raise DecodeError(
                    "a packet of a SELECT is longer than it may be",
                    f"it has {total} bytes or more, allowed: {most}",
                    code="TR-3017",
                )
            self._start += 4
            self.number = (self.number + 1) & 255
            self._need(length)
            parts.append(self._buffer[self._start : self._start + length].copy())
            self._start += length
            if length < LONGEST_PACKET:
                return np.concatenate([*parts, np.zeros(SLACK, np.uint8)])

    def _need(self, size: int) -> None:
        while self._fill - self._start < size:
            self.receive()


class Selection(Iterator[pa.StructArray]):
    """The rows of one SELECT, in batches. The connection is in use until the SELECT has ended or is closed.

    Args:
        connection: an idle connection.
        sql: a SELECT of exactly the table's columns, in order.
        table: the expected schema.
        batch_rows: most rows of a batch.
        batch_bytes: most bytes of packets of a batch, unless a single row has more.

    Attributes:
        ended: whether the server has sent the last row.

    After an error the connection is closed, unless the server refused the statement.

    Raises:
        TransientSourceError: the connection is lost, or another transient failure.
        SchemaMismatchError: the result has other columns than `table`, or the table is gone.
        DecodeError: the server's packets are malformed.
        SourceError: the server refuses the statement.
    """

    def __init__(
        self,
        connection: BoundedConnection,
        sql: str,
        table: TableSchema,
        *,
        batch_rows: int = 65_536,
        batch_bytes: int = 32 << 20,
    ) -> None:
        self._connection = connection
        self._table = table
        self._batch_rows, self._batch_bytes = batch_rows, batch_bytes
        self._decoder = RowDecoder(table)
        self._doing = f"reading table `{table.id}`"
        self._statement: bytes | None = None
        self.ended = False
        self._sock = raw_socket(connection)
        self._silence_s = connection.options.query_timeout_ms / 1000
        self._reader = PacketReader(self._sock, self._silence_s)
        with self._guarded():
            self._prepare(sql)
            self._execute()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __next__(self) -> pa.StructArray:
        if self.ended:
            raise StopIteration
        with self._guarded():
            batch = self._batch()
        if not len(batch):
            raise StopIteration
        return batch

    def close(self) -> None:
        """Release the connection: at once after the last row, else by reopening it.

        Raises:
            TransientSourceError: the server cannot be reached again.
        """
        if not self.ended:
            self.ended = True
            reconnect(self._connection)

    # ---- the two commands ----

    def _send(self, command: int, payload: bytes) -> None:
        self._reader.restart(Deadline(self._connection.options.query_timeout_ms / 1000))
        self._sock.sendall(struct.pack("<IB", len(payload) + 1, command) + payload)

    def _answer(self) -> bytes:
        payload = self._reader.packet(LOGIN_PACKET)[:-SLACK].tobytes()
        if payload[:1] == b"\xff":
            self._refused(payload)
        if payload[:1] == b"\xfb":
            raise self._connection.asked_for_file(payload)
        return payload

    def _refused(self, payload: bytes) -> NoReturn:
        self._release()
        pymysql.err.raise_mysql_exception(payload)
        raise AssertionError  # it always raises

    def _prepare(self, sql: str) -> None:
        self._send(COMMAND.COM_STMT_PREPARE, sql.encode())
        prepared = self._answer()
        if len(prepared) < 12:
            raise DecodeError("the answer to a prepared SELECT ends too early", code="TR-3017")
        self._statement = prepared[1:5]
        columns, parameters = struct.unpack_from("<HH", prepared, 5)
        for count in (parameters, columns):
            for _ in range(count + 1 if count else 0):  # definitions and an end
                self._answer()

    def _execute(self) -> None:
        assert self._statement is not None
        no_cursor, once = b"\x00", b"\x01\x00\x00\x00"
        self._send(COMMAND.COM_STMT_EXECUTE, self._statement + no_cursor + once)
        count, _ = length_encoded(self._answer(), 0)
        if count > _MOST_COLUMNS:
            raise DecodeError(
                "a SELECT has more columns than a server can give", f"found {count}", code="TR-3017"
            )
        definitions = [column_definition(self._answer()) for _ in range(count)]
        self._answer()  # their end
        require_unchanged(self._table, definitions)
        self._reader.expect_rows()

    def _release(self) -> None:
        """Close the statement at the server once its answer has ended; the server does not answer this."""
        self.ended = True
        if self._statement is not None:
            self._send(COMMAND.COM_STMT_CLOSE, self._statement)
            self._statement = None

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Translate errors. One in the middle of an answer closes the connection: it would be out of step."""
        try:
            yield
        except (pymysql.err.MySQLError, OSError) as error:
            self._leave()
            raise translate(error, self._doing) from error
        except (struct.error, ValueError, LookupError) as error:
            self._leave()
            raise DecodeError(
                f"{self._doing} failed: a packet is malformed",
                f"packet {self._reader.number - 1 & 255}",
                code="TR-3017",
            ) from error
        except BaseException:
            self._leave()
            raise

    def _leave(self) -> None:
        if not self.ended:
            self.ended = True
            break_off(self._connection)

    # ---- rows ----

    def _batch(self) -> pa.StructArray:
        """The next rows; empty only at the end."""
        buffers = self._decoder.buffers(self._batch_rows, self._batch_bytes)
        row = used = 0
        while True:
            start, end = span = self._reader.span
            why, at, row, number = self._decoder.packets(
                span, start + self._batch_bytes - used, buffers, row, self._reader.number
            )
            used += at - start
            self._reader.skip_to(at, number)
            if why == END:
                self._reader.packet()
                self._release()
                return self._struct(buffers, row)
            if why == ERROR:
                self._answer()
            elif why == FULL:
                if row:
                    return self._struct(buffers, row)
                # a single row with a value longer than a batch may be
                buffers = self._decoder.buffers(1, end - at)
            elif why == SPLIT_ROW:
                if row:
                    return self._struct(buffers, row)
                return self._one_row(self._reader.packet())
            else:
                self._reader.receive()

    def _one_row(self, payload: np.ndarray) -> pa.StructArray:
        length = len(payload) - SLACK
        buffers = self._decoder.buffers(1, length)
        self._decoder.payload(payload, length, buffers)
        return self._struct(buffers, 1)

    def _struct(self, buffers: ColumnBuffers, rows: int) -> pa.StructArray:
        return pa.StructArray.from_arrays(buffers.arrays(rows), fields=list(self._table.arrow))
