"""The mark on objects that streams created on a server: the comment of their publication.

    made by tailrace                                                      the publication
    made by tailrace {"v": 1, "system": "7384…", "slots": ["shop"]}       and these replication slots

PostgreSQL has no comments on slots. A slot is marked before it is created, so none is left unmarked, however
a stream ends. The mark names the cluster, as a dump copies comments to others.

A publication that somebody else created keeps its comment. Slots used with it have no mark, nor do slots of
early versions of Tailrace, which set none: such a slot is removed only on explicit request.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from pg8000.exceptions import DatabaseError

from tailrace.errors import ConfigError
from tailrace.sources import network
from tailrace.sources.postgres.connection import Connection, sqlstate
from tailrace.sources.postgres.protocol.literal import identifier, string

#: Begins the comment of every publication of ours; without slots, the whole comment.
COMMENT = "made by tailrace"
_VERSION = 1
#: Held while changing the comment.
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('tailrace'))"
#: Another user's stream created the publication, or the server is a standby.
_CANNOT = frozenset({"42501", "25006"})


@dataclass(frozen=True)
class Mark:
    """The content of a publication's comment.

    Args:
        system: the cluster's system identifier, "" if it names no slots.
        slots: the names of slots of that cluster.
    """

    system: str = ""
    slots: tuple[str, ...] = ()

    @property
    def comment(self) -> str:
        """The mark as a comment."""
        if not self.slots:
            return COMMENT
        return f"{COMMENT} {json.dumps({'v': _VERSION, 'system': self.system, 'slots': self.slots})}"

    def names(self, slot: str, system: str) -> bool:
        """Whether `slot` of the cluster `system` is marked."""
        return self.system == system and slot in self.slots


@network.sensible("the publication's comment")
def read(connection: Connection, publication: str) -> Mark | None:
    """The mark on a publication; None: no such publication, or not a stream's. Raises pg8000's errors."""
    comment = connection.value(
        "SELECT pg_catalog.obj_description(oid, 'pg_publication') "
        f"FROM pg_catalog.pg_publication WHERE pubname = {string(publication)}"
    )
    if not isinstance(comment, str) or not comment.startswith(COMMENT):
        return None
    rest = comment.removeprefix(COMMENT)
    if not rest:
        return Mark()
    try:
        value = json.loads(rest)
        if value["v"] != _VERSION:
            return None
        return Mark(str(value["system"]), tuple(map(str, value["slots"])))
    except (ValueError, TypeError, KeyError):  # somebody else's comment
        return None


def add(connection: Connection, publication: str, slot: str, system: str) -> bool:
    """Mark a slot as a stream's; returns whether that succeeded. Raises pg8000's errors."""

    def with_slot(mark: Mark) -> Mark:
        others = mark.slots if mark.system == system else ()
        return Mark(system, tuple(sorted({*others, slot})))

    return _change(connection, publication, with_slot)


def require(found: Mark | None, slot: str, system: str) -> None:
    """Refuse a slot without a mark. A stream that crashed before its first batch left a marked one.

    Raises:
        ConfigError: it has none.
    """
    if found is None or not found.names(slot, system):
        raise ConfigError(
            f"replication slot `{slot}` already exists, and this stream did not create it",
            "it has no mark of a stream: its reader would lose what this stream reads",
            f"SELECT pg_drop_replication_slot({string(slot)}); -- if nobody needs it; or set slotName to "
            "another name; or, to read a slot that was created for this stream, set startingPosition to "
            "earliest",
            code="TR-4202",
        )


def remove(connection: Connection, publication: str, slot: str) -> None:
    """Remove a slot's mark. Raises pg8000's errors."""

    def without_slot(mark: Mark) -> Mark:
        return replace(mark, slots=tuple(name for name in mark.slots if name != slot))

    _change(connection, publication, without_slot)


def write(connection: Connection, publication: str, mark: Mark) -> None:
    """Write a publication's mark. Raises pg8000's errors."""
    connection.rows(f"COMMENT ON PUBLICATION {identifier(publication)} IS {string(mark.comment)}")


def _change(connection: Connection, publication: str, change: Callable[[Mark], Mark]) -> bool:
    connection.rows("BEGIN")
    try:
        connection.wait_for(_LOCK)
        before = read(connection, publication)
        if before is not None:
            write(connection, publication, change(before))
        connection.rows("COMMIT")
    except DatabaseError as error:
        connection.rows("ROLLBACK")
        if sqlstate(error) not in _CANNOT:
            raise
        return False
    return before is not None
