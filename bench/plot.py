"""Pictures for the docs: bars in SVG, drawn by hand, without any library.

    peers.svg      rows per second, beside the peers'
    cpu.svg        CPU seconds per million rows, beside the peers'
    latency.svg    how many commits took how long to foreachBatch
    cost.svg       CPU time of a row as its table grows

`python -m bench.plot` draws them anew from `results/latest.json`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from bench import report
from bench.report import Figure

IMAGES = Path(__file__).parent.parent / "docs" / "img"

_WIDTH, _LEFT, _RIGHT, _TOP = 860, 250, 150, 44
_BAR, _GAP, _TITLE = 18, 6, 30
_OURS, _THEIRS, _TEXT, _PAPER = "#0b7285", "#adb5bd", "#212529", "#ffffff"
_FONT = "font-family='system-ui, sans-serif'"


@dataclass(frozen=True)
class Bar:
    """A bar.

    Args:
        name: what stands left of it.
        value: its length.
        label: what stands right of it.
        is_ours: whether it is Tailrace's.
    """

    name: str
    value: float
    label: str
    is_ours: bool = True


def write(figures: Sequence[Figure]) -> None:
    """Draw all pictures into `docs/img`."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, heading, panels in (
        ("peers", "Rows or row events per second (longer is better)", rates(figures)),
        ("cpu", "CPU seconds per million rows or row events (shorter is better)", cpu(figures)),
        ("latency", "Commits by their time to foreachBatch", latencies(figures)),
        ("cost", "CPU time of a row as its table grows", costs(figures)),
    ):
        (IMAGES / f"{name}.svg").write_text(svg(heading, panels), encoding="utf-8")


def rates(figures: Iterable[Figure]) -> dict[str, list[Bar]]:
    """Each system's rate, by section."""
    return _by_section(
        (figure, figure.value, f"{report.number(figure.value)}/s") for figure in figures if figure.system
    )


def cpu(figures: Iterable[Figure]) -> dict[str, list[Bar]]:
    """Each system's CPU time, without the server's, by section."""

    def costs_of_systems() -> Iterator[tuple[Figure, float, str]]:
        for figure in figures:
            events = figure.notes.get("events")
            if figure.system and events:
                used = sum(seconds for role, seconds in figure.cpu_s.items() if role != "mysqld")
                cost = 1e6 * used / events
                yield figure, cost, f"{cost:.3g} s"

    return _by_section(costs_of_systems())


def _by_section(found: Iterable[tuple[Figure, float, str]]) -> dict[str, list[Bar]]:
    """The bars of systems; of one that is there twice, the last. Each with its length and label."""
    panels: dict[str, dict[str, Bar]] = defaultdict(dict)
    for figure, value, label in found:
        bar = Bar(figure.system, value, label, figure.system.startswith("Tailrace"))
        panels[figure.section][figure.system] = bar
    return {section: list(bars.values()) for section, bars in panels.items()}


def latencies(figures: Iterable[Figure]) -> dict[str, list[Bar]]:
    """The histogram of each rate."""
    return {
        figure.section: [
            Bar("longer" if bound == "inf" else f"≤ {bound} ms", count, str(count))
            for bound, count in figure.notes["histogram"].items()
        ]
        for figure in figures
        if "histogram" in figure.notes
    }


def costs(figures: Iterable[Figure]) -> dict[str, list[Bar]]:
    """The cost of a row, by the table's rows."""
    bars = [
        Bar(f"{figure.notes['rows']:,} rows", figure.value, f"{figure.value:.3g} µs")
        for figure in figures
        if figure.section == "cost of a row" and "rows" in figure.notes
    ]
    return {"snapshot to Delta": bars} if bars else {}


def svg(heading: str, panels: Mapping[str, Sequence[Bar]]) -> str:
    """A picture with a panel for each section, each with a scale of its own."""
    drawn, y = [], _TOP
    for section, bars in panels.items():
        drawn.append(_panel(section, bars, y))
        y += _TITLE + len(bars) * (_BAR + _GAP) + _GAP
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {y}' role='img'>",
            f"<rect width='100%' height='100%' fill='{_PAPER}'/>",
            _label(_WIDTH / 2, 24, heading, 15, "middle"),
            *drawn,
            "</svg>",
            "",
        ]
    )


def _panel(section: str, bars: Sequence[Bar], top: float) -> str:
    longest = max(bar.value for bar in bars) or 1.0
    parts = [_label(12, top + 18, section, 13, "start", weight="bold")]
    for i, bar in enumerate(bars):
        y = top + _TITLE + i * (_BAR + _GAP)
        width = max((_WIDTH - _LEFT - _RIGHT) * bar.value / longest, 1)
        colour = _OURS if bar.is_ours else _THEIRS
        parts.append(_label(_LEFT - 8, y + 14, bar.name, 12, "end"))
        parts.append(
            f"<rect x='{_LEFT}' y='{y}' width='{width:.1f}' height='{_BAR}' rx='2' fill='{colour}'/>"
        )
        parts.append(_label(_LEFT + width + 6, y + 14, bar.label, 12, "start"))
    return "\n".join(parts)


def _label(x: float, y: float, text: str, size: int, anchor: str, *, weight: str = "normal") -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' text-anchor='{anchor}' font-weight='{weight}' "
        f"fill='{_TEXT}' {_FONT}>{escape(text)}</text>"
    )


def main() -> None:
    """Draw the last whole run."""
    values = json.loads((report.RESULTS / "latest.json").read_text(encoding="utf-8"))
    write([Figure(**figure) for figure in values["figures"]])


if __name__ == "__main__":
    main()
