"""Creating and changing pipelines, with findings about the file.

While somebody types, only the file itself is looked at: a half-written address is no host to connect to, and
its secrets are no password to send there. Servers are asked when somebody says so.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, Response

from tailrace.control import inspection
from tailrace.control.pages.site import PageRoute, Site, part, require, show, status_of, to
from tailrace.control.pages.starts import SINKS, SOURCES, start
from tailrace.control.secrets import require_references
from tailrace.control.tokens import Scope
from tailrace.errors import ConfigError, TailraceError
from tailrace.printable import printable_lines

#: The name of a pipeline in messages while it has none.
_UNNAMED = "new-pipeline"
#: Longest pipeline file, characters.
_MOST_SPEC = 1_000_000
#: Tables that are listed.
_MOST_TABLES = 200

Name = Annotated[str, Form(max_length=200)]
Spec = Annotated[str, Form(max_length=_MOST_SPEC)]
Token = Annotated[str, Form()]


def routes(site: Site) -> APIRouter:
    """The pages of this module."""
    router = APIRouter(route_class=PageRoute)

    @router.get("/new")
    def new_page(
        request: Request,
        source: Annotated[str, Query()] = "mysql",
        sink: Annotated[str, Query()] = "delta",
    ) -> Response:
        if source not in SOURCES or sink not in SINKS:
            raise ConfigError("there is no such kind of pipeline", code="TR-8463")
        spec = start(source, sink, _UNNAMED)
        return _editor(site, request, name="", spec=spec, version="", source=source, sink=sink)

    @router.post("/new")
    def create(
        request: Request,
        *,
        name: Name,
        spec: Spec,
        paused: Annotated[bool, Form()] = False,
        form_token: Token = "",
    ) -> Response:
        viewer = site.acting(request, form_token, Scope.ADMIN)
        name, spec = name.strip(), _lines(spec)
        try:
            site.control.create(viewer.name, name, spec, paused=paused)
        except TailraceError as error:
            return _editor(site, request, error, name=name, spec=spec, version="")
        return to(request, f"/pipelines/{quote(name, safe='')}?done=created")

    @router.get("/pipelines/{name}/edit")
    def edit_page(request: Request, name: str) -> Response:
        require(site.viewer(request), Scope.ADMIN)
        found = site.control.get(name)
        return _editor(
            site,
            request,
            name=found.name,
            spec=found.spec,
            version=str(found.version),
        )

    @router.post("/pipelines/{name}/edit")
    def change(
        request: Request,
        *,
        name: str,
        spec: Spec,
        version: Annotated[int, Form()],
        form_token: Token = "",
    ) -> Response:
        viewer = site.acting(request, form_token, Scope.ADMIN)
        spec = _lines(spec)
        try:
            site.control.change(viewer.name, name, spec, version)
        except TailraceError as error:
            return _editor(site, request, error, name=name, spec=spec, version=str(version))
        return to(request, f"/pipelines/{quote(name, safe='')}?done=changed")

    @router.post("/check")
    def check(
        request: Request,
        spec: Spec,
        name: Name = "",
        how: Annotated[Literal["file", "source", "whole", "tables"], Form()] = "file",
        form_token: Token = "",
    ) -> Response:
        viewer = site.acting(request, form_token, Scope.ADMIN)
        values: dict[str, Any] = {
            "error": None,
            "checked": [],
            "tables": {},
            "most": _MOST_TABLES,
            "how": how,
        }
        spec, name = _lines(spec), name.strip() or _UNNAMED
        try:
            if how == "file":
                require_references(spec)
                for pipeline in site.control.pipelines(spec, name):
                    pipeline.require_extras()
            elif how == "tables":
                values["tables"] = inspection.tables(site.control, spec)
            else:
                values["checked"] = inspection.check(site.control, name, spec, whole=how == "whole")
        except TailraceError as error:
            values["error"] = error
        return HTMLResponse(part(request, viewer, "findings.html", **values))

    return router


def _editor(site: Site, request: Request, problem: TailraceError | None = None, **values: str) -> Response:
    viewer = site.viewer(request)
    require(viewer, Scope.ADMIN)
    response = show(
        request,
        viewer,
        "edit.html",
        section="Pipelines",
        problem=problem,
        sources=list(SOURCES),
        sinks=list(SINKS),
        has_hidden=printable_lines(values["spec"]) != values["spec"],
        **{"source": "", "sink": "", **values},
    )
    if problem is not None:
        response.status_code = status_of(problem)
    return response


def _lines(text: str) -> str:
    """Forms end lines as networks do."""
    return text.replace("\r\n", "\n")
