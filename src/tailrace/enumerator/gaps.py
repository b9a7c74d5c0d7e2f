"""Tables of which the log lacks changes: they were not in it for a time, or were something else.

The source compares the tables' present identities with those in the offset (`StreamOffset.ids`). A table with
a gap is read again, but not at once: a batch in which a reading begins must not hold changes from before the
gap, as their rows would count as present. So the stream first follows the log to where the gap was found.
"""

from __future__ import annotations

from dataclasses import replace

from tailrace.config.options import SourceOptions
from tailrace.enumerator.offset import StreamOffset
from tailrace.enumerator.rereading import refreshes, unfinished
from tailrace.errors import TableGapError
from tailrace.sources.base import GONE, TRUNCATED, Position, Source


class Gaps:
    """The gaps of one stream that have been found and not been dealt with.

    Args:
        options: the stream's options.
        source: the database.
    """

    def __init__(self, options: SourceOptions, source: Source) -> None:
        self._options = options
        self._source = source
        self._found: dict[str, str] = {}
        self._found_at: Position | None = None
        #: Tables that have other columns than those by which the stream knows them (`shapes`).
        self.pending: set[str] = set()
        #: Those of them whose columns hold from `_found_at` on.
        self._ended: set[str] = set()
        #: Tables that were not altered before their last rows were read.
        self.unaltered: set[str] = set()
        #: Tables that are not in the log yet, as others hold locks on them.
        self.unpublished: set[str] = set()

    @property
    def wait(self) -> bool:
        """Whether something begins once the log is read up to where it was found: a reading, or an event."""
        return bool(self._waiting or self.pending)

    @property
    def found(self) -> dict[str, str]:
        """The tables that are to be read again, with the reason."""
        return self._found

    @property
    def needs_end(self) -> bool:
        """Whether it is not known from where on the columns of a pending table hold."""
        return not self.pending <= self._ended

    @property
    def _waiting(self) -> set[str]:
        return self._found.keys() - self.unpublished

    def note(self, offset: StreamOffset) -> None:
        """Note of which tables the log lacks changes.

        Raises:
            TableGapError: it lacks some, and such tables are not read again.
        """
        if offset.is_new or offset.mode == "snapshot":
            return
        followed = (*offset.tables, *offset.done)
        reading = [name for name, progress in offset.tables.items() if progress.cursor is not None]
        gaps = self._source.gaps({**dict.fromkeys(followed, ""), **offset.ids}, reading)
        if gaps and not refreshes(offset, self._options):
            raise TableGapError(
                f"changes of {', '.join(f'`{name}`' for name in sorted(gaps))} are missing from the log",
                "; ".join(f"`{name}`: {why}" for name, why in sorted(gaps.items())),
                "set onRewrite: refresh, with startingPosition initial, to read such tables again",
                sorted(gaps),
                code="TR-4106",
            )
        lost = {name for name in gaps.keys() & offset.not_whole if not self._options.reads_rows_of(name)}
        if lost:
            raise TableGapError(
                f"changes of {', '.join(f'`{name}`' for name in sorted(lost))} are missing from the log",
                "; ".join(f"`{name}`: {gaps[name]}" for name in sorted(lost))
                + "; and the stream follows it without its earlier rows",
                "name it in snapshot.include.collection.list: it is then read as a whole",
                sorted(lost),
                code="TR-4106",
            )
        self._found.update(gaps)
        if offset.mode == "initial" and self._options.on_rewrite != "ignore":
            shapes = {name: known.shape for name, known in offset.shapes.items()}
            rewritten = self._source.rewrites(offset.ids, shapes, self.reading(offset))
            kept = {name for name in offset.not_whole if offset.ids.get(name) != TRUNCATED}
            self._found.update({name: why for name, why in rewritten.items() if name not in kept})
        self.note_shapes(offset)

    def note_shapes(self, offset: StreamOffset) -> None:
        """Note which tables have other columns in the catalog than those by which the stream knows them."""
        present, followed = self._source.shapes(), {*offset.tables, *offset.done} - self.unpublished
        self.pending = {
            name
            for name, known in offset.shapes.items()
            if name in followed and name in present and present[name] != known.shape
        }
        self._ended &= self.pending

    def reading(self, offset: StreamOffset) -> set[str]:
        """The tables of which a schema change may have taken something before it was read."""
        read = {name for name, known in offset.shapes.items() if known.read}
        return {*offset.tables, *unfinished(offset), *(read - self.unaltered)}

    def found_before(self, end: Position) -> None:
        """Set the log's end by which the gaps, and the columns of pending tables, were found."""
        self._found_at = end
        self._ended = set(self.pending)

    def is_passed(self, start: StreamOffset) -> bool:
        """Whether a batch begins behind where gaps were found."""
        end = self._found_at
        return start.log is not None and (end is None or self._source.position(start.log).order >= end.order)

    def passed(self, start: StreamOffset) -> set[str]:
        """The pending tables that have the catalog's columns from the begin of a batch on."""
        return self.pending & self._ended if self.is_passed(start) else set()

    def take_passed(self, start: StreamOffset) -> set[str]:
        """The tables with gaps, once a batch begins behind where they were found: they are noted no more."""
        passed = self.is_passed(start) or not refreshes(start, self._options)  # an error
        if start.log is None or not passed or start.mode != "initial":
            return set()
        found = self._waiting
        self._found = {name: why for name, why in self._found.items() if name not in found}
        return {name for name in found if start.knows(name)}

    def cut_short(self, offset: StreamOffset) -> set[str]:
        """The tables with gaps whose first snapshot is unfinished.

        The schema change that made the gap, or the next one, may take away the key that their cursors are
        values of, and the catalog is not read again before the gap is passed: cursors count no more.
        """
        return {name for name, p in offset.tables.items() if name in self._waiting and p.cursor is not None}

    def forget(self) -> None:
        """Forget all gaps: every table is read again."""
        self._found.clear()
        self._found_at = None
        self.pending, self._ended = set(), set()

    def identified(self, offset: StreamOffset) -> StreamOffset:
        """`offset` with the present identities of its tables."""
        present = self._source.identities()
        if not present or offset.mode == "snapshot":
            return offset
        names = [name for name in (*offset.tables, *offset.done) if name not in self.unpublished]
        ids = {name: present.get(name, GONE) for name in names}
        ids |= {"": present[""]} if "" in present else {}
        waiting = self._waiting  # a restart must find these again
        ids |= dict.fromkeys(waiting & ids.keys(), GONE)
        kept = {*self.unpublished, *waiting, *self.pending, *([""] if waiting else [])}
        ids |= {name: id_ for name, id_ in offset.ids.items() if name in kept}
        if ids != offset.ids:
            offset = replace(offset, ids=ids)
            self.note(offset)  # from now on the source compares the log with these
        return offset
