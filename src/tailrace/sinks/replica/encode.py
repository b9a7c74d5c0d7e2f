"""Encode Arrow rows as the text lines that LOAD DATA and COPY read, in buffers of some hundred kilobytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.kernels import lines
from tailrace.kernels.memory import SLACK
from tailrace.kernels.tables import TABLES

#: Bytes of one buffer: below the smallest `max_allowed_packet` that a MySQL server can be set to.
_BUFFER_BYTES = 512 << 10


@dataclass(frozen=True)
class ColumnEncoding:
    """How to encode a column's values.

    Args:
        kind: a constant of `kernels.lines`.
        detail: the parameter of that kind, see there.
    """

    kind: int
    detail: int = 0


_BY_ARROW_TYPE = {
    pa.int8(): lines.INT8,
    pa.int16(): lines.INT16,
    pa.int32(): lines.INT32,
    pa.int64(): lines.INT64,
    pa.float32(): lines.FLOAT,
    pa.float64(): lines.DOUBLE,
    pa.bool_(): lines.BOOLEAN,
    pa.string(): lines.TEXT,
    pa.binary(): lines.TEXT,
    pa.date32(): lines.DATE,
}


def plain_encoding(type_: pa.DataType) -> ColumnEncoding:
    """The default encoding for values of `type_`."""
    if pa.types.is_decimal128(type_):
        return ColumnEncoding(lines.DECIMAL, type_.scale)
    return ColumnEncoding(_BY_ARROW_TYPE[type_])


def encode(
    rows: pa.RecordBatch, encodings: Sequence[ColumnEncoding], *, style: int = lines.LINES
) -> Iterator[memoryview]:
    """The lines of `rows`, in buffers of whole lines; a buffer is valid until the next one is requested.

    Args:
        rows: the rows to encode.
        encodings: one for each column.
        style: LINES or TUPLES of `kernels.lines`.
    """
    if not rows.num_rows:
        return
    columns = np.zeros((max(rows.num_columns, 1), lines.WORDS), np.int64)
    for words, array, encoding in zip(columns, rows.columns, encodings, strict=True):
        words[:] = _words(array, encoding)
    capacity = _BUFFER_BYTES
    out = np.empty(capacity + SLACK, np.uint8)
    job = np.zeros(lines.JOB, np.int64)
    job[lines.ROWS] = rows.num_rows
    job[lines.COLUMNS] = columns.ctypes.data
    job[lines.COUNT] = rows.num_columns
    job[lines.STYLE] = style
    while job[lines.ROW] < rows.num_rows:
        job[lines.OUT], job[lines.CAPACITY], job[lines.USED] = out.ctypes.data, capacity, 0
        lines.write_lines(job.ctypes.data, TABLES)
        used = int(job[lines.USED])
        if used:
            yield out.data[:used]
        else:  # a single row is larger than the buffer
            capacity *= 2
            out = np.empty(capacity + SLACK, np.uint8)


def encode_table(
    rows: pa.Table,
    encodings: Sequence[ColumnEncoding],
    convert: Callable[[int, pa.Array], pa.Array],
    *,
    style: int = lines.LINES,
) -> Iterator[memoryview]:
    """The lines of a table, see `encode`.

    Args:
        rows: the rows to encode.
        encodings: one for each column.
        convert: converts an array of the column with that index to the array to encode.
        style: LINES or TUPLES of `kernels.lines`.
    """
    for batch in rows.to_batches():
        arrays = [convert(i, array) for i, array in enumerate(batch.columns)]
        yield from encode(pa.RecordBatch.from_arrays(arrays, batch.schema.names), encodings, style=style)


def _words(array: pa.Array, encoding: ColumnEncoding) -> list[int]:
    buffers = array.buffers()
    if pa.types.is_list(array.type):
        data = _address(buffers[3]) + 4 * array.values.offset
        return [
            encoding.kind,
            _address(buffers[0]),
            _address(buffers[1]),
            data,
            array.offset,
            encoding.detail,
        ]
    data = _address(buffers[2]) if len(buffers) > 2 else 0
    validity = 0 if array.null_count == 0 else _address(buffers[0])
    return [encoding.kind, validity, _address(buffers[1]), data, array.offset, encoding.detail]


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else int(buffer.address)
