"""Changes as columns: the one form in which rows travel from a reader to a sink.

A ChangeBatch holds some thousand changes of one table and one shape of it, in log order:

    op          what happened            int8: OP_READ, OP_CREATE, OP_UPDATE, OP_DELETE
    before      the row before           struct, null where there is none (r, c)
    after       the row after            struct, null where there is none (d)
    origin      where it comes from      a record batch with the columns of ORIGIN, one row each

A batch holds snapshot rows or changes of the log, never both; the rows of a snapshot batch have one origin,
the position they are as of. `model.cell` packs a batch into the bytes that Spark moves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
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

#: Where a change stands in its transaction, counted from 1.
#:
#: total_order            among all its changes
#: data_collection_order  among those of the table
TRANSACTION_ORDER = pa.struct(
    [pa.field("total_order", pa.int64()), pa.field("data_collection_order", pa.int64())]
)


def origin_of_rows(rows: int, *, seq: str, ts_us: int, file: str, pos: int) -> pa.RecordBatch:
    """The origin of snapshot rows: where they are as of, in no transaction and of no server."""
    zeros = pa.array(np.zeros(rows, np.int32))
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(seq, rows),
            pa.array(np.full(rows, ts_us)),
            pa.DictionaryArray.from_arrays(pa.nulls(rows, pa.int32()), pa.array([], pa.string())),
            pa.DictionaryArray.from_arrays(zeros, pa.array([file])),
            pa.array(np.full(rows, pos)),
            zeros,
            pa.array(np.zeros(rows, np.int64)),
            pa.nulls(rows, pa.int64()),
        ],
        schema=ORIGIN,
    )


@dataclass(frozen=True)
class ChangeBatch:
    """Changes of one table, in log order.

    Args:
        table: the shape all row images have.
        op: int8 array of length n, codes OP_*.
        before: struct array of length n and type `table.arrow`, or None when no row has a before image.
        after: the same for after images.
        origin: record batch of n rows with schema ORIGIN.
        absent_before: columns that the log left out of all of the batch's before images: null there, and
            not known. Empty where the log holds whole rows.
        absent_after: the same for after images; what an update did not change is not in it if the
            before image has it.
        place: struct array of n rows of type PLACE, null where a change has no transaction id; None: nobody
            has counted.
    """

    table: TableSchema
    op: pa.Array
    before: pa.StructArray | None
    after: pa.StructArray | None
    origin: pa.RecordBatch
    absent_before: tuple[str, ...] = ()
    absent_after: tuple[str, ...] = ()
    place: pa.StructArray | None = None

    def __len__(self) -> int:
        return len(self.op)

    @property
    def is_snapshot(self) -> bool:
        """Whether these are rows of a snapshot."""
        return bool(len(self)) and self.op[0].as_py() == OP_READ

    def image(self, side: str) -> pa.StructArray:
        """`before` or `after` as an array of length n: all null when the batch has no such image."""
        array = self.before if side == "before" else self.after
        return pa.nulls(len(self), self.table.arrow) if array is None else array

    def take(self, indices: pa.Array) -> ChangeBatch:
        """The changes at `indices`, in that order."""
        return replace(
            self,
            op=self.op.take(indices),
            before=None if self.before is None else self.before.take(indices),
            after=None if self.after is None else self.after.take(indices),
            origin=self.origin.take(indices),
            place=None if self.place is None else self.place.take(indices),
        )

    def slice(self, offset: int, length: int | None = None) -> ChangeBatch:
        """`length` changes from `offset` on, without a copy."""
        return replace(
            self,
            op=self.op.slice(offset, length),
            before=None if self.before is None else self.before.slice(offset, length),
            after=None if self.after is None else self.after.slice(offset, length),
            origin=self.origin.slice(offset, length),
            place=None if self.place is None else self.place.slice(offset, length),
        )

    def to_record_batch(self) -> pa.RecordBatch:
        """op, [before], [after], ORIGIN's columns and [place] side by side."""
        columns = {"op": self.op, **self.images()}
        columns |= {f"origin.{f.name}": c for f, c in zip(ORIGIN, self.origin.columns, strict=True)}
        if self.place is not None:
            columns["place"] = self.place
        return pa.RecordBatch.from_pydict(columns)

    def images(self) -> dict[str, pa.StructArray]:
        """The images that the batch has, by side: `before`, `after`."""
        images = {"before": self.before, "after": self.after}
        return {side: image for side, image in images.items() if image is not None}
