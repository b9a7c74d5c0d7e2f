"""Executors of a cluster that are waited for, or lost: Spark says so in its log only.

An application of a standalone cluster takes all cores unless it is limited, and the next one waits without a
word. So a job without any executor is reported, with the remedy.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from tailrace.spark.jvm import executors
from tailrace.spark.session import is_local_master

#: Time between two looks, and how long a job may wait for executors before a notice; seconds.
LOOK_S, PATIENCE_S = 2.0, 10.0


class ClusterWatch:
    """Reports on the executors of a session's cluster; a local Spark has none, and nothing is reported.

    Args:
        session: the session.
        notice: receives a text for the user.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        session: SparkSession,
        notice: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.session = session
        self._notice = notice
        self._clock = clock
        self._master = str(session.sparkContext.master)
        self._is_local = is_local_master(self._master)
        # executors that come and go are no news
        self._is_fixed = session.conf.get("spark.dynamicAllocation.enabled", "false") != "true"
        self._known: frozenset[str] = frozenset()
        self._looked_at = -LOOK_S
        self._waiting_since: float | None = None
        self._has_reported = False

    def look(self) -> None:
        """Look at the executors, every LOOK_S seconds."""
        now = self._clock()
        if self._is_local or now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        found = executors(self.session)
        if self._is_fixed and (lost := self._known - found):
            names = ", ".join(f"`{name}`" for name in sorted(lost))
            self._notice(f"lost {_count(lost)}: {names}; {len(found)} left; unfinished tasks run again")
        self._known = found
        if found or not self.session.sparkContext.statusTracker().getActiveJobsIds():
            if found and self._has_reported:
                self._notice(f"{_count(found)} joined")
            self._waiting_since, self._has_reported = None, False
            return
        self._waiting_since = now if self._waiting_since is None else self._waiting_since
        if not self._has_reported and now - self._waiting_since >= PATIENCE_S:
            self._has_reported = True
            self._notice(
                f"waiting for executors: `{self._master}` has given none. Other applications may hold all its"
                " cores or memory: end one, or limit each with `pipeline.spark` (`spark.cores.max: 2`,"
                " `spark.executor.memory: 1g`); the web page of the cluster's master shows who holds what"
            )


def _count(executors_: frozenset[str]) -> str:
    return "1 executor" if len(executors_) == 1 else f"{len(executors_)} executors"
