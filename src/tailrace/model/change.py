"""Changes as columns: the one form in which rows travel from a reader to a sink.

A ChangeBatch holds some thousand changes of one table and one shape of it, in log order:

    op          what happened            int8: OP_READ, OP_CREATE, OP_UPDATE, OP_DELETE
    before      the row before           struct, null where there is none (r, c)
    after       the row after            struct, null where there is none (d)
    origin      where it comes from      a record batch with the columns of ORIGIN, one row each

`cell` packs a batch into Arrow IPC bytes (design §3): Spark moves these bytes, not rows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from tailrace.model.table import TableSchema

OP_READ, OP_CREATE, OP_UPDATE, OP_DELETE = range(4)
#: Debezium's letter of each operation, by its code.
OP_LETTERS = ("r", "c", "u", "d")

#: Where a change comes from. One row per change.
#:
#: seq        sorts in log order for the life of the stream, snapshot rows included (see `sources`)
#: ts_us      commit time at the source, microseconds since 1970 UTC; 0 if unknown
#: txn        the source's transaction id (MySQL: GTID), null if it has none
#: file, pos  place of the event in the log: file name and byte offset of the event's start
#: row        number of the row within its event
#: server_id  the server that first executed the transaction
#: thread     connection that executed it, null if unknown
ORIGIN = pa.schema(
    [
        pa.field("seq", pa.string()),
        pa.field("ts_us", pa.int64()),
        pa.field("txn", pa.dictionary(pa.int32(), pa.string())),
        pa.field("file", pa.dictionary(pa.int32(), pa.string())),
        pa.field("pos", pa.int64()),
        pa.field("row", pa.int32()),
        pa.field("server_id", pa.int64()),
        pa.field("thread", pa.int64()),
    ]
)

_TABLE_KEY = b"tailrace.table"


@lru_cache(maxsize=256)
def _table(text: bytes) -> TableSchema:
    """The shape written as `text`; one object for all batches of it, as what it derives is kept on it."""
    return TableSchema.from_json(json.loads(text))


@dataclass(frozen=True)
class ChangeBatch:
    """Changes of one table, in log order.

    Args:
        table: the shape all row images have.
        op: int8 array of length n, codes OP_*.
        before: struct array of length n and type `table.arrow`, or None when no row has a before image.
        after: the same for after images.
        origin: record batch of n rows with schema ORIGIN.
    """

    table: TableSchema
    op: pa.Array
    before: pa.StructArray | None
    after: pa.StructArray | None
    origin: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.op)

    def image(self, side: str) -> pa.StructArray:
        """`before` or `after` as an array of length n: all null when the batch has no such image."""
        array = self.before if side == "before" else self.after
        return pa.nulls(len(self), self.table.arrow) if array is None else array

    def take(self, indices: pa.Array) -> ChangeBatch:
        """The changes at `indices`, in that order."""
        return ChangeBatch(
            self.table,
            self.op.take(indices),
            None if self.before is None else self.before.take(indices),
            None if self.after is None else self.after.take(indices),
            self.origin.take(indices),
        )

    def slice(self, offset: int, length: int | None = None) -> ChangeBatch:
        """`length` changes from `offset` on, without a copy."""
        return ChangeBatch(
            self.table,
            self.op.slice(offset, length),
            None if self.before is None else self.before.slice(offset, length),
            None if self.after is None else self.after.slice(offset, length),
            self.origin.slice(offset, length),
        )

    def to_record_batch(self) -> pa.RecordBatch:
        """op, [before], [after] and ORIGIN's columns side by side; the shape is in the metadata."""
        names, arrays = ["op"], [self.op]
        for side in ("before", "after"):
            image = self.before if side == "before" else self.after
            if image is not None:
                names.append(side)
                arrays.append(image)
        for field, column in zip(ORIGIN, self.origin.columns, strict=True):
            names.append(f"origin.{field.name}")
            arrays.append(column)
        metadata = {_TABLE_KEY: self.table.text}
        fields = [pa.field(n, a.type) for n, a in zip(names, arrays, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=metadata))

    @classmethod
    def from_record_batch(cls, batch: pa.RecordBatch) -> ChangeBatch:
        """What `to_record_batch` made."""
        table = _table(batch.schema.metadata[_TABLE_KEY])
        names = batch.schema.names
        return cls(
            table,
            batch.column("op"),
            batch.column("before") if "before" in names else None,
            batch.column("after") if "after" in names else None,
            pa.RecordBatch.from_arrays([batch.column(f"origin.{f.name}") for f in ORIGIN], schema=ORIGIN),
        )

    def to_cell(self) -> bytes:
        """The batch as one Arrow IPC stream."""
        batch = self.to_record_batch()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return bytes(sink.getvalue())

    @classmethod
    def from_cell(cls, cell: bytes | pa.Buffer) -> ChangeBatch:
        """What `to_cell` made; the arrays point into `cell`."""
        with pa.ipc.open_stream(cell) as reader:
            return cls.from_record_batch(reader.read_next_batch())
