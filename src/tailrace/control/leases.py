"""Leases: which server may run a subscription, and for how long.

    free ──claim──▶ owned, lease n ──renew──▶ owned, lease n, longer
                        │
                        ├──hand over──▶ free
                        └──not renewed for LEASE_S──▶ another server claims it: lease n + 1

The number of a lease rises with every owner and never goes back: it is the fence. A batch is begun and done
by statements that name it, so that an owner which lost its lease (stopped by SIGSTOP, cut off from the
database) finds out before it writes, and before Spark records what it wrote. Only the database's clock
counts.

A batch is a pure function of its offset range, so the end of a batch is put down *before* any sink is given
it: whoever takes over writes the same batch again, and sinks leave out what they have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    bindparam,
    func,
    insert,
    or_,
    select,
    tuple_,
    update,
)

from tailrace.control.metadata.database import now_us
from tailrace.control.metadata.tables import servers, streams, subscriptions
from tailrace.control.stages import Desired, Stage
from tailrace.control.subscriptions import Subscription, subscription_of
from tailrace.errors import LeaseLostError, StateError

#: How long a lease holds, seconds. A dead server's subscriptions are free after that.
LEASE_S = 10.0
#: How often it is renewed, seconds.
RENEW_S = 2.5

_S = 1_000_000
#: The row of a subscription under a lease that holds: asked for with every report.
_HELD = select(subscriptions).where(
    subscriptions.c.id == bindparam("of_id"),
    subscriptions.c.lease == bindparam("of_number"),
    subscriptions.c.owner == bindparam("of_server"),
    subscriptions.c.lease_until_us > now_us(),
)
#: More owners than a subscription ever has.
_MOST_OWNERS = 10**9


@dataclass(frozen=True)
class Lease:
    """The right to run a subscription.

    Args:
        subscription_id: of which.
        name: its name.
        server: the server that has it.
        number: rises with every owner.
    """

    subscription_id: int
    name: str
    server: str
    number: int

    @property
    def in_targets(self) -> int:
        """Its number in targets: above those of a subscription that was removed, and had the same stream."""
        return self.subscription_id * _MOST_OWNERS + self.number


@dataclass
class Room:
    """What a server may take.

    Args:
        workers: how many workers more.
        group_size: subscriptions of one group that share a worker at most.
        groups: how many subscriptions more its workers of each group have room for.
        held: subscriptions that it still has, whoever owns them.
    """

    workers: int
    group_size: int = 1
    groups: dict[str, int] = field(default_factory=dict)
    held: Collection[int] = ()

    def has(self, group: str | None) -> bool:
        """Whether there is room for a subscription of this group."""
        return self.workers > 0 or (group is not None and self.groups.get(group, 0) > 0)

    def take(self, group: str | None) -> None:
        """Give a subscription of this group the room that there is for it."""
        if group is not None and self.groups.get(group, 0) > 0:
            self.groups[group] -= 1
            return
        self.workers -= 1
        if group is not None:
            self.groups[group] = self.group_size - 1


def claim(connection: Connection, server: str, room: Room) -> list[tuple[Subscription, Lease]]:
    """Take subscriptions that are to run and that nobody runs.

    Servers prefer different ones, so that those which look at the same time seldom meet. Those of a group go
    to a server that runs some of it, if it has a place in a worker: another one would start a worker more.

    Args:
        connection: a transaction.
        server: the server's name.
        room: what it may take; what it takes is taken off.
    """
    of = subscriptions.c
    free = connection.execute(select(of.id, of.group_name).where(_is_free())).all()
    others = _with_others(connection, server, room.group_size) if any(r.group_name for r in free) else ()
    wanted = [
        row
        for row in free
        if row.id not in room.held and (row.group_name not in others or room.groups.get(row.group_name, 0))
    ]
    taken: list[tuple[Subscription, Lease]] = []
    for row in sorted(wanted, key=lambda row: (_preference(server, row.group_name or row.id), row.id)):
        if not room.has(row.group_name):
            continue
        claimed = connection.execute(
            update(subscriptions)
            .where(of.id == row.id, _is_free())
            .values(owner=server, lease=of.lease + 1, lease_until_us=now_us() + int(LEASE_S * _S))
        )
        if not claimed.rowcount:
            continue
        room.take(row.group_name)
        found = connection.execute(select(subscriptions).where(of.id == row.id)).one()
        taken.append((subscription_of(found), Lease(row.id, found.name, server, found.lease)))
    return taken


def _with_others(connection: Connection, server: str, size: int) -> set[str]:
    """The groups of which another server has a worker with room, and may take more."""
    of = subscriptions.c
    count = func.count().label("running")
    query = (
        select(of.group_name, of.owner, count)
        .join(servers, servers.c.name == of.owner)
        .where(
            of.group_name.is_not(None),
            of.owner != server,
            of.lease_until_us > now_us(),
            servers.c.draining == 0,
            servers.c.seen_us > now_us() - int(LEASE_S * _S),  # one that hangs takes nothing
        )
        .group_by(of.group_name, of.owner)
    )
    return {row.group_name for row in connection.execute(query) if row.running % size}


def hold(connection: Connection, subscription: Subscription, holder: str, seconds: float) -> Lease | None:
    """Keep everybody from running a subscription for some time; None: it is to run, or somebody runs it.

    Args:
        connection: a transaction.
        subscription: which.
        holder: who; no server's name.
        seconds: how long; `release` ends it.
    """
    of = subscriptions.c
    held = connection.execute(
        update(subscriptions)
        .where(
            of.id == subscription.id,
            of.desired != Desired.RUN,
            or_(of.owner.is_(None), of.lease_until_us <= now_us()),
        )
        .values(owner=holder, lease=of.lease + 1, lease_until_us=now_us() + int(seconds * _S))
    )
    if not held.rowcount:
        return None
    row = connection.execute(select(of.lease).where(of.id == subscription.id)).one()
    return Lease(subscription.id, subscription.name, holder, row.lease)


def renew(connection: Connection, leases: Collection[Lease]) -> set[Lease]:
    """Make leases longer, in one statement; returns those that are lost, to be stopped at once."""
    if not leases:
        return set()
    of = subscriptions.c
    of_server: dict[str, list[tuple[int, int]]] = {}
    for lease in leases:
        of_server.setdefault(lease.server, []).append((lease.subscription_id, lease.number))
    # `in_` is compiled once, whatever their number; conditions for each of them cost more than the statement
    mine = or_(
        *(
            and_(of.owner == server, tuple_(of.id, of.lease).in_(numbers))
            for server, numbers in of_server.items()
        )
    )
    renewed = connection.execute(
        update(subscriptions)
        .where(of.id.in_([lease.subscription_id for lease in leases]), mine, of.lease_until_us > now_us())
        .values(lease_until_us=now_us() + int(LEASE_S * _S))
    )
    if renewed.rowcount == len(leases):
        return set()
    query = select(of.id, of.lease).where(mine, of.lease_until_us > now_us())
    held = {(row.id, row.lease) for row in connection.execute(query)}
    return {lease for lease in leases if (lease.subscription_id, lease.number) not in held}


def release(connection: Connection, lease: Lease) -> None:
    """Give a lease back: nothing of the subscription runs here any more. A lost one is nobody's business."""
    connection.execute(update(subscriptions).where(_is_held(lease)).values(owner=None, lease_until_us=0))


def begin_batch(connection: Connection, lease: Lease, source: str, batch: int, end: str) -> None:
    """Put down the end of a batch, before any sink is given it.

    Args:
        connection: a transaction.
        lease: of the owner.
        source: one of the file's `sources`; "": it has one.
        batch: the batch's number.
        end: its end offset, as Spark's checkpoint has it.

    Raises:
        LeaseLostError: another server may run the subscription.
        StateError: the batch was begun with another end, or a later one was: the checkpoint is not the
            stream's newest.
    """
    _lock(connection, lease)
    stream = and_(streams.c.subscription_id == lease.subscription_id, streams.c.source == source)
    row = connection.execute(select(streams).where(stream)).one_or_none()
    digest = hashlib.sha256(end.encode()).hexdigest()
    values = {"begun_batch": batch, "begun_digest": digest, "begun_lease": lease.number}
    if row is None:
        new = {"subscription_id": lease.subscription_id, "source": source, **values}
        connection.execute(insert(streams).values(**new))
        return
    if batch < row.begun_batch or (batch == row.begun_batch and digest != row.begun_digest):
        raise StateError(
            f"the checkpoint of subscription `{lease.name}` is not the one of its last owner",
            f"batch {row.begun_batch} was begun, and the checkpoint has "
            + (f"batch {batch} next" if batch < row.begun_batch else "another end of it"),
            "all servers must reach the same checkpoint: a path on shared storage, or in an object store. "
            "If it was restored from a copy: restore the newest one; if that is lost, delete the "
            "subscription and create it anew: it then says what its targets need",
            code="TR-8421",
        )
    connection.execute(update(streams).where(stream).values(**values))


def end_batch(connection: Connection, lease: Lease, source: str, batch: int) -> None:
    """Note that all sinks have a batch, before Spark records it as done.

    Raises:
        LeaseLostError: another server runs the subscription; it writes the batch again.
    """
    _lock(connection, lease)
    connection.execute(
        update(streams)
        .where(
            streams.c.subscription_id == lease.subscription_id,
            streams.c.source == source,
            streams.c.begun_batch == batch,
        )
        .values(done_batch=batch, done_lease=lease.number)
    )


def _lock(connection: Connection, lease: Lease) -> None:
    """Hold the subscription's row until the transaction ends: nobody can claim it meanwhile.

    Raises:
        LeaseLostError: another server may run the subscription.
    """
    held = (
        update(subscriptions)
        .where(_is_held(lease), subscriptions.c.lease_until_us > now_us())
        .values(lease_until_us=subscriptions.c.lease_until_us)
    )
    if not connection.execute(held).rowcount:
        raise lost(lease)


def require_held(connection: Connection, lease: Lease) -> Row[Any]:
    """The subscription's row.

    Raises:
        LeaseLostError: another server may run the subscription.
    """
    of_lease = {"of_id": lease.subscription_id, "of_number": lease.number, "of_server": lease.server}
    row = connection.execute(_HELD, of_lease).one_or_none()
    if row is None:
        raise lost(lease)
    return row


def unowned(connection: Connection) -> int:
    """How many subscriptions are to run, and nobody runs them."""
    return int(connection.execute(select(func.count()).where(_is_free())).scalar_one())


def _is_free() -> ColumnElement[bool]:
    of = subscriptions.c
    return and_(
        of.desired == Desired.RUN,
        of.stage != Stage.CANCELLED,
        or_(of.owner.is_(None), of.lease_until_us <= now_us()),
        or_(of.retry_us.is_(None), of.retry_us <= now_us()),
    )


def _is_held(lease: Lease) -> ColumnElement[bool]:
    of = subscriptions.c
    return and_(of.id == lease.subscription_id, of.lease == lease.number, of.owner == lease.server)


def _preference(server: str, what: int | str) -> bytes:
    return hashlib.blake2b(f"{server}/{what}".encode(), digest_size=8).digest()


def lost(lease: Lease) -> LeaseLostError:
    """The error of an owner that has lost its lease."""
    return LeaseLostError(
        f"server `{lease.server}` may no longer run subscription `{lease.name}`",
        f"lease {lease.number} has ended, or another server has a newer one",
        "nothing to do: another server runs it, or this one does once it gets a lease",
        code="TR-8420",
    )
