"""The columns by which a stream knows its tables, where the log lacks schema changes, and their events.

The offset holds each table's shape (`StreamOffset.shapes`): all changes that it covers have these columns,
or had earlier ones of which events have told. A table whose columns in the catalog are others is *pending*.
There are two places for the event:

* where the log shows other columns, if that is before all else in a batch, and log and catalog together
  tell which change it was (`Source.placed`);
* else behind the log's end as it was after the catalog was read, where all changes have its columns.

What neither tells is read again. While a table is pending, no rows of tables are read: they would have
columns of which the targets have yet to hear. A shape is known to hold from the log's end on, as it was
after the catalog was read; until the stream is there (`KnownShape.at`), other columns in the log may be
older ones, and the table is read again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tailrace.config.options import SourceOptions
from tailrace.enumerator.captured_tables import CapturedTables
from tailrace.enumerator.gaps import Gaps
from tailrace.enumerator.offset import KnownShape, StreamOffset
from tailrace.model.schema_change import SchemaEvent
from tailrace.sources.base import TRUNCATED, LogRange, Source


class Shapes:
    """The shapes of one stream's tables.

    Args:
        options: the stream's options.
        source: the database.
        gaps: the tables that are read again, or pending.
        captured: the catalog.
    """

    def __init__(self, options: SourceOptions, source: Source, gaps: Gaps, captured: CapturedTables) -> None:
        self._options = options
        self._source = source
        self._gaps = gaps
        self._captured = captured

    def check_read(self, start: StreamOffset) -> None:
        """Find out whether a table was altered before its last rows were read, in the batch up to `start`.

        An offset says so until there is another reason for a batch: meanwhile this object knows.
        """
        read = {name for name, known in start.shapes.items() if known.read} - self._gaps.unaltered
        if read:
            self._captured.refresh(read, start)
            self._gaps.unaltered |= read - self._gaps.found.keys() - self._gaps.pending

    def are_others_in(self, log_range: LogRange | None, offset: StreamOffset) -> bool:
        """Whether the log has other columns of a table than those that the stream knows."""
        if log_range is None or not offset.shapes:
            return False
        return bool(self._source.reshaped(log_range, _shapes(offset.shapes, but=self._gaps.found)))

    def advance(
        self, start: StreamOffset, offset: StreamOffset, log_range: LogRange | None
    ) -> tuple[StreamOffset, tuple[SchemaEvent, ...], set[str]]:
        """`offset` with the shapes at the batch's end, and what the batch begins with.

        A table gets the shape of the catalog in the batch in which it begins to be read again, if it is:
        between the two a restart would not find the reason.

        Args:
            start: where the batch begins.
            offset: its end as planned so far; the catalog was read after the log if that has other columns.
            log_range: its share of the log.

        Returns:
            The offset, the events, and the tables with gaps that the batch begins to read again.
        """
        present = self._source.shapes()
        if offset.mode == "snapshot" or not (present or offset.shapes):
            return offset, (), self._gaps.take_passed(start)
        names = {*offset.tables, *offset.done} - (self._captured.tables.keys() - present.keys())
        shapes = {name: known for name, known in offset.shapes.items() if name in names}
        passing = {name: present[name] for name in self._gaps.passed(start) & present.keys()}
        if log_range is not None and passing and self._source.reshaped(log_range, passing):
            self._captured.read(offset)  # it is behind what the log has: not passed yet
        events = [] if start.log is None else self._passed(start, shapes)
        again = self._gaps.take_passed(start)
        placed, unclear = self._placed(start, offset, shapes, log_range)
        events += placed
        self._adopt(offset, shapes)
        offset = replace(offset, shapes=shapes)
        unclear -= offset.not_whole
        if unclear and offset.mode == "initial" and self._options.on_rewrite != "ignore":
            offset = replace(offset, ids={**offset.ids, **dict.fromkeys(unclear, TRUNCATED)})
            self._captured.read(offset)
        self._gaps.note_shapes(offset)
        if self._gaps.needs_end:
            self._captured.find_end()
        return self._settled(offset), tuple(sorted(events, key=lambda event: event.seq or "")), again

    def with_read(self, offset: StreamOffset, names: Collection[str]) -> StreamOffset:
        """`offset` of a batch that reads the last rows of some tables."""
        self._gaps.unaltered -= set(names)
        read = {name: replace(k, read=True) for name, k in offset.shapes.items() if name in names}
        return replace(offset, shapes={**offset.shapes, **read}) if read else offset

    def _passed(self, start: StreamOffset, shapes: dict[str, KnownShape]) -> list[SchemaEvent]:
        """The events of the tables that have the catalog's columns from `start` on; they get its shapes."""
        assert start.log is not None
        events = []
        present, position = self._source.shapes(), self._source.position(start.log)
        for name in sorted(self._gaps.passed(start) & shapes.keys() & present.keys()):
            why = self._gaps.found.get(name, "")
            event = self._source.reshaping(name, shapes[name].shape, position, why)
            shapes[name] = KnownShape(present[name])
            events += [] if event is None else [event]
        return events

    def _placed(
        self,
        start: StreamOffset,
        offset: StreamOffset,
        shapes: dict[str, KnownShape],
        log_range: LogRange | None,
    ) -> tuple[list[SchemaEvent], set[str]]:
        """The events that the log shows; and the tables of which it shows others than can be told."""
        if log_range is None or start.log is None:
            return [], set()
        events, unclear = [], set()
        known = _shapes(shapes, but=self._gaps.found)
        begin = self._source.position(start.log).order
        for name, found in self._source.placed(log_range, known, self._gaps.reading(offset)).items():
            at = shapes[name].at
            holds = at is None or self._source.position(at).order <= begin
            if holds and not found.why:
                events += [] if found.event is None else [found.event]
                shapes[name] = replace(shapes[name], shape=found.shape, at=None)
            else:
                unclear.add(name)
        return events, unclear

    def _adopt(self, offset: StreamOffset, shapes: dict[str, KnownShape]) -> None:
        """Add the tables whose columns the stream does not know yet."""
        present = self._source.shapes()
        new = {*offset.tables, *offset.done} & present.keys() - shapes.keys()
        if new := new - self._gaps.found.keys() - self._gaps.unpublished:
            at = self._captured.find_end().to_json()
            shapes.update({name: KnownShape(present[name], at) for name in new})

    def _settled(self, offset: StreamOffset) -> StreamOffset:
        """`offset` without what no longer matters: where shapes hold, and that rows have been read."""
        assert offset.log is not None
        end = self._source.position(offset.log).order
        waiting = self._gaps.found.keys() | self._gaps.pending
        shapes = {}
        for name, known in offset.shapes.items():
            holds = known.at is not None and self._source.position(known.at).order <= end
            shapes[name] = replace(known, at=None if holds else known.at, read=known.read and name in waiting)
        return replace(offset, shapes=shapes)


def _shapes(known: Mapping[str, KnownShape], but: Collection[str]) -> dict[str, object]:
    return {name: each.shape for name, each in known.items() if name not in but}
