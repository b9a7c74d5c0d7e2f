"""Servers: which processes share the database, and what each may run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select, update

from tailrace.control.metadata.database import now_us
from tailrace.control.metadata.tables import servers

#: How long a server that does not report counts as alive, seconds.
ALIVE_S = 15.0
#: How long one that is gone is shown, seconds.
_SHOWN_S = 86_400.0


@dataclass(frozen=True)
class ServerInfo:
    """A server.

    Args:
        name: its name, unique.
        host: the machine.
        pid: its process.
        url: where its API is; "": it has none.
        capacity: how many workers it may have at a time, each for a subscription or for those of a group.
        running: how many it runs.
        draining: whether it hands over what it runs, and takes nothing.
        version: of Tailrace.
        started_us: when it started, microseconds since 1970 UTC by the database's clock.
        seen_us: when it reported last.
        alive: whether that was lately.
    """

    name: str
    host: str
    pid: int
    url: str
    capacity: int
    running: int
    draining: bool
    version: str
    started_us: int = 0
    seen_us: int = 0
    alive: bool = True


def seen(connection: Connection, server: ServerInfo) -> None:
    """Note that a server is alive, and what it does; what others left long ago is forgotten."""
    values = {
        "host": server.host,
        "pid": server.pid,
        "url": server.url,
        "capacity": server.capacity,
        "running": server.running,
        "draining": int(server.draining),
        "version": server.version,
        "seen_us": now_us(),
    }
    of = servers.c
    if not connection.execute(update(servers).where(of.name == server.name).values(**values)).rowcount:
        connection.execute(insert(servers).values(name=server.name, started_us=now_us(), **values))
    connection.execute(delete(servers).where(of.seen_us < now_us() - int(_SHOWN_S * 1e6)))


def gone(connection: Connection, name: str) -> None:
    """Forget a server that has ended."""
    connection.execute(delete(servers).where(servers.c.name == name))


def all_servers(connection: Connection) -> Sequence[ServerInfo]:
    """The servers that have reported within a day, in the order of their names."""
    alive = (servers.c.seen_us > now_us() - int(ALIVE_S * 1e6)).label("alive")
    return [
        ServerInfo(
            row.name,
            row.host,
            row.pid,
            row.url,
            row.capacity,
            row.running,
            bool(row.draining),
            row.version,
            row.started_us,
            row.seen_us,
            bool(row.alive),
        )
        for row in connection.execute(select(servers, alive).order_by(servers.c.name))
    ]
