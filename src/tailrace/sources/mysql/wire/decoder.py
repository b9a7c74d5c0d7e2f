"""Blocks of the log to batches of changes.

    block ── scan_events ──> records of row events, transactions          (kernel, whole block)
                 │ stops at: a new table map, a statement, a payload      (Python, rare)
                 v
             decode_rows  ──> images of one table                         (kernel, a batch at a time)
             write_origin ──> where each row comes from                   (kernel)

Batches of different tables may come in any order; rows of one table stay in log order. So all pending row
events are decoded before a table changes its schema. Only the open transaction, the known table maps and
the events of prepared XA transactions (`asides`) are kept between blocks. Rows of an XA transaction come at
its XA COMMIT, and are numbered by their events' offsets within the prepared ones, as those of a payload are.

An event that could hold changes but cannot be decoded ends the stream with an error, however often it occurs:
skipping it would silently lose rows. All code that moves the scan's state is in this module, hence its
length.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

import numpy as np

from tailrace.errors import DecodeError, SchemaMismatchError, SourceError, concerning
from tailrace.kernels.imagebuffers import Layout
from tailrace.kernels.memory import SLACK
from tailrace.model.change import ChangeBatch
from tailrace.model.gtid_sources import ALL_SERVERS, GtidSources
from tailrace.model.table import TableId, TableSchema
from tailrace.sources.mysql.position import MySqlPosition, Prepared, seq_of
from tailrace.sources.mysql.wire import mariadb
from tailrace.sources.mysql.wire.absent import mark_absent
from tailrace.sources.mysql.wire.block import EventBlock
from tailrace.sources.mysql.wire.kernels import events as ev
from tailrace.sources.mysql.wire.kernels import rows as rw
from tailrace.sources.mysql.wire.kernels.json import json_room
from tailrace.sources.mysql.wire.kernels.lookup import TABLES
from tailrace.sources.mysql.wire.kernels.origin import MAX_GTID, SEQ_PREFIX, write_gtids, write_origin
from tailrace.sources.mysql.wire.kernels.resultset import ZERO_DATE_HINT
from tailrace.sources.mysql.wire.plan import RowPlan
from tailrace.sources.mysql.wire.rare import gtids
from tailrace.sources.mysql.wire.rare.asides import Asides, SetAside
from tailrace.sources.mysql.wire.rare.partialrows import UPDATE_ROWS, PartialUpdates
from tailrace.sources.mysql.wire.rare.payload import unpack
from tailrace.sources.mysql.wire.rare.querytexts import with_queries
from tailrace.sources.mysql.wire.rare.special import SpecialEvent, check, gtid_tagged, text_of
from tailrace.sources.mysql.wire.rare.xa import XaStep, end_of, prepare_of
from tailrace.sources.mysql.wire.schema.knownmaps import UNKNOWN, KnownMaps
from tailrace.sources.mysql.wire.schema.mariadbtypes import is_ambiguous, is_sequence, with_types
from tailrace.sources.mysql.wire.schema.tablemap import TableMap, parse_table_map, table_of
from tailrace.sources.mysql.wire.schema.unnamed import is_unnamed, require_types, with_names
from tailrace.sources.wire.changes import MAX_EVENTS, ChangeDecoder
from tailrace.sources.wire.kernels import rowbatch as rb
from tailrace.sources.wire.rowcolumns import RowColumns

#: Most known table maps; above that they are dropped between two transactions: a server gives a table a new
#: id every time it opens it.
_MAX_MAPS = 4096
#: Most unpacked bytes of payloads that wait to be decoded.
_MAX_UNPACKED = 8 << 20
#: In place of a slot: the event is of a transaction that is not decoded.
_NOT_GIVEN = -1
#: Offsets that number the rows of a transaction stay below this: twice one fits `seq`.
_MAX_NUMBER = 1 << 31
_CAPTURING_AT = ev.CAPTURING.ctypes.data
#: The actions of a scan, and those for the events of a transaction that was set aside; without and with the
#: texts of statements.
_PLAIN = ev.ACTIONS.ctypes.data, ev.RECALLED.ctypes.data
_WITH_TEXTS = ev.WITH_TEXTS.ctypes.data, ev.RECALLED_WITH_TEXTS.ctypes.data


class EventDecoder(ChangeDecoder):
    """Decodes row events of the captured tables.

    Args:
        captures: whether a table is captured; called when a table map of it is new.
        epoch: the stream's epoch, the first part of `seq`.
        keys: key columns of tables whose key is set; the others have the log's key.
        schema_of: a table's schema in the catalog, None if it is not there; called where the log was written
            with `binlog_row_metadata=MINIMAL`, and for columns whose type MariaDB does not log.
        holds_captured: whether a database holds captured tables; called where the log has a statement
            instead of rows.
        mariadb: whether MariaDB wrote the log.
        prepared: XA transactions that are prepared and open where decoding starts.
        recall: reads the events of a prepared transaction from the log again; each block is valid until the
            next. Called at its commit, if it was prepared before the decoded range or is large.
        batch_rows: most rows of a batch.
        batch_bytes: bytes of events after which a batch ends; one row may be larger.
        sources: the servers whose transactions are decoded.
        queries: whether changes have the text of their statement, where the log has it.
        verify_checksums: whether to check the CRC32 of each event that has one.
    """

    def __init__(
        self,
        *,
        captures: Callable[[TableId], bool],
        epoch: int = 0,
        keys: Mapping[TableId, tuple[str, ...]] = {},
        schema_of: Callable[[TableId], TableSchema | None] = lambda _: None,
        holds_captured: Callable[[str], bool] = lambda _: True,
        zero_dates: Callable[[str], str | None] = lambda _: None,
        mariadb: bool = False,
        prepared: Iterable[Prepared] = (),
        recall: Callable[[Prepared], Iterator[EventBlock]] = lambda _: iter(()),
        batch_rows: int = 8192,
        batch_bytes: int = 4 << 20,
        sources: GtidSources = ALL_SERVERS,
        queries: bool = False,
        verify_checksums: bool = True,
    ) -> None:
        rows = RowColumns(
            batch_rows, write_origin=write_origin, write_ids=write_gtids, id_bytes=MAX_GTID, tables=TABLES
        )
        super().__init__(
            rw.decode_rows,
            rows,
            tx_words=ev.TX_WORDS,
            tables=TABLES,
            max_rows=batch_rows,
            max_bytes=batch_bytes,
        )
        self._captures = captures
        self._epoch = epoch
        self._keys = keys
        self._schema_of = schema_of
        self._holds_captured = holds_captured
        self._zero_dates = zero_dates
        self._mariadb = mariadb
        self._verify = int(verify_checksums)
        self._asides = Asides(prepared)
        self._recall = recall
        self._sources = sources
        self._queries = queries
        self._plain_at, self._recalled_at = _WITH_TEXTS if queries else _PLAIN
        self._actions_at = self._plain_at
        #: The statement that is open, kept where its block may be gone.
        self._text: np.ndarray | None = None
        self._origin = self._checksum = 0
        self._in_payload = False
        self._maps = KnownMaps()
        #: Slots of layouts by the table map's body without its id; the slot each table has now, and how often
        #: one changed.
        self._slots: dict[bytes, int] = {}
        self._current: dict[TableId, int] = {}
        self._schema_changes = 0
        self._partials: dict[int, PartialUpdates] = {}
        self._state = np.zeros(8, np.int64)
        self._state_at = self._state.ctypes.data
        self._row_scratch = np.zeros(0, np.uint8)
        self._unpacked: list[np.ndarray] = []
        self._unpacked_bytes = 0
        self._file = ""

    def feed(self, block: EventBlock) -> Iterator[ChangeBatch]:
        """Decode a block; blocks come in log order, the first begins at a transaction boundary.

        The block's buffer may be reused when the iterator has ended, not before.

        Raises:
            DecodeError: malformed bytes, or an event that cannot be decoded.
            SchemaMismatchError: a table's schema cannot be captured, or the log was written with settings
                that leave out needed metadata.
            PositionLostError: the log says that events are missing from it.
        """
        yield from self.feed_all([block])

    def feed_all(self, blocks: Sequence[EventBlock]) -> Iterator[ChangeBatch]:
        """As `feed` for each of `blocks`, but decoded together: no buffer may be reused before the end.

        Thousands of small transactions, each in a block of its own, give a few large batches.
        """
        for block in blocks:
            if block.file != self._file:
                yield from self._flush()
                self._enter(block.file)
            yield from self._collect(block)
        yield from self._flush()

    def _collect(self, block: EventBlock) -> Iterator[ChangeBatch]:
        """Find a block's row events; decode the pending ones when there is no room for more."""
        if self._maps.count > _MAX_MAPS and not self._state[ev.SC_OPEN]:
            self._maps = KnownMaps()
        base = block.buffer.ctypes.data
        self._origin, self._checksum = base + block.start - block.pos, 4 if block.checksum else 0
        yield from self._scan(base + block.start, base + block.end, block.pos, self._checksum, -1)
        if self._asides.capturing:
            self._asides.take(self._origin, block.pos + block.end - block.start)

    def _enter(self, file: str) -> None:
        """Continue in another log file."""
        self._file = file
        self._rows.enter(file, seq_of(MySqlPosition(file, 0, epoch=self._epoch))[:SEQ_PREFIX])

    def _scan(self, at: int, end: int, pos: int, checksum: int, payload: int) -> Iterator[ChangeBatch]:
        """Collect the row events between two addresses, decoding when there is no room for more."""
        state = self._state
        state[ev.SC_AT], state[ev.SC_POS] = at, pos
        while True:
            result = ev.scan_events(
                self._state_at,
                end,
                checksum,
                self._verify,
                self._actions_at,
                self._maps.address,
                self._maps.mask,
                self._events_at,
                MAX_EVENTS,
                self._txs_at,
                MAX_EVENTS,
                payload,
                TABLES,
            )
            if result == ev.AT_END:
                return
            if result == ev.FULL:
                yield from self._flush()
                continue
            at, pos = int(state[ev.SC_AT]), int(state[ev.SC_POS])
            where = f"{self._file}:{pos if payload < 0 else payload}"
            if result == ev.PREPARES:
                self._capture(pos)
                continue
            if result not in (ev.ASK, ev.NEW_MAP):
                _refuse(int(result), where)
            event = SpecialEvent.at(at, checksum, where)
            if result == ev.NEW_MAP:
                yield from self._new_map(event)
                continue
            numbers = event.size
            if event.type == ev.TRANSACTION_PAYLOAD:
                yield from self._payload(event, payload, pos)
            elif event.type == ev.PARTIAL_UPDATE_ROWS:
                yield from self._partial(event, payload, pos)
            elif ev.WRITE_ROWS_COMPRESSED_V1 <= event.type <= ev.DELETE_ROWS_COMPRESSED:
                numbers = yield from self._packed_rows(at, event, payload, pos)
            elif event.type in (ev.QUERY, ev.QUERY_COMPRESSED):
                yield from self._statement(event, payload, pos)
            elif event.type == ev.XA_PREPARE:
                yield from self._prepared(event, payload, pos)
            else:
                if state[ev.SC_TXNS] == MAX_EVENTS:
                    yield from self._flush()
                self._handle_event(event)
            state[ev.SC_AT], state[ev.SC_POS] = at + event.size, pos + numbers

    def _handle_event(self, event: SpecialEvent) -> None:
        """Handle or reject an event that the kernel leaves to Python."""
        state = self._state
        if self._asides.capturing:
            raise DecodeError(
                "an XA transaction of the log has no end",
                f"event of type {event.type} at {event.where}",
                code="TR-5201",
            )
        if event.type == ev.GTID_TAGGED:
            self._txs[state[ev.SC_TXNS]] = gtid_tagged(event)
            state[ev.SC_TXNS] += 1
            state[ev.SC_OPEN], state[ev.SC_DIRTY], state[ev.SC_TEXT] = 1, 0, 0
        elif check(event, bool(state[ev.SC_DIRTY]), self._captures, self._holds_captured):
            state[ev.SC_OPEN] = 0

    def _statement(self, event: SpecialEvent, payload: int, pos: int) -> Iterator[ChangeBatch]:
        """A statement other than BEGIN."""
        state = self._state
        text = text_of(event).lstrip()
        if text[:3].upper() != b"XA ":
            if check(event, bool(state[ev.SC_DIRTY]), self._captures, self._holds_captured):
                state[ev.SC_OPEN] = 0
            return
        if self._actions_at != self._plain_at:
            return  # its START or END
        if text[3:].lstrip()[:5].upper() in (b"START", b"BEGIN"):
            self._capture(pos if payload < 0 else payload)
            return
        step, xid = end_of(text.decode("latin1"), event.where)
        found = self._asides.end(xid)
        if found is not None and step is XaStep.COMMITS:
            if not state[ev.SC_OPEN]:
                _refuse(ev.NO_TRANSACTION, event.where)
            self._txs[state[ev.SC_TXNS] - 1, ev.TX_THREAD] = int.from_bytes(event.body[:4], "little")
            yield from self._recalled(found, pos)
        state[ev.SC_OPEN] = 0

    @property
    def open(self) -> tuple[Prepared, ...]:
        """The XA transactions with captured rows that are prepared and open after the last block."""
        return self._asides.open

    def _capture(self, pos: int) -> None:
        """Set aside the events from `pos` on instead of decoding them."""
        self._asides.begin(self._file, pos, self._checksum)
        self._actions_at = _CAPTURING_AT

    def _prepared(self, event: SpecialEvent, payload: int, pos: int) -> Iterator[ChangeBatch]:
        """Handle the end of a captured XA transaction; within a payload, it ends where the payload does."""
        state, asides = self._state, self._asides
        xid, one_phase = prepare_of(event.body, event.where)
        if not asides.capturing:
            raise DecodeError(
                "an XA_PREPARE event of the log comes without an XA START",
                f"at {event.where}",
                code="TR-5201",
            )
        self._actions_at = self._plain_at
        has_rows = bool(state[ev.SC_DIRTY])
        if payload < 0:
            asides.take(self._origin, pos)
            end = pos + event.size
        else:
            end = payload + int(ctypes.c_uint32.from_address(self._origin + payload + 9).value)
            asides.take(self._origin, end)
        found = asides.captured(xid, end, self._schema_changes)
        if not one_phase:
            asides.prepare(found, has_rows=has_rows)
        elif has_rows:
            self._in_payload = False  # it was the payload's last event
            yield from self._recalled(found, -1)
        state[ev.SC_OPEN] = state[ev.SC_DIRTY] = 0

    def _recalled(self, found: SetAside, offset: int) -> Iterator[ChangeBatch]:
        """Collect the row events that were set aside, as of `offset`; -1: of their own offsets."""
        actions, self._actions_at = self._actions_at, self._recalled_at
        at = found.transaction.start if offset < 0 else 0
        altered = found.schema_changes != self._schema_changes
        if altered or found.data is None:
            yield from self._flush()  # their tables may be pending with other schemas
        if found.data is not None:
            if self._unpacked_bytes + len(found.data) > _MAX_UNPACKED:
                yield from self._flush()
            start = found.data.ctypes.data
            yield from self._scan(start, start + len(found.data) - SLACK, at, found.checksum, offset)
            self._keep(found.data)
        else:
            for block in self._recall(found.transaction):
                base, checksum = block.buffer.ctypes.data, 4 if block.checksum else 0
                start = block.start + (_gtid_size(block) if block.pos == found.transaction.start else 0)
                yield from self._scan(base + start, base + block.end, at, checksum, offset)
                at = int(self._state[ev.SC_POS])
                yield from self._flush()
        if altered:
            yield from self._flush()
            self._maps = KnownMaps()
        if offset >= 0 and self._state[ev.SC_POS] > _MAX_NUMBER:
            raise SourceError(
                "an XA transaction in the log is too large",
                f"{found.transaction.xid} at {found.transaction.file}:{found.transaction.start}; the limit is"
                " 2 GiB",
                "split it into several transactions, and start a new stream",
                code="TR-4404",
            )
        self._actions_at = actions
        self._state[ev.SC_TEXT] = 0

    def _partial(self, event: SpecialEvent, payload: int, pos: int) -> Iterator[ChangeBatch]:
        """Reconstruct whole updates from updates of parts of JSON values."""
        id_ = int.from_bytes(event.body[:6], "little")
        slot = self._maps.slot(id_)
        if slot == UNKNOWN or len(event.body) < 8:
            _refuse(ev.NO_MAP, event.where)
        state = self._state
        if slot < 0:
            self._end_statement(event)
            return
        if not state[ev.SC_OPEN]:
            _refuse(ev.NO_TRANSACTION, event.where)
        schema = self._layouts[slot].plan.schema
        if slot not in self._partials:
            self._partials[slot] = PartialUpdates(self._maps.body(id_), [c.name for c in schema.columns])
        try:
            whole = self._partials[slot].whole(bytes(ev.HEADER) + event.body)
        except (DecodeError, SchemaMismatchError) as error:
            message = f"{error.message} in table `{schema.id}`"
            raise type(error)(
                message,
                f"at {event.where}: {error.detail}",
                error.hint,
                code=error.code,
                table=str(schema.id),
            ) from error
        if state[ev.SC_EVENTS] == MAX_EVENTS or self._unpacked_bytes + len(whole) > _MAX_UNPACKED:
            yield from self._flush()
        kept = np.frombuffer(whole + bytes(SLACK), np.uint8)
        self._keep(kept)
        at, txn = kept.ctypes.data, state[ev.SC_TXNS] - 1
        offset = (pos, 0) if payload < 0 else (payload, pos)
        record = self._events[state[ev.SC_EVENTS]]
        record[:] = at, at + len(whole), UPDATE_ROWS, slot, txn, *offset, state[ev.SC_TEXT]
        self._end_statement(event)
        state[ev.SC_EVENTS] += 1
        state[ev.SC_DIRTY] = 1

    def _end_statement(self, event: SpecialEvent) -> None:
        """Forget the statement if this row event is its last."""
        if event.body[6] & ev.STATEMENT_END:
            self._state[ev.SC_TEXT] = 0

    def _payload(self, event: SpecialEvent, outer: int, pos: int) -> Iterator[ChangeBatch]:
        """The events of a compressed transaction."""
        if self._in_payload or self._asides.capturing:
            raise DecodeError("a compressed transaction within another", event.where, code="TR-5201")
        self._in_payload = True
        for piece, start in unpack(event.body, event.where):
            if self._unpacked_bytes + len(piece) > _MAX_UNPACKED:
                yield from self._flush()
            at = piece.ctypes.data
            yield from self._scan(at, at + len(piece) - SLACK, start, 0, pos if outer < 0 else outer)
            self._keep(piece)
        self._in_payload = False

    def _packed_rows(
        self, address: int, event: SpecialEvent, payload: int, pos: int
    ) -> Generator[ChangeBatch, None, int]:
        """Scan one of MariaDB's packed row events as a plain one; return the range of numbers of its rows."""
        header = ctypes.string_at(address, ev.HEADER)
        plain = mariadb.plain_rows(header + event.body, f"at {event.where}")
        if self._unpacked_bytes + len(plain) > _MAX_UNPACKED:
            yield from self._flush()
        piece = np.frombuffer(plain + bytes(SLACK), np.uint8)
        number, offset = (0, pos) if payload < 0 else (pos, payload)
        yield from self._scan(piece.ctypes.data, piece.ctypes.data + len(plain), number, 0, offset)
        self._keep(piece)
        return event.size if payload < 0 else max(event.size, len(plain))

    def _keep(self, piece: np.ndarray) -> None:
        """Hold unpacked bytes until their events, which have been scanned, are decoded."""
        self._unpacked.append(piece)
        self._unpacked_bytes += len(piece)

    def _new_map(self, event: SpecialEvent) -> Iterator[ChangeBatch]:
        """Learn a table map; decode all pending events first if its table had another schema."""
        body = event.body
        slot = -1
        try:
            table = table_of(body)
            if self._captures(table) and not (self._mariadb and is_sequence(body)):
                slot = self._slots.get(body[6:], -1)
                if slot < 0:
                    with concerning(table):
                        plan = self._plan(parse_table_map(body))
                    slot = len(self._layouts)
                    self._layouts.append(Layout(plan, self._max_rows))
                    self._slots[body[6:]] = slot
                if self._current.get(table, slot) != slot:
                    yield from self._flush()
                self._schema_changes += self._current.get(table) != slot
                self._current[table] = slot
        except (DecodeError, SchemaMismatchError) as error:
            detail = f"{error.detail or 'table map event'}, at {event.where}"
            raise type(error)(
                error.message, detail, error.hint, code=error.code, table=error.table
            ) from error
        self._maps.add(body, slot)

    def _plan(self, map_: TableMap) -> RowPlan:
        """The plan of a table's rows; the catalog fills in the metadata that the log leaves out."""
        key = self._keys.get(map_.id, ())
        unnamed = is_unnamed(map_)
        asked = unnamed or (self._mariadb and is_ambiguous(map_))
        known = self._schema_of(map_.id) if asked else None
        if known is None:
            return RowPlan(map_, key, self._zero_dates)
        if self._mariadb:
            map_ = with_types(map_, known)
        if not unnamed:
            return RowPlan(map_, key, self._zero_dates)
        plan = RowPlan(with_names(map_, known), key, self._zero_dates)
        require_types(map_, plan.schema, known)
        return plan

    def _flush(self) -> Iterator[ChangeBatch]:
        """Decode all pending row events, table by table."""
        state = self._state
        count, txns = int(state[ev.SC_EVENTS]), int(state[ev.SC_TXNS])
        slots = self._events[:count, rb.EV_SLOT]
        if self._sources and count:
            given = gtids.are_given(self._txs[:txns], self._events[:count], self._sources, self._file)
            slots = np.where(given, slots, _NOT_GIVEN)
        for slot in np.unique(slots[slots != _NOT_GIVEN]).tolist():
            yield from self._decode(slot, np.flatnonzero(slots == slot))
        if state[ev.SC_TEXT]:
            self._keep_text()
        if txns:
            self._txs[0] = self._txs[txns - 1]
        state[ev.SC_EVENTS], state[ev.SC_TXNS] = 0, min(txns, 1)
        self._unpacked.clear()
        self._unpacked_bytes = 0

    def _keep_text(self) -> None:
        """Copy the open statement's event: the next block may have more of its rows."""
        word = int(self._state[ev.SC_TEXT])
        checksum = word >> ev.TEXT_CHECKSUM
        at = word - (checksum << ev.TEXT_CHECKSUM)
        if self._text is not None and at == self._text.ctypes.data:
            return
        size = int(ctypes.c_uint32.from_address(at + 9).value)
        self._text = np.frombuffer(ctypes.string_at(at, size) + bytes(SLACK), np.uint8)
        self._state[ev.SC_TEXT] = self._text.ctypes.data | checksum << ev.TEXT_CHECKSUM

    def _decode(self, slot: int, chosen: np.ndarray) -> Iterator[ChangeBatch]:
        if not self._queries:
            yield from super()._decode(slot, chosen)
            return
        events = self._events[chosen]
        for batch in super()._decode(slot, chosen):
            yield from with_queries(batch, events)

    def _scratch(self, columns: int) -> np.ndarray:
        needed = rw.SCRATCH_BYTES + rw.null_bytes(columns, self._max_rows)
        if len(self._row_scratch) < needed:
            self._row_scratch = np.empty(needed, np.uint8)
        return self._row_scratch

    def _room(self, layout: Layout, size: int) -> int:
        return int(json_room(size)) + layout.plan.longest_label

    def _marked(self, batch: ChangeBatch, slot: int, cursor: np.ndarray, scratch: np.ndarray) -> ChangeBatch:
        """`batch` with the columns named that all its images lack."""
        del slot, scratch
        in_before, in_after = int(cursor[rw.CU_IN_BEFORE]), int(cursor[rw.CU_IN_AFTER])
        if max(in_before, in_after) <= rw.ALL_COLUMNS:
            return batch
        try:
            return mark_absent(batch, in_before, in_after)
        except SchemaMismatchError as error:
            where = f"{self._file}:{batch.origin.column('pos')[0].as_py()}"
            raise SchemaMismatchError(
                error.message, f"at {where}: {error.detail}", error.hint, code=error.code
            ) from None

    def _refuse_row(self, status: int, layout: Layout, cursor: np.ndarray, event: np.ndarray) -> NoReturn:
        schema = layout.plan.schema
        where = f"{self._file}:{event[rb.EV_POS]}, row {event[rb.EV_ROW] + cursor[rw.CU_ROW]} of the event"
        column = int(cursor[rb.CU_COLUMN])
        if column >= 0:
            where += f", column `{schema.columns[column % len(schema.columns)].name}`"
        what, code = {
            rw.BAD_TEXT: ("text that is not valid in its character set", "TR-5203"),
            rb.NO_ROOM: ("a value of more than 2 GiB", "TR-5204"),
            rw.ZERO_DATE: ("a zero or partial date", "TR-5010"),
        }.get(status, ("malformed row event", "TR-5201"))
        hint = ZERO_DATE_HINT if status == rw.ZERO_DATE else None
        raise DecodeError(f"{what} in table `{schema.id}`", f"at {where}", hint, code=code)


def _gtid_size(block: EventBlock) -> int:
    """Bytes of a block's first event if it is a GTID: rows are numbered from its end."""
    head = block.buffer[block.start : block.start + ev.HEADER].tobytes()
    gtids = (ev.GTID, ev.ANONYMOUS_GTID, ev.GTID_TAGGED, ev.MARIADB_GTID)
    return int.from_bytes(head[9:13], "little") if head[4] in gtids else 0


def _refuse(result: int, where: str) -> NoReturn:
    message = {
        ev.BAD_CHECKSUM: "an event of the log has a wrong checksum",
        ev.NO_MAP: "a row event of the log comes without a table map",
        ev.NO_TRANSACTION: "a row event of the log comes outside a transaction",
    }.get(result, "an event of the log is malformed")
    raise DecodeError(message, f"at {where}", code="TR-5201")
