"""Errors as responses: `application/problem+json` (RFC 9457) with our code, detail and hint."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from tailrace.errors import (
    ConfigError,
    ControlError,
    PreflightError,
    SinkError,
    SourceError,
    StateError,
    TailraceError,
    TransientControlError,
)
from tailrace.printable import printable, printable_lines

_log = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"
#: Statuses of conditions of their own.
_STATUS = {
    "TR-8412": 404,
    "TR-8433": 404,
    "TR-8480": 404,
    "TR-8414": 412,
    "TR-8488": 412,
    "TR-8436": 503,
    "TR-8475": 403,
}
#: Statuses by class; the first that fits.
_CLASSES: tuple[tuple[type[TailraceError], int], ...] = (
    (TransientControlError, 503),
    (ControlError, 409),
    (StateError, 409),
    (ConfigError, 422),
    (PreflightError, 422),
    (SourceError, 502),
    (SinkError, 502),
)
#: How long to wait before another try at a database that does not answer, seconds.
_AGAIN_S = 2


class ProblemBody(BaseModel):
    """What went wrong."""

    type: str
    title: str
    status: int
    detail: str | None = None
    hint: str | None = None
    code: str | None = None


class RefusedRequest(Exception):  # noqa: N818 - the error is in it
    """A request that is refused before it reaches an operation.

    Args:
        status: of the response.
        error: why.
        headers: further headers.
    """

    def __init__(self, status: int, error: ControlError, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, error)
        self.status = status
        self.error = error
        self.headers = dict(headers or {})


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route declares of its errors: those of every route, and `statuses`."""
    return {
        status: {"model": ProblemBody, "content": {MEDIA_TYPE: {}}}
        for status in sorted({400, 401, 403, 413, 422, 429, 500, 503, *statuses})
    }


def status_of(error: TailraceError) -> int:
    """The status of a response that says an error."""
    if error.code in _STATUS:
        return _STATUS[error.code]
    return next((status for kind, status in _CLASSES if isinstance(error, kind)), 500)


def response(status: int, error: TailraceError, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An error as a response."""
    body = ProblemBody(
        type="about:blank" if error.code is None else f"urn:tailrace:{error.code}",
        title=printable(error.message),
        status=status,
        detail=None if error.detail is None else printable(error.detail),
        hint=None if error.hint is None else printable_lines(error.hint),
        code=error.code,
    )
    return JSONResponse(body.model_dump(exclude_none=True), status, dict(headers or {}), MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Have all errors of an application answered so."""

    @app.exception_handler(TailraceError)
    def _(_: Request, error: TailraceError) -> JSONResponse:
        status = status_of(error)
        return response(status, error, {"retry-after": str(_AGAIN_S)} if status == 503 else {})

    @app.exception_handler(RefusedRequest)
    def _(_: Request, refused: RefusedRequest) -> JSONResponse:
        headers = {"www-authenticate": "Bearer"} if refused.status == 401 else {}
        return response(refused.status, refused.error, {**headers, **refused.headers})

    @app.exception_handler(RequestValidationError)
    def _(_: Request, error: RequestValidationError) -> JSONResponse:
        # values are not repeated: one may be a secret
        found = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        return response(422, wrong_request("the request is wrong", found))

    @app.exception_handler(HTTPException)
    def _(_: Request, error: HTTPException) -> JSONResponse:
        return response(error.status_code, wrong_request(str(error.detail).lower(), None), error.headers)

    @app.exception_handler(Exception)
    def _(_: Request, error: Exception) -> JSONResponse:
        _log.error("a request failed by a bug", exc_info=error)
        told = ControlError(
            "the server has failed by a bug",
            "the traceback is in its log",
            "please report it",
            code="TR-8441",
        )
        return response(500, told)


def wrong_request(what: str, detail: str | None) -> ControlError:
    """The error of a request that is not as the description says."""
    return ControlError(what, detail, "see /api/v1/openapi.json", code="TR-8440")
