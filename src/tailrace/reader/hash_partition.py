"""Partitioning of a log split by the hash of the key (option `partitioner`: `hash`).

Every task reads the whole range and drops the changes of other shares. So all changes of a key are in one
partition, in log order, without a shuffle: decoding is cheap compared with processing the rows. Key updates
have been split into a delete and a create by then; the two may belong to different shares.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tailrace.model.change import ChangeBatch
from tailrace.reader.log import keys_of


def in_share(changes: Iterator[ChangeBatch], share: tuple[int, int] | None) -> Iterator[ChangeBatch]:
    """The changes that belong to a share of the keys, in their order.

    A table without a key belongs to one share as a whole.

    Args:
        changes: changes of any tables.
        share: (number, count); None: all changes.
    """
    if share is None:
        yield from changes
        return
    from tailrace.kernels.rowhash import hash_rows  # noqa: PLC0415 - loads kernels, which planning does not need

    number, count = share
    for batch in changes:
        if not batch.table.key:
            if zlib.crc32(str(batch.table.id).encode()) % count == number:
                yield batch
            continue
        hashes = hash_rows(keys_of(batch).flatten(), len(batch))
        selected = np.flatnonzero(hashes % np.uint64(count) == number)
        if len(selected):
            yield batch if len(selected) == len(batch) else batch.take(pa.array(selected))
