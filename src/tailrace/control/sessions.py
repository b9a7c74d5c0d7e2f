"""Sessions of browsers whose users have signed in through a provider; those with a token of ours need none.

    ts_<43 characters>     256 random bits in the browser's cookie; the database has their SHA-256

A session ends when its user signs out, or by time: what a person may do is asked of the provider when they
sign in, and not again.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from tailrace.control import audit
from tailrace.control.metadata.database import now_us
from tailrace.control.metadata.tables import sessions
from tailrace.control.oidc.identity import Person
from tailrace.control.tokens import Scope, Token

_FORM = re.compile(r"ts_[A-Za-z0-9_-]{43}")
_BYTES = 32
#: Most characters of a subject that are kept; the provider's own limit.
_MOST_SUBJECT = 255


def is_session(text: str) -> bool:
    """Whether a cookie holds a session, and no token."""
    return _FORM.fullmatch(text) is not None


def begin(connection: Connection, person: Person, hours: float) -> str:
    """Begin a session, and forget those that have ended.

    Args:
        connection: a transaction.
        person: who has signed in.
        hours: how long it lasts.

    Returns:
        What the cookie is to hold.
    """
    text = "ts_" + secrets.token_urlsafe(_BYTES)
    connection.execute(delete(sessions).where(sessions.c.expires_us <= now_us()))
    connection.execute(
        insert(sessions).values(
            digest=_digest(text),
            name=person.name,
            subject=person.subject[:_MOST_SUBJECT],
            scope=person.scope,
            created_us=now_us(),
            expires_us=now_us() + int(hours * 3600 * 1e6),
        )
    )
    audit.note(connection, person.name, "session.begin", None, after=_shown(person.subject, person.scope))
    return text


def find(connection: Connection, text: str) -> Token | None:
    """Who has a session, and what they may do; None: nobody, or no longer."""
    if not is_session(text):
        return None
    of = sessions.c
    row = connection.execute(
        select(sessions).where(of.digest == _digest(text), of.expires_us > now_us())
    ).one_or_none()
    return None if row is None else Token(row.name, Scope(row.scope), row.created_us, row.expires_us)


def end(connection: Connection, text: str) -> None:
    """End a session, if there is one."""
    row = connection.execute(select(sessions).where(sessions.c.digest == _digest(text))).one_or_none()
    if row is not None:
        connection.execute(delete(sessions).where(sessions.c.digest == row.digest))
        audit.note(connection, row.name, "session.end", None, before=_shown(row.subject, row.scope))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _shown(subject: str, scope: str) -> dict[str, Any]:
    return {"subject": subject, "scope": scope}
