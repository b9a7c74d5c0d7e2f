"""A pipeline's state as text for people."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.errors import TailraceError, coded
from tailrace.pipeline.log_warning import SHORT_S, duration
from tailrace.pipeline.status import SinkStatus, SourceStatus, Status, TableStatus, iso_ms, iso_us, percent
from tailrace.pipeline.verify_state import Comparison
from tailrace.printable import printable, printable_lines

#: Most tables that are listed.
_MOST_TABLES = 50
#: Listed first.
_ORDER = ("parked", "snapshot", "reread", "streaming")


def lines(status: Status, pipeline_file: str) -> Iterator[str]:
    """The state, line by line.

    Args:
        status: the state.
        pipeline_file: the file, for the commands that are named.
    """
    yield f"pipeline {printable(status.pipeline)}: {_run(status)}"
    if status.run is not None and status.run.error is not None:
        error = status.run.error
        text = printable(coded(error["message"], error["code"]))
        yield f"  last error {_ago(status, error['at_ms'])}: {text}"
    if status.run is not None and status.run.runs and status.run.held_by:
        yield f"  no rows of tables are read for now, only the log: {printable(status.run.held_by)}"
    if status.run is not None and status.run.runs and status.run.slowed_by:
        yield f"  rows of tables are read slowly for now: {printable(status.run.slowed_by)}"
    if status.last is None:
        yield f"no batch yet in checkpoint {printable(status.checkpoint)}"
        return
    planned = "" if status.planned is None else f"; batch {status.planned} is being written"
    if status.planned is not None and status.run is not None and status.run.runs is False:
        planned = f"; batch {status.planned} is planned: the next start repeats it"
    committed = "" if status.committed_ms is None else f", committed {_ago(status, status.committed_ms)}"
    yield f"batch {status.last.id}{committed}{planned}"
    yield f"complete up to {iso_us(status.complete_us) or 'an unknown time'}{_except(status)}"
    if status.position is not None:
        last = f", last commit {iso_ms(status.position.ts_ms)}" if status.position.ts_ms else ""
        yield f"position {printable(str(status.position))}{last}"
    if status.source is not None:
        yield from _source(status.source)
    yield from _tables(status, pipeline_file)
    for sink in status.sinks:
        yield from _sink(sink, pipeline_file)


def _run(status: Status) -> str:
    run = status.run
    if run is None:
        return "not running"
    if run.runs is None:
        return f"runs on {printable(run.host)}, or did: last seen {_ago(status, run.at_ms)}"
    if run.runs:
        return f"running (process {run.pid}, since {iso_ms(run.started_ms)}): {printable(run.step)}"
    ended = run.ended or "ended without notice"
    return f"not running ({ended}, last seen {_ago(status, run.at_ms)})"


def _ago(status: Status, ms: int) -> str:
    return f"{duration(max(status.at_ms - ms, 0) / 1000)} ago"


def _except(status: Status) -> str:
    excepted = [table for table in status.tables if table.state != "streaming"]
    if not excepted:
        return ""
    first = printable(excepted[0].name)
    return f", except {first if len(excepted) == 1 else f'{len(excepted)} tables'}"


def _source(source: SourceStatus) -> Iterator[str]:
    if source.error is not None:
        yield f"source does not answer: {_short(source.error)}"
        return
    if source.lag_ms == 0:
        yield "source: no lag"
    else:
        size = "an unknown number of" if source.lag_bytes is None else f"{source.lag_bytes:,}"
        age = "" if source.lag_ms is None else f", {duration(source.lag_ms / 1000)}"
        yield f"source: lag {size} bytes{age}"
    kept = source.retention
    if kept is None:
        return
    limits = ", ".join(f"{name} = {value}" for name, value in kept.limits.items())
    limits = f" ({limits})" if limits else ""
    if source.room_s is None:
        yield f"log: {kept.held_bytes:,} bytes held, no limit that comes near{limits}"
    else:
        short = coded("log", "TR-4173") if source.room_s < SHORT_S else "log"
        yield f"{short}: kept for {duration(source.room_s)} more{limits}"


def _tables(status: Status, pipeline_file: str) -> Iterator[str]:
    tables = sorted(status.tables, key=lambda table: (_ORDER.index(table.state), table.name))
    if not tables:
        return
    yield "tables"
    for table in tables[:_MOST_TABLES]:
        yield f"  {printable(table.name)}: {_table(table)}"
        for sink, known in table.compared.items():
            if known.at_ms is not None or known.reason:
                yield printable_lines(f"    {_compared(status, sink, known)}")
        if table.parked is not None:
            if table.parked.reason.hint:
                yield printable_lines(f"    {table.parked.reason.hint}")
            if table.parked.resume is None:
                yield f"    once that is fixed: tailrace resume {pipeline_file} {printable(table.name)}"
    if len(tables) > _MOST_TABLES:
        yield f"  and {len(tables) - _MOST_TABLES} more, {tables[-1].state}"


def _table(table: TableStatus) -> str:
    if table.parked is not None:
        reason = printable(coded(table.parked.reason.message, table.parked.reason.code))
        return f"parked: {reason}; complete up to {iso_us(table.complete_us) or 'nothing'}"
    if table.state == "streaming":
        return "streaming"
    share = percent(table)
    known = "" if share is None else f" {share} %"
    verb = "snapshot" if table.state == "snapshot" else "read again"
    return f"{verb}{known}: {table.rows or 0:,} of ~{table.estimated or 0:,} rows"


def _compared(status: Status, sink: str, known: Comparison) -> str:
    found = "never compared"
    if known.at_ms is not None:
        result = f"rows that differ: {known.differences:,}" if known.differences else "equal"
        before = f" (before its repair: {known.found:,})" if known.found else ""
        found = f"compared {_ago(status, known.at_ms)}: {result}{before}"
    return f"sink {sink}: {found}{f'; not compared now: {known.reason}' if known.reason else ''}"


def _sink(sink: SinkStatus, pipeline_file: str) -> Iterator[str]:
    yield from _standing(sink)
    for entry in sink.parked:
        what = "parked" if entry.table is None else f"table {printable(entry.table)} is parked in it"
        reason = printable(coded(entry.reason.message, entry.reason.code))
        yield f"  {what} since batch {entry.batch}, {iso_ms(entry.at_ms)}: {reason}"
        if entry.reason.hint:
            yield printable_lines(f"    {entry.reason.hint}")
    if sink.parked:
        yield f"    once that is fixed: tailrace resume {pipeline_file} --sink {printable(sink.name)}"


def _standing(sink: SinkStatus) -> Iterator[str]:
    name = f"sink {sink.name or sink.kind} {printable(sink.where)}".rstrip()
    if sink.found is None:
        assert sink.error is not None
        yield f"{name}: does not answer: {_short(sink.error)}"
        return
    text = f"received batch {sink.received}"
    if sink.visible == sink.received:
        text += ", all of it visible"
    else:
        visible = "nothing" if sink.visible is None else f"up to batch {sink.visible}"
        rows = sum(target.waiting_rows for target in sink.found.targets.values())
        text += f", visible: {visible} ({rows:,} changes wait to be merged)"
    begun = sink.found.begun(sink.received)
    yield f"{name}: {text}" + ("" if begun is None else f"; has a part of batch {begun}")


def _short(error: TailraceError) -> str:
    found = f": {error.detail}" if error.detail else ""
    return printable(f"{coded(error.message, error.code)}{found}")
