"""A sink whose refused rows go into quarantine: Delta and Iceberg, `on-refused-row: quarantine`.

    write the batch ──▶ done
          └── a row is refused ──▶ find all such rows ──▶ put them aside ──▶ write the batch without them

Nothing is looked for until a row is refused. A batch that comes again fails in the same way, and puts the
same rows into the same file; targets that have the batch already skip it, and their rows are put aside, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Protocol

from pyspark.errors import PySparkException

from tailrace.errors import SinkError, TailraceError
from tailrace.model.table import TableId
from tailrace.sinks.base import Capabilities, CellBatch, Sink, Written
from tailrace.sinks.quarantine import Quarantine, too_many
from tailrace.sinks.tables.screening import RowRules, Screened, screen
from tailrace.spark.task_errors import parse_error

_log = logging.getLogger(__name__)
#: Conditions of single rows.
_OF_A_ROW = frozenset({"TR-4405", "TR-7006"})


class ChoosySink(Sink, Protocol):
    """A sink that can tell what its targets demand of rows."""

    @property
    def quarantine_root(self) -> str:
        """The directory below which the stream keeps what belongs to its targets."""

    def rules(self, batch: CellBatch) -> Mapping[str, RowRules]:
        """What targets demand of rows, for each table that a batch has rows of."""


@dataclass(frozen=True)
class QuarantiningSink:
    """Writes batches to another sink, without the rows that it refuses.

    Args:
        sink: the other.
        most: how many rows of a table may be in quarantine.
    """

    sink: ChoosySink
    most: int

    @property
    def capabilities(self) -> Capabilities:
        """See `Sink`."""
        return self.sink.capabilities

    @property
    def pending_rows(self) -> int:
        """See `Sink`."""
        return self.sink.pending_rows

    def claim(self, tables: Iterable[TableId]) -> None:
        """See `Sink`."""
        self.sink.claim(tables)

    def write(self, batch: CellBatch) -> list[Written]:
        """See `Sink`.

        Raises:
            SinkError: as the other sink; or a table has more refused rows than may be put aside.
        """
        try:
            return self.sink.write(batch)
        except (SinkError, PySparkException) as error:
            found = error if isinstance(error, SinkError) else parse_error(str(error))
            if found is None or found.code not in _OF_A_ROW:
                raise
            screened = screen(batch.frame, self.sink.rules(batch), batch.id)
            if not screened.counts:
                raise
            self._put_aside(batch, screened, found)
        with closing(replace(batch, once=screened.cells)) as rest:
            return self.sink.write(rest)

    def _put_aside(self, batch: CellBatch, screened: Screened, error: TailraceError) -> None:
        quarantine = Quarantine(self.sink.quarantine_root, batch.stream.query)
        for table, count in sorted(screened.counts.items()):
            if quarantine.count(table, without=batch.id) + count > self.most:
                raise too_many(table, self.most, error.message) from error
        by_table = attrgetter("table")
        for table, rows in groupby(sorted(screened.entries(), key=by_table), by_table):
            quarantine.put(table, batch.id, rows)
            batch.quarantined[batch.sink, table] += screened.counts[table]
            _log.warning(
                "batch %d: %d rows of table %s are refused by sink %s, now in quarantine",
                batch.id,
                screened.counts[table],
                table,
                batch.sink,
            )

    def close(self) -> None:
        """See `Sink`."""
        self.sink.close()
