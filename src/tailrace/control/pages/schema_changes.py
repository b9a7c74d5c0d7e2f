"""The page of a pipeline's schema changes: those of the batches that its checkpoint holds.

Neither statements nor default values are shown: they may hold what is nobody's business, a comment or a
password. The kinds have the names that settings have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

from tailrace.control import streams
from tailrace.control.pages.listing import PageNumber
from tailrace.control.pages.overview import PAGE
from tailrace.control.pages.site import PageRoute, Site, show
from tailrace.errors import TailraceError
from tailrace.model.schema_change import (
    ColumnAdded,
    ColumnAltered,
    ColumnDropped,
    ColumnRenamed,
    KeyAltered,
    RowsRewritten,
    SchemaChange,
    TableRenamed,
)
from tailrace.model.table import Column
from tailrace.pipeline.schema_history import RecordedChange


@dataclass(frozen=True)
class ShownChange:
    """A schema change as the page shows it.

    Args:
        source: its source; "": the pipeline has one.
        recorded: itself.
        lines: kind and columns of each change.
    """

    source: str
    recorded: RecordedChange
    lines: Sequence[tuple[str, str]]


def routes(site: Site) -> APIRouter:
    """The pages of this module."""
    router = APIRouter(route_class=PageRoute)

    @router.get("/pipelines/{name}/schema-changes")
    def page(request: Request, name: str, page: PageNumber = 1) -> Response:
        viewer = site.viewer(request)
        name = site.control.get(name).name
        error: TailraceError | None = None
        found: list[tuple[str, RecordedChange]] = []
        try:
            found = streams.schema_changes(site.control, name)
        except TailraceError as problem:  # of the file or the checkpoint: the database knows the pipeline
            error = problem
        shown = [
            ShownChange(source, one, [(change.kind, columns(change)) for change in one.event.changes])
            for source, one in found[(page - 1) * PAGE : page * PAGE]
        ]
        return show(
            request,
            viewer,
            "schema_changes.html",
            section="Pipelines",
            name=name,
            error=error,
            changes=shown,
            total=len(found),
            size=PAGE,
            number=page,
        )

    return router


def columns(change: SchemaChange) -> str:
    """What a change changes, in words; "": its kind says all."""
    match change:
        case ColumnAdded(column):
            return _column(column)
        case ColumnDropped(name):
            return name
        case ColumnRenamed(old, new):
            return f"{old} → {new}"
        case ColumnAltered(old, new):
            return f"{_column(old)} → {_column(new)}"
        case KeyAltered(old, new):
            return f"{_key(old)} → {_key(new)}"
        case TableRenamed(new):
            return f"→ {new}"
        case RowsRewritten(why):
            return why
        case _:
            return ""


def _column(column: Column) -> str:
    of = column.type
    sizes = (of.precision, of.scale) if of.precision is not None else (of.length,)
    size = ",".join(str(number) for number in sizes if number is not None)
    unsigned = " unsigned" if of.unsigned else ""
    null = "" if column.nullable else " not null"
    return f"{column.name} {of.native}{f'({size})' if size else ''}{unsigned}{null}"


def _key(names: Sequence[str]) -> str:
    return f"({', '.join(names)})" if names else "no key"
