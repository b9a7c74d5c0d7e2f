"""The bytes of an archive as a session of the server would send them that begins at a position.

A server describes a relation before its first change in a session. The archive has the descriptions where its
own session sent them. So those in force at the position are held back, and each is sent before the first
change of its relation, unless the archive describes the relation anew before that. Streams tell from these
messages how a table's columns have changed since their position: they must come where a server sends them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from tailrace.errors import DecodeError
from tailrace.kernels.memory import SLACK
from tailrace.sources.postgres.wire.kernels import messages as ms
from tailrace.sources.postgres.wire.relation import Relation
from tailrace.sources.postgres.wire.relations import Relations

#: Slots of relations: described in this session, or awaited.
_SENT, _AWAITED = 0, 1
_FRONT = ms.FRAME + ms.XLOG


class Descriptions:
    """Adds the descriptions that a session lacks."""

    def __init__(self) -> None:
        self._relations = Relations()
        self._sent: set[int] = set()
        #: The descriptions in force that were not sent, by oid.
        self._awaited: dict[int, bytes] = {}

    def learn(self, data: bytes) -> None:
        """Note the descriptions in a part of the log that the session does not get; whole messages."""
        at, memory = 0, _memory(data)
        base = memory.ctypes.data
        while (at := int(ms.seek(base + at, base + len(data), ms.RELATION)) - base) < len(data):
            message = _message(data, at)
            relation = _relation(message)
            if relation.oid not in self._sent:
                self._awaited[relation.oid] = message
                self._relations.add(relation.oid, _AWAITED, relation.id)
            at += len(message)

    def sent(self, data: bytes) -> Iterator[bytes]:
        """What the session gets for a part of the log; whole messages."""
        if not self._awaited:
            yield data
            return
        at = done = 0
        memory = _memory(data)
        base = memory.ctypes.data
        while self._awaited:
            at = int(
                ms.seek_use(base + at, base + len(data), self._relations.address, self._relations.mask) - base
            )
            if at >= len(data):
                break
            message = _message(data, at)
            what, body = message[_FRONT], message[_FRONT + 1 :]
            if what == ms.RELATION:
                self._send(_relation(message).oid)
            else:
                yield data[done:at]
                done = at
                for oid in _truncated(body) if what == ms.TRUNCATE else [int.from_bytes(body[:4], "big")]:
                    yield self._send(oid)
            at += len(message)
        yield data[done:]

    def _send(self, oid: int) -> bytes:
        """The description that is awaited for a relation, which counts as sent from now on."""
        self._sent.add(oid)
        message = self._awaited.pop(oid, b"")
        if message:
            self._relations.add(oid, _SENT, _relation(message).id)
        return message


def _memory(data: bytes) -> np.ndarray:
    memory = np.zeros(len(data) + SLACK, np.uint8)
    memory[: len(data)] = np.frombuffer(data, np.uint8)
    return memory


def _message(data: bytes, at: int) -> bytes:
    size = 1 + int.from_bytes(data[at + 1 : at + ms.FRAME], "big")
    if size <= _FRONT or at + size > len(data):
        raise DecodeError(
            "a piece of the log ends within a message", f"{len(data) - at} bytes of it", code="TR-5201"
        )
    return data[at : at + size]


def _relation(message: bytes) -> Relation:
    return Relation.parse(message[_FRONT + 1 :])


def _truncated(body: bytes) -> list[int]:
    count = int.from_bytes(body[:4], "big")
    if len(body) < 5 + 4 * count:
        raise DecodeError("a TRUNCATE of the log is malformed", f"it names {count} relations", code="TR-5201")
    return list(struct.unpack_from(f">{count}I", body, 5))
