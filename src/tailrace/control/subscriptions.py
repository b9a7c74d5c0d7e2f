"""Subscriptions: pipeline files that users hand to the control plane, and what they ask of them.

Each change is one transaction with its event in the audit. A change names the version that it is based on, if
its author has seen one: a lost update is refused, never made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, and_, delete, func, insert, not_, select, update

from tailrace.config.load import parse_pipelines
from tailrace.config.model import Pipeline
from tailrace.control import audit
from tailrace.control.groups import require_same
from tailrace.control.metadata.database import now_us
from tailrace.control.metadata.tables import MOST_NAME, jobs, progress, streams, subscriptions
from tailrace.control.secrets import require_references
from tailrace.control.stages import WAY, Desired, Stage, moved, retried
from tailrace.errors import ConfigError, ControlError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Subscription:
    """A subscription.

    Args:
        id: its number, never used again.
        name: its name, unique.
        spec: the pipeline file, YAML as it was given.
        group: subscriptions of the same one share a worker; None: it has a worker of its own.
        version: rises with each change by a user.
        desired: what users ask for.
        stage: what it does.
        reached: the furthest stage of its way so far.
        reason: why it is in its stage: an error's code, message, detail and hint; None: nothing to say.
        failures: how often in a row it has failed.
        retry_us: when it is tried again; None: at once, or not by itself.
        owner: the server that runs it, or ran it last; None: none.
        lease: the number of its owner's lease, or of the last one.
        lease_until_us: when that lease ends.
        created_us: when it was created, microseconds since 1970 UTC by the database's clock, as all times.
        updated_us: when a user changed it last.
    """

    id: int
    name: str
    spec: str
    group: str | None
    version: int
    desired: Desired
    stage: Stage
    reached: Stage
    reason: Mapping[str, Any] | None
    failures: int
    retry_us: int | None
    owner: str | None
    lease: int
    lease_until_us: int
    created_us: int
    updated_us: int

    def pipelines(self) -> tuple[Pipeline, ...]:
        """The pipeline, once for each of its sources.

        Raises:
            ConfigError: the file holds something that this version of Tailrace does not allow.
        """
        return parse_pipelines(self.spec, default_name=self.name)


@dataclass(frozen=True)
class SubscriptionFilter:
    """Which subscriptions to list, and which page of them.

    Args:
        after: names behind this one, in order; "": from the first.
        most: as many.
        text: whose name has this text.
        stage: in this stage.
        desired: of which this is asked.
        owner: that this server runs.
        group: of this group.
    """

    after: str = ""
    most: int = 100
    text: str | None = None
    stage: Stage | None = None
    desired: Desired | None = None
    owner: str | None = None
    group: str | None = None


def create(connection: Connection, actor: str, name: str, spec: str) -> tuple[Subscription, bool]:
    """Create a subscription; the same once more is found as it is.

    Args:
        connection: a transaction.
        actor: who asks for it.
        name: its name.
        spec: the pipeline file.

    Returns:
        The subscription, and whether it is new.

    Raises:
        ConfigError: the name or the file is wrong, or the file holds a secret.
        ControlError: there is another one of this name.
    """
    _check_name(name)
    pipeline = _check_spec(spec, name)
    found = _found(connection, name)
    if found is not None:
        if found.spec == spec:
            return found, False
        raise ControlError(
            f"there is another subscription `{name}`",
            f"its version is {found.version}, and its file differs from the one given",
            "change it with its version (If-Match), or take another name",
            code="TR-8411",
        )
    _require_same_settings(connection, name, pipeline)
    connection.execute(
        insert(subscriptions).values(
            name=name,
            spec=spec,
            group_name=pipeline.settings.group,
            version=1,
            desired=Desired.RUN,
            stage=Stage.REGISTER,
            reached=Stage.REGISTER,
            failures=0,
            lease=0,
            lease_until_us=0,
            created_us=now_us(),
            updated_us=now_us(),
        )
    )
    new = get(connection, name)
    audit.note(connection, actor, "subscription.create", name, after=_shown(new))
    return new, True


def get(connection: Connection, name: str) -> Subscription:
    """The subscription called `name`.

    Raises:
        ControlError: there is none.
    """
    found = _found(connection, name)
    if found is None:
        raise ControlError(f"there is no subscription `{name}`", code="TR-8412")
    return found


def select_subscriptions(connection: Connection, selection: SubscriptionFilter) -> list[Subscription]:
    """Subscriptions in the order of their names."""
    of = subscriptions.c
    query = select(subscriptions).where(of.name > selection.after).order_by(of.name).limit(selection.most)
    if selection.text:
        query = query.where(of.name.contains(selection.text, autoescape=True))
    for column, value in (
        (of.stage, selection.stage),
        (of.desired, selection.desired),
        (of.owner, selection.owner),
        (of.group_name, selection.group),
    ):
        if value is not None:
            query = query.where(column == value)
    return [subscription_of(row) for row in connection.execute(query)]


def count_by_stage(connection: Connection) -> dict[Stage, int]:
    """How many subscriptions are in each stage that any is in."""
    query = select(subscriptions.c.stage, func.count()).group_by(subscriptions.c.stage)
    return {Stage(stage): int(count) for stage, count in connection.execute(query)}


def change_spec(
    connection: Connection,
    actor: str,
    name: str,
    spec: str,
    version: int | None = None,
) -> Subscription:
    """Replace a subscription's file; its server starts it anew.

    Args:
        connection: a transaction.
        actor: who asks for it.
        name: the subscription's name.
        spec: the new file.
        version: the version that the change is based on; None: any.

    Raises:
        ConfigError: the file is wrong, or holds a secret; or it moves checkpoint or name, which a stream
            cannot change.
        ControlError: there is no such subscription, or it has another version.
    """
    before = get(connection, name)
    pipeline = _check_spec(spec, name)
    _check_same_stream(before, spec)
    _require_not_cancelled(before)
    _require_same_settings(connection, name, pipeline)
    values = {"spec": spec, "group_name": pipeline.settings.group}
    return _change(connection, actor, "subscription.change", before, version, **values)


def set_desired(
    connection: Connection, actor: str, name: str, desired: Desired, version: int | None = None
) -> Subscription:
    """Ask that a subscription run, pause or be cancelled.

    Args:
        connection: a transaction.
        actor: who asks for it.
        name: the subscription's name.
        desired: what is asked for.
        version: the version that the change is based on; None: any.

    Raises:
        ControlError: there is no such subscription, or it has another version.
        StateError: it is cancelled.
    """
    before = get(connection, name)
    if before.desired is desired:
        _require_version(before, version)
        return before
    _require_not_cancelled(before)
    values: dict[str, Any] = {"desired": desired}
    if desired is Desired.CANCEL:
        values["stage"], _ = moved(before.stage, before.reached, Stage.CANCELLED)
        # no server takes its jobs any more; those that run are ended by one (`job_execution`)
        of_it = jobs.c.subscription_id == before.id
        ended = {"state": "cancelled", "is_cancelled": 1, "ended_us": now_us()}
        connection.execute(update(jobs).where(of_it, jobs.c.state == "queued").values(**ended))
        connection.execute(update(jobs).where(of_it, jobs.c.state == "running").values(is_cancelled=1))
    return _change(connection, actor, f"subscription.{desired}", before, version, **values)


def retry(connection: Connection, actor: str, name: str) -> Subscription:
    """Let a subscription go on from where it was, at once: one that failed, or that waits for its next try.

    Raises:
        ControlError: there is no such subscription.
        StateError: it does neither.
    """
    before = get(connection, name)
    stage = before.stage
    waits = stage in WAY and before.owner is None and before.retry_us is not None
    if not waits:
        stage, _ = retried(before.stage, before.reached)
    return _change(
        connection,
        actor,
        "subscription.retry",
        before,
        None,
        stage=stage,
        stage_reason=None,
        failures=0,
        retry_us=None,
        desired=Desired.RUN,
    )


def remove(connection: Connection, actor: str, name: str, version: int | None = None) -> None:
    """Remove a subscription that is paused or cancelled; checkpoint and targets stay where they are.

    Args:
        connection: a transaction.
        actor: who asks for it.
        name: the subscription's name.
        version: the version that the change is based on; None: any.

    Raises:
        ControlError: there is no such subscription, it has another version, or it may be running.
    """
    before = get(connection, name)
    _require_version(before, version)
    of = subscriptions.c
    # a server that has died leaves its name: a lease that has run out is no owner
    is_owned = and_(of.owner.is_not(None), of.lease_until_us > now_us())
    owner = connection.execute(select(of.owner).where(of.id == before.id, is_owned)).scalar_one_or_none()
    if before.desired is Desired.RUN or owner is not None:
        raise ControlError(
            f"subscription `{name}` is not stopped",
            f"found desired state `{before.desired}`" + (f", run by server `{owner}`" if owner else ""),
            f"tailrace pause {name}, and wait until no server runs it",
            code="TR-8413",
        )
    for of_it in (progress, streams, jobs):
        connection.execute(delete(of_it).where(of_it.c.subscription_id == before.id))
    gone = connection.execute(
        delete(subscriptions).where(of.id == before.id, of.version == before.version, not_(is_owned))
    )
    if not gone.rowcount:
        raise _changed_meanwhile(before)
    audit.note(connection, actor, "subscription.delete", name, before=_shown(before))


# ---- rows ----


def _found(connection: Connection, name: str) -> Subscription | None:
    row = connection.execute(select(subscriptions).where(subscriptions.c.name == name)).one_or_none()
    return None if row is None else subscription_of(row)


def subscription_of(row: Row[Any]) -> Subscription:
    """A row of the table, as a value."""
    return Subscription(
        row.id,
        row.name,
        row.spec,
        row.group_name,
        row.version,
        Desired(row.desired),
        Stage(row.stage),
        Stage(row.reached),
        audit.value_of(row.stage_reason),
        row.failures,
        row.retry_us,
        row.owner,
        row.lease,
        row.lease_until_us,
        row.created_us,
        row.updated_us,
    )


def _shown(subscription: Subscription) -> dict[str, Any]:
    """What the audit keeps of a subscription."""
    return {
        "spec": subscription.spec,
        "version": subscription.version,
        "desired": subscription.desired,
        "stage": subscription.stage,
    }


def _change(
    connection: Connection, actor: str, kind: str, before: Subscription, version: int | None, **values: Any
) -> Subscription:
    _require_version(before, version)
    changed = connection.execute(
        update(subscriptions)
        .where(subscriptions.c.id == before.id, subscriptions.c.version == before.version)
        .values(version=before.version + 1, updated_us=now_us(), **values)
    )
    if not changed.rowcount:
        raise _changed_meanwhile(before)
    after = get(connection, before.name)
    audit.note(connection, actor, kind, before.name, before=_shown(before), after=_shown(after))
    return after


# ---- checks ----


def _require_version(found: Subscription, version: int | None) -> None:
    if version is not None and version != found.version:
        raise ControlError(
            f"subscription `{found.name}` has been changed",
            f"its version is {found.version}, and the change is based on version {version}",
            f"tailrace get {found.name}, and make the change again",
            code="TR-8414",
        )


def _changed_meanwhile(found: Subscription) -> ControlError:
    return ControlError(
        f"subscription `{found.name}` has been changed",
        f"somebody changed version {found.version} at the same time",
        f"tailrace get {found.name}, and make the change again",
        code="TR-8414",
    )


def _require_not_cancelled(found: Subscription) -> None:
    moved(found.stage, found.reached, found.reached)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > MOST_NAME:
        raise ConfigError(
            "the name of a subscription is wrong",
            f"needed: letters, digits, `_`, `.` and `-`, the first a letter or digit, {MOST_NAME} at most",
            code="TR-8415",
        )


def _require_same_settings(connection: Connection, name: str, pipeline: Pipeline) -> None:
    """Refuse a pipeline whose settings of Spark are not those of the others of its group."""
    group = pipeline.settings.group
    if group is None:
        return
    of = subscriptions.c
    others = select(subscriptions).where(of.group_name == group, of.name != name, of.stage != Stage.CANCELLED)
    other = connection.execute(others.order_by(of.id).limit(1)).one_or_none()
    if other is not None:
        require_same(group, pipeline, subscription_of(other).pipelines()[0])


def _check_spec(spec: str, name: str) -> Pipeline:
    pipelines = parse_pipelines(spec, default_name=name)
    require_references(spec)
    given = pipelines[0].named.pipeline if pipelines[0].named else pipelines[0].settings.name
    if given != name:
        raise ConfigError(
            f"the file of subscription `{name}` has another name",
            f"found `pipeline.name: {given}`",
            "leave it out, or give it the subscription's name",
            code="TR-8416",
        )
    return pipelines[0]


def _check_same_stream(before: Subscription, spec: str) -> None:
    old, new = before.pipelines(), parse_pipelines(spec, default_name=before.name)
    was, is_ = (p[0].named.checkpoint if p[0].named else p[0].checkpoint for p in (old, new))
    if was != is_:
        raise ConfigError(
            f"the checkpoint of subscription `{before.name}` cannot be changed",
            f"found `{is_}`, it was `{was}`: the stream's position is there",
            "create another subscription for another stream",
            code="TR-8417",
        )
