"""Cells: how changes travel through Spark.

One Spark row is one cell: a batch of some thousand changes of one table and one schema of it, as Arrow IPC
bytes, and beside them what Spark needs to schedule, sum up and shuffle cells without opening them. Rows of a
snapshot have one origin, the position that they are as of, so their cell carries it once.
"""

from __future__ import annotations

import json
import struct
from functools import lru_cache

import numpy as np
import pyarrow as pa

from tailrace.model.change import OP_READ, ORIGIN, ChangeBatch
from tailrace.model.table import TableSchema

#: Kinds of cells.
SNAPSHOT, LOG = "snapshot", "log"

#: Columns of a cell's row.
#:
#: table            `database.table` of the source
#: fingerprint      of the schema: `TableSchema.fingerprint`
#: kind             SNAPSHOT or LOG
#: changes          how many changes the cell holds
#: min_seq, max_seq the first and the last `seq` in it
#: cell             the changes
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
#: Of snapshot rows: their one origin, an Arrow IPC stream; `op` and origin's columns are left out.
_ORIGIN_KEY = b"tailrace.origin"
#: Of images that lack columns: their names, before and after, as JSON.
_ABSENT_KEY = b"tailrace.absent"


def cell_row(batch: ChangeBatch) -> pa.RecordBatch:
    """The row of CELL_SCHEMA that holds `batch`, which is not empty and in log order."""
    seq = batch.origin.column("seq")
    values = [
        str(batch.table.id),
        batch.table.fingerprint,
        SNAPSHOT if batch.is_snapshot else LOG,
        len(batch),
        seq[0].as_py(),
        seq[-1].as_py(),
    ]
    arrays = [pa.array([v], f.type) for v, f in zip(values, CELL_SCHEMA, strict=False)]
    return pa.RecordBatch.from_arrays([*arrays, _one_binary(encode_cell(batch))], schema=CELL_SCHEMA)


def encode_cell(batch: ChangeBatch) -> pa.Buffer:
    """`batch` as one Arrow IPC stream; the table's schema is in its metadata."""
    metadata = {_TABLE_KEY: batch.table.text}
    if batch.absent_before or batch.absent_after:
        metadata[_ABSENT_KEY] = json.dumps([batch.absent_before, batch.absent_after]).encode()
    if batch.is_snapshot:
        metadata[_ORIGIN_KEY] = to_stream(batch.origin.slice(0, 1)).to_pybytes()
        columns = pa.RecordBatch.from_pydict(batch.images())
    else:
        columns = batch.to_record_batch()
    return to_stream(columns.replace_schema_metadata(metadata))


def decode_cell(cell: bytes | pa.Buffer) -> ChangeBatch:
    """The changes that `encode_cell` packed; the arrays point into `cell`."""
    batch = _read(cell)
    metadata, names = batch.schema.metadata, batch.schema.names
    if _ORIGIN_KEY in metadata:
        op = pa.array(np.full(batch.num_rows, OP_READ, np.int8))
        origin = _read(metadata[_ORIGIN_KEY]).take(pa.array(np.zeros(batch.num_rows, np.int32)))
    else:
        op = batch.column("op")
        origin = pa.RecordBatch.from_arrays([batch.column(f"origin.{f.name}") for f in ORIGIN], schema=ORIGIN)
    before, after, place = (
        batch.column(name) if name in names else None for name in ("before", "after", "place")
    )
    lacks_before, lacks_after = map(tuple, json.loads(metadata.get(_ABSENT_KEY, b"[[], []]")))
    table = _table(metadata[_TABLE_KEY])
    return ChangeBatch(table, op, before, after, origin, lacks_before, lacks_after, place)


def table_of_head(head: bytes) -> TableSchema:
    """The table's schema in the first message of a cell's IPC stream."""
    return _table(pa.ipc.read_schema(pa.py_buffer(head)).metadata[_TABLE_KEY])


def to_stream(rows: pa.RecordBatch | pa.Table) -> pa.Buffer:
    """`rows` as an Arrow IPC stream, written once into memory of its size."""
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
    """The schema written as `text`; one object for all batches of it, as what it derives is kept on it."""
    return TableSchema.from_json(json.loads(text))


def _one_binary(value: pa.Buffer) -> pa.BinaryArray:
    """An array of one value, which is not copied."""
    ends = pa.py_buffer(struct.pack("<ii", 0, value.size))
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, value])
