"""A task's input partition, one split, and how the task reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from tailrace.config.options import SourceOptions
from tailrace.enumerator.parked import not_replayable
from tailrace.errors import PositionLostError, concerning
from tailrace.failpoints import failpoint
from tailrace.model.change import ChangeBatch
from tailrace.model.split import LogSplit, SnapshotSplit, Split
from tailrace.model.table import TableId
from tailrace.reader.hash_partition import in_share
from tailrace.reader.log import read_log
from tailrace.reader.snapshot import read_snapshot, read_until_rewritten
from tailrace.sources import registry
from tailrace.sources.base import Session
from tailrace.spark.row_layouts import RowLayout


@dataclass
class SplitPartition(InputPartition):
    """A split as Spark's input partition."""

    split: Split


def read_split(
    split: Split, options: SourceOptions, layout: RowLayout, *, follows: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of one split.

    Args:
        split: the split.
        options: the options of the stream, or of the batch query.
        layout: converts changes to rows.
        follows: whether the reader follows the log, too, and reads a table again that was rewritten.
    """
    session = registry.session(options)
    try:
        if isinstance(split, SnapshotSplit):
            exact = options.exactly_once
            refreshes = follows and options.starting_position == "initial" and options.on_rewrite == "refresh"
            read = read_until_rewritten if refreshes else read_snapshot
            changes = read(session.located(split), session, exact=exact)
            point, changes = "snapshot.batch", _concerning(split.table.id, changes)
        else:
            changes = in_share(_log(split, session), split.share)
            point = "log.batch"
        for rows in layout.rows(changes):
            yield rows
            failpoint(point)
    finally:
        session.close()


def _log(split: LogSplit, session: Session) -> Iterator[ChangeBatch]:
    """The changes of a log split; a parked table whose changes are gone is parked again."""
    try:
        yield from read_log(session.located(split), session)
    except PositionLostError as error:
        if split.parked is None:
            raise
        raise not_replayable(split.parked, error) from error


def _concerning(table: TableId, changes: Iterator[ChangeBatch]) -> Iterator[ChangeBatch]:
    """`changes`, whose errors are of one table."""
    with concerning(table):
        yield from changes
