"""The rates beside the peers' as a picture for the docs: bars in SVG, drawn by hand, without any library.

`python -m bench.plot` draws it anew from `results/latest.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from bench import report
from bench.report import Figure

IMAGE = Path(__file__).parent.parent / "docs" / "img" / "peers.svg"

_WIDTH, _LEFT, _RIGHT, _TOP = 860, 250, 150, 44
_BAR, _GAP, _TITLE = 18, 6, 30
_OURS, _THEIRS, _TEXT, _PAPER = "#0b7285", "#adb5bd", "#212529", "#ffffff"
_FONT = "font-family='system-ui, sans-serif'"


def write(figures: Iterable[Figure]) -> None:
    """Draw `docs/img/peers.svg`."""
    IMAGE.parent.mkdir(parents=True, exist_ok=True)
    IMAGE.write_text(svg(figures), encoding="utf-8")


def svg(figures: Iterable[Figure]) -> str:
    """A panel per section with all figures of it that belong to a system, each with a scale of its own."""
    compared = [figure for figure in figures if figure.system]
    panels, y = [], _TOP
    for section, lines in groupby(compared, key=lambda figure: figure.section):
        systems = list({figure.system: figure for figure in lines}.values())
        panels.append(_panel(section, systems, y))
        y += _TITLE + len(systems) * (_BAR + _GAP) + _GAP
    heading = _label(_WIDTH / 2, 24, "Rows or row events per second (longer is better)", 15, "middle")
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {y}' role='img'>",
            f"<rect width='100%' height='100%' fill='{_PAPER}'/>",
            heading,
            *panels,
            "</svg>",
            "",
        ]
    )


def _panel(section: str, figures: Sequence[Figure], top: float) -> str:
    longest = max(figure.value for figure in figures)
    parts = [_label(12, top + 18, section, 13, "start", weight="bold")]
    for i, figure in enumerate(figures):
        y = top + _TITLE + i * (_BAR + _GAP)
        width = max((_WIDTH - _LEFT - _RIGHT) * figure.value / longest, 1)
        colour = _OURS if figure.system.startswith("Tailrace") else _THEIRS
        parts.append(_label(_LEFT - 8, y + 14, figure.system, 12, "end"))
        parts.append(
            f"<rect x='{_LEFT}' y='{y}' width='{width:.1f}' height='{_BAR}' rx='2' fill='{colour}'/>"
        )
        parts.append(_label(_LEFT + width + 6, y + 14, f"{report.number(figure.value)}/s", 12, "start"))
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
