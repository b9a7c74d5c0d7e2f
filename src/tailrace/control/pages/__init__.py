"""The web page of the control plane: HTML made on the server, with htmx, and plots by uPlot.

    site         who looks, errors as pages, live parts (SSE)
    protection   headers, tokens of forms
    rendering    templates; everything printed is escaped
    signing_in   sign in, sign out
    listing      pipelines, servers, audit
    one          a pipeline
    comparing    its tables against their targets: verify, repair
    schema_changes   its schema changes
    live_changes its last changes, while somebody looks
    references   tables in forms
    edit         create and change
    starts       what a new file begins with
    overview     what they show: queries
    samples      lag and throughput
    topology     the picture of a pipeline
    assets/      style, script, and what is vendored (`vendored.sha256`): no build step
    templates/

Pages call the same operations as the API, in this process.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, Request
from fastapi.exceptions import HTTPException
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, Response

from tailrace.control.operations import Control
from tailrace.control.pages import (
    comparing,
    edit,
    listing,
    live_changes,
    one,
    schema_changes,
    signing_in,
)
from tailrace.control.pages.rendering import ASSETS
from tailrace.control.pages.site import PageRoute, Site

_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def router(control: Control, stopping: threading.Event | None = None) -> APIRouter:
    """The pages, to be mounted at `/`; samples are taken while the app runs.

    Args:
        control: the operations of the control plane.
        stopping: ends live parts once it is set; a server waits for its open responses before it ends.
    """
    site = Site(control, stopping or threading.Event())

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        site.sampler.start()
        try:
            yield
        finally:
            await run_in_threadpool(site.sampler.stop)

    pages = APIRouter(route_class=PageRoute, lifespan=lifespan, include_in_schema=False)
    pages.add_api_route("/assets/{name}", _asset, methods=["GET"])
    for module in (signing_in, listing, edit, comparing, schema_changes, live_changes, one):
        pages.include_router(module.routes(site))
    return pages


def _asset(request: Request, name: str) -> Response:  # noqa: ARG001 - FastAPI passes it
    path = ASSETS / name
    if path.suffix not in _TYPES or path.parent != ASSETS or not path.is_file():
        raise HTTPException(404, "there is no such file")
    headers = {"cache-control": "public, max-age=31536000, immutable"}  # its address has its digest
    return FileResponse(path, media_type=_TYPES[path.suffix], headers=headers)
