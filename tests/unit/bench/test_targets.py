"""Which figures have a target, and what the page says of those that miss it."""

from __future__ import annotations

import pytest

from bench import plot, report
from bench.report import Figure
from bench.targets import TARGETS, judged


def test_target_is_found_by_the_beginnings_of_section_and_name_and_counts_the_ratio_first() -> None:
    slow = judged(
        Figure("log, 1000-row transactions, 3 events", "Tailrace cells to a sink's tasks", 2.0, "rows/s")
    )
    assert (slow.met, slow.target) == (False, "≥ 1.20 M rows/s")
    peer = "Debezium Embedded 3.6 (Tailrace cells ÷ it)"
    fast = judged(Figure("log, 1000-row transactions, 3 events", peer, 2.0, "rows/s", ratio=13.0))
    assert (fast.met, fast.target) == (True, "≥ 12")
    assert judged(Figure("snapshot, 3 rows", "drain, text protocol", 2.0, "rows/s")).met is None


@pytest.mark.parametrize(
    ("section", "name", "target"),
    [
        ("small tables, 100", "snapshot", "≤ 12 s"),
        ("small tables, 1,000", "snapshot", "≤ 60 s"),
        ("verification of 3 rows, delta", "alone", "≥ 500 k s"),
        ("verification of 3 rows, delta", "beside a running pipeline", "≥ 100 k s"),
        ("lake, change log, 3 events", "appended to Delta", "≥ 400 k s"),
    ],
)
def test_each_size_and_way_has_its_own_target(section: str, name: str, target: str) -> None:
    assert judged(Figure(section, name, 1.0, "s")).target == target


def test_page_names_each_missed_target_with_its_reason() -> None:
    missed = judged(Figure("starts", "first row", 7.0, "s"))
    met = judged(Figure("starts", "nothing to do", 1.0, "s"))
    before = [judged(Figure("starts", "first row", 5.0, "s"))]
    head, rule, one, two = report.targets([missed, met, Figure("starts", "more", 1.0, "s")], before)
    assert head.count("|") == rule.count("|") == one.count("|") == two.count("|")
    reason = next(target.why for target in TARGETS if target.name == "first row")
    assert reason
    assert one == f"| starts: first row | ≤ 6 s | 7 s | ✗ | 5 s | ✓ | {reason} |"
    assert two == "| starts: nothing to do | ≤ 6 s | 1 s | ✓ |  |  |  |"


def test_figures_of_two_runs_are_the_same_if_only_sizes_and_versions_differ() -> None:
    def peer(part: int, version: str, ratio: float) -> Figure:
        name = f"Debezium Embedded {version}.Final, first {part}% (Tailrace cells ÷ it)"
        return judged(Figure(f"snapshot, {part},000 rows", name, 2.0, "rows/s", ratio=ratio))

    *_, line = report.targets([peer(4, "3.6.1", 9.0)], [peer(7, "3.5.0", 6.0)])
    assert "| 9.00 | ✓ | 6.00 | ✗ |" in line


def test_figure_that_was_not_measured_again_is_shown_once() -> None:
    figure = judged(Figure("starts", "first row", 5.0, "s"))
    *_, line = report.targets([figure], [figure])
    assert line == "| starts: first row | ≤ 6 s | 5 s | ✓ |  |  |  |"


def test_pictures_show_latencies_and_costs() -> None:
    histogram = {"50": 2, "inf": 1}
    (bars,) = plot.latencies([Figure("latency", "p50", 1.0, "ms", notes={"histogram": histogram})]).values()
    assert [(bar.name, bar.value) for bar in bars] == [("≤ 50 ms", 2), ("longer", 1)]
    cost = Figure("cost of a row", "snapshot", 2.5, "CPU µs", notes={"rows": 1000})
    assert [bar.name for bar in plot.costs([cost])["snapshot to Delta"]] == ["1,000 rows"]
    peer = Figure("log", "P 1", 1.0, "rows/s", cpu_s={"peer": 2.0}, notes={"events": 1_000_000}, system="P")
    assert [bar.label for bar in plot.cpu([peer])["log"]] == ["2 s"]
