"""What the pages show of subscriptions and their tables: queries of one page each.

A list of 200 pipelines with 500 tables each has 100,000 rows of progress: sums are made by the database, for
the subscriptions of the page alone, and tables come by the page, those that need somebody first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, and_, case, exists, func, or_, select

from tailrace.control.metadata.database import now_us
from tailrace.control.metadata.tables import progress, subscriptions
from tailrace.control.progress import TableReport, report_of
from tailrace.control.stages import Desired, Stage
from tailrace.control.subscriptions import Subscription, subscription_of

#: Rows of a page.
PAGE = 50
#: Stages of tables whose rows are being read.
_READING = ("snapshot", "reread")


class Health(StrEnum):
    """How a subscription is, in one word."""

    RUNNING = "running"
    PARKED = "table parked"
    RETRYING = "retrying"
    WAITING = "waiting for a server"
    FAILED = "failed"
    PAUSED = "paused"
    STOPPING = "stopping"
    CANCELLED = "cancelled"

    @property
    def tone(self) -> str:
        """How it is coloured: `good`, `bad`, `warn` or `calm`."""
        return _TONES[self]


_TONES = {
    Health.RUNNING: "good",
    Health.PARKED: "bad",
    Health.RETRYING: "warn",
    Health.WAITING: "warn",
    Health.FAILED: "bad",
    Health.PAUSED: "calm",
    Health.STOPPING: "calm",
    Health.CANCELLED: "calm",
}


@dataclass(frozen=True)
class Sums:
    """What the tables of a subscription do, summed up.

    Args:
        tables: how many are known.
        parked: how many are parked.
        reading: how many are being read by a snapshot.
        rows: rows that snapshots have read.
        read: of them, rows of tables that are being read.
        estimated: the estimate of all rows of those.
        changes: changes written.
        complete_us: the targets have everything committed up to this time; None: not known.
    """

    tables: int = 0
    parked: int = 0
    reading: int = 0
    rows: int = 0
    read: int = 0
    estimated: int = 0
    changes: int = 0
    complete_us: int | None = None


@dataclass(frozen=True)
class Overview:
    """A subscription as a list shows it.

    Args:
        subscription: itself.
        sums: of its tables.
        now_us: the database's time of this picture.
    """

    subscription: Subscription
    sums: Sums
    now_us: int

    @property
    def is_owned(self) -> bool:
        """Whether a server runs it."""
        of = self.subscription
        return of.owner is not None and of.lease_until_us > self.now_us

    @property
    def health(self) -> Health:
        """How it is: the worst that is known."""
        of = self.subscription
        if of.stage is Stage.CANCELLED:
            return Health.CANCELLED
        if of.stage is Stage.FAILED:
            return Health.FAILED
        if of.desired is not Desired.RUN:
            return Health.STOPPING if self.is_owned else Health.PAUSED
        if of.retry_us is not None and of.retry_us > self.now_us:
            return Health.RETRYING
        if not self.is_owned:
            return Health.WAITING
        if of.reason is not None:  # its worker tries again by itself, or a new one has not begun yet
            return Health.RETRYING
        return Health.PARKED if self.sums.parked else Health.RUNNING

    @property
    def can_retry(self) -> bool:
        """Whether it waits for its next try, or for somebody who asks for one."""
        of = self.subscription
        return of.stage is Stage.FAILED or (of.retry_us is not None and of.retry_us > self.now_us)

    @property
    def behind_us(self) -> int | None:
        """How old the state is that targets have, microseconds; None: not known."""
        if self.sums.complete_us is None:
            return None
        return max(0, self.now_us - self.sums.complete_us)


@dataclass(frozen=True)
class Listed:
    """Which subscriptions a page lists.

    Args:
        text: whose name has this text; "": any.
        stage: in this stage; None: any.
        desired: of which this is asked; None: anything.
        attention: only those that need somebody.
        owner: that this server runs; None: any.
        group: of this group; None: any.
        page: which page, from 1.
    """

    text: str = ""
    stage: Stage | None = None
    desired: Desired | None = None
    attention: bool = False
    owner: str | None = None
    group: str | None = None
    page: int = 1

    @property
    def is_filtered(self) -> bool:
        """Whether some may be left out."""
        return self != Listed(page=self.page)


@dataclass(frozen=True)
class WantedTables:
    """Which tables of a subscription a page lists.

    Args:
        text: whose name has this text; "": any.
        show: `all`, `parked` or `reading`.
        page: which page, from 1.
    """

    text: str = ""
    show: str = "all"
    page: int = 1


def listed(connection: Connection, wanted: Listed) -> tuple[list[Overview], int]:
    """A page of subscriptions in the order of their names, and how many there are on all pages."""
    conditions = list(_conditions(wanted))
    count = select(func.count()).select_from(subscriptions).where(*conditions)
    query = (
        select(subscriptions, now_us().label("now_us"))
        .where(*conditions)
        .order_by(subscriptions.c.name)
        .limit(PAGE)
        .offset((wanted.page - 1) * PAGE)
    )
    rows = connection.execute(query).all()
    sums = sums_of(connection, [row.id for row in rows])
    total = int(connection.execute(count).scalar_one())
    return [Overview(subscription_of(row), sums.get(row.id, Sums()), row.now_us) for row in rows], total


def overview_of(connection: Connection, subscription: Subscription) -> Overview:
    """One subscription as a list shows it."""
    now = int(connection.execute(select(now_us())).scalar_one())
    sums = sums_of(connection, [subscription.id])
    return Overview(subscription, sums.get(subscription.id, Sums()), now)


def sums_of(connection: Connection, ids: Sequence[int] | None = None) -> Mapping[int, Sums]:
    """The sums of subscriptions by their numbers; those without tables are left out.

    Args:
        connection: a transaction.
        ids: of these; None: of all.
    """
    of = progress.c
    reading = of.stage.in_(_READING)
    query = select(
        of.subscription_id,
        func.count(),
        func.count(of.error),
        func.sum(case((reading, 1), else_=0)),
        func.coalesce(func.sum(of.rows), 0),
        func.coalesce(func.sum(case((reading, of.rows))), 0),
        func.coalesce(func.sum(case((reading, of.estimated))), 0),
        func.sum(of.changes),
        func.min(case((of.error.is_(None), of.complete_us))),
    ).group_by(of.subscription_id)
    if ids is not None:
        query = query.where(of.subscription_id.in_(ids))
    found = {}
    for id_, tables, parked, now_read, rows, read, estimated, changes, complete in connection.execute(query):
        found[int(id_)] = Sums(
            int(tables),
            int(parked),
            int(now_read),
            int(rows),
            int(read),
            int(estimated),
            int(changes),
            None if complete is None else int(complete),
        )
    return found


def tables_page(connection: Connection, id_: int, wanted: WantedTables) -> tuple[list[TableReport], int]:
    """A page of a subscription's tables, parked ones first, then those being read, and how many there are."""
    of = progress.c
    conditions = [of.subscription_id == id_]
    if wanted.text:
        conditions.append(of.table_name.contains(wanted.text, autoescape=True))
    if wanted.show == "parked":
        conditions.append(of.error.is_not(None))
    elif wanted.show == "reading":
        conditions.append(of.stage.in_(_READING))
    urgency = case((of.error.is_not(None), 0), (of.stage.in_(_READING), 1), else_=2)
    query = (
        select(progress)
        .where(*conditions)
        .order_by(urgency, of.source, of.table_name)
        .limit(PAGE)
        .offset((wanted.page - 1) * PAGE)
    )
    count = select(func.count()).select_from(progress).where(*conditions)
    found = [report_of(row) for row in connection.execute(query)]
    return found, int(connection.execute(count).scalar_one())


def being_read(connection: Connection) -> list[tuple[int, str, str, int]]:
    """Subscription, source, name and rows of each table whose reading has begun."""
    of = progress.c
    query = select(of.subscription_id, of.source, of.table_name, of.rows).where(
        of.stage.in_(_READING), of.rows.is_not(None), of.error.is_(None)
    )
    return [(int(row[0]), row[1], row[2], int(row[3])) for row in connection.execute(query)]


def _conditions(wanted: Listed) -> list[ColumnElement[bool]]:
    of = subscriptions.c
    found: list[ColumnElement[bool]] = []
    if wanted.text:
        found.append(of.name.contains(wanted.text, autoescape=True))
    if wanted.stage is not None:
        found.append(of.stage == wanted.stage)
    if wanted.desired is not None:
        found.append(of.desired == wanted.desired)
    if wanted.owner is not None:
        found.append(of.owner == wanted.owner)
    if wanted.group is not None:
        found.append(of.group_name == wanted.group)
    if wanted.attention:
        nobody = or_(of.owner.is_(None), of.lease_until_us <= now_us())
        parked = exists().where(progress.c.subscription_id == of.id, progress.c.error.is_not(None))
        wants = or_(nobody, of.stage_reason.is_not(None))
        found.append(or_(of.stage == Stage.FAILED, parked, and_(of.desired == Desired.RUN, wants)))
        found.append(of.stage != Stage.CANCELLED)
    return found
