"""The changes of a range of the log: transactions in the order of their commits, rows as Arrow.

    heads of the range ──▶ which transactions commit in it, and in which order
    records of the captured tables ──▶ spool ──▶ statements of each of them ──▶ ChangeBatches

A statement counts only if LogMiner could describe it. It does so by the catalog as it is now, so no schema
change of the table may lie between the change and now (docs/design/0012-oracle.md, "Schema changes").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import pyarrow as pa

from tailrace.config.options import SourceOptions
from tailrace.errors import SchemaMismatchError, TransientSourceError
from tailrace.model.change import OP_CREATE, OP_DELETE, OP_UPDATE, ORIGIN, ChangeBatch
from tailrace.model.schema_change import TableTruncated
from tailrace.model.schema_policy import Action
from tailrace.model.split import LogSplit
from tailrace.model.table import TableId, TableSchema
from tailrace.sources.oracle.catalog import CatalogTable
from tailrace.sources.oracle.logminer.index import Commit, LogIndex
from tailrace.sources.oracle.logminer.miner import Miner
from tailrace.sources.oracle.logminer.spool import Spool, WholeStatement
from tailrace.sources.oracle.position import OraclePosition, seq_of
from tailrace.sources.oracle.wire import redo
from tailrace.sources.oracle.wire.ddl import Ddl, behind
from tailrace.sources.oracle.wire.values import array_of, text_of

#: Changes of a batch.
_BATCH_ROWS = 4096
#: How often a range is read anew because tables were altered, or granted, meanwhile.
_TRIES = 3
_OPS = {redo.INSERT: OP_CREATE, redo.UPDATE: OP_UPDATE, redo.DELETE: OP_DELETE}


class LogChanges:
    """Reads the changes of one split.

    Args:
        options: the stream's options.
        miner: a session with LogMiner.
        catalog: reads the captured tables as they are now.
        to_us: see `LogIndex`.
    """

    def __init__(
        self,
        options: SourceOptions,
        miner: Miner,
        catalog: Callable[[], Sequence[CatalogTable]],
        to_us: Callable[[str], int],
    ) -> None:
        self._options = options
        self._miner = miner
        self._catalog = catalog
        self._to_us = to_us

    def read(self, split: LogSplit) -> Iterator[ChangeBatch]:
        """The changes of the tables that the split concerns, in log order of each table.

        Raises:
            SchemaMismatchError: a table was altered behind a change, which cannot be described any more.
            TransientSourceError: tables are altered all the time.
        """
        start, end = OraclePosition.from_json(split.start), OraclePosition.from_json(split.end)
        if end.scn <= start.scn:
            return
        for _ in range(_TRIES):
            tables = {t.schema.id: t for t in self._catalog()}
            index = LogIndex(start.since, self._captures, self._to_us)
            index.add(self._miner.heads(start.since, end.scn), end.scn)
            commits = index.between(start.scn, end.scn)
            spool = Spool()
            with closing(spool):
                changed = sorted({t for c in commits for t in c.tables if t in tables})
                spool.take(
                    self._miner.records(start.since, end.scn, changed),
                    [c.xid for c in commits if c.tables],
                    start.scn,
                )
                ddls = [*index.ddls, *self._later(end, commits, tables)]
                if {t: found.version for t, found in tables.items()} != {
                    t.schema.id: t.version for t in self._catalog()
                }:
                    continue
                rows = _Rows(self._options, split, tables, ddls)
                rows.require_described(commits)
                yield from rows.of(commits, spool)
                return
        raise TransientSourceError(
            "the log could not be read: captured tables were altered all the time",
            f"{_TRIES} times, while LogMiner read it",
            code="TR-4619",
        )

    def _captures(self, table: TableId) -> bool:
        return self._options.captures(str(table))

    def _later(
        self, end: OraclePosition, commits: Sequence[Commit], tables: dict[TableId, CatalogTable]
    ) -> list[Ddl]:
        """The schema changes behind the range, if a table may have been altered there that changes in it."""
        if not commits:
            return []
        has_unknown = any(c.unknown is not None for c in commits)
        begin = min(c.ts_us for c in commits)
        concerned = (
            tables.values()
            if has_unknown
            else [tables[id_] for id_ in {t for c in commits for t in c.tables} if id_ in tables]
        )
        # one that was dropped has no time
        is_gone = has_unknown or any(t not in tables for c in commits for t in c.tables)
        if not is_gone and all(self._to_us(t.altered_at) < begin for t in concerned):
            return []
        later = LogIndex(end.scn + 1, self._captures, self._to_us)
        later.add(self._miner.heads(end.scn + 1, None), None)
        return later.ddls


class _Rows:
    """Makes batches of the statements of transactions."""

    def __init__(
        self,
        options: SourceOptions,
        split: LogSplit,
        tables: dict[TableId, CatalogTable],
        ddls: Sequence[Ddl],
    ) -> None:
        self._options = options
        self._split = split
        self._start = OraclePosition.from_json(split.start)
        self._end = OraclePosition.from_json(split.end)
        self._tables = tables
        self._ddls = ddls
        self._builders: dict[TableId, _Builder] = {}

    def require_described(self, commits: Sequence[Commit]) -> None:
        """Check that no change is left out because LogMiner does not know its table any more.

        Raises:
            SchemaMismatchError: a captured table was truncated, moved or dropped behind such a change, and it
                is not read again.
        """
        for commit in commits:
            for table, scn in commit.tables.items():
                if table not in self._tables and self._split.concerns(table):
                    raise _undescribed(table, scn, None)
        unknown = min((c.unknown for c in commits if c.unknown is not None), default=None)
        for ddl in self._ddls if unknown is not None else ():
            if not ddl.alters or ddl.scn < max(unknown or 0, self._start.scn + 1):
                continue
            is_inside = ddl.scn <= self._end.scn
            if self._split.concerns(ddl.table) and not (is_inside and self._is_read_again(ddl.table, [ddl])):
                raise _undescribed(ddl.table, unknown or 0, ddl)

    def of(self, commits: Sequence[Commit], spool: Spool) -> Iterator[ChangeBatch]:
        """The changes of transactions, in their order."""
        number, scn = 0, -1
        for commit in commits:
            if commit.scn != scn:  # transactions of one SCN are counted together: `seq` has the SCN alone
                number, scn = 0, commit.scn
            if not commit.tables:
                continue
            for row, statement in enumerate(spool.of(commit.xid)):
                number += 1
                if not self._split.concerns(statement.table) or self._is_superseded(statement):
                    continue
                builder = self._builder(statement.table)
                builder.add(statement, commit, number, row)
                if len(builder) >= _BATCH_ROWS:
                    yield builder.batch()
        for builder in self._builders.values():
            if len(builder):
                yield builder.batch()

    def _builder(self, id_: TableId) -> _Builder:
        if id_ not in self._builders:
            table = self._tables[id_].whole
            key = self._split.keys.get(id_)
            if key is not None and key != table.key:
                table = TableSchema(table.id, table.columns, key)
            self._builders[id_] = _Builder(table, self._options)
        return self._builders[id_]

    def _is_superseded(self, statement: WholeStatement) -> bool:
        """Whether a change is left out, as its table is read again in this batch.

        Raises:
            SchemaMismatchError: it is not, and LogMiner cannot describe the change any more.
        """
        table = statement.table
        later = behind(statement.scn, self._ddls, table)
        altering = [ddl for ddl in later if ddl.alters]
        if not altering:
            if not later and statement.at <= self._tables[table].altered_at:
                raise _undescribed(table, statement.scn, None)
            if statement.status:
                raise _undescribed(table, statement.scn, None, statement.status)
            return False
        inside = [d for d in altering if self._start.scn < d.scn <= self._end.scn]
        if inside and self._is_read_again(table, inside):
            return True
        raise _undescribed(table, statement.scn, altering[0])

    def _is_read_again(self, table: TableId, ddls: Sequence[Ddl]) -> bool:
        """Whether the stream reads a table again at the end of the range, because of schema changes in it."""
        options = self._options
        follows = options.schema_policy.action(TableTruncated()) is Action.APPLY
        keeps_rows = not follows and any(d.kind == "TRUNCATE" for d in ddls)
        return (
            options.starting_position == "initial"
            and options.on_rewrite == "refresh"
            and not keeps_rows
            and ddls[-1].kind != "DROP"
            and options.reads_rows_of(str(table))
        )


def _undescribed(table: TableId, scn: int, ddl: Ddl | None, status: int = 0) -> SchemaMismatchError:
    found = f"at SCN {scn}; "
    if ddl is not None:
        found += f"the table was altered, truncated or dropped at SCN {ddl.scn}"
    else:
        found += f"STATUS {status}" if status else "the table was altered since, and the log does not say how"
    return SchemaMismatchError(
        f"changes of `{table}` cannot be read: a schema change came before they were read",
        f"{found}. LogMiner describes rows by the catalog as it is now",
        "with maxParked the table is parked, and `tailrace resume` reads it again; or start a new stream. "
        "Let the stream catch up before a schema change",
        code="TR-4612",
        table=str(table),
    )


class _Builder:
    """Collects changes of one table."""

    def __init__(self, table: TableSchema, options: SourceOptions) -> None:
        self._table = table
        self._options = options
        self._clear()

    def _clear(self) -> None:
        self._ops: list[int] = []
        self._before: dict[str, list[str | float | None]] = {c.name: [] for c in self._table.columns}
        self._after: dict[str, list[str | float | None]] = {c.name: [] for c in self._table.columns}
        self._origin: list[tuple[str, int, str, int, int]] = []

    def __len__(self) -> int:
        return len(self._ops)

    def add(self, statement: WholeStatement, commit: Commit, number: int, row: int) -> None:
        found = redo.parse(statement.sql)
        if (found.owner, found.table) != (self._table.id.database, self._table.id.table):
            raise _undescribed(self._table.id, statement.scn, None)
        op = _OPS[found.kind]
        before = None if op == OP_CREATE else found.where
        after = None if op == OP_DELETE else {**found.where, **found.values}
        known = {c.name for c in self._table.columns}
        for image in (before, after):
            if image is not None and (missing := known - image.keys()):
                raise SchemaMismatchError(
                    f"the log has only a part of a row of `{self._table.id}`",
                    f"at SCN {statement.scn} without {', '.join(sorted(missing))}: the table had no "
                    "supplemental logging of all columns when the row was changed",
                    f"ALTER TABLE {self._table.id.sql} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS; then start a "
                    "new stream",
                    code="TR-4613",
                    table=str(self._table.id),
                )
        for column in self._table.columns:
            name = column.name
            self._before[name].append(None if before is None else text_of(before[name], column))
            self._after[name].append(None if after is None else text_of(after[name], column))
        self._ops.append(op)
        self._origin.append((seq_of(commit.scn, number), commit.ts_us, commit.xid, statement.scn, row))

    def batch(self) -> ChangeBatch:
        ops = pa.array(self._ops, pa.int8())
        batch = ChangeBatch(
            self._table,
            ops,
            self._image(self._before, OP_CREATE),
            self._image(self._after, OP_DELETE),
            self._origins(),
        )
        self._clear()
        return batch

    def _image(self, texts: dict[str, list[str | float | None]], without: int) -> pa.StructArray | None:
        mask = [op == without for op in self._ops]
        if all(mask):
            return None
        arrays = [array_of(texts[c.name], c) for c in self._table.columns]
        return pa.StructArray.from_arrays(arrays, fields=list(self._table.arrow), mask=pa.array(mask))

    def _origins(self) -> pa.RecordBatch:
        seq, ts_us, xid, scn, row = zip(*self._origin, strict=True)
        n = len(seq)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(seq, pa.string()),
                pa.array(ts_us, pa.int64()),
                pa.array(xid, pa.string()).dictionary_encode(),
                pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array([FILE])),
                pa.array(scn, pa.int64()),
                pa.array(row, pa.int32()),
                pa.array([0] * n, pa.int64()),
                pa.nulls(n, pa.int64()),
            ],
            schema=ORIGIN,
        )


#: What `file` is for changes from Oracle: `pos` is an SCN.
FILE = "scn"
