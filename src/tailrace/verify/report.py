"""The result of a verification, and its printed form."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tailrace.printable import printable
from tailrace.verify.compare import DifferenceKind, Differences, RowDifference

#: Most differing rows to print of each kind and target.
PRINTED_ROWS = 20


@dataclass(frozen=True)
class TargetReport:
    """The comparison of one target with the tables routed to it.

    Args:
        target: its name.
        tables: names of the source's tables.
        version: the Delta version that was compared, or the last batch written to a replica; None: the target
            does not exist (yet).
        source_rows: number of rows in the source.
        target_rows: number of rows in the target.
        unfinished: whether a first snapshot was still running: only the rows it had read are compared.
        differing: number of buckets whose checksums differ.
        examined: number of these that were compared row by row.
        differences: the differing rows in them; None if no bucket differs.
        left_out: columns that exist on one side only.
        key: names of the key columns, as the source has them.
        of_rows: about how many rows the tables have, if a part of them was compared; None: all of them were.
    """

    target: str
    tables: tuple[str, ...]
    version: int | None
    source_rows: int
    target_rows: int
    unfinished: bool
    differing: int
    examined: int
    differences: Differences | None
    left_out: tuple[str, ...]
    key: tuple[str, ...] = ()
    of_rows: int | None = None

    @property
    def equal(self) -> bool:
        """Whether both sides hold the same rows, of those that were compared."""
        found = self.differences
        if found is None:
            return True
        # a replica's rows are read at a later moment than its checksums, and may have been corrected
        is_whole = self.examined == self.differing
        return is_whole and not (found.missing or found.extra or found.different)


@dataclass(frozen=True)
class Report:
    """The result of a verification.

    Args:
        batch: number of the batch whose targets were compared.
        position: log position of that batch's end, for display.
        targets: the targets, sorted by name.
        skipped: tables that were not compared, with the reason.
        seconds: duration.
        part: which part of the rows was compared; "": all of them.
        before: how many of the source's rows were read before an interruption.
        first_batch: the first one of several as of which parts were compared, the last of which is `batch`;
            None: all is as of that one.
    """

    batch: int
    position: str
    targets: tuple[TargetReport, ...]
    skipped: tuple[tuple[str, str], ...]
    seconds: float
    part: str = ""
    before: int = 0
    first_batch: int | None = None

    @property
    def equal(self) -> bool:
        """Whether every target equals its source, as far as it was compared."""
        return all(t.equal for t in self.targets)


def print_report(report: Report, console: Console, *, show_values: bool) -> None:
    """Print `report`: one line per target, then the differing rows by key and columns."""
    console.print(
        Text.assemble(
            ("Source as of ", ""),
            (printable(report.position), "bold"),
            (f" against the target after {_batches(report)}", ""),
            (f": {report.part}" if report.part else "", ""),
        ),
        soft_wrap=True,
    )
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("table", no_wrap=True)
    for name in ("source rows", "target rows", "version"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("result")
    for t in report.targets:
        table.add_row(
            Text(printable(t.target)),
            f"{t.source_rows:,}",
            f"{t.target_rows:,}",
            "–" if t.version is None else str(t.version),
            _result(t),
        )
    console.print(table)
    for name, why in report.skipped:
        console.print(_text(f"{name}: not compared: {why}", "yellow"), soft_wrap=True)
    for t in report.targets:
        if t.left_out:
            names = ", ".join(f"`{c}`" for c in t.left_out)
            console.print(
                _text(f"{t.target}: not compared, on one side only: {names}", "yellow"), soft_wrap=True
            )
        if t.differences is not None:
            _print_differences(t, t.differences, console, show_values=show_values)
    rows = sum(t.source_rows for t in report.targets)
    rate = (rows - report.before) / max(report.seconds, 1e-9)
    equal = "no difference in this part" if report.part else "equal"
    verdict = Text(equal, style="bold green") if report.equal else Text("DIFFERENT", style="bold red")
    console.print(
        Text.assemble(
            verdict,
            f": {rows:,} source rows compared in {report.seconds:.1f} s ({rate:,.0f} rows/s)",
            "; no other rows were looked at" if report.part else "",
            f"; {report.before:,} of them before the interruption" if report.before else "",
        ),
        soft_wrap=True,
    )


def _batches(report: Report) -> str:
    if report.first_batch in (None, report.batch):
        return f"batch {report.batch}"
    return f"batches {report.first_batch} to {report.batch}, each part as of the same one"


def _text(text: str, style: str = "") -> Text:
    """A line with names and values in it."""
    return Text(printable(text), style=style)


def _result(t: TargetReport) -> Text:
    if t.equal and t.of_rows is not None:
        return Text(f"equal in this part of ~{t.of_rows:,} rows", style="green")
    if t.equal:
        return Text("equal so far: its snapshot is running" if t.unfinished else "equal", style="green")
    assert t.differences is not None
    d = t.differences
    least = "at least " if t.examined < t.differing else ""
    return Text(f"{least}{d.missing} missing, {d.extra} extra, {d.different} different", style="bold red")


def _print_differences(
    t: TargetReport, differences: Differences, console: Console, *, show_values: bool
) -> None:
    if t.examined < t.differing:
        console.print(
            _text(f"{t.target}: {t.examined} of {t.differing} differing buckets were compared row by row"),
            soft_wrap=True,
        )
    for kind, total in (
        (DifferenceKind.MISSING, differences.missing),
        (DifferenceKind.EXTRA, differences.extra),
        (DifferenceKind.DIFFERENT, differences.different),
    ):
        shown = [d for d in differences.shown if d.kind is kind]
        shown = shown[:PRINTED_ROWS]
        for d in shown:
            console.print(_text(_line(t.target, d, show_values=show_values)), soft_wrap=True)
        if total > len(shown):
            console.print(_text(f"{t.target}: … and {total - len(shown):,} more {kind}"), soft_wrap=True)


def _line(target: str, d: RowDifference, *, show_values: bool) -> str:
    line = f"{target} {d.kind} key ({', '.join(str(v) for v in d.key)})"
    if d.kind is not DifferenceKind.DIFFERENT:
        row = d.source if d.source is not None else d.target
        return f"{line}: {row}" if show_values else line
    assert d.source is not None
    assert d.target is not None
    if not show_values:
        return f"{line}: {', '.join(d.columns)}"
    both = (f"{c}: source {d.source[c]!r}, target {d.target[c]!r}" for c in d.columns)
    return f"{line}: {'; '.join(both)}"
