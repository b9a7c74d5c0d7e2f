"""Reading a snapshot split: the rows of a key range exactly as of its batch's position P.

    wait until P is visible ─▶ SELECT a page ─▶ H = log's end ─▶ read the log (P, H] ─▶ rewind ─▶ emit

P may include transactions that a SELECT cannot see yet (in the binlog, not yet committed in the engine),
hence the wait: without it rows are lost, rarely and silently (docs/design/0001-as-of-snapshots.md, failure
cases). H is read *after* the SELECT, so everything that the SELECT saw is at or below H. Pages bound the
memory, however large the range is; for each page the log is read from the previous page's H on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tailrace.errors import KeyChangedError, PositionLostError, SchemaMismatchError
from tailrace.model.change import OP_READ, OP_REREAD, ChangeBatch
from tailrace.model.ending import not_as_of_end
from tailrace.model.split import Key, LogSplit, SnapshotSplit
from tailrace.reader.rewind import Rewind, require_known
from tailrace.reader.rewind_rows import RewindRows
from tailrace.reader.schema_projection import fit_rows, lacking, missing_columns
from tailrace.sources.base import Session

#: Rows per emitted batch: large enough to be columnar, small enough for caches
#: (docs/design/0005-cells-and-the-spark-source.md, "Throughput").
BATCH_ROWS = 8192
#: The log lacks changes that the server could not write.
_INCIDENT = "TR-4108"


def read_snapshot(
    split: SnapshotSplit,
    session: Session,
    *,
    exact: bool,
    on_page: Callable[[Key | None], None] = lambda _: None,
) -> Iterator[ChangeBatch]:
    """The rows of `split`'s range.

    Args:
        split: the key range and the position.
        session: a session with the database.
        exact: whether to return rows as of the split's position; otherwise as selected (at-least-once).
        on_page: called when all rows up to a key have been returned; None: up to the last one. Not of tables
            without a key, nor where rows are not exact.
    """
    if exact:
        session.wait_visible(split.as_of)
    if not split.table.key:
        yield from _without_key(split, session, exact=exact)
        return
    rewind = Rewind(split.table, keys_only=session.keys_only)
    is_limited = session.keys_only and split.until is not None
    read_to = split.as_of
    for page in session.pages(split):
        if not exact:
            missing = missing_columns(page.rows.type, split.table)
            yield from _batches(split, session, fit_rows(page.rows, split.table), missing)
            continue
        high = session.log_end(read_to).to_json()
        if high != read_to:
            for batch in _changes_between(split, session, read_to, high):
                if is_limited:
                    require_known(batch, session.is_behind_end(split, batch))
                rewind.observe(batch)
            read_to = high
        in_range = session.within(split.table, rewind.keys, page.after, page.upto)
        missing = rewind.missing | missing_columns(page.rows.type, split.table)
        for rows in rewind.apply(page.rows, in_range):
            yield from _batches(split, session, rows, missing)
        if page.after is None or page.after != page.upto:  # else its rows are of a later page's range
            on_page(page.upto)


def read_until_end(
    rows: Iterator[ChangeBatch], split: SnapshotSplit, session: Session
) -> Iterator[ChangeBatch]:
    """`rows` of the split, for a stream that may end: it does not come to what the log has behind its end.

    Raises:
        SchemaMismatchError: the table was altered behind it, so that rows may lack something.
    """
    yield from rows
    if split.until is not None and session.altered_behind(split):
        raise not_as_of_end(split.table.id, "it was altered, or dropped, behind it")


def read_until_lost(rows: Iterator[ChangeBatch]) -> Iterator[ChangeBatch]:
    """`rows`, for a stream that goes on behind a part of the log that is lost.

    The log behind the split's position may say that changes are missing (an incident of MySQL): then rows as
    of the position cannot be reconstructed. They are left out, as the stream will come to that place, and
    read every table again.

    Raises:
        PositionLostError: the log is lost in another way, which the stream meets when it plans.
    """
    try:
        yield from rows
    except PositionLostError as error:
        if error.code != _INCIDENT:
            raise


def read_until_rewritten(split: SnapshotSplit, session: Session, *, exact: bool) -> Iterator[ChangeBatch]:
    """`read_snapshot`, for a stream that reads tables again which a schema change has rewritten.

    Rows as of the split's position may no longer be had: a column has another type, the key is gone. They are
    left out if the log says so, as the stream will then read the whole table again.

    Raises:
        SchemaMismatchError: rows cannot be read, and the log does not say why.
    """
    try:
        yield from read_snapshot(split, session, exact=exact)
    except SchemaMismatchError as error:
        if not session.rewritten_since(split, keys=isinstance(error, KeyChangedError)):
            raise


def _without_key(split: SnapshotSplit, session: Session, *, exact: bool) -> Iterator[ChangeBatch]:
    """The rows of a table without a key, which the session reads exactly as of the log's end."""
    rewind = RewindRows(split.table)
    high = split.as_of
    for page in session.pages(split):
        if exact and high is split.as_of:
            high = session.log_end(split.as_of).to_json()
            for batch in _changes_between(split, session, split.as_of, high) if high != split.as_of else ():
                rewind.observe(batch)
        rows = rewind.apply(page.rows)
        yield from _batches(split, session, rows, rewind.missing)
    rewind.require_all_found()


def _changes_between(
    split: SnapshotSplit, session: Session, start: Mapping[str, Any], end: Mapping[str, Any]
) -> Iterator[ChangeBatch]:
    """The changes of the split's table in `(start, end]`."""
    finished = frozenset({str(split.table.id)})
    log = LogSplit(start=start, end=end, finished=finished, keys={split.table.id: split.table.key})
    return (batch for batch in session.changes(log) if batch.table.id == split.table.id)


def _batches(
    split: SnapshotSplit, session: Session, rows: pa.StructArray, missing: Collection[str]
) -> Iterator[ChangeBatch]:
    """Rows as batches, where columns may be NULL that were dropped behind the split's position."""
    table = lacking(split.table, missing)
    size = min(len(rows), BATCH_ROWS)
    op = pa.repeat(pa.scalar(OP_REREAD if split.reread else OP_READ, pa.int8()), size)
    origin = session.read_origin(split.as_of, size)
    for at in range(0, len(rows), BATCH_ROWS):
        part = rows.slice(at, BATCH_ROWS)
        n = len(part)
        yield ChangeBatch(table, op.slice(0, n), None, part, origin.slice(0, n))
