"""Lag and counts of each subscription over the last day, for plots: one row every two minutes.

Whichever server comes first in a slot of time writes the rows of all subscriptions; others find that it is
done. So a plot goes on when servers are restarted or die, and has a gap only where none ran. Counts are sums:
rates are differences between two rows, whoever wrote them. A day of 200 subscriptions is 144,000 rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.metadata.tables import measurements, subscriptions

#: Seconds between two rows of a subscription.
SLOT_S = 120
#: How long they are kept.
KEPT_S = 86_400
_US = 1_000_000


@dataclass(frozen=True)
class Measured:
    """What is known of a subscription at a moment.

    Args:
        at_us: the moment, by the database's clock.
        lag_us: how old the state of its targets is; None: not known.
        changes: changes written, since it was created.
        rows: rows read by snapshots, likewise.
    """

    at_us: int
    lag_us: int | None
    changes: int
    rows: int


def is_due(connection: Connection, now_us: int) -> bool:
    """Whether nobody has written the rows of this slot."""
    newest = connection.execute(select(func.max(measurements.c.slot))).scalar_one()
    return newest is None or newest < _slot(now_us)


def keep(database: ControlDatabase, now_us: int, found: Mapping[int, Measured]) -> None:
    """Write a row of each subscription, and remove those that are too old, unless another server has.

    Args:
        database: of the control plane.
        now_us: the time, by the database's clock.
        found: what is known of each, by its number.

    Raises:
        TransientControlError: the database does not answer.
    """
    with suppress(_Written), database.begin() as connection:
        if not is_due(connection, now_us):
            raise _Written
        of = measurements.c
        connection.execute(delete(measurements).where(of.slot < _slot(now_us) - KEPT_S // SLOT_S))
        there = set(connection.execute(select(subscriptions.c.id)).scalars())
        rows = [
            {
                "slot": _slot(now_us),
                "subscription_id": id_,
                "at_us": one.at_us,
                "lag_us": one.lag_us,
                "changes": one.changes,
                "rows_read": one.rows,
            }
            for id_, one in found.items()
            if id_ in there
        ]
        try:
            if rows:
                connection.execute(insert(measurements), rows)
        except IntegrityError:
            raise _Written from None


def last_day(connection: Connection, id_: int) -> list[Measured]:
    """The rows of a subscription, in order of time."""
    of = measurements.c
    query = select(measurements).where(of.subscription_id == id_).order_by(of.slot)
    return [Measured(row.at_us, row.lag_us, row.changes, row.rows_read) for row in connection.execute(query)]


class _Written(Exception):  # noqa: N818 - not an error of anybody
    """Another server has written the rows of a slot."""


def _slot(at_us: int) -> int:
    return at_us // (SLOT_S * _US)
