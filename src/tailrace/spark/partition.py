"""A task's input partition, one split or several small ones, and how the task reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
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
from tailrace.reader.ahead import reading_ahead
from tailrace.reader.declared import with_declarations
from tailrace.reader.hash_partition import in_share
from tailrace.reader.log import read_log
from tailrace.reader.masks import Masks
from tailrace.reader.snapshot import (
    read_snapshot,
    read_until_end,
    read_until_lost,
    read_until_rewritten,
)
from tailrace.sources import registry
from tailrace.sources.base import Session
from tailrace.spark.live_sample import Wanted, sampled
from tailrace.spark.row_layouts import RowLayout


@dataclass
class SplitPartition(InputPartition):
    """Splits as Spark's input partition, read one after the other.

    Args:
        splits: the splits.
        sample: that somebody looks at the changes of the stream; None: nobody does.
    """

    splits: tuple[Split, ...]
    sample: Wanted | None = None


def partitions_of(
    splits: Sequence[Split], parallelism: int, sample: Wanted | None = None
) -> list[SplitPartition]:
    """The partitions of a batch: tables that one split reads as a whole share `parallelism` partitions.

    There are many such splits only where the tables are small (`enumerator.snapshot`).
    """
    whole: list[Split] = []
    alone: list[Split] = []
    for split in splits:
        is_whole = isinstance(split, SnapshotSplit) and split.after is split.upto is split.blocks is None
        (whole if is_whole else alone).append(split)
    shared = [tuple(whole[first::parallelism]) for first in range(min(parallelism, len(whole)))]
    return [SplitPartition(group, sample) for group in (*((split,) for split in alone), *shared)]


def read_partition(
    partition: SplitPartition, options: SourceOptions, layout: RowLayout
) -> Iterator[pa.RecordBatch]:
    """The rows of a stream's partition.

    Args:
        partition: the partition.
        options: the stream's options.
        layout: converts changes to rows.
    """
    for split in partition.splits:
        yield from read_split(split, options, layout, follows=True, sample=partition.sample)


def read_split(
    split: Split, options: SourceOptions, layout: RowLayout, *, follows: bool, sample: Wanted | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of one split.

    Args:
        split: the split.
        options: the options of the stream, or of the batch query.
        layout: converts changes to rows.
        follows: whether the reader follows the log, too, and reads a table again that was rewritten.
        sample: that somebody looks at the changes; None: nobody does.
    """
    options = options.capturing(split.tables, split.columns)
    session = registry.session(options)
    try:
        if isinstance(split, SnapshotSplit):
            exact = options.exactly_once
            rereads = follows and options.starting_position == "initial"
            refreshes = rereads and options.on_rewrite == "refresh"
            read = read_until_rewritten if refreshes else read_snapshot
            changes = read(session.located(split), session, exact=exact)
            changes = read_until_end(changes, split, session)
            if rereads and options.on_position_lost == "refresh":
                changes = read_until_lost(changes)
            point, changes = "snapshot.batch", _concerning(split.table.id, changes)
        else:
            skips_unchanged = options.columns.skips_unchanged
            changes = in_share(_log(split, session, skips_unchanged=skips_unchanged), split.share)
            point = "log.batch"
        if options.column_masks:
            changes = Masks(options.column_masks, options.column_mask_salt.resolve().encode()).changes(
                changes
            )
        if options.propagation:
            changes = with_declarations(changes, options.propagation, split.declared, session.source_type)
        if sample is not None:
            changes = sampled(changes, sample, options.column_masks)
        made = layout.rows(changes)
        with reading_ahead(made) if _is_backlog(split) else nullcontext(made) as made:
            for rows in made:
                yield rows
                failpoint(point)
    finally:
        session.close()


def _is_backlog(split: Split) -> bool:
    """Whether one task reads a part of the log from the server, often while other cores are idle."""
    return isinstance(split, LogSplit) and split.events is None


def _log(split: LogSplit, session: Session, *, skips_unchanged: bool) -> Iterator[ChangeBatch]:
    """The changes of a log split; a parked table whose changes are gone is parked again."""
    try:
        yield from read_log(session.located(split), session, skips_unchanged=skips_unchanged)
    except PositionLostError as error:
        if split.parked is None:
            raise
        raise not_replayable(split.parked, error) from error


def _concerning(table: TableId, changes: Iterator[ChangeBatch]) -> Iterator[ChangeBatch]:
    """`changes`, whose errors are of one table."""
    with concerning(table):
        yield from changes
