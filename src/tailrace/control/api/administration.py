"""Routes of tokens, servers and the whole audit."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from tailrace.control import tokens
from tailrace.control.api.access import Admin, Controlled, Reader
from tailrace.control.api.models import EventPage, NewToken, ServerOut, Text, TokenMade, TokenOut
from tailrace.control.api.problems import responses
from tailrace.control.api.streams import Number, event_page
from tailrace.control.servers import all_servers

router = APIRouter(tags=["administration"])


@router.get("/me", responses=responses())
def me(token: Reader) -> TokenOut:
    """The token that is used."""
    return TokenOut.of(token)


@router.get("/tokens", responses=responses())
def list_tokens(control: Controlled, _: Admin) -> list[TokenOut]:
    """All tokens, without their texts."""
    return [TokenOut.of(one) for one in control.database.read(tokens.all_tokens)]


@router.post("/tokens", status_code=201, responses=responses(409))
def create_token(control: Controlled, token: Admin, given: NewToken) -> TokenMade:
    """Make a token; its text is in this response, and nowhere else."""
    with control.database.begin() as connection:
        made, text = tokens.create(connection, token.name, given.name, given.scope, given.days)
    return TokenMade(token=text, **TokenOut.of(made).model_dump())


@router.delete("/tokens/{name}", status_code=204, responses=responses(404, 409))
def revoke_token(control: Controlled, token: Admin, name: Annotated[Text, Path(min_length=1)]) -> None:
    """End a token at once."""
    with control.database.begin() as connection:
        tokens.revoke(connection, token.name, name)


@router.get("/servers", responses=responses())
def servers(control: Controlled, _: Reader) -> list[ServerOut]:
    """The servers that share the database, and have reported within a day."""
    return [ServerOut.of(one) for one in control.database.read(all_servers)]


@router.get("/events", responses=responses())
def events(
    control: Controlled,
    _: Reader,
    before: Number = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> EventPage:
    """The audit: every change that somebody made; the newest first."""
    return event_page(control, None, before, limit)
