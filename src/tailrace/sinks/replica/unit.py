"""A unit's transaction: rows, mark, commit; and which rows the database refuses.

A statement that is refused takes all its rows with it. So rows go in behind a savepoint, and a refused
portion is halved until single rows are left: some 2 log2(n) statements for one bad row of n.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tailrace.config.sinks import RefusedRow
from tailrace.errors import SinkError
from tailrace.failpoints import failpoint
from tailrace.sinks.replica.dialect import (
    Dialect,
    RefusalError,
    RowOperation,
    TableName,
    WriteSession,
    columns_of,
)
from tailrace.sinks.replica.ledger import Ledger, Refused
from tailrace.sinks.replica.target_schema import TargetSchema

_OPS = {
    RowOperation.INSERT: "r",
    RowOperation.UPSERT: "u",
    RowOperation.UPDATE: "u",
    RowOperation.DELETE: "d",
}


@dataclass(frozen=True)
class Table:
    """A target as tasks know it.

    Args:
        place: where it is.
        shape: what it holds.
    """

    place: TableName
    shape: TargetSchema


@dataclass(frozen=True)
class Run:
    """One run of a batch, as tasks know it.

    Args:
        dialect: the database.
        tables: the targets.
        batch: the batch's number.
        epoch: tells this run from others.
        again: targets that its rows may be in already.
        policy: what becomes of rows that are refused.
    """

    dialect: Dialect
    tables: dict[str, Table]
    batch: int
    epoch: str
    again: frozenset[str]
    policy: RefusedRow

    @property
    def ledger(self) -> Ledger:
        """The database's notes."""
        return Ledger(self.dialect)


@dataclass(frozen=True)
class Portion:
    """Rows that go in together.

    Args:
        verb: what is done with them.
        rows: the target's columns but those that they lack.
        origin: source table and position of the n-th of them.
        lacking: an UPDATE's columns that are left as they are.
    """

    verb: RowOperation
    rows: pa.Table
    origin: Callable[[int], tuple[str, str]]
    lacking: tuple[str, ...] = ()


@dataclass
class UnitWriter:
    """Writes portions of a target in a session's transaction.

    Args:
        run: the run.
        target: the target's name.
        session: whose transaction.
    """

    run: Run
    target: str
    session: WriteSession
    #: Rows that were refused.
    refused: list[Refused] = field(default_factory=list)

    @property
    def table(self) -> Table:
        """The target."""
        return self.run.tables[self.target]

    def begin(self, unit: str) -> bool:
        """Begin the transaction; False, and none is begun, if the unit's rows are there."""
        self.session.run("BEGIN")
        self.run.ledger.hold(self.session, self.target, self.run.epoch)
        if self.run.ledger.is_marked(self.session, self.target, unit, self.run.batch):
            self.session.run("ROLLBACK")
            return False
        return True

    def commit(self, unit: str) -> None:
        """Mark the unit and end the transaction."""
        self.run.ledger.set_aside(self.session, self.refused)
        self.run.ledger.mark(self.session, self.target, unit, self.run.batch)
        self.session.run("COMMIT")
        failpoint("sink.task")

    def write(self, portion: Portion) -> None:
        """Bring rows into the target."""
        if portion.verb is RowOperation.INSERT and self.target in self.run.again:
            portion = replace(portion, verb=RowOperation.UPSERT)
        self._write(portion, self.table.place, 0, portion.rows.num_rows)

    def rehearse(self, portion: Portion) -> Portion:
        """`portion` without the rows that the target refuses; nothing is left of the try."""
        before = len(self.refused)
        refused: list[int] = []
        self.session.run("BEGIN")
        try:
            self._write(portion, self.table.place, 0, portion.rows.num_rows, refused)
        finally:
            self.session.run("ROLLBACK")
        assert len(self.refused) - before == len(refused)
        gone = set(refused)
        kept = [i for i in range(portion.rows.num_rows) if i not in gone]

        def origin(row: int) -> tuple[str, str]:
            return portion.origin(kept[row])

        return replace(portion, rows=portion.rows.take(kept), origin=origin)

    def stage(self, name: TableName, portion: Portion) -> None:
        """Put rows into a table of their own."""
        shape = self.table.shape.without(portion.lacking)
        self.session.stage(name, portion.verb, self.table.place, shape)
        self.session.run("BEGIN")
        self._write(
            replace(portion, verb=RowOperation.INSERT), name, 0, portion.rows.num_rows, verb=portion.verb
        )
        self.session.run("COMMIT")

    # ---- halving -------------------------------------------------------------------------------------

    def _write(
        self,
        portion: Portion,
        place: TableName,
        first: int,
        last: int,
        indices: list[int] | None = None,
        *,
        verb: RowOperation | None = None,
    ) -> None:
        """Write rows `first` to `last`; the numbers of those that are refused are added to `indices`.

        Args:
            portion: what is written, and how.
            place: where to.
            first: number of the first row.
            last: number behind the last row.
            indices: numbers of refused rows.
            verb: what the rows are for in the end.
        """
        if first == last:
            return None
        of = verb or portion.verb
        rows = portion.rows.slice(first, last - first)
        if of is RowOperation.DELETE:
            rows = rows.select(list(self.table.shape.key))
        shape = self.table.shape.without(portion.lacking)
        self.session.run("SAVEPOINT tailrace")
        try:
            if verb is None:
                self.session.write(portion.verb, place, shape, rows)
            else:
                self.session.fill(place, columns_of(of, shape), rows)
        except RefusalError as refusal:
            self.session.run("ROLLBACK TO SAVEPOINT tailrace")
            if refusal.is_duplicate and portion.verb is RowOperation.INSERT and verb is None:
                # a table that was adopted with its rows, or a snapshot taken again
                again = replace(portion, verb=RowOperation.UPSERT)
                return self._write(again, place, first, last, indices)
            if last - first > 1:
                middle = (first + last) // 2
                self._write(portion, place, first, middle, indices, verb=verb)
                return self._write(portion, place, middle, last, indices, verb=verb)
            self._refuse(portion, first, refusal, of)
            if indices is not None:
                indices.append(first)
            return None
        self.session.run("RELEASE SAVEPOINT tailrace")
        return None

    def _refuse(self, portion: Portion, row: int, refusal: RefusalError, verb: RowOperation) -> None:
        source, position = portion.origin(row)
        column = refusal.column if refusal.column in self.table.shape.arrow.names else ""
        if self.run.policy is RefusedRow.FAIL:
            raise refused_error(self.target, column, refusal.reason, f"table `{source}` at {position}")
        values = portion.rows.slice(row, 1).to_pylist()[0]
        self.refused.append(
            Refused(
                self.target,
                source,
                self.run.batch,
                _OPS[verb],
                position,
                column,
                refusal.reason,
                _json({name: values[name] for name in self.table.shape.key}),
                _json(values),
            )
        )


def refused_error(target: str, column: str, reason: str, where: str) -> SinkError:
    """What is raised of a row that the target refuses."""
    of = f"column `{column}` of " if column else ""
    return SinkError(
        f"a row is refused by {of}target `{target}`: {reason}",
        f"the row is of {where}",
        "make the target's column or constraint wider, or set `on-refused-row: quarantine`",
    )


def staged_name(stream: str) -> str:
    """A new name for a table of rows that wait, of the stream called `stream`."""
    return f"{staged_prefix(stream)}{uuid.uuid4().hex[:12]}"


def staged_prefix(stream: str) -> str:
    """What such names of a stream begin with."""
    return f"_tailrace_s_{stream.replace('-', '')[:12]}_"


def _json(values: dict[str, Any]) -> str:
    return json.dumps(values, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
