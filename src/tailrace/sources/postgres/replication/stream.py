"""A walsender's stream: raw bytes in, feedback out, on one socket by one thread.

The server sends CopyData messages: `w` with a message of pgoutput, `k` (keepalive) with the position up to
which it has decoded. It sends that whenever it has caught up; while it decodes WAL without captured changes
it sends nothing for half a minute, so it is asked.

Our feedback to the server: everything below an LSN is confirmed and need not be kept. The same message keeps
the session alive.

Source: PostgreSQL manual, "Streaming Replication Protocol", "Logical Streaming Replication Parameters".
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import time
from typing import Protocol

from pg8000.exceptions import DatabaseError

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError, TailraceError, TransientSourceError
from tailrace.sources.postgres.connection import connect, error_fields, sqlstate, translate
from tailrace.sources.postgres.position import PostgresPosition, lsn_text
from tailrace.sources.postgres.protocol.literal import identifier, string
from tailrace.sources.postgres.replication import slot, timeline

#: `d`, length, `r`, written, flushed, applied, clock, whether an answer is requested.
_STATUS = struct.Struct("!cicQQQqB")
#: How often to send feedback to the server and request its position, seconds.
_STATUS_S = 1.0
#: Microseconds from 1970 to 2000, where PostgreSQL's clock begins.
EPOCH_US = 946_684_800_000_000


class LogStream(Protocol):
    """The bytes of the log from a position on, wherever they come from.

    Attributes:
        doing: what it does, for errors.
        history: the log that is read.
    """

    doing: str
    history: timeline.History

    def refusal(self, payload: bytes) -> TailraceError:
        """The error for an ErrorResponse within the stream."""

    def receive(self, room: memoryview, timeout_s: float) -> int:
        """Receive into `room`; return the number of bytes, 0 on a timeout or when `wake` was called."""

    def received(self, lsn: int) -> None:
        """Note that all below `lsn` has been received."""

    def confirm(self, lsn: int) -> None:
        """Confirm that nothing below `lsn` is needed."""

    def wake(self) -> None:
        """End a waiting `receive`; may be called by another thread."""

    def send_feedback(self) -> None:
        """Send our position to the server, and request its own."""

    def close(self) -> None:
        """End the stream."""


class ReplicationStream:
    """The log from a position on: see `LogStream`.

    Args:
        options: the server.
        start: where it begins.
        binary: whether to request values in binary form.
        own_slot: read the stream's slot; else a temporary copy of it, for readers next to the stream.
        all_messages: whether to request logical messages although the options capture none.

    Attributes:
        history: the log that is read.
    """

    def __init__(
        self,
        options: SourceOptions,
        start: PostgresPosition,
        *,
        binary: bool,
        own_slot: bool,
        all_messages: bool = False,
    ) -> None:
        self.doing = f"reading the log of `{options.database}` from {start}"
        self._options = options
        self._confirmed = 0
        self._received = start.lsn
        self._told_at = 0.0
        self._connection = connect(options, purpose="reading the log", replication=True)
        try:
            self.history = timeline.read(self._connection, options)
            self.history.require(start, options)
            found = slot.require_from(self._connection, options, start, self.history)
            #: A slot that is moved back would leave out, without a word, what the server has removed.
            self._floor = found.confirmed or 0
            name = options.slot if own_slot else slot.copy(self._connection, options.slot)
            self._connection.begin_copy(
                f"START_REPLICATION SLOT {identifier(name)} LOGICAL {lsn_text(start.lsn)} ("
                f"proto_version '1', publication_names {string(identifier(options.publication))}"
                f"{', binary ' + string('true') if binary else ''}"
                f"{', messages ' + string('true') if options.has_messages or all_messages else ''})"
            )
        except DatabaseError as error:
            self._connection.close()
            raise self._failure(error, options) from error
        except BaseException:
            self._connection.close()
            raise
        self._socket = self._connection.socket
        self._waker, self._wake = socket.socketpair()

    def refusal(self, payload: bytes) -> TailraceError:
        """The error for an ErrorResponse within the stream.

        Args:
            payload: the payload of the ErrorResponse.
        """
        return self._failure(DatabaseError(error_fields(payload)), self._options)

    @staticmethod
    def _failure(error: DatabaseError, options: SourceOptions) -> TailraceError:
        """The error for a server that refuses to stream."""
        text = str(error.args[0].get("M", ""))
        if sqlstate(error) == "55006":
            failure = translate(error, f"reading replication slot `{options.slot}`")
            return TransientSourceError(
                failure.message,
                failure.detail,
                "each stream needs a slot of its own (option `slotName`); what a process that died held is "
                "free again after wal_sender_timeout",
                code="TR-4205",
            )
        if sqlstate(error) == "42704" and "publication" in text:
            return ConfigError(
                f"publication `{options.publication}` was not there when the changes that come next were "
                "made",
                text,
                "a publication that is dropped and made anew does not go on: begin a new stream",
                code="TR-4206",
            )
        return translate(error, f"reading replication slot `{options.slot}`")

    def receive(self, room: memoryview, timeout_s: float) -> int:
        """Receive into `room`; return the number of bytes, 0 on a timeout or when `wake` was called.

        Raises:
            ConnectionResetError: the server has ended the stream.
        """
        if self._told_at + _STATUS_S <= time.monotonic():
            self.send_feedback()
        pending = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()
        if not pending:
            ready, _, _ = select.select([self._socket, self._waker], [], [], min(timeout_s, _STATUS_S))
            if self._waker in ready:
                self._waker.recv(64)
            if self._socket not in ready:
                return 0
        count = self._socket.recv_into(room)
        if not count:
            raise ConnectionResetError("the server has closed the connection")
        return count

    def received(self, lsn: int) -> None:
        """Note that all below `lsn` has been received."""
        self._received = max(self._received, lsn)

    def confirm(self, lsn: int) -> None:
        """Confirm that nothing below `lsn` is needed; the next `receive` sends that to the server."""
        if lsn > max(self._confirmed, self._floor):
            self._confirmed = lsn
            self._told_at = 0.0

    def wake(self) -> None:
        """End a waiting `receive`; may be called by another thread."""
        with contextlib.suppress(OSError):  # it may be closed meanwhile
            self._wake.send(b"x")

    def send_feedback(self) -> None:
        """Send our position to the server, and request its own."""
        self._told_at = time.monotonic()
        clock = time.time_ns() // 1000 - EPOCH_US
        self._socket.sendall(
            _STATUS.pack(
                b"d", _STATUS.size - 1, b"r", self._received, self._confirmed, self._confirmed, clock, 1
            )
        )

    def close(self) -> None:
        """End the stream."""
        self._connection.break_off()
        self._waker.close()
        self._wake.close()
