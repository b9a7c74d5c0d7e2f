"""The list of pipelines, the servers that run them, and the audit."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from tailrace.control.audit import Event, read_events
from tailrace.control.pages.overview import PAGE, Listed, listed
from tailrace.control.pages.site import PageRoute, Site, live, part, show
from tailrace.control.servers import all_servers
from tailrace.control.stages import Desired, Stage

#: Lines of a difference that are shown.
_MOST_LINES = 400
_KINDS = {"+": "added", "-": "removed"}

PageNumber = Annotated[int, Query(ge=1, le=100_000)]


@dataclass(frozen=True)
class ShownEvent:
    """An event as a page shows it.

    Args:
        event: itself.
        difference: lines of what has changed, each with its kind: `added`, `removed` or `same`.
    """

    event: Event
    difference: Sequence[tuple[str, str]]


def routes(site: Site) -> APIRouter:
    """The pages of this module."""
    router = APIRouter(route_class=PageRoute)

    @router.get("/")
    def pipelines(request: Request, wanted: Annotated[Listed, Depends(_wanted)]) -> Response:
        viewer = site.viewer(request)
        found = _found(site, wanted)
        return show(
            request,
            viewer,
            "pipelines.html",
            section="Pipelines",
            stages=list(Stage),
            desires=list(Desired),
            **found,
        )

    @router.get("/live/pipelines")
    def live_pipelines(request: Request, wanted: Annotated[Listed, Depends(_wanted)]) -> Response:
        site.viewer(request)
        return live(
            site,
            request,
            lambda: {
                "list": part(request, site.viewer(request), "pipelines_list.html", **_found(site, wanted))
            },
        )

    @router.get("/servers")
    def servers(request: Request) -> Response:
        viewer = site.viewer(request)
        found = site.database.read(all_servers)
        return show(request, viewer, "servers.html", section="Servers", servers=found)

    @router.get("/live/servers")
    def live_servers(request: Request) -> Response:
        site.viewer(request)
        return live(
            site,
            request,
            lambda: {
                "servers": part(
                    request,
                    site.viewer(request),
                    "servers_table.html",
                    servers=site.database.read(all_servers),
                )
            },
        )

    @router.get("/audit")
    def audit(
        request: Request, subscription: str = "", before: Annotated[int | None, Query(ge=1)] = None
    ) -> Response:
        viewer = site.viewer(request)
        found = site.database.read(
            lambda connection: read_events(connection, subscription or None, before, PAGE + 1)
        )
        more = {"subscription": subscription, "before": found[PAGE - 1].id} if len(found) > PAGE else None
        return show(
            request,
            viewer,
            "audit.html",
            section="Audit",
            subscription=subscription,
            name="",
            events=[ShownEvent(event, difference(event)) for event in found[:PAGE]],
            older=urlencode(more) if more else "",
        )

    return router


def difference(event: Event) -> list[tuple[str, str]]:
    """What an event has changed, line by line."""
    before, after = _lines(event.before), _lines(event.after)
    lines = list(difflib.unified_diff(before, after, n=1, lineterm=""))[2:]
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f" … and {len(lines) - _MOST_LINES} lines more"]
    return [(_KINDS.get(line[:1], "same"), line) for line in lines if not line.startswith("@@")]


def _lines(value: Mapping[str, Any] | None) -> list[str]:
    found: list[str] = []
    for name, item in sorted((value or {}).items()):
        if isinstance(item, str) and "\n" in item:
            found += [f"{name}:", *(f"  {line}" for line in item.splitlines())]
        elif isinstance(item, Mapping):
            found += [f"{name}:", *(f"  {line}" for line in _lines(item))]
        else:
            found.append(f"{name}: {item if isinstance(item, str) else json.dumps(item)}")
    return found


def _wanted(  # noqa: PLR0917 - FastAPI passes them by name
    text: Annotated[str, Query(max_length=200)] = "",
    stage: str = "",
    desired: str = "",
    attention: bool = False,
    owner: str = "",
    group: str = "",
    page: PageNumber = 1,
) -> Listed:
    """What the address asks for; unknown stages mean any, as an empty choice does."""
    return Listed(
        text,
        Stage(stage) if stage in set(Stage) else None,
        Desired(desired) if desired in set(Desired) else None,
        attention,
        owner or None,
        group or None,
        page,
    )


def _found(site: Site, wanted: Listed) -> dict[str, Any]:
    found, total = site.database.read(lambda connection: listed(connection, wanted))
    asked = {
        "text": wanted.text,
        "stage": wanted.stage or "",
        "desired": wanted.desired or "",
        "attention": "true" if wanted.attention else "",
        "owner": wanted.owner or "",
        "group": wanted.group or "",
    }
    query = urlencode({name: value for name, value in asked.items() if value})
    return {
        "found": found,
        "rates": {row.subscription.id: site.sampler.rates(row.subscription.id) for row in found},
        "total": total,
        "size": PAGE,
        "wanted": wanted,
        "is_filtered": wanted.is_filtered,
        "query": f"{query}&page={wanted.page}" if query else f"page={wanted.page}",
        "query_of_pages": f"{query}&" if query else "",
    }
