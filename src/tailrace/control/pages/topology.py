"""A pipeline as a picture: source, transforms and routes, sinks; boxes with places, drawn by a template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import urlsplit

from tailrace.config.model import Pipeline, TransformRule
from tailrace.config.sinks import SinkSettings
from tailrace.printable import printable, shortened

#: Sizes of the picture, in its own units.
_WIDTH, _HEIGHT, _GAP = 220, 56, 16
_COLUMN = 300
#: Boxes of a column at most; the last one says how many more there are.
_MOST = 6
#: Characters that fit into a box.
_FITS = 30


@dataclass(frozen=True)
class Box:
    """A box.

    Args:
        x: its left side.
        y: its upper side.
        kind: `source`, `transform` or `sink`.
        title: its first line.
        text: its second line, cut to fit.
        whole: the second line, whole.
    """

    x: int
    y: int
    kind: str
    title: str
    text: str
    whole: str


@dataclass(frozen=True)
class Picture:
    """A picture.

    Args:
        width: its width.
        height: its height.
        boxes: from left to right.
        lines: each from x, y to x, y.
        summary: the same in words.
    """

    width: int
    height: int
    boxes: Sequence[Box]
    lines: Sequence[tuple[int, int, int, int]]
    summary: str
    box_width: int = _WIDTH
    box_height: int = _HEIGHT


def picture(pipelines: Sequence[Pipeline]) -> Picture:
    """The picture of a pipeline.

    Args:
        pipelines: the pipeline, once for each of its sources.
    """
    first = pipelines[0]
    sources = [
        (_named(p.source_name, p.source.dialect), f"{p.source.host}:{p.source.port}") for p in pipelines
    ]
    steps = [("transform", _rule(rule)) for rule in first.transforms]
    steps += [("route", f"{route.source_table} → {route.sink_table}") for route in first.routes]
    sinks = [(sink.type, _where(sink)) for sink in first.sinks]
    columns = [("source", _cut(sources)), ("transform", _cut(steps)), ("sink", _cut(sinks))]
    columns = [(kind, texts) for kind, texts in columns if texts]
    tallest = max(len(texts) for _, texts in columns)
    height = tallest * (_HEIGHT + _GAP) - _GAP
    placed = [_column(number, kind, texts, height) for number, (kind, texts) in enumerate(columns)]
    lines = [
        (a.x + _WIDTH, a.y + _HEIGHT // 2, b.x, b.y + _HEIGHT // 2)
        for left, right in pairwise(placed)
        for a in left
        for b in right
    ]
    boxes = [box for column in placed for box in column]
    summary = "; ".join(
        f"{kind}: " + ", ".join(f"{title} {text}".strip() for title, text in texts) for kind, texts in columns
    )
    return Picture((len(columns) - 1) * _COLUMN + _WIDTH, height, boxes, lines, summary)


def _column(number: int, kind: str, texts: Sequence[tuple[str, str]], height: int) -> list[Box]:
    top = (height - len(texts) * (_HEIGHT + _GAP) + _GAP) // 2
    return [
        Box(
            number * _COLUMN, top + i * (_HEIGHT + _GAP), kind, title, shortened(printable(text), _FITS), text
        )
        for i, (title, text) in enumerate(texts)
    ]


def _cut(texts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    if len(texts) <= _MOST:
        return texts
    return [*texts[: _MOST - 1], (f"{len(texts) - _MOST + 1} more", "")]


def _named(name: str, dialect: str) -> str:
    return f"{dialect} ({shortened(printable(name), 16)})" if name else dialect


def _rule(rule: TransformRule) -> str:
    return rule.description or rule.source_table


def _where(sink: SinkSettings) -> str:
    """Where a sink writes to, without what an address may hold besides."""
    for name in ("path", "bootstrap_servers", "warehouse"):
        value = getattr(sink, name, None)
        if isinstance(value, str):
            return value
    url = getattr(sink, "url", None)
    return (urlsplit(url).hostname or "") if isinstance(url, str) else ""
