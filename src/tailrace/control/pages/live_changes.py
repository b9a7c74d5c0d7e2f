"""The page of a pipeline's last changes, taken while somebody has it open (`control.live_samples`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from tailrace.control import live_samples
from tailrace.control.live_samples import SampledTable
from tailrace.control.pages.references import named, reference
from tailrace.control.pages.site import PageRoute, Site, show, to
from tailrace.control.tokens import Scope
from tailrace.errors import TailraceError

_OPERATIONS = {"c": "insert", "u": "update", "d": "delete", "t": "truncate"}
_DONE = {"values": "The values of the next changes are shown for a minute. That is in the audit."}


@dataclass(frozen=True)
class ShownSample:
    """A table as the page shows it.

    Args:
        sampled: its changes.
        reference: its name, and its source's, as a form can hold them.
    """

    sampled: SampledTable
    reference: str


def routes(site: Site) -> APIRouter:
    """The pages of this module."""
    router = APIRouter(route_class=PageRoute)

    @router.get("/pipelines/{name}/changes")
    def page(request: Request, name: str, done: str = "") -> Response:
        viewer = site.viewer(request)
        name = site.control.get(name).name
        error: TailraceError | None = None
        found: list[SampledTable] = []
        try:
            found = live_samples.look(site.control, name, operates=viewer.may_operate)
        except TailraceError as problem:  # of the file or the checkpoint: the database knows the pipeline
            error = problem
        return show(
            request,
            viewer,
            "live_changes.html",
            section="Pipelines",
            name=name,
            done=_DONE.get(done, ""),
            error=error,
            operations=_OPERATIONS,
            tables=[ShownSample(one, reference(one.source, one.table)) for one in found],
        )

    @router.post("/pipelines/{name}/changes/values")
    def values(
        request: Request,
        name: str,
        table: Annotated[str, Form()],
        form_token: Annotated[str, Form()] = "",
    ) -> Response:
        viewer = site.acting(request, form_token, Scope.OPERATE)
        source, table_name = named(table)
        live_samples.show_values(site.control, viewer.name, name, [table_name], source=source or None)
        return to(request, f"/pipelines/{quote(name, safe='')}/changes?done=values")

    return router
