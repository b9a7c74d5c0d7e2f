"""A share of a log split: the changes of the keys whose hash falls to it (option `partitioner`: `hash`).

Every task reads the whole range and drops what is not its own, so all changes of a key come in one partition,
in log order, without a shuffle: decoding is cheap beside what is done with the rows. A key update has
become a delete and a create by then, which may fall to two shares.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tailrace.model.change import ChangeBatch
from tailrace.reader.log import keys_of


def in_share(changes: Iterator[ChangeBatch], share: tuple[int, int] | None) -> Iterator[ChangeBatch]:
    """The changes that fall to `share` (number, count), in their order; all of them without a share.

    A table without a key falls to one share as a whole.
    """
    if share is None:
        yield from changes
        return
    from tailrace.kernels.rowhash import hash_rows  # noqa: PLC0415 - loads kernels, which planning needs not

    number, count = share
    for batch in changes:
        if not batch.table.key:
            if zlib.crc32(str(batch.table.id).encode()) % count == number:
                yield batch
            continue
        hashes = hash_rows(keys_of(batch).flatten(), len(batch))
        mine = np.flatnonzero(hashes % np.uint64(count) == number)
        if len(mine):
            yield batch if len(mine) == len(batch) else batch.take(pa.array(mine))
