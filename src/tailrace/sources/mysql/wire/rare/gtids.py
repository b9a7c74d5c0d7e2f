"""Row events by the server that first executed their transaction."""

from __future__ import annotations

import uuid

import numpy as np

from tailrace.errors import SourceError
from tailrace.model.gtid_sources import GtidSources
from tailrace.sources.mysql.wire.kernels import events as ev
from tailrace.sources.wire.kernels import rowbatch as rb


def are_given(txs: np.ndarray, events: np.ndarray, sources: GtidSources, file: str) -> np.ndarray:
    """For each row event whether its transaction is of one of the servers.

    Args:
        txs: the transactions' records.
        events: the events' records.
        sources: the servers.
        file: the log file, for errors.

    Raises:
        SourceError: a transaction has no GTID of MySQL, so that its server is not known.
    """
    its = events[:, rb.EV_TXN]
    unknown = np.flatnonzero(txs[its, ev.TX_HAS_GTID] != 1)
    if len(unknown):
        raise SourceError(
            "the log has a transaction without a GTID, whose server is not known",
            f"at {file}:{events[unknown[0], rb.EV_POS]}; a list of servers says whose transactions are given",
            "SET PERSIST gtid_mode = ON; and start the stream behind the transaction, or leave out "
            "gtid.source.includes and gtid.source.excludes",
            code="TR-1093",
        )
    uuids, index = np.unique(txs[:, ev.TX_UUID : ev.TX_UUID + 2], axis=0, return_inverse=True)
    given = np.array([sources.has(str(uuid.UUID(bytes=words.tobytes()))) for words in uuids], bool)
    found: np.ndarray = given[index.reshape(-1)][its]
    return found
