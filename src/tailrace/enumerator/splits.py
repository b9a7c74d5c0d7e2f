"""The splits of a batch, from its two offsets.

Its log splits read the log between the offsets' positions, its snapshot splits the key ranges between their
cursors, as of the batch's end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tailrace.config.option_values import AUTO
from tailrace.config.options import SourceOptions
from tailrace.enumerator.captured_tables import CapturedTables
from tailrace.enumerator.offset import StreamOffset, TableProgress
from tailrace.enumerator.parked import not_replayable, replayed
from tailrace.enumerator.rereading import is_continued, refreshes
from tailrace.enumerator.snapshot import KeyRange
from tailrace.enumerator.stream_keys import changed_key, cursor_in, key_in_log, progress_of
from tailrace.errors import PositionLostError
from tailrace.model.condition import condition_problem
from tailrace.model.ending import not_as_of_end
from tailrace.model.split import LogSplit, SnapshotSplit
from tailrace.model.table import TableId, TableSchema
from tailrace.sources.base import Log, Source

#: Most rows of one SELECT: this bounds a task's memory, not the chunk's size.
PAGE_ROWS = 65_536


class SplitPlanner:
    """Plans the splits of one stream's batches.

    Args:
        options: the stream's options.
        source: the database.
        captured: its catalog.
        parallelism: snapshot splits that are read concurrently.
        follow: the log, as followed by a stream at an offset.
    """

    def __init__(
        self,
        options: SourceOptions,
        source: Source,
        captured: CapturedTables,
        *,
        parallelism: int,
        follow: Callable[[StreamOffset], Log],
    ) -> None:
        self._options = options
        self._source = source
        self._captured = captured
        self._parallelism = parallelism
        self._follow = follow

    def log_splits(self, start: StreamOffset, end: StreamOffset, left_out: frozenset[str]) -> list[LogSplit]:
        """The batch's share of the log, without the tables `left_out`."""
        assert start.log is not None
        assert end.log is not None
        schemas, tables = self._captured.schemas_in(end), self._captured.tables.values()
        whole = LogSplit(
            start=self._source.position(start.log).to_json(),
            end=self._source.position(end.log).to_json(),
            cursors={
                schemas[n].id: cursor_in(p, schemas[n])
                for n, p in start.tables.items()
                # nothing of a dropped table is emitted, everything of one that is read from its begin
                if p.cursor is not None and n in schemas and n not in end.again
            },
            finished=_finished(start, end),
            keys={t.schema.id: key for t in tables if (key := key_in_log(end, t))},
            left_out={t.schema.id: t.left_out for t in tables if t.left_out},
            without=left_out | replayed(start, end).keys(),
            ambiguous=frozenset(t.schema.id for t in tables if t.schema.id.is_ambiguous),
        )
        tasks = self._options.log_parallelism
        if self._options.partitioner == "forward":
            return self._follow(start).splits(whole, tasks)
        (split,) = self._follow(start).splits(whole, 1)
        if tasks in (AUTO, 1) or split.events is not None:
            return [split]
        return [replace(split, share=(number, tasks)) for number in range(tasks)]

    def replays(self, start: StreamOffset, end: StreamOffset, left_out: frozenset[str]) -> list[LogSplit]:
        """The changes since it was parked of each table that is resumed with them."""
        assert end.log is not None
        found = []
        for name, log in replayed(start, end).items():
            if name in left_out:
                continue
            schemas = self._captured.schemas_in(end)
            table = schemas[name].id if name in schemas else TableId.parse(name)
            captured = self._captured.tables.get(name)
            key = () if captured is None else key_in_log(end, captured)
            try:
                start_log = self._source.position(log).to_json()
            except PositionLostError as error:
                raise not_replayable(table, error) from error
            found.append(
                LogSplit(
                    start_log,
                    self._source.position(end.log).to_json(),
                    finished=frozenset({name}),
                    keys={table: key} if key else {},
                    left_out={} if captured is None else {table: captured.left_out},
                    without=left_out,
                    parked=table,
                    ambiguous=frozenset({table} if captured is not None and table.is_ambiguous else ()),
                )
            )
        return found

    def snapshot_splits(
        self,
        start: StreamOffset,
        end: StreamOffset,
        ranges: Mapping[str, list[KeyRange]],
        time_share: float | None = None,
    ) -> list[SnapshotSplit]:
        """The key ranges of tables, as of the batch's end.

        Args:
            start: the batch's start.
            end: its end.
            ranges: the key ranges.
            time_share: the share of the time in which the server may work for all of them; None: all of it.

        Raises:
            KeyChangedError: a table's key is gone, and it is not read again.
        """
        if not ranges:
            return []
        assert end.log is not None
        self._captured.refresh(ranges, end)
        ranges = self._with_valid_keys(start, end, ranges)
        schemas = self._captured.schemas_in(end)
        page_rows = min(self._options.snapshot_chunk_rows, PAGE_ROWS)
        as_of = self._source.as_of(self._source.position(end.log))
        splits: list[SnapshotSplit] = []
        for name, table_ranges in ranges.items():
            if name not in schemas:
                if _is_fixed(end):
                    raise not_as_of_end(name, "it was dropped, or renamed, behind it")
                continue  # dropped since: its rows at P are lost; the log carries the DROP
            where = self._condition(end, name, schemas[name])
            for r in table_ranges:
                split = SnapshotSplit(
                    schemas[name],
                    r.after,
                    r.upto,
                    as_of,
                    page_rows,
                    reread=name in end.again,
                    where=where,
                    until=self._until(end),
                )
                splits.extend(self._source.divided(split, self._parallelism if time_share is None else 1))
        if time_share is None:
            return splits
        at_once = max(1, min(len(splits), self._parallelism))
        return [replace(split, time_share=time_share / at_once) for split in splits]

    def _until(self, end: StreamOffset) -> Mapping[str, Any] | None:
        """Where the stream ends, for the splits."""
        if end.ending is None:
            return None
        return {"us": self._options.ending_time_us} if end.ending.at is None else {"log": end.ending.at}

    def _condition(self, end: StreamOffset, name: str, schema: TableSchema) -> str | None:
        """The condition by which a table's rows are read again; None: all are read.

        It was valid when it was accepted. If the table has changed since, all rows are read: none is deleted
        in such a reading, so more rows than asked for do no harm.
        """
        where = end.again[name].where if name in end.again else None
        if where is None:
            return None
        problem = condition_problem(where, [c.name for c in schema.columns], self._options.dialect)
        return where if (problem or self._source.condition_problem(schema, where)) is None else None

    def _with_valid_keys(
        self, start: StreamOffset, end: StreamOffset, ranges: Mapping[str, list[KeyRange]]
    ) -> dict[str, list[KeyRange]]:
        """The ranges whose tables still have the key that bounds them.

        A batch that is repeated cannot read the others. The schema change that took the key away lies behind
        the batch, and the stream reads the table again once it comes to it.
        """
        valid = dict(ranges)
        for name in ranges.keys() & self._captured.tables.keys():
            bounds = [progress_of(end, name)]
            if name not in end.again or is_continued(start, end, name):
                bounds.append(progress_of(start, name))
            for bound in filter(None, bounds):
                error = changed_key(bound, self._captured.tables[name])
                if error is not None and (_is_fixed(end) or not refreshes(end, self._options)):
                    raise error
                if error is not None:
                    valid.pop(name, None)
        return valid


def ranges_between(start: StreamOffset, end: StreamOffset) -> dict[str, list[KeyRange]]:
    """The key ranges that a batch reads, by table."""
    ranges: dict[str, list[KeyRange]] = {}
    replays = replayed(start, end)
    for name, rows in end.done.items():
        # a first snapshot that ended because the table is read again has no last range
        if rows is not None and name not in start.done and name not in {**end.again, **replays}:
            before = start.tables.get(name, TableProgress())
            ranges[name] = [KeyRange(before.cursor, None)]
    for name, progress in end.tables.items():
        before = start.tables.get(name, TableProgress())
        if before.cursor != progress.cursor:
            ranges[name] = [KeyRange(before.cursor, progress.cursor)]
    for name, reread in end.again.items():
        cursor = start.again[name].progress.cursor if is_continued(start, end, name) else None
        if reread.done:
            ranges[name] = [KeyRange(cursor, None)]
        elif cursor != reread.progress.cursor:
            ranges[name] = [KeyRange(cursor, reread.progress.cursor)]
    return ranges


def _is_fixed(end: StreamOffset) -> bool:
    """Whether the stream ends at a known position."""
    return end.ending is not None and end.ending.at is not None


def _finished(start: StreamOffset, end: StreamOffset) -> frozenset[str] | None:
    """Tables of which the batch emits all changes; None: all captured tables.

    A stream with snapshots follows a table from its registration on. A table that is read again is followed
    as a whole, even if its first snapshot was unfinished: the cursor may mean nothing now. A table that is
    created within the batch, or directly after it, is followed from its first row.
    """
    if end.mode != "initial":
        return None
    created = {n for n, rows in end.done.items() if rows is None}
    return frozenset(start.done) | created | end.again.keys()
