"""Jobs: comparisons and repairs of a subscription's tables that somebody asked for.

    queued ──take──▶ running ──▶ done         everything was compared; rows may differ
       │                │──────▶ failed       something was not compared, or nothing was; the result says why
       └────────────────┴──────▶ cancelled

States only go forward. The server that owns the subscription takes a job under its lease and goes on with it
until it ends, the next owner likewise (`job_execution`): each counts as an attempt.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, and_, delete, insert, or_, select, update

from tailrace.control import audit, subscriptions
from tailrace.control.leases import Lease, require_held
from tailrace.control.metadata.database import now_us
from tailrace.control.metadata.tables import jobs
from tailrace.control.metadata.tables import subscriptions as owners
from tailrace.control.stages import Stage
from tailrace.control.subscriptions import Subscription, subscription_of
from tailrace.errors import ControlError
from tailrace.pipeline import job_answers

#: Jobs that have ended, of each subscription, that are kept.
KEPT = 100


class JobKind(StrEnum):
    """What a job does."""

    VERIFY = "verify"
    REPAIR = "repair"


class JobState(StrEnum):
    """How far a job is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def has_ended(self) -> bool:
        """Whether it stays so."""
        return self in (JobState.DONE, JobState.FAILED, JobState.CANCELLED)


_OPEN = (JobState.QUEUED, JobState.RUNNING)


@dataclass(frozen=True)
class TableJob:
    """A job.

    Args:
        id: its number, rising.
        subscription: the subscription's name.
        key: the client's name for it.
        signal: the id of its signal.
        kind: what it does.
        source: one of the file's `sources`; None: all that can be compared.
        tables: the tables; none: all.
        state: how far it is.
        is_cancelled: whether somebody wants it to end.
        lease: the number of the lease under which it was run last.
        attempts: under how many.
        done: pairs of sink and table that are done with.
        total: all of them.
        result: how it ended: `error`, and `tables` as in `pipeline.job_answers`; None: it has not.
        requested_by: who asked for it.
        created_us: when, microseconds since 1970 UTC by the database's clock, as all times.
        started_us: when a server took it first.
        ended_us: when it ended.
    """

    id: int
    subscription: str
    key: str
    signal: str
    kind: JobKind
    source: str | None
    tables: Sequence[str]
    state: JobState
    is_cancelled: bool
    lease: int | None
    attempts: int
    done: int
    total: int
    result: Mapping[str, Any] | None
    requested_by: str
    created_us: int
    started_us: int | None
    ended_us: int | None

    @property
    def differences(self) -> int:
        """Rows that differ, at least, in all targets: tables that share one are counted once."""
        found = {
            (table["source"], table["sink"], table["target"] or table["table"]): table["differences"] or 0
            for table in (self.result or {}).get("tables", ())
        }
        return sum(found.values())


@dataclass(frozen=True)
class OpenJob:
    """A job that has not ended, and who may do something about it.

    Args:
        job: the job.
        subscription: its subscription.
        lease: that of the server that asks; None: nobody owns the subscription now.
    """

    job: TableJob
    subscription: Subscription
    lease: Lease | None


def create(
    connection: Connection,
    actor: str,
    name: str,
    kind: JobKind,
    tables: Sequence[str],
    *,
    source: str | None = None,
    key: str | None = None,
) -> tuple[TableJob, bool]:
    """Create a job; the same once more is found as it is.

    Args:
        connection: a transaction.
        actor: who asks for it.
        name: the subscription.
        kind: what it does.
        tables: the tables; none: all.
        source: of which source; None: all.
        key: the client's name for it; None: it is a new one.

    Returns:
        The job, and whether it is new.

    Raises:
        ControlError: there is no such subscription, it is cancelled, or the key is another job's.
    """
    subscription = subscriptions.get(connection, name)
    if key is not None:
        # who asks at the same time waits here
        connection.execute(select(owners.c.id).where(owners.c.id == subscription.id).with_for_update())
        query = select(jobs).where(jobs.c.subscription_id == subscription.id, jobs.c.client_key == key)
        row = connection.execute(query).one_or_none()
        if row is not None:
            found = _job(row, name)
            if (found.kind, found.source, list(found.tables)) == (kind, source, list(tables)):
                return found, False
            raise ControlError(
                f"key `{key}` is that of another job",
                f"job {found.id} of subscription `{name}` has it, and does something else",
                "give each job a key of its own",
                code="TR-8481",
            )
    if subscription.stage is Stage.CANCELLED:
        raise ControlError(
            f"subscription `{name}` is cancelled",
            "its tables are not compared any more",
            "create another subscription, or use the commands: tailrace verify PIPELINE.YAML",
            code="TR-8482",
        )
    signal = job_answers.new_id()
    connection.execute(
        insert(jobs).values(
            subscription_id=subscription.id,
            client_key=key or uuid.uuid4().hex,
            signal=signal,
            kind=kind,
            source=source,
            tables=json.dumps(list(tables)),
            state=JobState.QUEUED,
            is_cancelled=0,
            attempts=0,
            done=0,
            total=0,
            requested_by=actor,
            created_us=now_us(),
        )
    )
    made = _job(connection.execute(select(jobs).where(jobs.c.signal == signal)).one(), name)
    audit.note(connection, actor, "job.create", name, after=_shown(made))
    _forget_old(connection, subscription.id)
    return made, True


def get(connection: Connection, name: str, id_: int) -> TableJob:
    """A job of a subscription.

    Raises:
        ControlError: there is no such subscription or job.
    """
    of = subscriptions.get(connection, name)
    row = connection.execute(
        select(jobs).where(jobs.c.subscription_id == of.id, jobs.c.id == id_)
    ).one_or_none()
    if row is None:
        raise ControlError(
            f"subscription `{name}` has no job {id_}",
            f"the last {KEPT} that have ended are kept",
            f"tailrace job list {name}",
            code="TR-8480",
        )
    return _job(row, name)


def select_jobs(
    connection: Connection,
    name: str,
    *,
    before: int | None = None,
    most: int = 100,
    state: JobState | None = None,
) -> list[TableJob]:
    """Jobs of a subscription, the newest first.

    Args:
        connection: a transaction.
        name: the subscription.
        before: only older ones than that with this id, for paging.
        most: as many.
        state: only those in this state.
    """
    of = subscriptions.get(connection, name)
    query = select(jobs).where(jobs.c.subscription_id == of.id).order_by(jobs.c.id.desc()).limit(most)
    if before is not None:
        query = query.where(jobs.c.id < before)
    if state is not None:
        query = query.where(jobs.c.state == state)
    return [_job(row, name) for row in connection.execute(query)]


def cancel(connection: Connection, actor: str, name: str, id_: int) -> TableJob:
    """Ask that a job end; one that no server has taken ends at once.

    Raises:
        ControlError: there is no such job, or it has ended in another way.
    """
    before = get(connection, name, id_)
    if before.state is JobState.CANCELLED or before.is_cancelled:
        return before
    ended = {"state": JobState.CANCELLED, "ended_us": now_us()}
    for state, values in ((JobState.QUEUED, ended), (JobState.RUNNING, {})):
        asked = update(jobs).where(jobs.c.id == id_, jobs.c.state == state).values(is_cancelled=1, **values)
        if connection.execute(asked).rowcount:
            after = get(connection, name, id_)
            audit.note(connection, actor, "job.cancel", name, before=_shown(before), after=_shown(after))
            return after
    raise ControlError(
        f"job {id_} of subscription `{name}` has ended",
        f"it is {get(connection, name, id_).state}",
        "rows that a repair reads again are read to the end",
        code="TR-8483",
    )


# ---- what servers do ----


def open_jobs(connection: Connection, server: str) -> list[OpenJob]:
    """Jobs that a server has to see to: of its subscriptions, and running ones of those that nobody owns.

    The latter have ended with the run (`trigger: available-now`), or are cancelled.
    """
    of = owners.c
    is_own = and_(of.owner == server, of.lease_until_us > now_us())
    is_free = or_(of.owner.is_(None), of.lease_until_us <= now_us())
    query = (
        select(jobs.c.id.label("job_id"), owners, is_own.label("is_own"))
        .join(jobs, jobs.c.subscription_id == of.id)
        .where(or_(and_(is_own, jobs.c.state.in_(_OPEN)), and_(is_free, jobs.c.state == JobState.RUNNING)))
        .order_by(jobs.c.id)
    )
    found = []
    for row in connection.execute(query).all():
        subscription = subscription_of(row)
        lease = Lease(subscription.id, subscription.name, server, subscription.lease) if row.is_own else None
        job = connection.execute(select(jobs).where(jobs.c.id == row.job_id)).one_or_none()
        if job is not None:
            found.append(OpenJob(_job(job, subscription.name), subscription, lease))
    return found


def take(connection: Connection, job: TableJob, lease: Lease) -> TableJob | None:
    """Take a job under a lease; None: it was cancelled meanwhile.

    Raises:
        LeaseLostError: another server may run the subscription.
    """
    require_held(connection, lease)
    taken = connection.execute(
        update(jobs)
        .where(jobs.c.id == job.id, jobs.c.state == job.state, jobs.c.attempts == job.attempts)
        .values(
            state=JobState.RUNNING,
            lease=lease.number,
            attempts=job.attempts + 1,
            started_us=now_us() if job.started_us is None else job.started_us,
        )
    )
    if not taken.rowcount:
        return None
    return _job(connection.execute(select(jobs).where(jobs.c.id == job.id)).one(), lease.name)


def report(connection: Connection, job: TableJob, done: int, total: int) -> None:
    """Note how far a running job is."""
    connection.execute(
        update(jobs)
        .where(jobs.c.id == job.id, jobs.c.state == JobState.RUNNING)
        .values(done=done, total=total)
    )


def end(
    connection: Connection, server: str, job: TableJob, state: JobState, result: Mapping[str, Any]
) -> bool:
    """Note how a job ended; False: another server has done so.

    Args:
        connection: a transaction.
        server: the server's name.
        job: the job.
        state: one that stays.
        result: see `TableJob`.
    """
    tables = result.get("tables", ())
    ended = connection.execute(
        update(jobs)
        .where(jobs.c.id == job.id, jobs.c.state.in_(_OPEN))
        .values(
            state=state,
            done=len(tables),
            total=max(job.total, len(tables)),
            result=json.dumps(result),
            ended_us=now_us(),
        )
    )
    if ended.rowcount:
        after = {"id": job.id, "kind": job.kind, "state": state, "error": result.get("error")}
        audit.note(connection, server, f"job.{state}", job.subscription, after=after)
    return bool(ended.rowcount)


def _forget_old(connection: Connection, subscription_id: int) -> None:
    of = jobs.c
    has_ended = and_(of.subscription_id == subscription_id, of.state.not_in(_OPEN))
    newest = select(of.id).where(has_ended).order_by(of.id.desc()).offset(KEPT).limit(1)
    oldest = connection.execute(newest).scalar_one_or_none()
    if oldest is not None:
        connection.execute(delete(jobs).where(has_ended, of.id <= oldest))


def _job(row: Row[Any], name: str) -> TableJob:
    return TableJob(
        row.id,
        name,
        row.client_key,
        row.signal,
        JobKind(row.kind),
        row.source,
        tuple(json.loads(row.tables)),
        JobState(row.state),
        bool(row.is_cancelled),
        row.lease,
        row.attempts,
        row.done,
        row.total,
        audit.value_of(row.result),
        row.requested_by,
        row.created_us,
        row.started_us,
        row.ended_us,
    )


def _shown(job: TableJob) -> dict[str, Any]:
    """What the audit keeps of a job."""
    shown = {"id": job.id, "kind": job.kind, "source": job.source, "tables": list(job.tables)}
    return {**shown, "state": job.state, "is_cancelled": job.is_cancelled}
