"""Quarantined rows: changes that a target refuses, put aside while all others flow.

Each sink keeps them where a batch that comes again puts the same rows once:

    replicas          the table `_tailrace_quarantine`, in the transaction that writes the other rows
    Kafka             the topic `<topic-prefix>.__quarantine`, in the writer's transaction
    OpenSearch        the index `tailrace_quarantine`, by ids that are the same each time
    Delta, Iceberg    <path>/_tailrace/quarantine/<stream>/<table>/<batch>.jsonl (`Quarantine`)

`Quarantine` replaces the file of a batch that comes again. It is written before the batch, whose other rows
can only be written after it: a crash in between leaves rows noted that the replay puts there once more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from tailrace.errors import SinkError
from tailrace.model.paths import file_name
from tailrace.spark.checkpoint import Directory

_ENDING = ".jsonl"
#: What makes a target accept a row.
WIDEN = "make the target's column or constraint wider"


@dataclass(frozen=True)
class QuarantinedRow:
    """A change that a target has refused.

    Args:
        table: the source table.
        target: the sink's name of its target.
        batch: the batch's number.
        op: the operation, as in change logs: r, c, u or d.
        position: of the change in the source's log.
        code: of the condition, None if it was not noted.
        reason: why it was refused, without any value.
        remedy: what makes the target accept it.
        key: the key by column, None if it is not known.
        row: the row by column, None if it is not known.
        column: the column that was refused; empty: none, or not known.
    """

    table: str
    target: str
    batch: int
    op: str
    position: str
    code: str | None
    reason: str
    remedy: str | None
    key: Mapping[str, Any] | None = None
    row: Mapping[str, Any] | None = field(default=None, repr=False)
    column: str = ""

    def to_json(self) -> str:
        """This row on one line."""
        return json.dumps(asdict(self), default=plain)

    @classmethod
    def from_json(cls, text: str) -> QuarantinedRow:
        """The inverse of `to_json`, but for values that JSON lacks: they are text."""
        return cls(**json.loads(text))


def plain(value: Any) -> str:
    """A value that JSON lacks, as text: bytes in hexadecimal digits."""
    return value.hex() if isinstance(value, bytes) else str(value)


def too_many(table: str, most: int, reason: str) -> SinkError:
    """The error for a table with more refused rows than may be put aside.

    Args:
        table: the source table.
        most: the limit.
        reason: why the last row was refused.
    """
    return SinkError(
        f"table `{table}` has more refused rows than `max-quarantined` allows",
        f"max-quarantined: {most}; the last reason: {reason}",
        "tailrace quarantine PIPELINE.YAML shows the rows; correct their cause, then clear them: tailrace"
        f" quarantine PIPELINE.YAML --clear {table}; or raise `max-quarantined`",
        code="TR-7040",
        table=table,
    )


def refused_error(target: str, column: str, reason: str, where: str) -> SinkError:
    """The error for a row that the target rejects."""
    of = f"column `{column}` of " if column else ""
    return SinkError(
        f"a row is refused by {of}target `{target}`: {reason}",
        f"the row is of {where}",
        f"{WIDEN}, or set `on-refused-row: quarantine`",
        code="TR-7006",
    )


def violation_reason(name: str) -> str:
    """Why a row is refused that violates a condition."""
    return f"it violates CHECK constraint `{name}`"


class SinkQuarantine(Protocol):
    """The quarantined rows of one stream in one sink, seen from outside."""

    def rows(self) -> Iterable[QuarantinedRow]:
        """All rows, by table and batch."""

    def clear(self, table: str) -> int:
        """Forget the rows of a table; how many there were."""


class Quarantine:
    """The quarantined rows of one stream in a sink that keeps them in files.

    Args:
        root: the directory below which the stream keeps what belongs to its targets.
        stream: the stream's id.
    """

    def __init__(self, root: str, stream: str) -> None:
        self._path = f"{root.rstrip('/')}/_tailrace/quarantine/{stream}"

    def put(self, table: str, batch: int, rows: Iterable[QuarantinedRow]) -> None:
        """Put the rows of one table and batch aside, instead of those that the batch had before."""
        text = "".join(f"{row.to_json()}\n" for row in rows)
        Directory(self._path).write(f"{file_name(table)}/{batch:012}{_ENDING}", text)

    def count(self, table: str, *, without: int | None = None) -> int:
        """How many rows of a table it has.

        Args:
            table: the source table.
            without: a batch whose rows do not count.
        """
        files = self._files(file_name(table))
        return sum(len(text.splitlines()) for number, text in files if number != without)

    def rows(self) -> Iterator[QuarantinedRow]:
        """All rows, by table and batch."""
        for name in Directory(self._path).names():
            for _, text in self._files(name):
                yield from map(QuarantinedRow.from_json, text.splitlines())

    def clear(self, table: str) -> int:
        """Forget the rows of a table; how many there were."""
        found = self.count(table)
        Directory(self._path).remove_directory(file_name(table))
        return found

    def _files(self, name: str) -> Iterator[tuple[int, str]]:
        directory = Directory(f"{self._path}/{name}")
        for file in directory.names():
            if file.endswith(_ENDING) and (text := directory.read(file)) is not None:
                yield int(file.removesuffix(_ENDING)), text
