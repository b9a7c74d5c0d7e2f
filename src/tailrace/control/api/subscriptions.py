"""Routes of subscriptions: list, create, change, pause, resume, cancel, retry, remove."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from tailrace.control.api.access import Admin, Controlled, Operator, Reader
from tailrace.control.api.models import (
    NewSpec,
    NewSubscription,
    PathName,
    SubscriptionOut,
    SubscriptionPage,
    TableOut,
    Text,
)
from tailrace.control.api.problems import RefusedRequest, responses, wrong_request
from tailrace.control.stages import Desired, Stage
from tailrace.control.subscriptions import Subscription, SubscriptionFilter, select_subscriptions

router = APIRouter(prefix="/subscriptions", tags=["subscriptions"])
_ETAG = re.compile(r'"(\d{1,18})"')
_NEEDED = 'needed: the version, `"7"`, or `*`'
IfMatch = Annotated[
    str | None,
    Header(
        description='The version that the change is based on: `"7"`; or `*`.',
        json_schema_extra={"pattern": r'^("[0-9]{1,18}"|\*)$'},
    ),
]


@router.get("", responses=responses())
def list_subscriptions(
    *,
    control: Controlled,
    _: Reader,
    after: Annotated[Text, Query(description="Names behind this one.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    text: Annotated[Text | None, Query(description="Whose name has this text.")] = None,
    stage: Stage | None = None,
    desired: Desired | None = None,
    owner: Annotated[Text | None, Query(description="That this server runs.")] = None,
    group: Annotated[Text | None, Query(description="Of this group.")] = None,
) -> SubscriptionPage:
    """Subscriptions in the order of their names."""
    selection = SubscriptionFilter(
        after, limit + 1, text=text, stage=stage, desired=desired, owner=owner, group=group
    )
    found = control.database.read(lambda connection: select_subscriptions(connection, selection))
    items = [SubscriptionOut.of(one) for one in found[:limit]]
    return SubscriptionPage(items=items, next=items[-1].name if len(found) > limit else None)


@router.post("", status_code=201, responses={200: {"model": SubscriptionOut}, **responses(409)})
def create(control: Controlled, token: Admin, given: NewSubscription, response: Response) -> SubscriptionOut:
    """Create a subscription. The same once more is found as it is: 200 instead of 201."""
    made, is_new = control.create(token.name, given.name, given.spec, paused=given.paused)
    response.status_code = 201 if is_new else 200
    return _shown(response, made)


@router.get("/{name}", responses=responses(404))
def get(control: Controlled, _: Reader, name: PathName, response: Response) -> SubscriptionOut:
    """A subscription; its version is the ETag."""
    return _shown(response, control.get(name))


@router.put("/{name}", responses=responses(404, 409, 412, 428))
def change(
    *,
    control: Controlled,
    token: Admin,
    name: PathName,
    given: NewSpec,
    response: Response,
    if_match: IfMatch = None,
) -> SubscriptionOut:
    """Replace a subscription's file; its server starts it anew. Needs If-Match: a lost update is refused."""
    version = _version(if_match)
    if if_match is None:
        raise RefusedRequest(428, wrong_request("If-Match is missing", _NEEDED))
    return _shown(response, control.change(token.name, name, given.spec, version))


@router.post("/{name}/pause", responses=responses(404, 409, 412))
def pause(
    *, control: Controlled, token: Operator, name: PathName, response: Response, if_match: IfMatch = None
) -> SubscriptionOut:
    """Stop after the running batch, until it is resumed."""
    return _shown(response, control.ask(token.name, name, Desired.PAUSE, _version(if_match)))


@router.post("/{name}/resume", responses=responses(404, 409, 412))
def resume(
    *, control: Controlled, token: Operator, name: PathName, response: Response, if_match: IfMatch = None
) -> SubscriptionOut:
    """Run again, from where it was."""
    return _shown(response, control.ask(token.name, name, Desired.RUN, _version(if_match)))


@router.post("/{name}/cancel", responses=responses(404, 409, 412))
def cancel(
    *, control: Controlled, token: Admin, name: PathName, response: Response, if_match: IfMatch = None
) -> SubscriptionOut:
    """Stop for good; checkpoint and targets stay."""
    return _shown(response, control.ask(token.name, name, Desired.CANCEL, _version(if_match)))


@router.post("/{name}/retry", responses=responses(404, 409))
def retry(control: Controlled, token: Operator, name: PathName, response: Response) -> SubscriptionOut:
    """Let a failed subscription go on from where it was, at once."""
    return _shown(response, control.retry(token.name, name))


@router.delete("/{name}", status_code=204, responses=responses(404, 409, 412))
def remove(*, control: Controlled, token: Admin, name: PathName, if_match: IfMatch = None) -> None:
    """Remove a subscription that is stopped; checkpoint and targets stay."""
    control.remove(token.name, name, _version(if_match))


@router.get("/{name}/tables", responses=responses(404))
def tables(control: Controlled, _: Reader, name: PathName) -> list[TableOut]:
    """What its owner has reported of its source tables."""
    return [TableOut.of(table) for table in control.tables(control.get(name))]


def _shown(response: Response, found: Subscription) -> SubscriptionOut:
    response.headers["etag"] = f'"{found.version}"'
    return SubscriptionOut.of(found)


def _version(if_match: str | None) -> int | None:
    if if_match is None or if_match == "*":
        return None
    match = _ETAG.fullmatch(if_match)
    if match is None:
        raise RefusedRequest(400, wrong_request("If-Match is wrong", _NEEDED))
    return int(match[1])
