"""Repair: what `verify` found to differ is read again, in place, and compared once more.

    verify ─▶ differing targets ─▶ request beside the checkpoint ─▶ the stream reads rows or tables again
                                                                                       │
    verify ◀─ the batch that ends the reading is committed ◀───────────────────────────┘

Where a target lacks a few rows, or has other values in them, just these are read again: a reading with a
condition of their keys. Such a reading deletes nothing, so a target with extra rows has its whole table read
again; so has one that differs even afterwards.

The stream makes the correction, not this module: only it can order the rows with its own changes. So the
pipeline must run, or be started, and everything that holds of `tailrace resync` holds here (design 0006).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

from pyspark.sql import SparkSession

from tailrace.config.model import Pipeline
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import StateError
from tailrace.model.condition import condition_problem
from tailrace.printable import printable
from tailrace.spark.checkpoint import Checkpoint
from tailrace.spark.requests import RequestDirectory, requests_path, rows_data
from tailrace.verify.report import Report
from tailrace.verify.run import names_in, verify

#: How often to look at the checkpoint, seconds.
_POLL_S = 1.0
#: How long a batch may take that is being written to a replica, seconds.
_BATCH_S = 60.0
#: Most rows of a kind and target that are read again by their keys.
BY_KEY_ROWS = 100


def compared(
    pipeline: Pipeline,
    spark: SparkSession | None,
    tables: Sequence[str],
    **how: Any,
) -> Report:
    """Compare `tables` (none: all) with their targets; a replica as of a moment between two batches.

    Args:
        pipeline: the pipeline.
        spark: see `verify`.
        tables: names of tables.
        how: further arguments of `verify`.

    Raises:
        StateError: a replica was being written each time, or see `verify`.
    """
    pattern = names_in(tables) or None
    given = {"limit": BY_KEY_ROWS, "patience_s": _BATCH_S, **how}
    return verify(pipeline, spark, pattern=pattern, **given)


def tables_to_read(report: Report) -> list[str]:
    """The tables to read again, so that the targets of `report` equal them."""
    differing = [target for target in report.targets if not target.equal]
    return sorted({table for target in differing for table in target.tables})


def rows_to_read(report: Report, dialect: str) -> dict[str, str]:
    """The tables of which a few rows are read again, with the condition of these rows.

    Args:
        report: what `compared` has found.
        dialect: the source's database.
    """
    found: dict[str, str] = {}
    for target in report.targets:
        differences = target.differences
        if differences is None or len(target.tables) > 1 or target.unfinished or not target.key:
            continue
        keys = [row.key for row in differences.shown]
        is_whole = target.examined == target.differing
        if not is_whole or differences.extra or len(keys) < differences.missing + differences.different:
            continue
        condition = _of_keys(target.key, keys, '"' if dialect in ("oracle", "postgresql") else "`")
        if condition and condition_problem(condition, target.key, dialect) is None:
            found[target.tables[0]] = condition
    return found


def _of_keys(names: Sequence[str], keys: Sequence[tuple[Any, ...]], quote: str) -> str:
    """The condition of rows by their keys; "" if a value cannot be written in one."""
    literals = [[_literal(value) for value in key] for key in keys]
    if not all(all(key) for key in literals):
        return ""
    quoted = [quote + name.replace(quote, quote * 2) + quote for name in names]
    if len(quoted) == 1:
        return f"{quoted[0]} IN ({', '.join(key[0] for key in literals)})"
    rows = [" AND ".join(map("{} = {}".format, quoted, key)) for key in literals]
    return " OR ".join(f"({row})" for row in rows)


def _literal(value: Any) -> str:
    """A value as SQL of every database; "" if there is no such form that is sure to be equal."""
    if type(value) in (int, Decimal):
        return format(value, "d" if isinstance(value, int) else "f")
    if type(value) is str:
        return "'" + value.replace("'", "''") + "'"
    return f"DATE '{value}'" if type(value) is date else ""


def request(pipeline: Pipeline, tables: Sequence[str]) -> str:
    """Ask the stream to read `tables` again; returns the request's id.

    A request for the same tables that still waits is not repeated.
    """
    directory = RequestDirectory(requests_path(pipeline.checkpoint))
    accepted = set(_end_requests(pipeline))
    for waiting in directory.pending():
        same = waiting.kind == "resync" and set(waiting.tables) == set(tables)
        if same and waiting.id not in accepted:
            return waiting.id
    return directory.add(tables)


def request_rows(pipeline: Pipeline, where: Mapping[str, str]) -> str:
    """Ask the stream to read some rows again, by their conditions; returns the request's id.

    A request for the same rows that still waits is not repeated.
    """
    directory = RequestDirectory(requests_path(pipeline.checkpoint))
    accepted = set(_end_requests(pipeline))
    for waiting in directory.pending():
        sent = None if waiting.signal is None else waiting.signal.data
        if sent == rows_data(where) and waiting.id not in accepted:
            return waiting.id
    return directory.add_rows(where)


def wait(
    pipeline: Pipeline,
    id_: str,
    tables: Sequence[str],
    *,
    after: int,
    patience_s: float,
    say: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Wait until a request has taken effect; returns the batch that ended the reading.

    Args:
        pipeline: the pipeline.
        id_: the request.
        tables: its tables.
        after: a batch that was committed before the request was made.
        patience_s: how long the stream may take to accept the request; reading may take any time.
        say: receives what happens, a line each.
        clock: monotonic seconds.
        sleep: waits for seconds.

    Raises:
        StateError: nothing has accepted the request.
    """
    checkpoint = Checkpoint(pipeline.checkpoint)
    directory = RequestDirectory(requests_path(pipeline.checkpoint))
    began, seen, is_accepted = clock(), after, False
    while True:
        # first: the file of an accepted request goes only after its batch is committed
        is_gone = all(waiting.id != id_ for waiting in directory.pending())
        last = checkpoint.last_committed()
        for number in range(seen + 1, (-1 if last is None else last.id) + 1):
            value = checkpoint.end_of(number)
            seen = number
            if value is None:  # Spark has removed it
                continue
            end = StreamOffset.from_json(value)
            if not is_accepted and (
                id_ in end.requests or (is_gone and last is not None and number == last.id)
            ):
                is_accepted = True
                say(f"batch {number}: the pipeline has begun to read them again")
            if is_accepted and all(name not in end.again or end.again[name].done for name in tables):
                return number
        if not is_accepted and clock() - began >= patience_s:
            raise StateError(
                "the pipeline has not taken up the request to read tables again",
                f"found no batch with request {id_} after {patience_s:,.0f} s; the request is kept",
                "if the pipeline is stopped, start it: `tailrace run PIPELINE.YAML`; it begins with the "
                "request. Then repeat `tailrace repair`",
                code="TR-6045",
            )
        sleep(_POLL_S)


def repair(
    pipeline: Pipeline,
    spark: SparkSession | None,
    report: Report,
    *,
    patience_s: float,
    say: Callable[[str], None] = lambda _: None,
    on_request: Callable[[str], None] = lambda _: None,
    **how: Any,
) -> Report:
    """Have what differs in `report` read again, and compare its tables once more.

    Args:
        pipeline: the pipeline; it runs, or is started meanwhile.
        spark: a session for `verify`.
        report: what `compared` has found; not equal.
        patience_s: see `wait`.
        say: receives what happens, a line each.
        on_request: receives the id of each request.
        how: further arguments of `verify`.

    Raises:
        StateError: a target cannot be repaired, nothing has accepted the request, or a table could not be
            compared afterwards.
    """
    tables, last = tables_to_read(report), Checkpoint(pipeline.checkpoint).last_committed()
    id_, where = requested(pipeline, report)
    on_request(id_)
    what = ("rows of " if where else "") + ", ".join(map(printable, tables))
    say(f"request {id_}: {what} will be read again; waiting for the pipeline, which must run")
    batch = wait(pipeline, id_, tables, after=-1 if last is None else last.id, patience_s=patience_s, say=say)
    say(f"batch {batch}: all {'these ' if where else ''}rows are read; comparing again")
    after = compared(pipeline, spark, tables, **how)
    require_compared(after, tables)
    if where and not after.equal:
        say("rows differ that were not read: their tables are read again")
        whole = replace(after, targets=tuple(replace(t, key=()) for t in after.targets))
        return repair(
            pipeline,
            spark,
            whole,
            patience_s=patience_s,
            say=say,
            on_request=on_request,
            **how,
        )
    return after


def requested(pipeline: Pipeline, report: Report) -> tuple[str, dict[str, str]]:
    """Ask the stream to read again what differs in `report`.

    Returns:
        The request's id, and the conditions of the rows by table; none: the tables are read whole.
    """
    tables, where = tables_to_read(report), rows_to_read(report, pipeline.source.dialect)
    if where.keys() != set(tables):
        return request(pipeline, tables), {}
    return request_rows(pipeline, where), where


def require_compared(report: Report, tables: Sequence[str]) -> None:
    """Refuse a report that leaves out some of `tables`: of these it does not say that they are equal.

    Raises:
        StateError: it does; a table was parked or dropped meanwhile, for example.
    """
    left = set(tables).difference(*(target.tables for target in report.targets))
    if left:
        why = dict(report.skipped)
        raise StateError(
            f"{', '.join(f'`{name}`' for name in sorted(left))} could not be compared after the repair",
            "; ".join(f"`{name}`: {why[name]}" for name in sorted(left & why.keys())) or None,
            "do what the detail says, then repeat `tailrace repair`",
            code="TR-8146",
        )


def _end_requests(pipeline: Pipeline) -> tuple[str, ...]:
    """The requests that the newest planned batch has accepted."""
    last = Checkpoint(pipeline.checkpoint).last()
    return () if last is None else StreamOffset.from_json(last.end).requests
