"""Whole comparisons with targets that cannot show an earlier state: each table as of a batch of its own.

    tables ─▶ parts: a table, or a range of its keys ─▶ one after another: `run.verify` as of the last batch
                                                             │
                                        what is equal is noted beside the checkpoint, for `--resume`

A database is read as it was when a transaction began, and a long transaction is a burden on its server. So it
ends with the table. `--in-parts` divides large tables by their keys, too: a part takes minutes.

*What a division costs.* All rows of a part are compared at one position, but a row that gets another key may
go from a part that is still to come into one that is done: it is then compared in none. So a table is divided
only where the user asks for it. Targets that can be read as of an earlier batch, Delta and Iceberg tables,
need none of this: they are compared as of one, also after an interruption (`kept`).

A part that differs is not noted: a comparison that goes on compares it once more.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from tailrace.config.model import Pipeline
from tailrace.config.sinks import (
    DeltaSettings,
    IcebergSettings,
    MySqlSettings,
    OpenSearchSettings,
    PostgresSettings,
)
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import ConfigError, StateError
from tailrace.model.table import TableSchema
from tailrace.pipeline.tables_in_force import with_tables_in_force
from tailrace.sources import registry
from tailrace.sources.base import Source
from tailrace.spark.checkpoint import Checkpoint, Directory
from tailrace.verify.comparable import VerifiableSettings, compared_sink, shows_earlier
from tailrace.verify.compare import DifferenceKind, Differences
from tailrace.verify.kept import forget, kept_directory, no_comparison
from tailrace.verify.portion import Keys, greatest_key, has_numbers_as_key
from tailrace.verify.progress import NO_PROGRESS, ReadProgress
from tailrace.verify.range_reader import SourceTable
from tailrace.verify.report import PRINTED_ROWS, Report, TargetReport
from tailrace.verify.run import last_batch, names_in, routing_of, verify
from tailrace.verify.tables import tables_by_target

#: A table with twice as many rows is divided into parts of about this number.
PART_ROWS = 10_000_000
#: Errors of a part that is left out: its tables cannot be compared now, or are none of the stream any more.
_LEFT_OUT = ("TR-8101", "TR-8102")
#: That of one whose target is to be compared as a whole.
_NOT_IN_PART = "TR-8108"
#: How long to wait for a moment between two batches, seconds: there is one for each part.
_PATIENCE_S = 30.0
_VERSION = 1
_FILE = "parts.json"


def verify_whole(
    pipeline: Pipeline,
    spark: SparkSession | None,
    *,
    resume: bool,
    in_parts: bool = False,
    pattern: str | None = None,
    limit: int = PRINTED_ROWS,
    progress: ReadProgress = NO_PROGRESS,
    **how: Any,
) -> Report:
    """Compare whole tables, and keep how far that comes.

    Args:
        pipeline: a pipeline.
        spark: see `verify`.
        resume: go on with a comparison that was interrupted, else begin a new one.
        in_parts: divide large tables.
        pattern: see `verify`.
        limit: see `verify`.
        progress: see `verify`.
        how: further arguments of `verify`.

    Raises:
        ConfigError: the targets of the sink cannot be compared in parts, or see `verify`.
        StateError: there is nothing to go on with, or see `verify`.
        TailraceError: see `verify`.
    """
    if in_parts:
        _require_parts(compared_sink(pipeline.sinks, pipeline.source))
    if shows_earlier(pipeline.sinks, pipeline.source):
        given = {"pattern": pattern, "limit": limit, "progress": progress, **how}
        return verify(pipeline, spark, resume=resume, **given)
    noted = NotedParts(pipeline.checkpoint, resume=resume)
    parts, skipped = _planned(pipeline, pattern, noted, in_parts=in_parts)
    found, shown = _Found(limit, skipped), _OfParts(progress)
    shown.show([part for part in parts if part.equal is None])
    noted.keep(parts)

    def compare(part: Part) -> None:
        given: dict[str, Any] = {
            "patience_s": _PATIENCE_S,
            "pattern": names_in(part.tables),
            "portion": part.keys,
            "limit": limit,
            **how,
        }
        try:
            found.add(part, verify(pipeline, spark, progress=shown.of_next(), **given))
        except (StateError, ConfigError) as error:
            if error.code not in _LEFT_OUT:
                raise
            found.skip(part, error)
        shown.done(part)
        noted.keep(parts)

    for part in list(parts):
        if part.equal is not None:
            found.add_noted(part)
        elif part in parts:
            try:
                compare(part)
            except ConfigError as error:
                if error.code != _NOT_IN_PART:
                    raise
                parts[:] = [other for other in parts if other.target != part.target]
                parts.append(replace(part, keys=None))
                shown.show(parts[-1:])
                compare(parts[-1])
    noted.forget()
    return found.report()


@dataclass(frozen=True)
class EqualPart:
    """What is known of a part that is equal.

    Args:
        batch: the batch as of which it is.
        rows: its number of rows.
        version: as of `TargetReport`.
        left_out: likewise.
        position: the log position of that batch's end, for display.
    """

    batch: int
    rows: int
    version: int | None
    left_out: tuple[str, ...]
    position: str = ""


@dataclass
class Part:
    """A part of a comparison.

    Args:
        target: the target's name.
        tables: the tables routed to it.
        form: a digest of the tables' columns and keys.
        keys: the range of keys; None: all.
        estimated_rows: about how many rows it has.
        equal: what is known of it, once it was found equal.
    """

    target: str
    tables: tuple[str, ...]
    form: str
    keys: Keys | None
    estimated_rows: int
    equal: EqualPart | None = None

    def to_json(self) -> dict[str, Any]:
        """The part as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Part:
        """Read what `to_json` wrote."""
        keys, equal = value["keys"], value["equal"]
        return cls(
            value["target"],
            tuple(value["tables"]),
            value["form"],
            None if keys is None else Keys(**keys),
            value["estimated_rows"],
            None if equal is None else EqualPart(**{**equal, "left_out": tuple(equal["left_out"])}),
        )


class NotedParts:
    """The parts of a comparison, beside the checkpoint.

    Args:
        checkpoint: the pipeline's.
        resume: whether those of an earlier comparison count.

    Raises:
        StateError: they are to count, and there are none.
    """

    def __init__(self, checkpoint: str, *, resume: bool) -> None:
        self._checkpoint = checkpoint
        self._directory: Directory = kept_directory(checkpoint)
        self.parts: list[Part] = []
        if not resume:
            self.forget()
            return
        value = json.loads(self._directory.read(_FILE) or "null")
        if value is None or value["v"] != _VERSION:
            raise no_comparison(checkpoint)
        self.parts = [Part.from_json(part) for part in value["parts"]]

    def keep(self, parts: Sequence[Part]) -> None:
        """Note how far the comparison is."""
        value = {"v": _VERSION, "parts": [part.to_json() for part in parts]}
        try:
            self._directory.write(_FILE, json.dumps(value))
        except OSError:  # who may not write there compares all the same, and does not go on
            return

    def forget(self) -> None:
        """The comparison has come to its end."""
        forget(self._checkpoint)


def _planned(
    pipeline: Pipeline, pattern: str | None, noted: NotedParts, *, in_parts: bool
) -> tuple[list[Part], list[tuple[str, str]]]:
    """The parts to compare, noted ones among them, and the tables that are left out, with the reason."""
    pipeline = with_tables_in_force(pipeline)
    end = StreamOffset.from_json(last_batch(Checkpoint(pipeline.checkpoint)).end)
    sink, dialect = compared_sink(pipeline.sinks, pipeline.source), pipeline.source.dialect

    def by_ranges(table: TableSchema) -> bool:
        return in_parts and _is_read_by_ranges(sink, dialect, table)

    parts: list[Part] = []
    with closing(registry.source(pipeline.source)) as source:
        by_target, skipped = tables_by_target(routing_of(pipeline), source, end, pattern)
        for target, tables in sorted(by_target.items()):
            form = _form(tables)
            known = [part for part in noted.parts if (part.target, part.form) == (target, form)]
            parts += known or _divided(source, target, tables, form, by_ranges)
    if not parts:
        raise StateError(
            "there is nothing to compare", "; ".join(f"`{n}`: {why}" for n, why in skipped), code="TR-8101"
        )
    return parts, skipped


def _form(tables: Sequence[SourceTable]) -> str:
    text = json.dumps([[table.schema.to_json(), table.shard] for table in tables], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _divided(
    source: Source,
    target: str,
    tables: Sequence[SourceTable],
    form: str,
    by_ranges: Callable[[TableSchema], bool],
) -> list[Part]:
    names = tuple(str(table.schema.id) for table in tables)
    rows = sum(table.estimated_rows for table in tables)
    (first, *others), ranges = tables, [Keys(None, None)]
    if by_ranges(first.schema) and not others and not first.unfinished and rows >= 2 * PART_ROWS:
        ranges = list(_ranges(source, first))
    if len(ranges) == 1:
        return [Part(target, names, form, None, rows)]
    return [Part(target, names, form, keys, rows // len(ranges)) for keys in ranges]


def _require_parts(sink: VerifiableSettings) -> None:
    why = None
    if isinstance(sink, DeltaSettings | IcebergSettings):
        why = "they are compared as of one batch, and go on as of that one after an interruption"
    elif isinstance(sink, OpenSearchSettings):
        why = "they are read whole each time"
    if why is not None:
        raise ConfigError(
            f"targets of a `{sink.type}` sink are not compared in parts",
            why,
            "leave out --in-parts",
            code="TR-8112",
        )


def _is_read_by_ranges(sink: VerifiableSettings, dialect: str, table: TableSchema) -> bool:
    """Whether a target of the table is read by ranges of keys."""
    if not has_numbers_as_key(table):
        return False
    if isinstance(sink, MySqlSettings | PostgresSettings) and dialect not in sink.schemes:
        # there it may be a decimal number
        types = [table.column(name).type for name in table.key]
        return not any(type_.unsigned and type_.bits == 64 for type_ in types)
    return True


def _ranges(source: Source, table: SourceTable) -> list[Keys]:
    """Ranges of a table's keys, with all of them, of about PART_ROWS rows each."""
    found, begin, after = list[Keys](), None, None
    while (upto := source.boundary(table.schema, after, PART_ROWS)) is not None:
        last = int(upto[0])
        found.append(Keys(begin, last))
        begin, after = last + 1, greatest_key(table.schema, last)
    return [*found, Keys(begin, None)]


class _Found:
    """Puts together what is found of parts.

    Args:
        limit: most differing rows to report of each kind and target.
        skipped: tables that are left out, with the reason.
    """

    def __init__(self, limit: int, skipped: Sequence[tuple[str, str]]) -> None:
        self._limit, self._skipped = limit, list(skipped)
        self._targets: dict[str, TargetReport] = {}
        #: The batches as of which parts were compared, with their positions.
        self._batches: dict[int, str] = {}
        self._seconds, self._before = 0.0, 0

    def add(self, part: Part, report: Report) -> None:
        """A part was compared; it is noted in it if it is equal."""
        (found,) = report.targets
        if found.equal:
            part.equal = EqualPart(
                report.batch, found.source_rows, found.version, found.left_out, report.position
            )
        self._skipped += [each for each in report.skipped if each not in self._skipped]
        self._batches[report.batch] = report.position
        self._seconds += report.seconds
        self._put(replace(found, of_rows=None))

    def add_noted(self, part: Part) -> None:
        """A part was found equal before an interruption."""
        assert part.equal is not None
        equal = part.equal
        self._batches[equal.batch] = equal.position
        self._before += equal.rows
        self._put(
            TargetReport(
                part.target,
                part.tables,
                equal.version,
                equal.rows,
                equal.rows,
                unfinished=False,
                differing=0,
                examined=0,
                differences=None,
                left_out=equal.left_out,
            )
        )

    def skip(self, part: Part, error: StateError | ConfigError) -> None:
        """There is nothing of a part to compare any more."""
        self._skipped += [(name, error.detail or error.message) for name in part.tables]

    def report(self) -> Report:
        """All of it."""
        targets = tuple(self._targets[name] for name in sorted(self._targets))
        last = max(self._batches, default=0)
        return Report(
            last,
            self._batches.get(last, ""),
            targets,
            tuple(self._skipped),
            self._seconds,
            before=self._before,
            first_batch=min(self._batches, default=0),
        )

    def _put(self, found: TargetReport) -> None:
        known = self._targets.get(found.target)
        if known is None:
            self._targets[found.target] = found
            return
        self._targets[found.target] = replace(
            found,
            source_rows=known.source_rows + found.source_rows,
            target_rows=known.target_rows + found.target_rows,
            unfinished=known.unfinished or found.unfinished,
            differing=known.differing + found.differing,
            examined=known.examined + found.examined,
            differences=_together(known.differences, found.differences, self._limit),
            left_out=tuple(dict.fromkeys((*known.left_out, *found.left_out))),
            key=known.key or found.key,
        )


def _together(one: Differences | None, other: Differences | None, limit: int) -> Differences | None:
    if one is None or other is None:
        return one or other
    shown = (*one.shown, *other.shown)
    kept = [[row for row in shown if row.kind is kind][:limit] for kind in DifferenceKind]
    return Differences(
        one.missing + other.missing,
        one.extra + other.extra,
        one.different + other.different,
        tuple(row for rows in kept for row in rows),
    )


class _OfParts(ReadProgress):
    """Shows whole tables, whose parts are compared one after another.

    Args:
        inner: shows them.
    """

    def __init__(self, inner: ReadProgress) -> None:
        self._inner = inner
        self._begun = 0

    def show(self, parts: Sequence[Part]) -> None:
        """These are still to be compared."""
        rows, number = Counter[str](), Counter[str]()
        for part in parts:
            number.update(part.tables)
            rows.update({name: part.estimated_rows // len(part.tables) for name in part.tables})
        self._inner.begin({name: (rows[name], number[name]) for name in number})

    def of_next(self) -> ReadProgress:
        """For the comparison of the next part."""
        self._begun = 0
        return self

    def done(self, part: Part) -> None:
        """A part is compared."""
        for name in part.tables:
            self._inner.ended(name)

    def begin(self, tables: Mapping[str, tuple[int, int]]) -> None:  # noqa: ARG002 - `show` has begun
        """See ReadProgress."""
        self._begun += 1

    def read(self, table: str, rows: int) -> None:
        """See ReadProgress: what is read once more, where rows differ, does not count."""
        if self._begun == 1:
            self._inner.read(table, rows)

    def ended(self, table: str) -> None:
        """See ReadProgress."""
