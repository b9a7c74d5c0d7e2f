"""Changes as columns: the form in which rows travel from a reader to a sink.

A ChangeBatch holds some thousand changes of one table with one schema, in log order:

    op          operation                int8: OP_READ, OP_CREATE, OP_UPDATE, OP_DELETE, OP_REREAD
    before      the row before           struct, null if there is none (r, c)
    after       the row after            struct, null if there is none (d)
    origin      origin of the change     record batch with the columns of ORIGIN, one row per change

A batch is of one kind: rows of a first snapshot, rows of a table that is read again, or changes of the log.
Rows that were read share one origin, the position that they are as of. `model.cell` encodes a batch as the
bytes that Spark moves.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tailrace.model.table import TableSchema

OP_READ, OP_CREATE, OP_UPDATE, OP_DELETE, OP_REREAD = range(5)
#: Debezium's letter of each operation of a row, by its code.
OP_LETTERS = ("r", "c", "u", "d", "r")
#: All rows are gone. Sources have no such changes: only the Kafka sink makes them, of schema changes.
OP_TRUNCATE = 5

#: Kinds of batches: rows of a first snapshot, which no target has yet; changes of the log; rows of a table
#: that is read again, whose keys a target may have. In one batch of a stream, the changes of a table in the
#: log come before the rows that are read again.
SNAPSHOT, LOG, REREAD = "snapshot", "log", "reread"
_KINDS = {OP_READ: SNAPSHOT, OP_REREAD: REREAD}

#: Digits of `seq`.
SEQ_DIGITS = 32

#: The origin of a change. One row per change.
#:
#: seq        sorts in log order for the life of the stream, snapshot rows included (see `sources`)
#: ts_us      commit time at the source, microseconds since 1970 UTC; 0 if unknown
#: txn        the source's transaction id (MySQL: GTID), null if it has none
#: file, pos  position of the event in the log: file name and byte offset of the event's start
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

#: The number of a change within its transaction, counted from 1.
#:
#: total_order            among all changes of the transaction
#: data_collection_order  among its changes of the same table
TRANSACTION_ORDER = pa.struct(
    [pa.field("total_order", pa.int64()), pa.field("data_collection_order", pa.int64())]
)
#: Name of the column that holds it in `ChangeBatch.to_record_batch`: part of a stored form.
ORDER_COLUMN = "place"
#: Name of the column of the statements there, and its type.
QUERY_COLUMN = "query"
QUERY_TYPE = pa.dictionary(pa.int32(), pa.string())


def _of_columns(rows: pa.StructArray, names: Sequence[str]) -> pa.StructArray:
    """The columns of that name of rows among which a null has null in each."""
    columns, fields = [rows.field(name) for name in names], [rows.type.field(name) for name in names]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=rows.is_null())


def origin_of_rows(rows: int, *, seq: str, ts_us: int, file: str, pos: int) -> pa.RecordBatch:
    """The origin of snapshot rows: the position that they are as of, without a transaction or a server."""
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
        table: the schema of all row images.
        op: int8 array of length n, codes OP_*.
        before: struct array of length n and type `table.arrow`, or None when no row has a before image.
        after: the same for after images.
        origin: record batch of n rows with schema ORIGIN.
        absent_before: columns that the log omitted from all before images of the batch: their values are
            null in the arrays and unknown. Empty if the log holds whole rows.
        absent_after: the same for after images. A column that an update left unchanged is not listed if the
            before image has it.
        order: struct array of n rows of type TRANSACTION_ORDER, null for a change without a transaction id;
            None if the changes have not been counted.
        query: array of n values of type QUERY_TYPE, the statement that made each change, null where the log
            does not have it; None if statements are not captured.
    """

    table: TableSchema
    op: pa.Array
    before: pa.StructArray | None
    after: pa.StructArray | None
    origin: pa.RecordBatch
    absent_before: tuple[str, ...] = ()
    absent_after: tuple[str, ...] = ()
    order: pa.StructArray | None = None
    query: pa.DictionaryArray | None = None

    def __len__(self) -> int:
        return len(self.op)

    @property
    def kind(self) -> str:
        """SNAPSHOT, LOG or REREAD."""
        return _KINDS.get(self.op[0].as_py(), LOG) if len(self) else LOG

    @property
    def is_read(self) -> bool:
        """Whether the batch holds rows as of a position, rather than changes of the log."""
        return self.kind != LOG

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
            order=None if self.order is None else self.order.take(indices),
            query=None if self.query is None else self.query.take(indices),
        )

    def without(self, names: Collection[str]) -> ChangeBatch:
        """The changes without some columns, none of which is part of the key."""
        kept = [column for column in self.table.columns if column.name not in names]
        if len(kept) == len(self.table.columns):
            return self
        table = replace(self.table, columns=tuple(kept))
        return replace(
            self,
            table=table,
            before=None if self.before is None else _of_columns(self.before, [c.name for c in kept]),
            after=None if self.after is None else _of_columns(self.after, [c.name for c in kept]),
            absent_before=tuple(name for name in self.absent_before if name not in names),
            absent_after=tuple(name for name in self.absent_after if name not in names),
        )

    def slice(self, offset: int, length: int | None = None) -> ChangeBatch:
        """`length` changes from `offset` on, without a copy."""
        return replace(
            self,
            op=self.op.slice(offset, length),
            before=None if self.before is None else self.before.slice(offset, length),
            after=None if self.after is None else self.after.slice(offset, length),
            origin=self.origin.slice(offset, length),
            order=None if self.order is None else self.order.slice(offset, length),
            query=None if self.query is None else self.query.slice(offset, length),
        )

    def to_record_batch(self) -> pa.RecordBatch:
        """op, [before], [after], ORIGIN's columns, [ORDER_COLUMN] and [QUERY_COLUMN] as one record batch."""
        columns = {"op": self.op, **self.images()}
        columns |= {f"origin.{f.name}": c for f, c in zip(ORIGIN, self.origin.columns, strict=True)}
        if self.order is not None:
            columns[ORDER_COLUMN] = self.order
        if self.query is not None:
            columns[QUERY_COLUMN] = self.query
        return pa.RecordBatch.from_pydict(columns)

    def images(self) -> dict[str, pa.StructArray]:
        """The batch's images by side, `before` and `after`; a side without an image is omitted."""
        images = {"before": self.before, "after": self.after}
        return {side: image for side, image in images.items() if image is not None}
