"""Logical messages as a batch of changes: rows of `model.messages.MESSAGES`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.model.change import OP_CREATE, ORIGIN, ChangeBatch
from tailrace.model.messages import MESSAGES
from tailrace.sources.postgres.position import seq_of


@dataclass(frozen=True)
class LogicalMessage:
    """A message written by `pg_logical_emit_message`.

    Args:
        lsn: the message's end, as the server reports it.
        commit_lsn: LSN of its transaction's commit; None outside of transactions.
        prefix: its prefix.
        content: its bytes.
        xid: its transaction; None outside of transactions.
        ts_us: commit time, microseconds since 1970 UTC; 0: unknown.
        number: its number among the changes of its transaction.
    """

    lsn: int
    commit_lsn: int | None
    prefix: str
    content: bytes
    xid: int | None = None
    ts_us: int = 0
    number: int = 0

    def seq(self, epoch: int) -> str:
        """Its `seq` among all changes.

        A message outside of transactions counts as a transaction that commits before any position at or above
        its `lsn`.
        """
        return seq_of(self.lsn - 1 if self.commit_lsn is None else self.commit_lsn, self.number + 1, epoch)


def changes_of(messages: Sequence[LogicalMessage], epoch: int) -> ChangeBatch:
    """The batch of some messages, in their order."""
    n = len(messages)
    after = pa.StructArray.from_arrays(
        [
            pa.array([m.lsn for m in messages], pa.int64()),
            pa.array([m.commit_lsn is not None for m in messages]),
            pa.array([m.prefix for m in messages], pa.string()),
            pa.array([m.content for m in messages], pa.binary()),
        ],
        fields=list(MESSAGES.arrow),
    )
    xids = pa.array([None if m.xid is None else str(m.xid) for m in messages], pa.string())
    origin = [
        pa.array([m.seq(epoch) for m in messages], pa.string()),
        pa.array([m.ts_us for m in messages], pa.int64()),
        xids.dictionary_encode(),
        pa.array([""] * n).dictionary_encode(),
        pa.array([m.lsn for m in messages], pa.int64()),
        pa.array([m.number for m in messages], pa.int32()),
        pa.array(np.zeros(n, np.int64)),
        pa.nulls(n, pa.int64()),
    ]
    return ChangeBatch(
        MESSAGES,
        pa.array(np.full(n, OP_CREATE, np.int8)),
        None,
        after,
        pa.RecordBatch.from_arrays(origin, schema=ORIGIN),
    )
