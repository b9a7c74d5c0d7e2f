"""Figures as a table in the terminal, as JSON and as Markdown."""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
#: Of the last whole run, and of the one before it.
_LATEST, _BEFORE = RESULTS / "latest.json", RESULTS / "before.json"
#: Whether a target is met.
_MARKS = {None: "", True: "✓", False: "✗"}


@dataclass(frozen=True)
class Figure:
    """One line of the report.

    Args:
        section: what is measured.
        name: how.
        value: the median over the repetitions, in `unit`.
        unit: e.g. `rows/s`.
        spread: smallest and largest repetition.
        ratio: of `value` to the section's yardstick, None where there is none.
        target: what is wanted of the ratio or, without one, of the value.
        met: whether it is reached, None where there is no target.
        cpu_s: CPU seconds by role, of the median repetition.
        peak_rss_mb: largest resident set of a process by role, over all repetitions.
        notes: what else is worth knowing, by name; `missed because`: why a target is missed.
        system: what is compared with others in the plot, "" for what is not.
    """

    section: str
    name: str
    value: float
    unit: str
    spread: tuple[float, float] | None = None
    ratio: float | None = None
    target: str = ""
    met: bool | None = None
    cpu_s: dict[str, float] = field(default_factory=dict)
    peak_rss_mb: dict[str, float] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    system: str = ""


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import pyarrow  # noqa: PLC0415
    import pyspark  # noqa: PLC0415

    return {
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "pyarrow": pyarrow.__version__,
        "load_before": os.getloadavg()[0],
        "seconds of 10 million additions in Python": round(min(_additions_s() for _ in range(3)), 2),
    }


def _additions_s() -> float:
    """How fast the machine is: machines of one kind differ by a factor of two."""
    begun, total = time.perf_counter(), 0
    for each in range(10_000_000):
        total += each
    return time.perf_counter() - begun


def write(figures: list[Figure], facts: dict[str, Any]) -> None:
    """`results/latest.json`, `latest.md` with all figures, and `targets.md` with those that have a target."""
    values = {"facts": facts, "figures": [asdict(figure) for figure in figures]}
    _LATEST.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    (RESULTS / "latest.md").write_text(markdown(figures, facts), encoding="utf-8")
    before, _ = _held(_BEFORE)
    (RESULTS / "targets.md").write_text("\n".join([*targets(figures, before), ""]), encoding="utf-8")


def keep() -> None:
    """Keep the last results as those of the run before."""
    _LATEST.replace(_BEFORE)


def _held(file: Path) -> tuple[list[Figure], dict[str, Any]]:
    """The figures and facts of a file of results."""
    held = json.loads(file.read_text(encoding="utf-8"))
    return [Figure(**values) for values in held["figures"]], held["facts"]


def replaced(figures: list[Figure]) -> tuple[list[Figure], dict[str, Any]]:
    """The figures of the last results with `figures` in place of those of their sections; their facts.

    Sections are the same if their titles differ in numbers only.
    """
    held, facts = _held(_LATEST)
    new: dict[str, list[Figure]] = {}
    for figure in figures:
        new.setdefault(_without_numbers(figure.section), []).append(figure)
    found: list[Figure] = []
    for old in held:
        if old.section and (title := _without_numbers(old.section)) in new:
            found += new[title]
            new[title] = []
        else:
            found.append(old)
    return [*found, *(figure for rest in new.values() for figure in rest)], facts


def others(figures: Iterable[Figure]) -> list[Figure]:
    """The figures of the last results whose sections `figures` lacks."""
    held, _ = _held(_LATEST)
    new = {_without_numbers(figure.section) for figure in figures}
    return [figure for figure in held if _without_numbers(figure.section) not in new]


def _without_numbers(title: str) -> str:
    return re.sub(r"[\d,.]+", "", title)


def markdown(figures: list[Figure], facts: dict[str, Any]) -> str:
    """The figures as Markdown, one table."""
    head = ["| | median | spread | ratio | CPU s | peak RSS MB |", "|---|--:|--:|--:|--:|--:|"]
    lines, section = list(head), ""
    for figure in figures:
        if figure.section != section:
            section = figure.section
            lines.append(f"| **{section}** | | | | | |")
        lines.append("| " + " | ".join(cells(figure)) + " |")
    about = ", ".join(f"{name} {value}" for name, value in facts.items())
    return "\n".join([*lines, "", f"`make bench`; {about}.", ""])


def targets(figures: Iterable[Figure], before: Iterable[Figure]) -> list[str]:
    """All targets as lines of Markdown, with the reasons of those that were missed.

    Args:
        figures: those of the last run.
        before: those of the run before it.
    """
    lines = ["| target | wanted | last run | | run before | | why |", "|---|--:|--:|:-:|--:|:-:|---|"]
    earlier: dict[str, list[Figure]] = {}
    for figure in before:
        earlier.setdefault(_about(figure), []).append(figure)
    for figure in figures:
        same = earlier.get(_about(figure), [])
        former = same.pop(0) if same else None
        if figure.met is not None:
            why = "" if figure.met else figure.notes.get("missed because", "")
            then = ("", "") if former is None or former == figure else _judgement(former)
            shown = (f"{figure.section}: {figure.name}", figure.target, *_judgement(figure), *then, why)
            lines.append(f"| {' | '.join(shown)} |")
    return lines


def _about(figure: Figure) -> str:
    return _without_numbers(f"{figure.section}: {figure.name}")


def _judgement(figure: Figure) -> tuple[str, str]:
    """What a target is compared with, and whether it is met."""
    found = f"{number(figure.value)} {figure.unit}" if figure.ratio is None else f"{figure.ratio:.2f}"
    return found, _MARKS[figure.met]


def cells(figure: Figure) -> list[str]:
    """One figure's columns."""
    goal = f" ({figure.target} {_MARKS[figure.met]})" if figure.target else ""
    ratio = f"{figure.ratio:.2f}{goal}" if figure.ratio is not None else goal.strip()
    spread = "" if figure.spread is None else "–".join(number(v) for v in figure.spread)
    cpu = ", ".join(f"{role} {s:.1f}" for role, s in sorted(figure.cpu_s.items()) if s >= 0.05)
    rss = ", ".join(f"{role} {mb:.0f}" for role, mb in sorted(figure.peak_rss_mb.items()) if role != "other")
    return [figure.name, f"{number(figure.value)} {figure.unit}", spread, ratio, cpu, rss]


def number(value: float) -> str:
    """Three digits that count."""
    if value >= 1e6:
        return f"{value / 1e6:.2f} M"
    if value >= 1e4:
        return f"{value / 1e3:.0f} k"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def show(figure: Figure) -> None:
    """One line in the terminal, as soon as it is known."""
    name, value, spread, ratio, cpu, rss = cells(figure)
    line = f"{figure.section:<28} {name:<46} {value:>16}  {spread:<18} {ratio:<14} cpu: {cpu}"
    why = str(figure.notes.get("why", "")).strip().replace("\n", "\n    ")
    print(*filter(None, [line, rss and f"rss: {rss}", why and f"\n    {why}"]), sep="  ", flush=True)
