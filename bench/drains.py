"""What the server can send at most: the same bytes, read from the raw socket and dropped.

The client does nothing but `recv_into`. The end is found by the last bytes received: the EOF packet that
closes a result set and a dump that does not wait.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pymysql
from pymysql.constants import COMMAND

from bench.data import LogPart

Connect = Callable[[], "pymysql.Connection[Any]"]

_RECEIVE_BYTES = 1 << 20
#: More than the definitions of a result take, less than any result measured here.
_DEFINITIONS_BYTES = 4096
_COM_BINLOG_DUMP, _NON_BLOCKING = 0x12, 1
#: A server id that no other reader here has.
_SERVER_ID = 0x7FFF_0000


@dataclass(frozen=True)
class Drain:
    """One drain: wall seconds, and bytes received."""

    seconds: float
    bytes: int


def select(connect: Connect, statements: list[str], *, binary: bool) -> Drain:
    """Drain each statement's result on a connection of its own, all at once.

    Args:
        connect: makes a connection.
        statements: the SELECTs.
        binary: by a prepared statement, as Tailrace does; else by the text protocol.
    """
    connections = [connect() for _ in statements]
    for connection in connections:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION time_zone = '+00:00'")
    ask = _execute_prepared if binary else _query
    return _timed(
        [partial(_drain, ask, c, s) for c, s in zip(connections, statements, strict=True)], connections
    )


def binlog(connect: Connect, part: LogPart) -> Drain:
    """Drain the log from the part's start to the log's end."""
    connection = connect()
    with connection.cursor() as cursor:
        cursor.execute("SET @source_binlog_checksum = 'CRC32', @master_binlog_checksum = 'CRC32'")

    def dump() -> int:
        request = struct.pack("<IHI", part.start, _NON_BLOCKING, _SERVER_ID) + part.file.encode()
        sock = connection._sock  # type: ignore[attr-defined]  # noqa: SLF001
        _send(sock, _COM_BINLOG_DUMP, request)
        return _until_eof(sock)

    return _timed([dump], [connection])


def _timed(drains: list[Callable[[], int]], connections: list[pymysql.Connection[Any]]) -> Drain:
    sizes: list[int] = []
    threads = [threading.Thread(target=_keep, args=(d, sizes)) for d in drains]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begin
    for connection in connections:
        connection.close()
    assert len(sizes) == len(drains), "a drain failed"
    return Drain(seconds, sum(sizes))


def _keep(drain: Callable[[], int], sizes: list[int]) -> None:
    sizes.append(drain())


def _drain(ask: Callable[[Any, str], Any], connection: pymysql.Connection[Any], sql: str) -> int:
    return _until_eof(ask(connection, sql))


def _query(connection: pymysql.Connection[Any], sql: str) -> Any:
    sock = connection._sock  # type: ignore[attr-defined]  # noqa: SLF001
    _send(sock, COMMAND.COM_QUERY, sql.encode())
    return sock


def _execute_prepared(connection: pymysql.Connection[Any], sql: str) -> Any:
    sock = connection._sock  # type: ignore[attr-defined]  # noqa: SLF001
    _send(sock, COMMAND.COM_STMT_PREPARE, sql.encode())
    answer = bytearray()
    while not _is_eof(bytes(answer[-9:])):
        answer += sock.recv(65536)
    _send(sock, COMMAND.COM_STMT_EXECUTE, bytes(answer[5:9]) + b"\0\1\0\0\0")
    return sock


def _send(sock: Any, command: int, payload: bytes) -> None:
    sock.sendall(struct.pack("<IB", len(payload) + 1, command) + payload)


def _until_eof(sock: Any) -> int:
    """Bytes received until an EOF packet comes last; the one behind a result's definitions does not count."""
    window = memoryview(bytearray(_RECEIVE_BYTES))
    tail = b""
    total = 0
    while total < _DEFINITIONS_BYTES or not _is_eof(tail):
        got = sock.recv_into(window)
        if not got:
            raise ConnectionResetError("the server closed the connection")
        total += got
        tail = (tail + bytes(window[max(got - 9, 0) : got]))[-9:]
    return total


def _is_eof(tail: bytes) -> bool:
    """Whether `05 00 00 number FE warnings status` is what the bytes end with."""
    return len(tail) == 9 and tail[:3] == b"\x05\0\0" and tail[4] == 0xFE
