r"""Rows of COPY ... TO STDOUT (FORMAT binary) as columns: a kernel over the messages of the protocol.

    message   type 1, length 4 (its own four bytes with it), payload; integers are big-endian
    d         a piece of the data, a row as servers send it; c: the end; E: an error
    data      `PGCOPY\n\xff\r\n\0`, flags 4, length of an extension 4, the extension; rows; -1 2
    row       number of fields 2, per field its length 4 (-1: NULL) and its bytes

The data's pieces may begin and end anywhere between rows. Columns of types whose binary form is not supported
are selected as text (`copy_columns`), and come as text.

Kernels are C-like; the rules are in `kernels.memory`.

Source: PostgreSQL manual, "Message Formats", "COPY" (Binary Format).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.errors import DecodeError
from tailrace.kernels.columns import WORDS, ColumnBuffers
from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.memory import SLACK, be32, ld8, ld64, st64
from tailrace.kernels.tables import TABLES
from tailrace.model.table import TableSchema
from tailrace.sources.bounds import LONGEST_ROW
from tailrace.sources.postgres.wire.kernels.moments import signed32
from tailrace.sources.postgres.wire.kernels.numeric import be16
from tailrace.sources.postgres.wire.kernels.outcome import MALFORMED, NO_ROOM, OK
from tailrace.sources.postgres.wire.kernels.values import AS_TEXT, FLAGS, no_value, read_value
from tailrace.sources.postgres.wire.plan import Plan
from tailrace.sources.postgres.wire.problems import refusal
from tailrace.sources.postgres.wire.types import has_binary

#: Why the kernel stopped: it needs more bytes, the batch is full, the data ended, a message other than data
#: ended it, a malformed message or row, a value that could not be read.
_MORE, _FULL, _END, _OTHER, _BAD, _VALUE = range(6)

#: Words of the state. In and out: address of the message, decoded bytes of its payload, rows so far, their
#: bytes, whether the header has been read. Out: column and outcome of a value.
_AT, _DONE, _ROWS, _BYTES, _BEGUN, _COLUMN, _OUTCOME = range(7)

_COLUMN_BYTES = 8 * WORDS
_SIGNATURE = int.from_bytes(b"PGCOPY\n\xff", "little", signed=True)
_MOST_ROOM = (1 << 31) - (1 << 20)


@inline
def _header(p, end):
    """Address after the data's header; 0 if it is malformed."""
    if end - p < 19 or ld64(p) != _SIGNATURE or be32(p + 7) != 0xFF0D0A00:
        return np.int64(0)
    extension = be32(p + 15)
    if be32(p + 11) != 0 or extension > end - p - 19:
        return np.int64(0)
    return p + 19 + extension


@inline
def _row(p, end, columns, count, row, state, tables):
    """Read the fields from p on into row `row`: the address after them; 0 if one could not be read."""
    for i in range(count):
        if end - p < 4:
            st64(state + 8 * _COLUMN, i)
            st64(state + 8 * _OUTCOME, MALFORMED)
            return np.int64(0)
        n = signed32(be32(p))
        p += 4
        d = columns + _COLUMN_BYTES * i
        if n == -1:
            no_value(row, d)
            continue
        status = np.int64(MALFORMED)
        if n >= 0 and n <= end - p:
            status = read_value(p, n, ld64(d + 8 * FLAGS) & AS_TEXT != 0, row, d, tables)
        if status != OK:
            st64(state + 8 * _COLUMN, i)
            st64(state + 8 * _OUTCOME, status)
            return np.int64(0)
        p += n
    return p


@entry("int64(int64,int64,int64,int64,int64,int64,int64)")
def _decode(end, columns, count, rows, most_bytes, state, tables):
    """Decode messages up to `end` into rows up to `rows`; a batch ends after `most_bytes` of input."""
    p = ld64(state + 8 * _AT)
    row = ld64(state + 8 * _ROWS)
    used = ld64(state + 8 * _BYTES)
    why = np.int64(_MORE)
    while why == _MORE and end - p >= 5:
        kind = ld8(p)
        n = be32(p + 1)
        if n < 4:
            why = np.int64(_BAD)
            break
        if kind != 100:
            if kind == 78 or kind == 83 or kind == 65:  # a notice, a parameter's new value, a notification
                if end - p - 1 < n:
                    break
                p += 1 + n
                continue
            why = np.int64(_END if kind == 99 else _OTHER)
            break
        if end - p - 1 < n:
            break
        stop = p + 1 + n
        q = p + 5 + ld64(state + 8 * _DONE)
        if ld64(state + 8 * _BEGUN) == 0:
            q = _header(q, stop)
            if q == 0:
                why = np.int64(_BAD)
                break
            st64(state + 8 * _BEGUN, 1)
            st64(state + 8 * _DONE, q - p - 5)
        while q < stop:
            if stop - q < 2:
                why = np.int64(_BAD)
                break
            fields = be16(q)
            if fields == 0xFFFF:
                if stop - q != 2:
                    why = np.int64(_BAD)
                q = stop
                break
            if row >= rows or (used >= most_bytes and row > 0):
                why = np.int64(_FULL)
                break
            if fields != count:
                why = np.int64(_BAD)
                break
            next_ = _row(q + 2, stop, columns, count, row, state, tables)
            if next_ == 0:
                why = np.int64(_VALUE)
                break
            used += next_ - q
            q = next_
            row += 1
            st64(state + 8 * _DONE, q - p - 5)
        if why == _MORE:
            p = stop
            st64(state + 8 * _DONE, 0)
    st64(state + 8 * _AT, p)
    st64(state + 8 * _ROWS, row)
    st64(state + 8 * _BYTES, used)
    return why


def copy_columns(table: TableSchema) -> str:
    """The SELECT list of a COPY that a `CopyReader` of the table reads."""
    names = ('"' + c.name.replace('"', '""') + '"' for c in table.columns)
    texts = ("" if has_binary(c.type) else "::text" for c in table.columns)
    return ", ".join(name + text for name, text in zip(names, texts, strict=True))


class CopyReader:
    """Decodes the bytes of a COPY, as a socket delivers them, to rows.

    Receive into `room` and call `received` with the number of bytes, until `ended`; then `flush` and `rest`.

    Args:
        table: schema of the rows.
        batch_rows: rows of a batch.
        batch_bytes: bytes of data after which a batch ends; one row may be larger.
        receive_bytes: least size of `room`.

    Attributes:
        ended: whether the data's end has been reached, or a message that does not belong to COPY.
    """

    def __init__(
        self,
        table: TableSchema,
        *,
        batch_rows: int = 65536,
        batch_bytes: int = 32 << 20,
        receive_bytes: int = 1 << 20,
    ) -> None:
        self.ended = False
        self._plan = Plan(table)
        self._rows, self._bytes, self._receive = batch_rows, batch_bytes, receive_bytes
        self._data_room = batch_bytes
        self._memory = np.zeros(2 * receive_bytes + SLACK, np.uint8)
        self._start = self._end = 0
        self._state = np.zeros(7, np.int64)
        self._buffers = self._new_buffers()

    def room(self) -> memoryview:
        """Memory to receive into.

        Raises:
            DecodeError: a message does not end within LONGEST_ROW bytes.
        """
        size = len(self._memory) - SLACK
        if size - self._end < self._receive:
            held = self._end - self._start
            memory = self._memory
            if held > LONGEST_ROW:
                raise DecodeError(
                    f"a row that COPY gave of table `{self._plan.schema.id}` is longer than it may be",
                    f"more than {LONGEST_ROW} bytes",
                    code="TR-5204",
                )
            if size - held < self._receive:
                memory = np.zeros(2 * size + self._receive + SLACK, np.uint8)
            memory[:held] = self._memory[self._start : self._end].copy()
            self._memory, self._start, self._end = memory, 0, held
        return self._memory.data[self._end : len(self._memory) - SLACK]

    def received(self, count: int) -> list[pa.StructArray]:
        """Decode the received bytes; yield the batches that they fill.

        Raises:
            DecodeError: the bytes are not rows of this schema.
        """
        self._end += count
        state = self._state
        base = self._memory.ctypes.data
        out = []
        while not self.ended:
            state[_AT] = base + self._start
            why = _decode(
                base + self._end,
                self._buffers.descriptors.ctypes.data,
                len(self._plan.types),
                self._rows,
                self._bytes,
                state.ctypes.data,
                TABLES,
            )
            self._start = int(state[_AT]) - base
            if why == _MORE:
                break
            if why in (_END, _OTHER):
                self.ended = True
            elif why == _FULL:
                out.append(self._take())
            elif why == _VALUE and state[_OUTCOME] == NO_ROOM and (state[_ROWS] or self._grow()):
                out += [self._take()] if state[_ROWS] else []
            else:
                raise self._error(why)
        return out

    def flush(self) -> pa.StructArray | None:
        """The rows of the last batch, which is not full; None if there are none."""
        return self._take() if self._state[_ROWS] else None

    def rest(self) -> bytes:
        """The bytes from the message on that ended the data."""
        return self._memory[self._start : self._end].tobytes()

    def _take(self) -> pa.StructArray:
        rows = int(self._state[_ROWS])
        fields = list(self._plan.schema.arrow)
        arrays = self._plan.finished(self._buffers.arrays(rows))
        self._buffers = self._new_buffers()
        self._state[_ROWS] = self._state[_BYTES] = 0
        if not fields:
            return pa.array([{}] * rows, self._plan.schema.arrow)
        return pa.StructArray.from_arrays(arrays, fields=fields)

    def _new_buffers(self) -> ColumnBuffers:
        buffers = ColumnBuffers(self._plan.types, self._rows, self._data_room)
        self._plan.describe(buffers.descriptors)
        return buffers

    def _grow(self) -> bool:
        """Give more room to a single row that does not fit; return whether there is any."""
        if self._data_room == _MOST_ROOM:
            return False
        self._data_room = min(4 * self._data_room, _MOST_ROOM)
        self._buffers = self._new_buffers()
        return True

    def _error(self, why: int) -> DecodeError:
        if why == _VALUE:
            column = self._plan.schema.columns[int(self._state[_COLUMN])].name
            name = f"{self._plan.schema.id}.{column}"
            return refusal(int(self._state[_OUTCOME]), name, "in a row of a COPY")
        return DecodeError(
            f"a COPY of table `{self._plan.schema.id}` cannot be decoded",
            "a message is malformed, or a row has another number of columns than the table",
            code="TR-5202",
        )
