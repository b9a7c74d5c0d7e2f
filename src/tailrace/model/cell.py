"""Cells: how changes travel through Spark.

One Spark row is one cell: some thousand changes of one table with one schema, as Arrow IPC bytes. Further
columns let Spark schedule, sum up and shuffle cells without decoding them. Rows that were read share one
origin, the position that they are as of, so their cell carries it once. See
docs/design/0005-cells-and-the-spark-source.md.
"""

from __future__ import annotations

import json
import struct
from functools import lru_cache

import numpy as np
import pyarrow as pa

from tailrace.model.change import (
    OP_READ,
    OP_REREAD,
    ORDER_COLUMN,
    ORIGIN,
    QUERY_COLUMN,
    REREAD,
    ChangeBatch,
)
from tailrace.model.table import TableSchema

#: Columns of a cell's row.
#:
#: table            `database.table` of the source
#: fingerprint      fingerprint of the schema: `TableSchema.fingerprint`
#: kind             of the changes: SNAPSHOT, LOG or REREAD of `model.change`
#: changes          number of changes in the cell
#: min_seq, max_seq first and last `seq` in the cell
#: cell             the encoded changes
CELL_SCHEMA = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("fingerprint", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("changes", pa.int32()),
        pa.field("min_seq", pa.string()),
        pa.field("max_seq", pa.string()),
        pa.field("cell", pa.binary()),
    ]
)

# Keys of the IPC stream's metadata: a stored form, as staged changes outlive a release.
_TABLE_KEY = b"tailrace.table"
#: The common origin of rows that were read, as an Arrow IPC stream; such cells omit `op` and the origin's
#: columns.
_ORIGIN_KEY = b"tailrace.origin"
#: The rows were read again; omitted in cells of a first snapshot.
_REREAD_KEY = b"tailrace.reread"
#: Names of the columns that the images before and after lack, as JSON; omitted if there are none.
_ABSENT_KEY = b"tailrace.absent"


def cell_row(batch: ChangeBatch) -> pa.RecordBatch:
    """Encode `batch`, which is in log order and not empty, as one row with schema CELL_SCHEMA."""
    seq = batch.origin.column("seq")
    values = [
        str(batch.table.id),
        batch.table.fingerprint,
        batch.kind,
        len(batch),
        seq[0].as_py(),
        seq[-1].as_py(),
    ]
    arrays = [pa.array([v], f.type) for v, f in zip(values, CELL_SCHEMA, strict=False)]
    return pa.RecordBatch.from_arrays([*arrays, _one_binary(encode_cell(batch))], schema=CELL_SCHEMA)


def encode_cell(batch: ChangeBatch) -> pa.Buffer:
    """Encode `batch` as one Arrow IPC stream with the table's schema in its metadata."""
    metadata = {_TABLE_KEY: batch.table.text}
    if batch.absent_before or batch.absent_after:
        metadata[_ABSENT_KEY] = json.dumps([batch.absent_before, batch.absent_after]).encode()
    if batch.is_read:
        metadata[_ORIGIN_KEY] = to_stream(batch.origin.slice(0, 1)).to_pybytes()
        if batch.kind == REREAD:
            metadata[_REREAD_KEY] = b"true"
        columns = pa.RecordBatch.from_pydict(batch.images())
    else:
        columns = batch.to_record_batch()
    return to_stream(columns.replace_schema_metadata(metadata))


def decode_cell(cell: bytes | pa.Buffer) -> ChangeBatch:
    """Decode the changes that `encode_cell` encoded; the arrays point into `cell`."""
    batch = _read(cell)
    metadata, names = batch.schema.metadata, batch.schema.names
    if _ORIGIN_KEY in metadata:
        op = pa.array(np.full(batch.num_rows, OP_REREAD if _REREAD_KEY in metadata else OP_READ, np.int8))
        origin = _read(metadata[_ORIGIN_KEY]).take(pa.array(np.zeros(batch.num_rows, np.int32)))
    else:
        op = batch.column("op")
        origin = pa.RecordBatch.from_arrays([batch.column(f"origin.{f.name}") for f in ORIGIN], schema=ORIGIN)
    before, after, order, query = (
        batch.column(name) if name in names else None
        for name in ("before", "after", ORDER_COLUMN, QUERY_COLUMN)
    )
    absent_before, absent_after = map(tuple, json.loads(metadata.get(_ABSENT_KEY, b"[[], []]")))
    table = _table(metadata[_TABLE_KEY])
    return ChangeBatch(table, op, before, after, origin, absent_before, absent_after, order, query)


def table_of_head(head: bytes) -> TableSchema:
    """Read the table's schema from the first message of a cell's IPC stream."""
    return _table(pa.ipc.read_schema(pa.py_buffer(head)).metadata[_TABLE_KEY])


def to_stream(rows: pa.RecordBatch | pa.Table) -> pa.Buffer:
    """Encode `rows` as an Arrow IPC stream in one allocation of exactly its size."""
    size = pa.MockOutputStream()
    _write(rows, size)
    stream = pa.allocate_buffer(size.size())
    _write(rows, pa.FixedSizeBufferWriter(stream))
    return stream


def _write(rows: pa.RecordBatch | pa.Table, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)


def _read(stream: bytes | pa.Buffer) -> pa.RecordBatch:
    with pa.ipc.open_stream(stream) as reader:
        return reader.read_next_batch()


@lru_cache(maxsize=256)
def _table(text: bytes) -> TableSchema:
    """Parse a schema; all batches of it share one object, which caches what is derived from it."""
    return TableSchema.from_json(json.loads(text))


def _one_binary(value: pa.Buffer) -> pa.BinaryArray:
    """An array of one value, without copying it."""
    ends = pa.py_buffer(struct.pack("<ii", 0, value.size))
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, value])
