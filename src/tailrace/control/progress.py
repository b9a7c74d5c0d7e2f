"""Progress: what a subscription and each of its source tables do, as their owner reports it.

A report names its lease: what an owner that lost it says is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, delete, insert, select, update

from tailrace.control import audit
from tailrace.control.leases import Lease, release, require_held
from tailrace.control.metadata.database import now_us
from tailrace.control.metadata.tables import progress, subscriptions
from tailrace.control.stages import Desired, Stage, moved
from tailrace.errors import TailraceError

#: Pauses before a failed subscription is tried again, seconds, by the number of failures in a row.
_PAUSES_S = (5, 15, 60, 300)
# Statements of reports, which streams make every few seconds: to build them took longer than to run them.
_OF_STREAM = and_(
    progress.c.subscription_id == bindparam("of_subscription"), progress.c.source == bindparam("of_source")
)
_KNOWN = select(progress.c.table_name).where(_OF_STREAM)
_GONE = delete(progress).where(_OF_STREAM, progress.c.table_name.in_(bindparam("of_tables", expanding=True)))
_NEW = insert(progress).values(updated_us=now_us())
_AGAIN = (
    update(progress)
    .where(_OF_STREAM, progress.c.table_name == bindparam("of_table"))
    .values(updated_us=now_us())
)


@dataclass(frozen=True)
class TableReport:
    """A source table of a subscription.

    Args:
        table: its name.
        stage: `snapshot`, `reread`, `incremental_log`, or `failed`: it is parked.
        last_key: the cursor of its snapshot, as JSON; None: not begun, or done.
        rows: rows read; None: never read.
        estimated: its rows, as estimated when the reading began; None: it is not being read.
        position: where in the log its target is, as text; None: not known.
        complete_us: its target has everything that was committed up to this time; None: not known.
        changes: changes written since its subscription was created.
        error: why it is parked: code, message, detail and hint; None: it is not.
        updated_us: when this was reported.
        source: of which of the file's `sources`; "": it has one.
    """

    table: str
    stage: str
    last_key: str | None = None
    rows: int | None = None
    estimated: int | None = None
    position: str | None = None
    complete_us: int | None = None
    changes: int = 0
    error: Mapping[str, Any] | None = None
    updated_us: int = 0
    source: str = ""


def report(
    connection: Connection,
    lease: Lease,
    stage: Stage,
    tables: Sequence[TableReport],
    source: str = "",
    *,
    changed: Collection[str] | None = None,
    trouble: Mapping[str, Any] | None = None,
) -> None:
    """Replace what is known of the tables of one source, and move the subscription on its way.

    Args:
        connection: a transaction.
        lease: of the owner.
        stage: where on its way the stream is.
        tables: all tables of the source.
        source: one of the file's `sources`; "": it has one.
        changed: the tables that are written; None: all. Others are only kept.
        trouble: why the stream does not go on, see `in_trouble`; None: it goes on.

    Raises:
        LeaseLostError: another server may run the subscription.
    """
    row = require_held(connection, lease)
    if row.stage == Stage.CANCELLED:  # the running batch has ended meanwhile
        return
    new, reached = moved(Stage(row.stage), Stage(row.reached), stage)
    if (new, reached) != (row.stage, row.reached):
        values = {"stage": new, "reached": reached, "failures": 0, "retry_us": None}
        _set(connection, lease, stage_reason=_reason(connection, row, trouble), **values)
        audit.note(
            connection,
            lease.server,
            "subscription.stage",
            lease.name,
            before={"stage": row.stage},
            after={"stage": new},
        )
    elif row.failures:
        _set(connection, lease, stage_reason=_reason(connection, row, trouble), failures=0)
    stream = {"of_subscription": row.id, "of_source": source}
    known = set(connection.execute(_KNOWN, stream).scalars())
    if gone := known - {table.table for table in tables}:
        connection.execute(_GONE, {**stream, "of_tables": list(gone)})
    added = [table for table in tables if table.table not in known]
    if added:
        names = {"subscription_id": row.id, "source": source}
        connection.execute(_NEW, [{**names, "table_name": table.table, **_values(table)} for table in added])
    again = [t for t in tables if t.table in known and (changed is None or t.table in changed)]
    if again:
        connection.execute(_AGAIN, [{**stream, "of_table": table.table, **_values(table)} for table in again])


def in_trouble(connection: Connection, lease: Lease, reason: Mapping[str, Any] | None) -> None:
    """Note why a subscription's stream does not go on, though its worker tries; None: it goes on.

    Args:
        connection: a transaction.
        lease: of the owner.
        reason: an error's code, message, detail and hint.

    Raises:
        LeaseLostError: another server may run the subscription.
    """
    row = require_held(connection, lease)
    if row.stage != Stage.CANCELLED:
        _set(connection, lease, stage_reason=_reason(connection, row, reason))


def failed(connection: Connection, lease: Lease, error: TailraceError, *, retries: bool) -> None:
    """Note that a subscription's run has ended with an error, and give its lease back.

    Args:
        connection: a transaction.
        lease: of the owner.
        error: the error.
        retries: whether it may be tried again by itself, after a pause that grows.

    Raises:
        LeaseLostError: another server may run the subscription.
    """
    row = require_held(connection, lease)
    if row.stage == Stage.CANCELLED:
        release(connection, lease)
        return
    stage, reached = moved(Stage(row.stage), Stage(row.reached), Stage.FAILED)
    reason = error.json_values()
    if retries:
        pause_s = _PAUSES_S[min(row.failures, len(_PAUSES_S) - 1)]
        more = {"stage": row.stage, "retry_us": now_us() + pause_s * 1_000_000}
    else:
        more = {"stage": stage, "desired": Desired.PAUSE}
    _set(
        connection,
        lease,
        reached=reached,
        stage_reason=_reason(connection, row, reason),
        failures=row.failures + 1,
        owner=None,
        lease_until_us=0,
        **more,
    )
    audit.note(
        connection,
        lease.server,
        "subscription.failed",
        lease.name,
        before={"stage": row.stage},
        after={"reason": reason},
    )


def done(connection: Connection, lease: Lease) -> None:
    """Note that a subscription has read everything it is to read (`trigger: available-now`, an end position).

    It is paused: whoever lets it run again lets it read what has come meanwhile.

    Raises:
        LeaseLostError: another server may run the subscription.
    """
    row = require_held(connection, lease)
    more = {} if row.desired == Desired.CANCEL else {"desired": Desired.PAUSE}
    _set(connection, lease, stage_reason=None, failures=0, owner=None, lease_until_us=0, **more)
    audit.note(connection, lease.server, "subscription.done", lease.name)


def tables_of(connection: Connection, subscription_id: int) -> list[TableReport]:
    """What is known of a subscription's tables, in the order of sources and names."""
    of = progress.c
    query = select(progress).where(of.subscription_id == subscription_id).order_by(of.source, of.table_name)
    return [report_of(row) for row in connection.execute(query)]


def report_of(row: Row[Any]) -> TableReport:
    """A row of the table, as a value."""
    return TableReport(
        row.table_name,
        row.stage,
        row.last_key,
        row.rows,
        row.estimated,
        row.position,
        row.complete_us,
        row.changes,
        audit.value_of(row.error),
        row.updated_us,
        row.source,
    )


def _reason(connection: Connection, row: Row[Any], trouble: Mapping[str, Any] | None) -> str | None:
    """What a subscription keeps of `trouble`, with the time since which it has not gone on for any reason."""
    if trouble is None:
        return None
    before = audit.value_of(row.stage_reason) or {}
    since_us = before.get("since_us") or int(connection.execute(select(now_us())).scalar_one())
    return json.dumps({**trouble, "since_us": since_us})


def _set(connection: Connection, lease: Lease, **values: Any) -> None:
    connection.execute(
        update(subscriptions)
        .where(subscriptions.c.id == lease.subscription_id, subscriptions.c.lease == lease.number)
        .values(**values)
    )


def _values(table: TableReport) -> dict[str, Any]:
    return {
        "stage": table.stage,
        "last_key": table.last_key,
        "rows": table.rows,
        "estimated": table.estimated,
        "position": table.position,
        "complete_us": table.complete_us,
        "changes": table.changes,
        "error": None if table.error is None else json.dumps(table.error),
    }
