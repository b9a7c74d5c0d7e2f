"""Transactions of a replication stream, piece after piece, without a Python object for any of them.

The kernel in `boundaries` finds them; this module decides which tables are captured, which have a new schema,
and handles transactions that come in blocks while they are running, or are prepared. Such a transaction ends
at its commit, and FROM is the start of its first block, so that transactions in between may end before it.

The server describes a relation once for each connection, and again once it has changed. So a reader that
starts in the middle of the stream needs the earlier descriptions: `preamble` returns them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NoReturn

import numpy as np

from tailrace.errors import DecodeError
from tailrace.model.table import TableId
from tailrace.sources.postgres.wire.kernels import boundaries as bd
from tailrace.sources.postgres.wire.kernels import messages as ms
from tailrace.sources.postgres.wire.relation import Relation
from tailrace.sources.postgres.wire.relations import Relations

_MAX_ROWS = 4096

#: (oid, name) of a relation -> names of tables.
Contradicted = Callable[[int, TableId], tuple[str, ...]]
#: A relation -> whether the stream knows its table by other columns.
Differs = Callable[[Relation], bool]


@dataclass(frozen=True)
class Described:
    """A Relation message of a captured table.

    Args:
        offset: the message's offset in the stream.
        relation: its content.
        changed: whether the table is known to have had another schema before.
        is_first: whether it comes before all changes of captured tables in its transaction.
    """

    offset: int
    relation: Relation
    changed: bool
    is_first: bool = False


@dataclass(frozen=True)
class Truncation:
    """A TRUNCATE of captured tables.

    Args:
        offset: offset in the stream: of its message, of a held transaction that of the commit.
        lsn: LSN of the change.
        tables: the captured tables among those truncated.
        xid: of its transaction, or subtransaction, if it was sent while it was running; else 0.
        commit_lsn: LSN of a held transaction's commit; None: the transaction around `offset` is its own.
    """

    offset: int
    lsn: int
    tables: tuple[TableId, ...]
    xid: int = 0
    commit_lsn: int | None = None

    def is_of(self, row: np.ndarray) -> bool:
        """Whether the transaction with that row of `boundaries` truncates."""
        if self.commit_lsn is not None:
            return bool(row[bd.COMMIT_LSN] == self.commit_lsn)
        is_held = bool(row[bd.FLAGS] & bd.HELD)
        return not is_held and bool(row[bd.FROM] <= self.offset < row[bd.TO])


@dataclass(frozen=True)
class Indexed:
    """The content of a piece of the stream.

    Args:
        used: bytes of whole messages from the piece's start on.
        transactions: int64 array of shape (n, COLUMNS) of those that ended in it (FROM ... FLAGS of
            `boundaries`), in the order of their commits.
        relations: relations described in it.
        truncated: the TRUNCATEs of captured tables; those of held transactions once they have committed.
        wal_end: the server's end of log by its last keepalive; 0: there was none yet.
        reply_requested: whether the server requests an answer.
        left: per relation that is not what the stream follows, its offset in the stream and the names of the
            tables that have changed their identity with it.
    """

    used: int
    transactions: np.ndarray
    relations: list[Described] = field(default_factory=list)
    truncated: list[Truncation] = field(default_factory=list)
    wal_end: int = 0
    reply_requested: bool = False
    left: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)


@dataclass
class _Held:
    """A transaction that has not committed: its row so far, the relations described in it, its TRUNCATEs."""

    row: np.ndarray
    relations: dict[int, bytes] = field(default_factory=dict)
    truncated: list[Truncation] = field(default_factory=list)


class LogIndex:
    """Indexes a stream, piece after piece; open transactions are carried over.

    Args:
        captures: whether a table is captured; called when a relation is described.
        wants_message: whether logical messages with a prefix are captured.
        contradicted: names of the followed tables that a relation shows to be no longer the same.
        has_signals: whether a table is that of the signals.
        differs: whether the stream knows a table by other columns than those of its first description.
    """

    def __init__(
        self,
        captures: Callable[[TableId], bool],
        wants_message: Callable[[str], bool] = lambda _: False,
        contradicted: Contradicted = lambda *_: (),
        *,
        has_signals: Callable[[TableId], bool] = lambda _: False,
        differs: Differs = lambda _: False,
    ) -> None:
        self._captures = captures
        self._has_signals = has_signals
        self._contradicted = contradicted
        self._differs = differs
        self._wants_message = wants_message
        self._relations = Relations()
        #: By oid the descriptions so far, with the offset from which on they apply.
        self._described: dict[int, list[tuple[int, bytes]]] = {}
        self._state = np.zeros(bd.STATE_WORDS, np.int64)
        self._out = np.zeros((_MAX_ROWS, bd.COLUMNS), np.int64)
        self._held: dict[int | bytes, _Held] = {}
        self._holding: int | bytes | None = None

    def feed(self, buffer: np.ndarray, start: int, end: int, base: int) -> Indexed:
        """Index a piece; pieces come in the stream's order, each begins where the last one's `used` ended.

        Args:
            buffer: uint8 array with SLACK readable bytes behind `end`.
            start: offset in `buffer` of a message's start.
            end: offset behind the last byte, which may lie within a message.
            base: offset in the stream of the byte at `start`.

        Raises:
            DecodeError: malformed bytes.
        """
        state = self._state
        address = buffer.ctypes.data + start
        done: list[np.ndarray] = []
        found = Indexed(0, done_rows(done))
        state[bd.S_AT], state[bd.S_REPLY] = base, 0
        while True:
            status = bd.index(
                address,
                buffer.ctypes.data + end,
                base,
                self._relations.address,
                self._relations.mask,
                self._out.ctypes.data,
                _MAX_ROWS,
                state.ctypes.data,
            )
            done.append(self._out[: state[bd.S_COUNT]].copy())
            if status == bd.DONE:
                break
            if status == bd.FULL:
                continue
            offset = int(state[bd.S_AT])
            at = start + offset - base
            size = 1 + int.from_bytes(buffer[at + 1 : at + 5].tobytes(), "big")
            message = buffer[at : at + size].tobytes()
            if status != bd.ASK or message[:1] != b"d":
                _refuse(status, message)
            try:
                ended = self._handle_message(message, offset, found)
            except (struct.error, LookupError, ValueError, OverflowError) as error:
                raise DecodeError(
                    "a message of the log is malformed", ms.place(message), code="TR-5201"
                ) from error
            if ended is not None:
                done.append(ended)
            state[bd.S_AT] = offset + size
        return Indexed(
            int(state[bd.S_AT]) - base,
            done_rows(done),
            found.relations,
            found.truncated,
            int(state[bd.S_WAL_END]),
            bool(state[bd.S_REPLY]),
            found.left,
        )

    def preamble(self, offset: int) -> bytes:
        """The Relation messages that apply at an offset of the stream, to precede the bytes from there on."""
        current = []
        for described in self._described.values():
            before = [message for at, message in described if at < offset]
            current += before[-1:]
        return b"".join(current)

    def forget(self, offset: int) -> None:
        """Drop the descriptions that apply only below `offset`."""
        for described in self._described.values():
            while len(described) > 1 and described[1][0] < offset:
                del described[0]

    def _handle_message(self, message: bytes, offset: int, found: Indexed) -> np.ndarray | None:
        """Handle a message that the kernel leaves to Python; return the row of a transaction that it ends."""
        state = self._state
        what = message[ms.FRAME + ms.XLOG]
        body = message[ms.FRAME + ms.XLOG + 1 :]
        xid = 0
        if state[bd.S_STREAMED] and what in (ms.RELATION, ms.TYPE, ms.TRUNCATE, ms.MESSAGE):
            xid, body = int.from_bytes(body[:4], "big"), body[4:]
        match what:
            case ms.RELATION:
                self._describe(message, body, offset, found)
            case ms.TYPE | ms.ORIGIN:
                pass
            case ms.TRUNCATE:
                (count,) = struct.unpack_from(">I", body)
                tables = [self._relations.table(oid) for oid in struct.unpack_from(f">{count}I", body, 5)]
                truncated = tuple(t for t in tables if t is not None and self._captures(t))
                if truncated:
                    (lsn,) = struct.unpack_from(">Q", message, ms.FRAME + 1)
                    own = found.truncated if self._holding is None else self._held[self._holding].truncated
                    own.append(Truncation(offset, lsn, truncated, xid))
                    state[bd.FLAGS] |= bd.HAS_TRUNCATE | bd.HAS_WANTED
            case ms.MESSAGE:
                return self._message(body, offset, offset + len(message))
            case ms.STREAM_START:
                self._enter(struct.unpack_from(">I", body)[0], offset, streamed=True)
            case ms.BEGIN_PREPARE:
                self._enter(_name(body, 28), offset, streamed=False)
            case ms.STREAM_STOP | ms.PREPARE:
                self._leave()
            case ms.STREAM_PREPARE:
                self._held[_name(body, 29)] = self._held.pop(struct.unpack_from(">I", body, 25)[0])
            case ms.STREAM_COMMIT:
                xid, _, lsn, end, ts = struct.unpack_from(">IBqqq", body)
                return self._commit(xid, offset + len(message), (lsn, end, ts, xid), found)
            case ms.COMMIT_PREPARED:
                _, lsn, end, ts, xid = struct.unpack_from(">BqqqI", body)
                return self._commit(_name(body, 29), offset + len(message), (lsn, end, ts, xid), found)
            case ms.STREAM_ABORT:
                xid, subxid = struct.unpack_from(">II", body)
                if xid == subxid:
                    self._held.pop(xid, None)
                elif (held := self._held.get(xid)) is not None:
                    held.truncated = [t for t in held.truncated if t.xid != subxid]
            case ms.ROLLBACK_PREPARED:
                self._held.pop(_name(body, 37), None)
            case _:
                raise DecodeError(
                    "the log has a message of an unknown type", ms.place(message), code="TR-4403"
                )
        return None

    def _message(self, body: bytes, start: int, end: int) -> np.ndarray | None:
        """Handle a logical message: a change of its transaction, or a transaction of its own."""
        transactional, lsn = struct.unpack_from(">BQ", body)
        if not self._wants_message(_name(body, 9).decode()):
            return None
        if transactional:
            self._state[bd.FLAGS] |= bd.HAS_MESSAGE | bd.HAS_WANTED
            self._state[bd.ROWS] += 1
            self._state[bd.BYTES] += end - start
            return None
        row = np.zeros((1, bd.COLUMNS), np.int64)
        row[0, [bd.FROM, bd.TO, bd.COMMIT_LSN, bd.END_LSN]] = start, end, lsn - 1, lsn
        row[0, [bd.ROWS, bd.BYTES, bd.FLAGS]] = 1, end - start, bd.HAS_MESSAGE | bd.HAS_WANTED
        return row

    def _enter(self, key: int | bytes, offset: int, *, streamed: bool) -> None:
        """Begin a block of a held transaction."""
        state = self._state
        if state[bd.S_OPEN]:
            raise ValueError
        held = self._held.get(key)
        if held is None:
            row = np.zeros(bd.COLUMNS, np.int64)
            row[bd.FROM], row[bd.FLAGS] = offset, bd.HELD
            held = self._held[key] = _Held(row)
        state[: bd.COLUMNS] = held.row
        state[bd.S_OPEN], state[bd.S_STREAMED] = 1, int(streamed)
        self._holding = key

    def _leave(self) -> None:
        state = self._state
        if self._holding is None:
            raise ValueError
        self._held[self._holding].row = state[: bd.COLUMNS].copy()
        state[bd.S_OPEN] = state[bd.S_STREAMED] = 0
        self._holding = None

    def _commit(
        self, key: int | bytes, to: int, values: tuple[int, int, int, int], found: Indexed
    ) -> np.ndarray | None:
        """The row of a held transaction, None if it was sent before this stream began."""
        held = self._held.pop(key, None)
        if held is None:
            return None
        for oid, message in held.relations.items():
            self._described.setdefault(oid, []).append((to, message))
        found.truncated.extend(replace(t, offset=to - 1, commit_lsn=values[0]) for t in held.truncated)
        row = held.row.copy()
        row[bd.TO] = to
        row[bd.COMMIT_LSN], row[bd.END_LSN], row[bd.TS_US], row[bd.XID] = values
        row[bd.TS_US] += ms.EPOCH_US
        return row.reshape(1, -1)

    def _describe(self, message: bytes, body: bytes, offset: int, found: Indexed) -> None:
        relation = Relation.parse(body)
        captured = self._captures(relation.id)
        if names := self._contradicted(relation.oid, relation.id):
            found.left.append((offset, names))
        signals = bd.HAS_SIGNALS if self._has_signals(relation.id) else 0
        self._relations.add(relation.oid, signals if captured or signals else -1, relation.id)
        plain = message[: ms.FRAME + ms.XLOG + 1] + body
        plain = plain[:1] + struct.pack(">I", len(plain) - 1) + plain[5:]
        described = self._described.setdefault(relation.oid, [])
        front = ms.FRAME + ms.XLOG
        is_new = not described
        changed = self._differs(relation) if is_new else described[-1][1][front:] != plain[front:]
        if self._holding is not None:
            self._held[self._holding].relations[relation.oid] = plain
        elif changed or is_new:
            described.append((offset, plain))
        if captured:
            is_first = self._holding is None and self._state[bd.ROWS] == 0
            found.relations.append(Described(offset, relation, changed, bool(is_first)))
            if changed:
                self._state[bd.FLAGS] |= bd.HAS_RELATION


def done_rows(done: list[np.ndarray]) -> np.ndarray:
    """The rows of all arrays as one array."""
    return np.concatenate([np.zeros((0, bd.COLUMNS), np.int64), *done])


def _name(body: bytes, at: int) -> bytes:
    return body[at : body.index(0, at)]


def _refuse(status: int, message: bytes) -> NoReturn:
    what = "a message of the log is malformed"
    if status == bd.NO_RELATION:
        what = "a change of the log comes before its relation is described"
    raise DecodeError(what, ms.place(message), code="TR-5201")
