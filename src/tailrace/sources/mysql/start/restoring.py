"""What the log says about a table at a time: the position, and the schema changes round it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace

from tailrace.config.options import SourceOptions
from tailrace.model.table import TableId
from tailrace.sources.archive.sealing import damaged
from tailrace.sources.archive.segment import FILE_HEAD
from tailrace.sources.mysql.binlog.archived import ArchivedLog, all_logs, archive_of
from tailrace.sources.mysql.binlog.dump import read_log
from tailrace.sources.mysql.binlog.held import number_of
from tailrace.sources.mysql.binlog.segment_builder import read_index
from tailrace.sources.mysql.connection import connect, folds_names, retrying
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.mysql.start.starting import log_end_position, position_by_time
from tailrace.sources.mysql.wire.rare.statements import WORD, first_words, tokens
from tailrace.sources.mysql.wire.transactions import DdlStatement, TransactionIndex
from tailrace.sources.mysql.xa.prepared import prepared_at

_DOING = "looking for schema changes"


@dataclass(frozen=True)
class TableHistory:
    """A table in the log.

    Args:
        table: the table.
        at: the position of the time.
        end: the log's end when it was read.
        folds: whether the names in statements stand for names in lower case.
        changes: the schema changes that concern the table, with their positions, in log order.
    """

    table: TableId
    at: MySqlPosition
    end: MySqlPosition
    folds: bool
    changes: tuple[tuple[MySqlPosition, DdlStatement], ...]

    def between(self, start: MySqlPosition, end: MySqlPosition) -> list[DdlStatement]:
        """The schema changes in `(start, end]`."""
        return [change for at, change in self.changes if start.order <= at.order < end.order]

    def since(self, options: SourceOptions) -> list[tuple[MySqlPosition, DdlStatement]]:
        """The schema changes that were made since the log was read."""
        end = log_end_position(options)
        return schema_changes(options, self.table, self.end, end, folds=self.folds)

    def emptied(self) -> MySqlPosition | None:
        """A position before `at` from which on the log has all rows of the table: it was created or emptied.

        None if there is none, or another schema change came behind it.
        """
        before = [(at, change) for at, change in self.changes if at.order < self.at.order]
        if not before:
            return None
        at, change = before[-1]
        is_created = change.created is not None and change.created in change.tables
        return at if is_created or first_words(change.text)[0] == "TRUNCATE" else None


def table_history(options: SourceOptions, table: TableId, at_us: int) -> TableHistory:
    """What the log says about a table, from its oldest file on, in the archive or on the server.

    Raises:
        PositionLostError: the log does not reach back to the time, or has a gap.
        SourceError: as `starting_position`.
    """
    found = position_by_time(options, at_us)
    at = replace(found, prepared=prepared_at(options, found))
    end = log_end_position(options)

    def ask() -> tuple[str, bool]:
        with closing(connect(options, purpose=_DOING)) as connection:
            numbers = {number_of(file.name): file.name for file in all_logs(options, connection)}
            number = at.file_number
            while number - 1 in numbers:  # without a gap up to the position
                number -= 1
            first = numbers.get(number, at.file)
            return first, folds_names(connection)

    first, folds = retrying(options, ask, _DOING)
    start = MySqlPosition(first, FILE_HEAD, server=at.server)
    changes = schema_changes(options, table, start, end, folds=folds)
    return TableHistory(table, at, end, folds, tuple(changes))


def schema_changes(
    options: SourceOptions, table: TableId, start: MySqlPosition, end: MySqlPosition, *, folds: bool
) -> list[tuple[MySqlPosition, DdlStatement]]:
    """The schema changes of a table in a range of the log, with where their transactions begin.

    What is archived is looked up in the segments' indexes, the rest is read.
    """
    found: list[tuple[MySqlPosition, DdlStatement]] = []

    def add(changes: Iterable[DdlStatement]) -> None:
        for change in changes:
            at = replace(end, file=change.file, pos=change.start, prepared=())
            concerns = table in change.tables and not _keeps_rows(change.text)
            is_dropped = change.dropped_database == table.database
            if (concerns or is_dropped) and start.order <= at.order < end.order:
                found.append((at, change))

    file, pos = start.file, start.pos
    if (archive := archive_of(options)) is not None:
        for segment in ArchivedLog.of(archive, end.server).following(file, pos):
            if segment.file_number > end.file_number:
                break
            try:
                add(read_index(archive.index(segment), segment.file)[1])
            except ValueError:
                raise damaged(segment.name, "its index cannot be read") from None
            file, pos = segment.behind
    index = TransactionIndex(lambda other: other == table, past=True, folds=lambda: folds)
    for block in read_log(options, replace(start, file=file, pos=pos), end):
        add(index.feed(block).ddl)
    return found


def _keeps_rows(text: str) -> bool:
    """Whether a statement certainly leaves a table's columns, key and rows as they are: one of an index."""
    words = [name.upper() if kind == WORD else "" for kind, name in tokens(text)]
    if words[:2] in (["CREATE", "INDEX"], ["DROP", "INDEX"]):
        return True
    clause = [i for i, word in enumerate(words) if word in ("ADD", "DROP")]
    return (
        words[:2] == ["ALTER", "TABLE"]
        and len(clause) == 1
        and clause[0] in (3, 5)
        and words[clause[0] + 1 : clause[0] + 2] in (["INDEX"], ["KEY"])
        and not {"MODIFY", "CHANGE", "RENAME", "ALTER", "CONVERT", "ORDER"} & set(words[clause[0] :])
    )
