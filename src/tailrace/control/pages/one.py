"""The page of one pipeline, and what can be asked of it there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Form, Query, Request
from sqlalchemy import Connection
from starlette.responses import JSONResponse, Response

from tailrace.control import streams, subscriptions
from tailrace.control.audit import Event, read_events
from tailrace.control.operations import Control
from tailrace.control.pages.listing import PageNumber, ShownEvent, difference
from tailrace.control.pages.overview import PAGE, Overview, WantedTables, overview_of, tables_page
from tailrace.control.pages.references import named, reference
from tailrace.control.pages.site import PageRoute, Site, live, part, show, to
from tailrace.control.pages.topology import Picture, picture
from tailrace.control.progress import TableReport
from tailrace.control.stages import Desired, Stage
from tailrace.control.tokens import Scope
from tailrace.errors import TailraceError


class _TableRequest(Protocol):
    def __call__(
        self, control: Control, actor: str, name: str, tables: Sequence[str], *, source: str | None = ...
    ) -> str: ...


_DESIRED = {"pause": Desired.PAUSE, "resume": Desired.RUN, "cancel": Desired.CANCEL}
#: What needs more than `operate`.
_NEEDED = {"cancel": Scope.ADMIN, "remove": Scope.ADMIN}
_ON_TABLE: Mapping[str, _TableRequest] = {
    "park": streams.park,
    "resume": streams.resume_tables,
    "resync": streams.resync,
}
#: Events of its page.
_EVENTS = 10
_DONE = {
    "pause": "Asked to pause.",
    "resume": "Asked to run.",
    "retry": "Retrying now.",
    "cancel": "Cancelled.",
    "park-table": "Asked to park the table; the pipeline does it with its next batch.",
    "resume-table": "Asked to resume the table; the pipeline does it with its next batch.",
    "resync-table": "Asked to read the table again; the pipeline does it with its next batch.",
    "created": "Created. A server will take it within seconds.",
    "changed": "Changed. Its server restarts it with the new file.",
}


@dataclass(frozen=True)
class ShownTable:
    """A table as its page shows it.

    Args:
        table: itself.
        reference: its name, and its source's, as an address or a form can hold them.
        behind_us: how old its target is, microseconds; None: not known.
        left_s: how long its reading will take, seconds; None: not known.
    """

    table: TableReport
    reference: str
    behind_us: int | None
    left_s: float | None

    @property
    def is_read(self) -> bool:
        """Whether its rows are being read."""
        return self.table.error is None and self.table.stage in ("snapshot", "reread")


@dataclass(frozen=True)
class _Known:
    """What the database holds about one pipeline."""

    row: Overview
    tables: list[TableReport]
    total: int
    events: list[Event]


def routes(site: Site) -> APIRouter:
    """The pages of this module."""
    router = APIRouter(route_class=PageRoute)

    @router.get("/pipelines/{name}")
    def pipeline(
        request: Request, name: str, wanted: Annotated[WantedTables, Depends(_wanted)], done: str = ""
    ) -> Response:
        viewer = site.viewer(request)
        known = site.database.read(lambda connection: _known(connection, name, wanted))
        found, spec_error = _picture(known)
        return show(
            request,
            viewer,
            "pipeline.html",
            section="Pipelines",
            done=_DONE.get(done, ""),
            picture=found,
            spec_error=spec_error,
            spec=known.row.subscription.spec,
            is_cancelled=known.row.subscription.stage is Stage.CANCELLED,
            **_values(site, known, wanted),
        )

    @router.get("/live/pipelines/{name}")
    def live_pipeline(
        request: Request, name: str, wanted: Annotated[WantedTables, Depends(_wanted)]
    ) -> Response:
        site.viewer(request)

        def parts() -> dict[str, str]:
            viewer = site.viewer(request)
            known = site.database.read(lambda connection: _known(connection, name, wanted))
            values = _values(site, known, wanted)
            return {
                of: part(request, viewer, f"pipeline_{of}.html", **values)
                for of in ("summary", "tables", "events")
            }

        return live(site, request, parts)

    @router.get("/pipelines/{name}/samples")
    def samples(request: Request, name: str, span: Literal["hour", "day"] = "hour") -> Response:
        site.viewer(request)
        found = site.database.read(lambda connection: subscriptions.get(connection, name))
        return JSONResponse(site.sampler.plot(found.id, day=span == "day"))

    @router.post("/pipelines/{name}/{action}")
    def act(
        request: Request,
        name: str,
        action: Literal["pause", "resume", "retry", "cancel", "remove"],
        form_token: Annotated[str, Form()] = "",
    ) -> Response:
        viewer = site.acting(request, form_token, _NEEDED.get(action, Scope.OPERATE))
        if action == "retry":
            site.control.retry(viewer.name, name)
        elif action == "remove":
            site.control.remove(viewer.name, name)
        else:
            site.control.ask(viewer.name, name, _DESIRED[action])
        if action == "remove":
            return to(request, "/")
        return to(request, f"/pipelines/{quote(name, safe='')}?done={action}")

    @router.post("/pipelines/{name}/tables/{action}")
    def act_on_table(
        request: Request,
        name: str,
        action: Literal["park", "resume", "resync"],
        table: Annotated[str, Form()],
        form_token: Annotated[str, Form()] = "",
    ) -> Response:
        viewer = site.acting(request, form_token, Scope.OPERATE)
        source, table_name = named(table)
        ask = _ON_TABLE[action]
        ask(site.control, viewer.name, name, [table_name], source=source or None)
        return to(request, f"/pipelines/{quote(name, safe='')}?done={action}-table")

    return router


def _known(connection: Connection, name: str, wanted: WantedTables) -> _Known:
    subscription = subscriptions.get(connection, name)
    tables, total = tables_page(connection, subscription.id, wanted)
    events = read_events(connection, name, most=_EVENTS)
    return _Known(overview_of(connection, subscription), tables, total, events)


def _values(site: Site, known: _Known, wanted: WantedTables) -> Mapping[str, Any]:
    row = known.row
    id_ = row.subscription.id
    rates = site.sampler.rates(id_)
    left = row.sums.estimated - row.sums.read
    asked = {"text": wanted.text, "show": "" if wanted.show == "all" else wanted.show}
    query = urlencode({name: value for name, value in asked.items() if value})
    return {
        "name": row.subscription.name,
        "row": row,
        "rates": rates,
        "left_s": left / rates.rows if rates.rows and left > 0 else None,
        "tables": [_shown(site, row, table) for table in known.tables],
        "total": known.total,
        "size": PAGE,
        "wanted": wanted,
        "query": f"{query}&page={wanted.page}" if query else f"page={wanted.page}",
        "query_of_pages": f"{query}&" if query else "",
        "events": [ShownEvent(event, difference(event)) for event in known.events],
    }


def _shown(site: Site, row: Overview, table: TableReport) -> ShownTable:
    left = None
    if table.rows is not None and table.estimated:
        left = site.sampler.seconds_left(
            row.subscription.id, table.source, table.table, table.rows, table.estimated
        )
    behind = None if table.complete_us is None else max(0, row.now_us - table.complete_us)
    return ShownTable(table, reference(table.source, table.table), behind, left)


def _picture(known: _Known) -> tuple[Picture | None, TailraceError | None]:
    try:
        return picture(known.row.subscription.pipelines()), None
    except TailraceError as error:  # written by another version of Tailrace
        return None, error


def _wanted(
    text: Annotated[str, Query(max_length=300)] = "", show: str = "all", page: PageNumber = 1
) -> WantedTables:
    return WantedTables(text, show if show in ("parked", "reading") else "all", page)
