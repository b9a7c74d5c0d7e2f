"""The leases of a worker: renewed together, until they are lost or given back.

every RENEW_S            all of them, in one statement
one is another's         its subscription is stopped; the others go on
all are another's        the process and all its children are killed
none could be renewed    likewise, by the worker's own clock, when they may have ended
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable

from tailrace.control import leases
from tailrace.control.leases import LEASE_S, RENEW_S, Lease
from tailrace.control.metadata.database import ControlDatabase
from tailrace.errors import TransientControlError

_log = logging.getLogger(__name__)
#: How often the worker looks whether its leases may have ended, seconds.
_LOOK_S = 0.1


class HeldLeases:
    """Renews the leases of a worker.

    Args:
        database: of the control plane.
        lost: called with a lease that is another's, unless all are.
    """

    def __init__(self, database: ControlDatabase, lost: Callable[[Lease], None]) -> None:
        self._database = database
        self._lost = lost
        self._lock = threading.Lock()
        self._held: set[Lease] = set()
        #: Until when they surely hold, by a clock that does not stop while the machine sleeps.
        self._until_s = 0.0
        self._now = threading.Event()
        self._ended = threading.Event()
        for work, name in ((self._renew, "lease"), (self._end_with_leases, "lease-end")):
            threading.Thread(target=work, name=name, daemon=True).start()

    def add(self, lease: Lease) -> None:
        """Renew a lease, which was taken just now, from now on."""
        with self._lock:
            if not self._held:
                self._until_s = _now_s() + LEASE_S
            self._held.add(lease)
        self._now.set()

    def remove(self, lease: Lease) -> None:
        """Renew it no more."""
        with self._lock:
            self._held.discard(lease)

    def lose(self, gone: set[Lease]) -> None:
        """Some are another's: end what runs under them."""
        with self._lock:
            gone &= self._held
            self._held -= gone
            is_all = bool(gone) and not self._held
        if is_all:
            kill_worker("; ".join(str(leases.lost(lease)) for lease in gone))
        for lease in gone:
            _log.error("%s", leases.lost(lease))
            self._lost(lease)

    def close(self) -> None:
        """Nothing runs any more."""
        self._ended.set()
        self._now.set()

    def _renew(self) -> None:
        while True:
            self._now.wait(RENEW_S)
            self._now.clear()
            if self._ended.is_set():
                return
            try:
                self._renew_once()
            except TransientControlError as error:
                _log.warning("the leases could not be renewed: %s", error.message)
                self._ended.wait(_LOOK_S)

    def _renew_once(self) -> None:
        sent_s = _now_s()
        with self._lock:
            held = set(self._held)
        if not held:
            return
        with self._database.begin() as connection:
            gone = leases.renew(connection, held)
        self.lose(gone)
        with self._lock:
            self._until_s = max(self._until_s, sent_s + LEASE_S)

    def _end_with_leases(self) -> None:
        while not self._ended.wait(_LOOK_S):
            with self._lock:
                is_over = bool(self._held) and _now_s() >= self._until_s
            if is_over:
                kill_worker("the leases could not be renewed in time")


def kill_worker(why: str) -> None:
    """End this process and its children: whoever owns its subscriptions now writes their batches again."""
    _log.error("killed: %s", why)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _now_s() -> float:
    """Seconds of a clock that neither jumps nor stops while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
