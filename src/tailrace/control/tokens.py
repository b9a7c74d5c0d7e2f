"""Tokens: who may use the API and the pages, and for what.

    tr_<43 characters>     256 random bits; the database has their SHA-256, so that a copy of it opens nothing

A token has one of three scopes, each with what the ones before it may do:

    read      look at everything but secrets, which are nowhere
    operate   pause, resume and retry; tables and signals
    admin     create, change, cancel and remove; tokens

A token with so many bits cannot be guessed, and needs no slow hash. Wrong ones are counted all the same
(`Attempts`), so that nobody keeps the database busy with them.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, or_, select

from tailrace.control import audit
from tailrace.control.metadata.database import ControlDatabase, now_us
from tailrace.control.metadata.tables import MOST_NAME, tokens
from tailrace.errors import ConfigError, ControlError

_FORM = re.compile(r"tr_[A-Za-z0-9_-]{43}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]*")
_BYTES = 32
#: Bits of an IPv6 address that name the network of one client.
_ONE_CLIENT = 64
#: The name of the token that the first server makes.
FIRST = "first"


class Scope(StrEnum):
    """What a token may do."""

    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"

    def allows(self, needed: Scope) -> bool:
        """Whether it includes what `needed` may do."""
        order = list(Scope)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True)
class Token:
    """A token, without its text.

    Args:
        name: its name, unique: who uses it, in the audit.
        scope: what it may do.
        created_us: when it was made, microseconds since 1970 UTC by the database's clock.
        expires_us: when it ends; None: when it is revoked.
    """

    name: str
    scope: Scope
    created_us: int
    expires_us: int | None


def create(
    connection: Connection, actor: str, name: str, scope: Scope, days: float | None = None
) -> tuple[Token, str]:
    """Make a token.

    Args:
        connection: a transaction.
        actor: who asks for it.
        name: its name.
        scope: what it may do.
        days: when it ends; None: when it is revoked.

    Returns:
        The token, and its text, which is nowhere else.

    Raises:
        ConfigError: the name cannot be one, or the token would end before it begins.
        ControlError: there is another token of this name.
    """
    if not _NAME.fullmatch(name) or len(name) > MOST_NAME:
        raise ConfigError(
            "the name of a token is wrong",
            "needed: letters, digits, `_`, `.`, `@` and `-`, the first a letter or digit, "
            f"{MOST_NAME} at most",
            code="TR-8431",
        )
    if days is not None and not 0 < days <= 36_500:
        raise ConfigError(
            "the life of a token is wrong",
            f"found {days} days, needed: more than 0, 36500 at most",
            code="TR-8431",
        )
    if connection.execute(select(tokens.c.id).where(tokens.c.name == name)).first() is not None:
        raise ControlError(
            f"there is another token `{name}`",
            None,
            "take another name, or revoke it first",
            code="TR-8432",
        )
    text = "tr_" + secrets.token_urlsafe(_BYTES)
    expires = None if days is None else now_us() + int(days * 86_400 * 1e6)
    connection.execute(
        insert(tokens).values(
            name=name, digest=_digest(text), scope=scope, created_us=now_us(), expires_us=expires
        )
    )
    made = _token(connection.execute(select(tokens).where(tokens.c.name == name)).one())
    audit.note(connection, actor, "token.create", None, after=_shown(made))
    return made, text


def find(connection: Connection, text: str) -> Token | None:
    """The token that `text` is; None: there is none, or it has ended."""
    if not _FORM.fullmatch(text):
        return None
    digest = _digest(text)
    query = select(tokens).where(tokens.c.digest == digest, _is_valid())
    row = connection.execute(query).one_or_none()
    # what the database compared may have taken time; a digest of a random token tells nothing of another
    if row is None or not hmac.compare_digest(row.digest, digest):
        return None
    return _token(row)


def all_tokens(connection: Connection) -> Sequence[Token]:
    """All tokens, those that have ended too, in the order of their names."""
    return [_token(row) for row in connection.execute(select(tokens).order_by(tokens.c.name))]


def revoke(connection: Connection, actor: str, name: str) -> None:
    """End a token at once.

    Raises:
        ControlError: there is none of this name, or it is the last one that may make others.
    """
    row = connection.execute(select(tokens).where(tokens.c.name == name)).one_or_none()
    if row is None:
        raise ControlError(f"there is no token `{name}`", code="TR-8433")
    others = select(func.count()).where(tokens.c.scope == Scope.ADMIN, tokens.c.name != name, _is_valid())
    if row.scope == Scope.ADMIN and not connection.execute(others).scalar_one():
        raise ControlError(
            f"token `{name}` is the last one of scope `admin`",
            None,
            "make another one of this scope first",
            code="TR-8434",
        )
    connection.execute(delete(tokens).where(tokens.c.name == name))
    audit.note(connection, actor, "token.revoke", None, before=_shown(_token(row)))


def first_token(database: ControlDatabase, actor: str) -> str | None:
    """The text of a new token of scope `admin` if there is no token at all; to be shown once.

    Args:
        database: of the control plane.
        actor: the server.
    """
    with database.begin() as connection:
        if connection.execute(select(func.count()).select_from(tokens)).scalar_one():
            return None
        return create(connection, actor, FIRST, Scope.ADMIN)[1]


class Attempts:
    """Wrong tokens, counted by the client they came from.

    Args:
        most: how many may be wrong in a row.
        within_s: how long they are remembered, seconds.
        clock: monotonic seconds.
    """

    #: Most addresses that are remembered; the oldest is forgotten first.
    _MOST_ADDRESSES = 10_000

    def __init__(
        self, most: int = 10, within_s: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = most
        self._within_s = within_s
        self._clock = clock
        self._lock = threading.Lock()
        self._wrong: OrderedDict[str, list[float]] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """How long an address has to wait before its next token is looked at, seconds; 0: it need not."""
        with self._lock:
            recent = self._recent(_client_of(address))
            return 0.0 if len(recent) < self._most else recent[0] + self._within_s - self._clock()

    def wrong(self, address: str) -> None:
        """Note a wrong token."""
        address = _client_of(address)
        with self._lock:
            recent = [*self._recent(address), self._clock()]
            self._wrong[address] = recent[-self._most :]
            self._wrong.move_to_end(address)
            while len(self._wrong) > self._MOST_ADDRESSES:
                self._wrong.popitem(last=False)

    def _recent(self, address: str) -> list[float]:
        since = self._clock() - self._within_s
        recent = [at for at in self._wrong.get(address, ()) if at > since]
        if not recent:
            self._wrong.pop(address, None)
        return recent


def _client_of(address: str) -> str:
    """Whom to count: one client has all addresses of its IPv6 network."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _ONE_CLIENT), strict=False))


def _is_valid() -> Any:
    return or_(tokens.c.expires_us.is_(None), tokens.c.expires_us > now_us())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _token(row: Row[Any]) -> Token:
    return Token(row.name, Scope(row.scope), row.created_us, row.expires_us)


def _shown(token: Token) -> dict[str, Any]:
    return {"name": token.name, "scope": token.scope, "expires_us": token.expires_us}
