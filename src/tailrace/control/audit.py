"""The audit: who changed what, and when; rows are only ever added."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, select

from tailrace.control.metadata.database import now_us
from tailrace.control.metadata.tables import events


@dataclass(frozen=True)
class Event:
    """A change that somebody made.

    Args:
        id: rises with time.
        at_us: when, microseconds since 1970 UTC by the database's clock.
        subscription: of which subscription; None: of none.
        actor: who: a token's name, `user@issuer`, or a server.
        kind: what, e.g. `subscription.pause`.
        before: what it was; None: it was not there.
        after: what it is; None: it is gone.
    """

    id: int
    at_us: int
    subscription: str | None
    actor: str
    kind: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


def note(
    connection: Connection,
    actor: str,
    kind: str,
    subscription: str | None,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Add an event, in the transaction of the change itself.

    Args:
        connection: the transaction.
        actor: who; this and the others as in `Event`.
        kind: what.
        subscription: of which subscription.
        before: what it was.
        after: what it is.
    """
    connection.execute(
        insert(events).values(
            at_us=now_us(),
            subscription=subscription,
            actor=actor,
            kind=kind,
            before_json=_text(before),
            after_json=_text(after),
        )
    )


def read_events(
    connection: Connection, subscription: str | None = None, before_id: int | None = None, most: int = 100
) -> list[Event]:
    """Events, the newest first.

    Args:
        connection: a transaction.
        subscription: of this subscription; None: all.
        before_id: only older ones than that with this id, for paging.
        most: as many.
    """
    query = select(events).order_by(events.c.id.desc()).limit(most)
    if subscription is not None:
        query = query.where(events.c.subscription == subscription)
    if before_id is not None:
        query = query.where(events.c.id < before_id)
    return [
        Event(
            row.id,
            row.at_us,
            row.subscription,
            row.actor,
            row.kind,
            value_of(row.before_json),
            value_of(row.after_json),
        )
        for row in connection.execute(query)
    ]


def _text(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value, sort_keys=True)


def value_of(text: str | None) -> Mapping[str, Any] | None:
    """JSON of the database as a value."""
    if text is None:
        return None
    found: Mapping[str, Any] = json.loads(text)
    return found
