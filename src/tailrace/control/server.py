"""A server: claims subscriptions, runs them in workers, hands them over when it ends.

Once a second it looks at what it runs:

    one has ended, or its worker       it reported how; if not, the subscription failed, to be tried again
    the lease is another's             it is asked to stop; the worker is killed once all of its leases are
    paused, cancelled or changed       it is asked to stop after its batch
    room for more                      free subscriptions are claimed, few at a time: other servers take some

While the database does not answer, workers run until their leases end, and kill themselves then.
"""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy import select

from tailrace import __version__
from tailrace.control import leases, progress, servers
from tailrace.control.leases import RENEW_S, Lease
from tailrace.control.metadata.database import ControlDatabase, now_us
from tailrace.control.metadata.tables import subscriptions as table
from tailrace.control.runner import Runner, Running
from tailrace.control.stages import Desired
from tailrace.control.subscriptions import Subscription
from tailrace.errors import ConfigError, ControlError, LeaseLostError, TailraceError, TransientControlError

_log = logging.getLogger(__name__)
#: Time between two looks, seconds.
_LOOK_S = 1.0
#: Workers that are started at a look.
_AT_ONCE = 2


@dataclass
class Owner:
    """A server.

    Args:
        database: of the control plane.
        name: its name, unique among the servers.
        capacity: workers that it has at a time; 0: it runs nothing.
        runner: starts its workers.
        resolve: a subscription's file as it is run here: paths absolute, allowed by the policy.
        url: where its API is; "": it has none.
        tell: called with what happens, a line each.
    """

    database: ControlDatabase
    name: str
    capacity: int
    runner: Runner
    resolve: Callable[[Subscription], str]
    url: str = ""
    tell: Callable[[str], None] = _log.info
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Run until `stop` is set and all workers have ended."""
        seen_s = float("-inf")
        answers = True
        while not (self.stop.is_set() and not self.runner.workers):
            try:
                if time.monotonic() - seen_s >= RENEW_S:
                    self._report()
                    seen_s = time.monotonic()
                self._look()
                if not answers:
                    self.tell("the database answers again")
                answers = True
            except TransientControlError as error:
                if answers:
                    self.tell(str(error))
                answers = False
            if not self.stop.is_set():
                self.stop.wait(_LOOK_S)
            else:
                time.sleep(0.1)
        try:
            with self.database.begin() as connection:
                servers.gone(connection, self.name)
        except TransientControlError as error:
            self.tell(str(error))

    def _report(self) -> None:
        me = servers.ServerInfo(
            self.name,
            platform.node(),
            os.getpid(),
            self.url,
            self.capacity,
            len(self.runner.running),
            self.stop.is_set(),
            __version__,
        )
        with self.database.begin() as connection:
            servers.seen(connection, me)

    def _look(self) -> None:
        for running, how in self.runner.ended():
            self.tell(f"{running.lease.name}: has ended ({how})")
            if running.asked_s is None:
                self._require_reported(running, how)
            else:  # it was to end: that it could not say so before is no failure
                with self.database.begin() as connection:
                    leases.release(connection, running.lease)
        self._stop_some()
        room = self.runner.room(self.capacity, _AT_ONCE)
        if not self.stop.is_set() and (room.workers > 0 or any(room.groups.values())):
            with self.database.begin() as connection:
                taken = leases.claim(connection, self.name, room)
            for subscription, lease in taken:
                self._start(subscription, lease)

    def _stop_some(self) -> None:
        members = self.runner.running
        if not members:
            return
        of = table.c
        # read in a transaction of its own, which waits for no lock that a worker may hold
        query = select(
            *(of.id, of.owner, of.lease, of.desired, of.version),
            (of.lease_until_us <= now_us()).label("is_over"),
        ).where(of.id.in_(list(members)))
        found = {row.id: row for row in self.database.read(lambda c: c.execute(query).all())}
        for id_, running in members.items():
            row, lease = found.get(id_), running.lease
            if row is None or (row.lease, row.owner) != (lease.number, lease.server):
                if row is None or row.lease != lease.number:
                    running.lose()  # else it has just given its lease back
            elif row.is_over:  # it should have ended by itself: it hangs
                running.lose()
            elif self.stop.is_set() or row.desired != Desired.RUN or row.version != running.version:
                running.stop()

    def _start(self, subscription: Subscription, lease: Lease) -> None:
        try:
            self.runner.start(subscription, lease, self.resolve(subscription))
        except (TailraceError, OSError) as error:
            told = error if isinstance(error, TailraceError) else _not_started(error)
            self.tell(f"{subscription.name}: {told}")
            self._fail(lease, told)
        else:
            self.tell(f"{subscription.name}: started, lease {lease.number}")

    def _require_reported(self, running: Running, how: str) -> None:
        """Note that a subscription has failed whose worker could not say so: it was killed, or never ran."""
        printed = self.runner.printed(running).strip().splitlines()
        self._fail(
            running.lease,
            TransientControlError(
                f"the worker of subscription `{running.lease.name}` has ended unexpectedly",
                f"{how}; it printed last: {printed[-1] if printed else 'nothing'}",
                "it is started again after a pause; if it was killed for want of memory, lower the server's "
                "--capacity",
                code="TR-8423",
            ),
        )

    def _fail(self, lease: Lease, error: TailraceError) -> None:
        try:
            with self.database.begin() as connection:
                progress.failed(connection, lease, error, retries=error.retryable)
        except LeaseLostError:
            pass  # the worker has reported, or another server has it


def _not_started(error: OSError) -> ControlError:
    return TransientControlError(
        "a worker could not be started",
        str(error),
        "see to room on the disk, memory, and the limits of processes and files",
        code="TR-8424",
    )


def require_name(name: str) -> str:
    """A name for a server.

    Raises:
        ConfigError: it cannot be one.
    """
    if not name or len(name) > 128 or not name.isprintable():
        raise ConfigError("the server's name is wrong", "needed: 1 to 128 characters", code="TR-8425")
    return name
