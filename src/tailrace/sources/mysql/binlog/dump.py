"""The binary log as the server sends it: one stream of event blocks that survives lost connections.

A dump starts at a file and an offset and is read raw from the connection's socket. The caller gets exactly
the bytes of the log files, in order, each once:

    socket --recv--> packets --unframe--> events --whole_events--> EventBlock, EventBlock, ...

* Artificial events (heartbeats, the first ROTATE, the FORMAT_DESCRIPTION of a dump that starts inside a
  file, MariaDB's START_ENCRYPTION there) are read and dropped. A block never crosses a file.
* Offsets are summed from event sizes, since a header holds only 32 bits of them, and checked against
  those. A new connection continues at the sum after one was lost: the server accepts any event boundary, so
  nothing is sent twice and nothing is left out.
* The FORMAT_DESCRIPTION_EVENT says whether events carry a checksum. 9.7 ignores a request for none with
  @source_binlog_checksum.
* The connection declares that it understands all of MariaDB's events (@mariadb_slave_capability = 4): else
  MariaDB would send others in their place. From 11.4 on its events within transactions have no end position.
* Each connection registers with a uuid of its own, by which MySQL identifies replicas, and a server id of its
  own, by which MariaDB does: two tasks never disconnect each other. When a real replica has the id, the
  next attempt uses another.

Source: MySQL internals manual, COM_REGISTER_SLAVE, COM_BINLOG_DUMP, "Binlog Event".
"""

from __future__ import annotations

import hashlib
import os
import random
import select
import socket
import struct
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np
import pymysql
from pymysql.constants import ER

from tailrace.config.options import SourceOptions
from tailrace.errors import (
    DecodeError,
    PositionLostError,
    SourceError,
    TailraceError,
    TransientSourceError,
)
from tailrace.kernels.memory import SLACK
from tailrace.sources import network
from tailrace.sources.bounds import LOGIN_PACKET, Deadline
from tailrace.sources.mysql.binlog.archived import ArchivedLog, archive_of, not_in_archive
from tailrace.sources.mysql.binlog.held import number_of
from tailrace.sources.mysql.binlog.logfiles import LogFile, binary_logs, log_name, position_lost
from tailrace.sources.mysql.connection import (
    connect,
    is_mariadb,
    raw_socket,
    retrying,
    server_changed,
    server_facts,
    translate,
    wake,
)
from tailrace.sources.mysql.position import MySqlPosition, Prepared
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.wire.block import EventBlock
from tailrace.sources.mysql.wire.kernels.packets import (
    ARTIFICIAL,
    BAD_POSITION,
    BAD_SIZE,
    EOF,
    ERROR,
    FORMAT_DESCRIPTION,
    HEADER,
    HEARTBEAT,
    HEARTBEAT_V2,
    MALFORMED,
    MORE,
    PARTIAL,
    ROTATE,
    cut_at,
    event_flags,
    unframe,
    whole_events,
)

_COM_BINLOG_DUMP, _COM_REGISTER_SLAVE = 0x12, 0x15
_NON_BLOCKING, _SEND_ANNOTATE_ROWS = 1, 2
_FATAL_READING_LOG = 1236
#: Code of the error for a file that the server does not have.
_NOT_HELD = "TR-4101"
_HEARTBEAT_S, _SILENCE_S = 5, 20
_RECEIVE_BYTES = 1 << 20
#: No event is larger: a broken length allocates no memory.
_LARGEST_EVENT = 3 << 29
#: A buffer that grew beyond four times this for one huge event is made anew.
_USUAL_BYTES = 9 << 20
#: Bytes of a block where more are sure to come: a task decodes a block at once, and each of its tables costs
#: it a batch.
_BLOCK_BYTES = 8 << 20
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 10.0
#: The command holds 32 bits of the offset: an offset beyond is reached by reading from the file's head.
_FARTHEST = 0xFFFFFFFF
#: The server's errors for a user who may connect, but not read the log.
_DENIED = frozenset({ER.ACCESS_DENIED_ERROR, ER.SPECIFIC_ACCESS_DENIED_ERROR})
#: How long the end of the log may be written but not sent to replicas.
_UNSYNCED_S = 60.0


class _ClashError(Exception):
    """Another replica has connected with our server id."""


class _ClosedError(Exception):
    """The stream was closed from outside while it waited."""


def server_id_for(options: SourceOptions) -> int:
    """A server id in the upper half of the range, another one at each call."""
    seed = f"{options.host}:{options.port}:{options.user}:{options.tables}:{os.getpid()}:{random.random()}"  # noqa: S311
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "little") | 0x8000_0000


class DumpStream:
    """The log from an offset on, as blocks.

    Args:
        options: the server, and how long to retry when it is lost.
        file: log file to start in, "" for the oldest there is.
        pos: offset to start at: an event boundary.
        server_id: id of the first attempt; None: derived. Later attempts after a clash derive theirs.
        blocking: wait for new events; else end at the log's end.
        upto: the end of what is wanted, in large blocks; None: each block as soon as its events are whole.
        server: server_uuid that file and offset belong to, "" to accept any.
        verify: checks the server at each connection.

    Attributes:
        file, pos: where the next block starts.
        checksum: whether the events of the next block end in a CRC32.
    """

    def __init__(
        self,
        options: SourceOptions,
        file: str,
        pos: int,
        *,
        server_id: int | None = None,
        blocking: bool,
        upto: MySqlPosition | None = None,
        server: str = "",
        verify: Callable[[BoundedConnection], None] = lambda _: None,
    ) -> None:
        self.file, self.pos, self.checksum = file, pos, False
        self._options = options
        self._server_id = server_id or options.server_id
        self._blocking = blocking
        self._upto = upto
        self._server = server
        self._verify = verify
        self._mariadb = False
        self._connection: BoundedConnection | None = None
        self._closed = threading.Event()
        self._walked = pos  # where the next event starts; below `pos` while reading up to it
        self._received = 0

    def blocks(self) -> Generator[EventBlock, None, None]:
        """Blocks as they arrive; a block is valid until the next.

        Raises:
            PositionLostError: the server does not have, or no longer has, the log from there.
            ServerChangedError: another server answers.
            DecodeError: the bytes are not a binary log.
            TransientSourceError: the server was unreachable for longer than `retryTimeoutMs`.
            SourceError: the server refuses for another reason.
        """
        deadline: float | None = None
        delay, seen = _FIRST_DELAY_S, 0
        try:
            while not self._closed.is_set():
                try:
                    retrying(
                        self._options,
                        self._open,
                        self._doing(),
                        sleep=self._sleep,
                    )
                    yield from self._read()
                    return
                except _ClashError:
                    self._server_id = None
                    failure: TailraceError = TransientSourceError(
                        f"{self._doing()} failed: another replica uses the same server id",
                        None,
                        "set the option serverId to an id that no replica of this server has",
                        code="TR-4110",
                    )
                except (TailraceError, pymysql.err.MySQLError, OSError) as error:
                    if self._closed.is_set():
                        return
                    failure = translate(error, self._doing())
                    if failure.code == _NOT_HELD and self._options.archive is not None:
                        yield from self._from_archive(failure)
                    elif not failure.retryable:
                        if failure is error:
                            raise
                        raise failure from error
                finally:
                    self._drop()
                if self._received > seen or deadline is None:
                    deadline = time.monotonic() + self._options.retry_timeout_ms / 1000
                    delay, seen = _FIRST_DELAY_S, self._received
                if time.monotonic() + delay > deadline:
                    raise failure
                self._sleep(delay)
                delay = min(2 * delay, _LONGEST_DELAY_S)
        except _ClosedError:
            return

    def _from_archive(self, failure: TailraceError) -> Iterator[EventBlock]:
        """What the archive has of the log from here on, up to what the server has.

        Raises:
            PositionLostError: it has nothing from here on.
            StateError: it is damaged.
        """

        def ask() -> tuple[str, list[LogFile]]:
            with closing(connect(self._options, purpose="asking which logs the server has")) as connection:
                return server_facts(connection).server_uuid, binary_logs(connection)

        server, files = retrying(self._options, ask, "asking which logs the server has")
        archive = archive_of(self._options)
        assert archive is not None
        log = ArchivedLog.of(archive, self._server or server)
        begun = self.file, self.pos
        for segment in log.following(*begun):
            if files and segment.file_number >= number_of(files[0].name):
                break
            pos = self.pos if segment.file == self.file else segment.start
            for block in log.blocks(segment, pos):
                if self._closed.is_set():
                    return
                self.file, self.pos, self.checksum = block.file, block.pos, block.checksum
                yield block
                self.pos += block.end - block.start
                self._received += block.end - block.start
            self.file, self.pos = segment.behind
        if (self.file, self.pos) == begun:
            raise not_in_archive(log, *begun, files) from failure

    def close(self) -> None:
        """End the stream; may be called from another thread, whose `blocks` then ends."""
        self._closed.set()
        connection = self._connection
        if connection is not None:
            wake(connection)

    def _doing(self) -> str:
        return f"reading the binary log from `{self.file}:{self.pos}`"

    def _sleep(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise _ClosedError

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.break_off()  # not a quit: the server is in the midst of a dump

    def _open(self) -> None:
        """Connect and request the dump."""
        if self._closed.is_set():
            raise _ClosedError
        connection = connect(self._options, purpose="reading the binary log")
        self._connection = connection
        if self._closed.is_set():  # `close` may have seen no connection to wake
            raise _ClosedError
        if self._server and (found := server_facts(connection).server_uuid) != self._server:
            raise server_changed(self._options, self._server, found)
        self._verify(connection)
        self._mariadb = is_mariadb(connection)
        server_id = self._server_id or server_id_for(self._options)
        with connection.cursor() as cursor:
            period, name = _HEARTBEAT_S * 10**9, uuid.uuid4()
            cursor.execute(
                "SET @source_heartbeat_period = %s, @master_heartbeat_period = %s, "
                "@source_binlog_checksum = 'CRC32', @master_binlog_checksum = 'CRC32', "
                "@replica_uuid = %s, @slave_uuid = %s, @mariadb_slave_capability = 4",
                (period, period, str(name), str(name)),
            )
        raw_socket(connection).setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        registration = struct.pack("<IBBBHII", server_id, 0, 0, 0, 0, 0, 0)
        connection.command(_COM_REGISTER_SLAVE, registration)
        try:
            connection.read_ok()
        except pymysql.err.MySQLError as error:
            if error.args[:1] and error.args[0] in _DENIED:
                raise SourceError(
                    f"{self._doing()} failed: a privilege is missing",
                    f"server error {error.args[0]}: the user `{self._options.user}` may connect only",
                    f"GRANT REPLICATION SLAVE ON *.* TO '{self._options.user}'@'%'",
                    code="TR-3102",
                ) from error
            raise
        self._walked = self.pos if self.pos <= _FARTHEST else 4
        flags = 0 if self._blocking else _NON_BLOCKING
        if self._mariadb:  # all events, or offsets could not be summed
            flags |= _SEND_ANNOTATE_ROWS
        request = struct.pack("<IHI", self._walked, flags, server_id) + self.file.encode()
        connection.command(_COM_BINLOG_DUMP, request)

    def _read(self) -> Iterator[EventBlock]:
        """Blocks of this connection until it ends."""
        assert self._connection is not None
        sock = raw_socket(self._connection)
        sock.settimeout(_SILENCE_S)
        received = np.empty(_RECEIVE_BYTES + SLACK, np.uint8)
        window = received.data[:_RECEIVE_BYTES]
        state = np.zeros(4, np.int64)
        events = np.empty(_USUAL_BYTES + SLACK, np.uint8)
        held = waiting = 0
        while True:
            waiting += _receive(sock, window[waiting:])
            self._received += waiting
            needed = held + waiting
            if needed > len(events) - SLACK:
                size = int.from_bytes(events[9:13].tobytes(), "little") if held >= HEADER else 0
                grown = np.empty(max(2 * needed, size + _RECEIVE_BYTES) + SLACK, np.uint8)
                grown[:held] = events[:held]
                events = grown
            status = unframe(received.ctypes.data, waiting, events.ctypes.data + held, state.ctypes.data)
            used, written = int(state[0]), int(state[1])
            held += written
            waiting -= used
            received[:waiting] = received[used : used + waiting].copy()
            if status == MORE and not self._is_block(held):
                continue
            start = yield from self._cut(events, held)
            if start:
                rest = held - start
                if len(events) > 4 * _USUAL_BYTES and rest < _USUAL_BYTES // 2:
                    tail, events = events, np.empty(_USUAL_BYTES + SLACK, np.uint8)
                    events[:rest] = tail[start:held]
                else:
                    events[:rest] = events[start:held].copy()
                held = rest
            if status == ERROR:
                self._refused(_whole_packet(sock, received[:waiting].tobytes()))
            if status == EOF:
                if self._blocking:
                    raise TransientSourceError(
                        f"{self._doing()} failed: the server ended the dump", code="TR-3001"
                    )
                return
            if status == MALFORMED:
                first = received[4 : min(200, waiting)].tobytes()
                if first[:1] == b"\xfb":
                    raise self._connection.asked_for_file(first)
                raise DecodeError(f"{self._doing()} failed: not a packet of a dump", code="TR-3017")

    def _is_block(self, held: int) -> bool:
        """Whether so many bytes are to be given away."""
        upto = self._upto
        if upto is None or held >= _BLOCK_BYTES:
            return True
        return self.file == upto.file and self._walked + held >= upto.pos

    def _cut(self, events: np.ndarray, end: int) -> Generator[EventBlock, None, int]:
        """Yield the whole events in `events[:end]`; return the offset of the first incomplete one."""
        state = np.zeros(4, np.int64)
        state[3] = self._mariadb
        base = events.ctypes.data
        at = start = 0
        while True:
            first = self._walked + at - start
            status = whole_events(base + at, base + end, first, state.ctypes.data)
            at += int(state[0])
            size = int(state[1])
            if status == PARTIAL:
                if size > _LARGEST_EVENT:
                    raise DecodeError(
                        f"an event of the binary log `{self.file}` claims to have {size} bytes",
                        f"at offset {self._walked + at - start}; the server writes at most 1 GiB",
                        code="TR-5204",
                    )
                break
            if status in (BAD_SIZE, BAD_POSITION):
                raise DecodeError(
                    f"the binary log `{self.file}` is not what its headers say",
                    f"at offset {self._walked + at - start}",
                    code="TR-5201",
                )
            kind, _, end_position, flags = event_flags(events, at)
            real = (
                kind not in (HEARTBEAT, HEARTBEAT_V2)
                and not flags & ARTIFICIAL
                and (end_position or (self._walked + at - start + size) & 0xFFFFFFFF == 0)
            )
            if kind == FORMAT_DESCRIPTION:
                self.checksum = bool(size > 5 and events[at + size - 5] == 1)
            if real:
                if (self._walked + at - start + size) & 0xFFFFFFFF != end_position:
                    raise DecodeError(
                        f"the binary log `{self.file}` is not what its headers say",
                        f"at offset {self._walked + at - start}",
                        code="TR-5201",
                    )
                at += size
                if kind != ROTATE:
                    continue
            if block := self._block(events, start, at):
                yield block
            if not real:
                at += size
                if kind == ROTATE:
                    self._enter(events[at - size + HEADER : at].tobytes(), events[at - size : at])
            start = at
        if block := self._block(events, start, at):
            yield block
        return at

    def _block(self, events: np.ndarray, start: int, end: int) -> EventBlock | None:
        """`events[start:end]` without the events before `pos`."""
        before = min(max(self.pos - self._walked, 0), end - start)
        self._walked += end - start
        start += before
        if start == end:
            return None
        block = EventBlock(events, start, end, self.file, self.pos, self.checksum)
        self.pos += end - start
        return block

    def _enter(self, body: bytes, event: np.ndarray) -> None:
        """An artificial ROTATE says which file and offset come next."""
        # the first one has no checksum yet, later ones have one if the log has
        if zlib.crc32(event[:-4].tobytes()) == int.from_bytes(body[-4:], "little"):
            body = body[:-4]
        try:
            name = log_name(body[8:].decode())
        except ValueError as error:
            raise DecodeError(
                f"the binary log `{self.file}` names no file that comes after it",
                f"at offset {self._walked}",
                code="TR-5201",
            ) from error
        file, pos = name, int.from_bytes(body[:8], "little")
        if file != self.file:
            self.file, self.pos, self._walked = file, pos, pos

    def _refused(self, packet: bytes) -> None:
        """Raise the error for an error packet."""
        try:
            with network.sensible("the log"):
                pymysql.err.raise_mysql_exception(packet)
        except pymysql.err.MySQLError as error:
            number, text = error.args[0], str(error.args[1])
            if number == _FATAL_READING_LOG:
                # one number for many errors; only the server's text tells this one
                if "same server_uuid/server_id" in text:
                    raise _ClashError from error
                raise retrying(
                    self._options, lambda: self._why(text), "asking which logs the server has"
                ) from error
            raise

    def _why(self, text: str) -> TailraceError:
        """The error for a file and offset that the server does not serve."""
        connection = connect(self._options, purpose="asking which logs the server has")
        try:
            return position_lost(connection, self.file, self.pos, text)
        finally:
            connection.close()


def _receive(sock: socket.socket, window: memoryview) -> int:
    """Wait for bytes, then read all that are available: TLS delivers 16 kB at a time."""
    count = 0
    while count < len(window):
        got = sock.recv_into(window[count:])
        if not got:
            if count:
                break
            raise ConnectionResetError("the server closed the connection")
        count += got
        if not select.select([sock], [], [], 0)[0]:
            break
    return count


def _whole_packet(sock: socket.socket, begun: bytes) -> bytes:
    """The payload of the error packet that starts with `begun`."""
    size = 4 + int.from_bytes(begun[:3], "little")
    deadline = Deadline(_SILENCE_S)
    if size > LOGIN_PACKET:
        raise DecodeError(
            "an error packet of a dump is longer than it may be", f"it has {size} bytes", code="TR-3017"
        )
    while len(begun) < size:
        sock.settimeout(deadline.left())
        more = sock.recv(4096)
        if not more:
            raise ConnectionResetError("the server closed the connection")
        begun += more
    return begun[4:size]


def read_log(options: SourceOptions, start: MySqlPosition, end: MySqlPosition) -> Iterator[EventBlock]:
    """Exactly the events in (start, end], over as many files as they span; a block is valid until the next.

    Args:
        options: the server.
        start: position the first event starts at.
        end: position the last event ends at.

    Raises:
        PositionLostError: the server does not have (all of) the range.
        SourceError: as `DumpStream.blocks`.
    """
    if end.order <= start.order:
        return
    at, deadline, delay = (start.file, start.pos), time.monotonic() + _UNSYNCED_S, _FIRST_DELAY_S / 10
    while True:
        stream = DumpStream(options, *at, blocking=False, upto=end, server=start.server)
        with closing(stream.blocks()) as blocks:
            try:
                if (yield from _upto(blocks, end)):
                    return
            finally:
                stream.close()
        # The status that `end` may come from counts events that are written but not yet synced; the dump
        # sends only synced ones. So `end` can be ahead of the dump for as long as a group commit takes.
        if (stream.file, stream.pos) != at:
            at, deadline = (stream.file, stream.pos), time.monotonic() + _UNSYNCED_S
        if time.monotonic() > deadline or MySqlPosition(*at).file_number > end.file_number:
            break
        time.sleep(delay)
        delay = min(2 * delay, _FIRST_DELAY_S)
    raise PositionLostError(
        f"the binary log does not reach `{end}`",
        f"reading from `{start}` ended at `{at[0]}:{at[1]}`, and no event ends at `{end}`",
        "the server lost the end of its log or is another one: set onPositionLost: refresh to read every "
        "table again",
        code="TR-4102",
    )


def read_prepared(options: SourceOptions, prepared: Prepared, server: str) -> Iterator[EventBlock]:
    """The events of an XA transaction that was prepared; a block is valid until the next.

    Args:
        options: the server.
        prepared: the transaction.
        server: server_uuid that its file and offsets belong to.

    Raises:
        PositionLostError: the log no longer holds them.
        SourceError: as `DumpStream.blocks`.
    """
    start = MySqlPosition(prepared.file, prepared.start, server=server)
    try:
        yield from read_log(options, start, replace(start, pos=prepared.end))
    except PositionLostError as error:
        raise PositionLostError(
            f"the binary log no longer holds the rows of XA transaction {prepared.xid}",
            f"it was prepared at `{start}` and committed later: {error.message}; {error.detail}",
            error.hint,
            code="TR-4107",
        ) from error


def _upto(blocks: Iterator[EventBlock], end: MySqlPosition) -> Generator[EventBlock, None, bool]:
    """Yield the events up to `end`; return whether it was reached.

    Raises:
        PositionLostError: no event ends there.
    """
    for block in blocks:
        number = MySqlPosition(block.file, block.pos).file_number
        if number > end.file_number:
            return False
        if number < end.file_number:
            yield block
            continue
        size = block.end - block.start
        room = end.pos - block.pos
        if size > room:
            base = block.buffer.ctypes.data
            size = cut_at(base + block.start, base + block.end, room)
        if size:
            yield EventBlock(
                block.buffer, block.start, block.start + size, block.file, block.pos, block.checksum
            )
        if block.pos + size >= end.pos:
            return True
        if size < block.end - block.start:
            raise PositionLostError(
                f"no event of the binary log ends at `{end}`",
                f"an event before it ends at {block.pos + size}: the position belongs to another log",
                "set onPositionLost: refresh to read every table again",
                code="TR-4102",
            )
    return False
