"""The API as an application of ASGI."""

from __future__ import annotations

import threading
from typing import Any

from fastapi import APIRouter, FastAPI

from tailrace import __version__
from tailrace.control import pages
from tailrace.control.api import (
    administration,
    health,
    inspection,
    jobs,
    offsets,
    problems,
    streams,
    subscriptions,
)
from tailrace.control.api.protection import ApiProtection
from tailrace.control.operations import Control

#: Where the routes are.
PREFIX = "/api/v1"


def create_app(control: Control, stopping: threading.Event | None = None) -> FastAPI:
    """The API and the pages of a control plane.

    Args:
        control: the control plane.
        stopping: ends what pages have open, once it is set: set it before the server that runs the app ends.
    """
    app = FastAPI(
        title="Tailrace",
        version=__version__,
        description="The control plane: pipelines as subscriptions.",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.state.control = control
    problems.install(app)
    app.add_middleware(ApiProtection)
    api = APIRouter(prefix=PREFIX)
    for part in (subscriptions, streams, offsets, jobs, inspection, administration):
        api.include_router(part.router)
    app.include_router(api)
    app.include_router(health.router)
    app.include_router(pages.router(control, stopping))
    _describe_more(app)
    return app


def _describe_more(app: FastAPI) -> None:
    """Say in the description what FastAPI does not.

    Errors are problems, whatever the response's own media type is; what answers 428 needs `If-Match`.
    """
    describe = app.openapi

    def described() -> dict[str, Any]:
        found = describe()
        for path in found["paths"].values():
            for operation in path.values():
                for status, response in operation["responses"].items():
                    content = response.get("content", {})
                    if int(status) >= 400 and "application/json" in content:
                        content[problems.MEDIA_TYPE] = content.pop("application/json")
                for parameter in operation.get("parameters", ()):
                    if parameter["name"].lower() == "if-match":
                        parameter["schema"].pop("anyOf", None)  # a header is never null
                        parameter["schema"]["type"] = "string"
                        parameter["required"] = "428" in operation["responses"]
        return found

    app.openapi = described  # type: ignore[method-assign]
