"""Arrow rows as the lines that LOAD DATA and COPY read, some hundred kilobytes at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.kernels import lines
from tailrace.kernels.memory import SLACK
from tailrace.kernels.tables import TABLES

#: Bytes of one piece: below the smallest packet that a MySQL server may be set to take.
_PIECE = 512 << 10


@dataclass(frozen=True)
class Writer:
    """How a column's values are written.

    Args:
        kind: a constant of `kernels.lines`.
        detail: what that kind needs to know, see there.
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


def plain_writer(type_: pa.DataType) -> Writer:
    """How values of `type_` are written where nothing else is said."""
    if pa.types.is_decimal128(type_):
        return Writer(lines.DECIMAL, type_.scale)
    return Writer(_BY_ARROW_TYPE[type_])


def encode(
    rows: pa.RecordBatch, writers: Sequence[Writer], *, style: int = lines.LINES
) -> Iterator[memoryview]:
    """The lines of `rows`, in pieces of whole lines; a piece is good until the next one is asked for.

    Args:
        rows: what is written.
        writers: one for each column.
        style: LINES or TUPLES of `kernels.lines`.
    """
    if not rows.num_rows:
        return
    columns = np.zeros((max(rows.num_columns, 1), lines.WORDS), np.int64)
    for words, array, writer in zip(columns, rows.columns, writers, strict=True):
        words[:] = _words(array, writer)
    capacity = _PIECE
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
        else:  # a row of its own size
            capacity *= 2
            out = np.empty(capacity + SLACK, np.uint8)


def encode_table(
    rows: pa.Table,
    writers: Sequence[Writer],
    written: Callable[[int, pa.Array], pa.Array],
    *,
    style: int = lines.LINES,
) -> Iterator[memoryview]:
    """The lines of a table, see `encode`.

    Args:
        rows: what is written.
        writers: one for each column.
        written: the array that is written for one of a column of that number.
        style: LINES or TUPLES of `kernels.lines`.
    """
    for batch in rows.to_batches():
        arrays = [written(i, array) for i, array in enumerate(batch.columns)]
        yield from encode(pa.RecordBatch.from_arrays(arrays, batch.schema.names), writers, style=style)


def _words(array: pa.Array, writer: Writer) -> list[int]:
    buffers = array.buffers()
    if pa.types.is_list(array.type):
        data = _address(buffers[3]) + 4 * array.values.offset
        return [writer.kind, _address(buffers[0]), _address(buffers[1]), data, array.offset, writer.detail]
    data = _address(buffers[2]) if len(buffers) > 2 else 0
    validity = 0 if array.null_count == 0 else _address(buffers[0])
    return [writer.kind, validity, _address(buffers[1]), data, array.offset, writer.detail]


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else int(buffer.address)
