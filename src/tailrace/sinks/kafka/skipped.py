"""Which operations are left out of topics: Debezium's `skipped.operations`.

As there, the letter of a message counts: `d` leaves out the delete of a key update, and its tombstone. But
the connectors of MySQL and MariaDB skip the log's events of updates as they are, so that with `u` both halves
of a key update are left out; that of PostgreSQL splits such an update first.

Source: debezium/debezium v3.6.1 `EventDispatcher`, `BinlogStreamingChangeEventSource`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailrace.formats.connect.source_block import POSTGRES
from tailrace.formats.debezium.headers import key_updates
from tailrace.formats.encodings.json_documents import operations
from tailrace.model.change import OP_CREATE, OP_DELETE, OP_TRUNCATE, OP_UPDATE, ChangeBatch

_CODES = {"c": OP_CREATE, "u": OP_UPDATE, "d": OP_DELETE, "t": OP_TRUNCATE}


@dataclass(frozen=True)
class SkippedOperations:
    """The operations of a sink that are left out.

    Args:
        letters: Debezium's letters of them.
        connector: Debezium's name of the source's kind.
    """

    letters: frozenset[str] = frozenset("t")
    connector: str = "mysql"

    @property
    def has_truncates(self) -> bool:
        """Whether TRUNCATE is written."""
        return "t" not in self.letters

    @property
    def skips_rows(self) -> bool:
        """Whether changes of rows are left out."""
        return bool(self.letters - {"t"})

    def kept(self, batch: ChangeBatch) -> np.ndarray:
        """Which changes are written: a boolean for each."""
        skipped = np.isin(operations(batch), [_CODES[letter] for letter in self.letters])
        if "u" in self.letters and self.connector != POSTGRES:
            first = key_updates(batch)
            skipped[first] = skipped[first + 1] = True
        return ~skipped

    def counted(self, batch: ChangeBatch) -> np.ndarray:
        """Which changes have a place in their transaction: a boolean for each.

        A TRUNCATE of MySQL and MariaDB has a GTID and no BEGIN, and so no transaction for Debezium.
        """
        kept = self.kept(batch)
        return kept if self.connector == POSTGRES else kept & (operations(batch) != OP_TRUNCATE)


#: As Debezium by default.
DEFAULT = SkippedOperations()
