"""Tables of which the log lacks changes: they were not in it for a time, or were something else.

The source compares the tables' present identities with those in the offset (`StreamOffset.ids`). A table with
a gap is read again, but not at once: a batch in which a reading begins must not hold changes from before the
gap, as their rows would count as present. So the stream first follows the log to where the gap was found.
"""

from __future__ import annotations

from dataclasses import replace

from tailrace.config.options import SourceOptions
from tailrace.enumerator.offset import StreamOffset
from tailrace.enumerator.rereading import refreshes
from tailrace.errors import TableGapError
from tailrace.sources.base import GONE, Position, Source


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
        #: Tables that are not in the log yet, as others hold locks on them.
        self.unpublished: set[str] = set()

    @property
    def wait(self) -> bool:
        """Whether tables are to be read again once the log is read up to where their gaps were found."""
        return bool(self._waiting)

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
        self._found.update(gaps)
        if offset.mode == "initial" and self._options.on_rewrite != "ignore":
            self._found.update(self._source.rewrites(offset.ids))

    def found_before(self, end: Position) -> None:
        """Set the log's end by which the gaps were found."""
        self._found_at = end

    def take_passed(self, start: StreamOffset) -> set[str]:
        """The tables with gaps, once a batch begins behind where they were found: they are noted no more."""
        end = self._found_at
        passed = start.log is not None and (
            end is None
            or not refreshes(start, self._options)  # an error
            or self._source.position(start.log).order >= end.order
        )
        if not passed or start.mode != "initial":
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
        kept = {*self.unpublished, *waiting, *([""] if waiting else [])}
        ids |= {name: id_ for name, id_ in offset.ids.items() if name in kept}
        if ids != offset.ids:
            offset = replace(offset, ids=ids)
            self.note(offset)  # from now on the source compares the log with these
        return offset
