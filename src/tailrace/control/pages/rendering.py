"""Templates: everything that they print is escaped, and made printable first.

A name in a database, an error of a server or a token's name can hold anything: tags, quotes, characters
that change the direction of text. Jinja2's autoescape handles tags and quotes; `printable` is applied to
whatever a template prints, unless a filter says otherwise:

    lines   keeps line breaks (hints, pipeline files to read)
    exact   as it is (a pipeline file to edit)
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from tailrace.printable import printable, printable_lines

#: The style, the script and what is vendored.
ASSETS = Path(__file__).parent / "assets"

_STAGES = {
    "register": "registered",
    "snapshot": "snapshot",
    "reread": "read again",
    "incremental_log": "following the log",
}
_UNITS = ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


class _Kept(str):
    """Text that is printable already, or has to stay as it is. It is escaped like any other."""

    __slots__ = ()


def _finalized(value: object) -> object:
    if isinstance(value, str) and not isinstance(value, _Kept | Markup):
        return printable(str(value))
    return value


def _lines(text: str) -> str:
    return _Kept(printable_lines(text.replace("\r\n", "\n")))


def _count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}".replace(",", "\u202f")


def _rate(number: float | None) -> str:
    if number is None:
        return "–"
    return _count(round(number)) if number >= 10 or number == 0 else f"{number:.1f}"


def _share(part: int | None, whole: int) -> str:
    """An estimate may be too low: a table that is still being read is never shown as read."""
    return f"{min(99, (part or 0) * 100 // whole)} %"


def _span(us: int | None) -> str:
    """A span of time, in its two largest units."""
    if us is None:
        return "–"
    seconds = us / 1e6
    for size, unit, small, small_unit in _UNITS:
        if seconds >= size:
            rest = int(seconds % size) // small
            return f"{int(seconds) // size} {unit}" + (f" {rest} {small_unit}" if rest else "")
    return f"{seconds:.1f} s"


def _moment(us: int) -> Markup:
    at = datetime.fromtimestamp(us / 1e6, UTC)
    return Markup('<time datetime="{}">{} UTC</time>').format(
        at.isoformat(timespec="seconds"), at.strftime("%Y-%m-%d %H:%M:%S")
    )


@cache
def _digest(name: str) -> str:
    return hashlib.sha256((ASSETS / name).read_bytes()).hexdigest()[:16]


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tailrace.control.pages"),
        autoescape=True,
        finalize=_finalized,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        lines=_lines,
        exact=_Kept,
        count=_count,
        rate=_rate,
        share=_share,
        span=_span,
        moment=_moment,
        stage=lambda stage: _STAGES.get(stage, stage),
    )
    return environment


_ENVIRONMENT = _environment()


def fragment(request: Request, template: str, values: Mapping[str, Any]) -> str:
    """A template as text.

    Args:
        request: for which.
        template: its file.
        values: what it shows; with `viewer`, who looks at it, or None.
    """
    root = request.scope.get("root_path", "")
    return _ENVIRONMENT.get_template(template).render(
        root=root, asset=lambda name: f"{root}/assets/{name}?v={_digest(name)}", **values
    )


def page(request: Request, template: str, values: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    """A template as a response; arguments as of `fragment`."""
    return HTMLResponse(fragment(request, template, {"section": "", **values}), status)
