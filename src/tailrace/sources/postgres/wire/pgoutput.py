"""A replication stream's bytes to batches of changes.

    piece of the stream ── scan ──> records of changes, transactions          (kernel)
                             │ stops at: R relation, T truncate, M message, a block of a running
                             v transaction, prepared transactions             (Python, rare)
                        decode_changes ──> images of one relation             (kernel, a batch at a time)
                        RowColumns ──> where each row comes from              (kernel)

The server sends a transaction once it has committed, in the order of commits, unless the session requested
that it stream large transactions while they run, or send prepared ones when they are prepared. The bytes of
these are held here, by their xid, until their commit comes; changes that were rolled back (`A`, also of a
single subtransaction) are dropped. So the batches are the same in all modes.

Batches of different tables may come in any order; rows of one table stay in log order, except for updates of
different rows that lack different columns (`grouping`). So all pending changes are decoded before a table
changes its schema. Only open and held transactions and the known relations are kept between pieces.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from tailrace.errors import DecodeError, SchemaMismatchError, concerning
from tailrace.kernels.imagebuffers import Layout
from tailrace.kernels.memory import SLACK
from tailrace.kernels.tables import TABLES
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableId, TableSchema
from tailrace.sources.postgres.position import lsn_text
from tailrace.sources.postgres.wire.kernels import messages as ms
from tailrace.sources.postgres.wire.kernels import tuples as tp
from tailrace.sources.postgres.wire.kernels.grouping import grouped
from tailrace.sources.postgres.wire.kernels.origin import MAX_XID, write_origin, write_xids
from tailrace.sources.postgres.wire.logical import LogicalMessage, changes_of
from tailrace.sources.postgres.wire.plan import Plan
from tailrace.sources.postgres.wire.problems import refusal
from tailrace.sources.postgres.wire.relation import Relation
from tailrace.sources.postgres.wire.relations import Relations
from tailrace.sources.postgres.wire.types import PostgresTypes
from tailrace.sources.wire.changes import MAX_EVENTS, ChangeDecoder
from tailrace.sources.wire.kernels import rowbatch as rb
from tailrace.sources.wire.rowcolumns import RowColumns

#: Most bytes of held transactions that wait to be decoded.
_MAX_KEPT = 64 << 20
#: Room for a value that may be longer than its bytes: a NUMERIC's text.
_LONGEST_NUMERIC = 150_000


@dataclass(frozen=True)
class Truncate:
    """A TRUNCATE of captured tables.

    Args:
        lsn: LSN of the change.
        commit_lsn: LSN of its transaction's commit.
        tables: the captured tables among those truncated.
    """

    lsn: int
    commit_lsn: int
    tables: tuple[TableId, ...]


class LogDecoder(ChangeDecoder):
    """Decodes changes of the captured tables.

    Args:
        captures: whether a table is captured; called when a relation is described.
        types: the database's types.
        learn: reads the database's types again; called when a relation has unknown types.
        keys: key columns of tables whose key is set; the others have the log's key.
        schema_of: a table's schema in the catalog, None if it is not there.
        unfit: `SourceOptions.unfit`.
        epoch: the stream's epoch, the first part of `seq`.
        wants_message: whether logical messages with a prefix are captured.
        described: told about each relation that is described; what it returns counts in place of its schema.
        after: transactions whose commit lies below this LSN are skipped.
        end: messages outside of transactions that end above this LSN are skipped.
        batch_rows: most rows of a batch.
        batch_bytes: bytes of changes after which a batch ends; one row may be larger.

    Attributes:
        truncates: the TRUNCATEs of captured tables so far.
    """

    def __init__(
        self,
        *,
        captures: Callable[[TableId], bool],
        types: PostgresTypes,
        learn: Callable[[], PostgresTypes] | None = None,
        keys: Mapping[TableId, tuple[str, ...]] = {},
        schema_of: Callable[[TableId], TableSchema | None] = lambda _: None,
        unfit: Callable[[str], str | None] = lambda _: None,
        wants_message: Callable[[str], bool] = lambda _: False,
        described: Callable[[Relation], TableSchema | None] = lambda _: None,
        epoch: int = 0,
        after: int = 0,
        end: int = 1 << 63,
        batch_rows: int = 8192,
        batch_bytes: int = 4 << 20,
    ) -> None:
        rows = RowColumns(
            batch_rows, write_origin=write_origin, write_ids=write_xids, id_bytes=MAX_XID, tables=TABLES
        )
        rows.enter("", f"{epoch:04x}")
        super().__init__(
            tp.decode_changes,
            rows,
            tx_words=ms.TX_WORDS,
            tables=TABLES,
            max_rows=batch_rows,
            max_bytes=batch_bytes,
        )
        self.truncates: list[Truncate] = []
        self._messages: list[LogicalMessage] = []
        self._captures, self._types, self._learn = captures, types, learn
        self._keys, self._schema_of, self._unfit = keys, schema_of, unfit
        self._wants_message, self._told = wants_message, described
        self._after, self._log_end = after, end
        self._epoch = epoch
        self._relations = Relations()
        #: The relation that each layout is of; slots of layouts by the Relation message's body.
        self._described: list[Relation] = []
        self._slots: dict[bytes, int] = {}
        self._current: dict[TableId, int] = {}
        self._state = np.zeros(ms.STATE_WORDS, np.int64)
        #: Blocks of transactions that have not committed, by xid or name, and what aborted within them.
        self._held: dict[int | bytes, list[np.ndarray]] = {}
        self._aborted: dict[int | bytes, set[int]] = {}
        self._prepared: dict[bytes, tuple[int | bytes, bool]] = {}
        #: The transaction whose block is being received, and the letter that ends the block.
        self._holding: tuple[int | bytes, int] | None = None
        self._kept: list[np.ndarray] = []
        self._kept_bytes = 0

    def feed(self, data: bytes | np.ndarray) -> Iterator[ChangeBatch]:
        """Decode whole CopyData messages; pieces come in the stream's order.

        Args:
            data: the messages; an array needs no slack, it is copied.

        Raises:
            DecodeError: malformed bytes.
            BinaryFormError: a value came in binary form whose type is read as text.
            SchemaMismatchError: changed rows without the table's key.
        """
        memory = np.zeros(len(data) + SLACK, np.uint8)
        memory[: len(data)] = np.frombuffer(data, np.uint8)
        base = memory.ctypes.data
        yield from self._scan(base, base + len(data), memory, None)
        yield from self._flush()

    def _scan(
        self, at: int, end: int, memory: np.ndarray, replayed: int | bytes | None
    ) -> Iterator[ChangeBatch]:
        """Collect the changes between two addresses in `memory`, decoding when there is no room for more.

        Args:
            at: address of a message.
            end: address behind the last.
            memory: the array that holds them.
            replayed: the held transaction that they belong to, if any.
        """
        state = self._state
        aborted = np.array(sorted(self._aborted.get(replayed, ())) if replayed is not None else [], np.int64)
        streamed = isinstance(replayed, int)
        while True:
            if self._holding is not None:
                at = self._hold(at, end, memory)
                if self._holding is not None:
                    return
            state[ms.AT] = at
            result = ms.scan(
                state.ctypes.data,
                end,
                self._after,
                int(streamed),
                self._relations.address,
                self._relations.mask,
                aborted.ctypes.data,
                len(aborted),
                self._events_at,
                MAX_EVENTS,
                self._txs_at,
                MAX_EVENTS,
            )
            at = int(state[ms.AT])
            if result == ms.AT_END:
                if at != end:
                    raise DecodeError(
                        "a piece of the log ends within a message", f"{end - at} bytes of it", code="TR-5201"
                    )
                return
            if result == ms.FULL:
                yield from self._flush()
                continue
            offset = at - memory.ctypes.data
            size = 1 + int.from_bytes(memory[offset + 1 : offset + 5].tobytes(), "big")
            message = memory[offset : offset + size].tobytes()
            if result != ms.ASK:
                _refuse(int(result), message)
            try:
                yield from self._handle_message(message, streamed)
            except (struct.error, IndexError, ValueError, OverflowError) as error:
                raise DecodeError(
                    "a message of the log is malformed", ms.place(message), code="TR-5201"
                ) from error
            at += size

    def _handle_message(self, message: bytes, streamed: bool) -> Iterator[ChangeBatch]:
        """Handle a message that the kernel leaves to Python."""
        if message[:1] != b"d":
            raise DecodeError(
                "the log is interrupted by another message", f"of type {message[:1]!r}", code="TR-5201"
            )
        (lsn,) = struct.unpack_from(">Q", message, ms.FRAME + 1)
        what = message[ms.FRAME + ms.XLOG]
        body = message[ms.FRAME + ms.XLOG + 1 :]
        if what in (ms.RELATION, ms.TYPE, ms.TRUNCATE, ms.MESSAGE) and streamed:
            body = body[4:]
        match what:
            case ms.RELATION:
                yield from self._relation(body)
            case ms.TYPE | ms.ORIGIN:
                pass
            case ms.TRUNCATE:
                self._truncate(lsn, body)
            case ms.MESSAGE:
                self._message(body)
            case ms.STREAM_START:
                self._holding = struct.unpack_from(">I", body)[0], ms.STREAM_STOP
            case ms.STREAM_COMMIT:
                xid, _, lsn, _, ts = struct.unpack_from(">IBqqq", body)
                yield from self._replay(xid, xid, lsn, ts)
            case ms.STREAM_ABORT:
                self._abort(*struct.unpack_from(">II", body))
            case ms.BEGIN_PREPARE:
                name = _name(body, 28)
                self._held.pop(name, None)
                self._prepared[name] = name, False
                self._holding = name, ms.PREPARE
            case ms.STREAM_PREPARE:
                self._prepared[_name(body, 29)] = struct.unpack_from(">I", body, 25)[0], True
            case ms.COMMIT_PREPARED:
                _, lsn, _, ts, xid = struct.unpack_from(">BqqqI", body)
                name = _name(body, 29)
                held = self._prepared.pop(name, None)
                if held is None:
                    raise DecodeError(
                        "the log commits a prepared transaction whose changes were sent earlier",
                        f"its name is `{name.decode(errors='replace')}`",
                        "create the replication slot without two_phase, then start a new stream",
                        code="TR-4408",
                    )
                yield from self._replay(held[0], xid, lsn, ts)
            case ms.ROLLBACK_PREPARED:
                held = self._prepared.pop(_name(body, 37), None)
                if held is not None:
                    self._forget(held[0])
            case _:
                raise DecodeError(
                    "the log has a message of an unknown type", ms.place(message), code="TR-4403"
                )

    def _relation(self, body: bytes) -> Iterator[ChangeBatch]:
        """Learn a relation; decode all pending changes first if its table had another schema."""
        relation = Relation.parse(body)
        given = self._told(relation)
        slot = -1
        if self._captures(relation.id):
            slot = self._slots.get(body, -1)
            if slot < 0:
                slot = len(self._layouts)
                with concerning(relation.id):
                    schema = given or self._schema(relation)
                    self._layouts.append(Layout(ImagePlan(schema), self._max_rows))
                self._described.append(relation)
                self._slots[body] = slot
            if self._current.get(relation.id, slot) != slot:
                yield from self._flush()
            self._current[relation.id] = slot
        self._relations.add(relation.oid, slot, relation.id)

    def _schema(self, relation: Relation) -> TableSchema:
        if self._learn is not None and any(c.type not in self._types for c in relation.columns):
            self._types = self._learn()
        key = self._keys.get(relation.id, ())
        return relation.schema(self._types, key, self._schema_of(relation.id), self._unfit)

    def _truncate(self, lsn: int, body: bytes) -> None:
        state = self._state
        state[ms.NUMBER] += 1
        (count,) = struct.unpack_from(">I", body)
        oids = struct.unpack_from(f">{count}I", body, 5)
        known = (self._relations.table(oid) for oid in oids)
        tables = tuple(table for table in known if table is not None and self._captures(table))
        if tables and not state[ms.SKIP]:
            self.truncates.append(Truncate(lsn, int(self._txs[state[ms.TXNS] - 1, ms.TX_LSN]), tables))

    def _message(self, body: bytes) -> None:
        state = self._state
        transactional, lsn = struct.unpack_from(">BQ", body)
        end = body.index(0, 9)
        (size,) = struct.unpack_from(">I", body, end + 1)
        content = body[end + 5 : end + 5 + size]
        prefix = body[9:end].decode()
        if not self._wants_message(prefix):
            return  # not counted: the session decides whether messages are sent
        if not transactional:
            if self._after < lsn <= self._log_end:
                self._messages.append(LogicalMessage(lsn, None, prefix, content))
            return
        number = int(state[ms.NUMBER])
        state[ms.NUMBER] += 1
        if not state[ms.SKIP]:
            commit, ts_us, xid = self._txs[state[ms.TXNS] - 1, :3].tolist()
            self._messages.append(LogicalMessage(lsn, commit, prefix, content, xid, ts_us, number))

    def _hold(self, at: int, end: int, memory: np.ndarray) -> int:
        """Hold the messages of a block; return the address in `memory` behind them."""
        assert self._holding is not None
        key, last = self._holding
        stop = ms.seek(at, end, last)
        base = memory.ctypes.data
        if stop > at:
            piece = np.zeros(stop - at + SLACK, np.uint8)
            piece[:-SLACK] = memory[at - base : stop - base]
            self._held.setdefault(key, []).append(piece)
        if stop < end:
            size = int.from_bytes(memory[stop - base + 1 : stop - base + 5].tobytes(), "big")
            if 1 + size > end - stop or size < 4:
                raise DecodeError(
                    "a piece of the log ends within a message", f"{end - stop} bytes of it", code="TR-5201"
                )
            self._holding = None
            stop += 1 + size
        return int(stop)

    def _abort(self, xid: int, subxid: int) -> None:
        if xid == subxid:
            self._forget(xid)
        else:
            self._aborted.setdefault(xid, set()).add(subxid)

    def _forget(self, key: int | bytes) -> None:
        self._held.pop(key, None)
        self._aborted.pop(key, None)

    def _replay(self, key: int | bytes, xid: int, lsn: int, ts: int) -> Iterator[ChangeBatch]:
        """Decode the changes of a held transaction, which has committed."""
        state = self._state
        if state[ms.OPEN]:
            raise DecodeError("a transaction of the log commits within another", f"xid {xid}", code="TR-5201")
        if state[ms.TXNS] == MAX_EVENTS:
            yield from self._flush()
        self._txs[state[ms.TXNS], :3] = lsn, ts + ms.EPOCH_US, xid
        state[ms.TXNS] += 1
        state[ms.OPEN], state[ms.NUMBER], state[ms.SKIP] = 1, 0, int(lsn < self._after)
        for piece in self._held.pop(key, []):
            if self._kept_bytes + len(piece) > _MAX_KEPT:
                yield from self._flush()
            at = piece.ctypes.data
            yield from self._scan(at, at + len(piece) - SLACK, piece, key)
            self._kept.append(piece)
            self._kept_bytes += len(piece)
        self._forget(key)
        state[ms.OPEN] = 0

    def _flush(self) -> Iterator[ChangeBatch]:
        """Decode all pending changes, relation by relation."""
        state = self._state
        count, txns = int(state[ms.EVENTS]), int(state[ms.TXNS])
        slots = self._events[:count, rb.EV_SLOT]
        for slot in np.unique(slots).tolist():
            chosen = np.flatnonzero(slots == slot)
            is_key = self._layouts[slot].plan.is_key
            yield from self._decode(slot, grouped(self._events, chosen, is_key))
        if txns:
            self._txs[0] = self._txs[txns - 1]
        if self._messages:
            yield changes_of(self._messages, self._epoch)
            self._messages = []
        state[ms.EVENTS], state[ms.TXNS] = 0, min(txns, 1)
        self._kept.clear()
        self._kept_bytes = 0

    def _scratch(self, columns: int) -> np.ndarray:
        return np.zeros(tp.scratch_bytes(columns), np.uint8)

    def _room(self, layout: Layout, size: int) -> int:  # noqa: ARG002 - the same for any table
        return 4 * size + _LONGEST_NUMERIC

    def _marked(self, batch: ChangeBatch, slot: int, cursor: np.ndarray, scratch: np.ndarray) -> ChangeBatch:
        before = self._described[slot].lacking if cursor[tp.CU_KEYS] else ()
        after: tuple[str, ...] = ()
        if cursor[tp.CU_LACKS]:
            after = tuple(
                c.name for c, lacks in zip(batch.table.columns, scratch.tolist(), strict=False) if lacks
            )
        lacking = [name for name in batch.table.key if name in before or name in after]
        if lacking:
            raise SchemaMismatchError(
                f"the log does not hold the key of changed rows of table `{batch.table.id}`",
                f"without the column {lacking[0]}: it is not in the table's replica identity",
                f"ALTER TABLE {batch.table.id} REPLICA IDENTITY FULL, or USING INDEX of its key; "
                "then take a new snapshot",
                code="TR-4405",
            )
        if not before and not after:
            return batch
        return replace(batch, absent_before=before, absent_after=after)

    def _refuse_row(self, status: int, layout: Layout, cursor: np.ndarray, event: np.ndarray) -> NoReturn:
        schema = layout.plan.schema
        where = f"at {lsn_text(int(event[rb.EV_POS]))}, change {event[rb.EV_ROW]} of its transaction"
        column = int(cursor[rb.CU_COLUMN])
        if status == tp.BAD_CHANGE or column < 0:
            raise DecodeError(f"a change of table `{schema.id}` is malformed", where, code="TR-5201")
        name = schema.columns[column % len(schema.columns)].name
        raise refusal(int(cursor[tp.CU_OUTCOME]), f"{schema.id}.{name}", where)


class ImagePlan(Plan):
    """A plan for two images, before and after."""

    def __init__(self, schema: TableSchema) -> None:
        super().__init__(schema)
        self.descriptors = np.concatenate((self.descriptors, self.descriptors))
        self.variable = np.flatnonzero(self.is_variable).astype(np.int64)
        self.longest_label = 0
        self.is_key = np.array([c.name in schema.key for c in schema.columns], np.int64)


def _name(body: bytes, at: int) -> bytes:
    """The name of a prepared transaction."""
    return body[at : body.index(0, at)]


def _refuse(result: int, message: bytes) -> NoReturn:
    what = {
        ms.NO_RELATION: "a change of the log comes before its relation is described",
        ms.NO_TRANSACTION: "a change of the log comes outside a transaction",
    }.get(result, "a message of the log is malformed")
    raise DecodeError(what, ms.place(message), code="TR-5201")
