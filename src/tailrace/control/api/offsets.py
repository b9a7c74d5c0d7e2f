"""Routes of the offsets of one subscription's streams: show, history, differences, set."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from tailrace.control import offsets
from tailrace.control.api.access import Admin, Controlled, Reader
from tailrace.control.api.models import Lines, NewOffset, OffsetOut, OffsetSetOut, PathName
from tailrace.control.api.problems import RefusedRequest, responses, wrong_request
from tailrace.control.api.streams import ERRORS, Number, Source

router = APIRouter(prefix="/subscriptions/{name}/offset", tags=["offsets"])
_ETAG = re.compile(r'"([0-9a-f]{32})"')
_NEEDED = "needed: the ETag of the offset, or `*`"
IfOffset = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description="The ETag of the offset, or `*`.",
        json_schema_extra={"pattern": r'^("[0-9a-f]{32}"|\*)$'},
    ),
]


@router.get("", responses={204: {"description": "No batch yet."}, **ERRORS}, response_model=OffsetOut)
def offset(
    control: Controlled, _: Reader, name: PathName, response: Response, source: Source = None
) -> OffsetOut | Response:
    """The newest batch, its end offset and what is parked."""
    found = offsets.offset(control, name, source)
    if found is None:
        return Response(status_code=204)
    response.headers["etag"] = f'"{found["version"]}"'
    return OffsetOut.model_validate(found)


@router.put("", responses={**ERRORS, **responses(412, 428)})
def set_offset(
    *, control: Controlled, token: Admin, name: PathName, given: NewOffset, if_match: IfOffset = None
) -> OffsetSetOut:
    """Let a paused subscription's stream continue from another offset. Needs If-Match.

    It is checked, and tables are read again, as `tailrace offsets set` does; the former one is kept.
    """
    if if_match is None:
        raise RefusedRequest(428, wrong_request("If-Match is missing", _NEEDED))
    match = _ETAG.fullmatch(if_match)
    if match is None and if_match != "*":
        raise RefusedRequest(400, wrong_request("If-Match is wrong", _NEEDED))
    done = offsets.set_offset(
        control,
        token.name,
        name,
        given.offset,
        None if match is None else match[1],
        source=given.source,
        unchecked=given.unchecked,
        skip_changes=given.skip_changes,
        dry_run=given.dry_run,
    )
    return OffsetSetOut.of(done)


@router.get("/history", responses=ERRORS)
def history(
    control: Controlled,
    _: Reader,
    name: PathName,
    last: Annotated[int, Query(ge=1, le=100)] = 20,
    source: Source = None,
) -> Lines:
    """What the newest batches have read."""
    return Lines(lines=offsets.offset_history(control, name, last, source))


@router.get("/diff", responses=ERRORS)
def difference(
    *,
    control: Controlled,
    _: Reader,
    name: PathName,
    first: Number = None,
    last: Number = None,
    source: Source = None,
) -> Lines:
    """What changed between the ends of two batches; by default the newest and the one before it."""
    return Lines(lines=offsets.offset_difference(control, name, first, last, source))
