"""A batch by its targets, and to several at once: each by one thread, its tables one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tailrace.sinks.base import Written
from tailrace.sinks.claims import Claims
from tailrace.spark.cells import TableBatch


class TargetPool:
    """Threads that write targets.

    Args:
        claims: names the targets.
        parallelism: targets written at the same time.
    """

    def __init__(self, claims: Claims, parallelism: int) -> None:
        self._claims = claims
        self._pool = ThreadPoolExecutor(parallelism, "sink-target")

    def write(
        self, parts: Iterable[TableBatch], write: Callable[[str, list[TableBatch]], None]
    ) -> list[Written]:
        """Call `write` with each target's name and its parts of a batch.

        Raises:
            ConfigError: two tables would be mixed in one target.
            Exception: the first that `write` raised, after all have ended: none writes on.
        """
        work = by_target(parts, self._claims)
        self.run([partial(write, name, parts) for name, parts in work.items()])
        return written(work)

    def run(self, jobs: Iterable[Callable[[], None]]) -> None:
        """Do something with several targets.

        Raises:
            Exception: the first that a job raised, after all have ended.
        """
        running = [self._pool.submit(job) for job in jobs]
        failures = [e for e in (job.exception() for job in running) if e is not None]
        if failures:
            raise failures[0]

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


def by_target(parts: Iterable[TableBatch], claims: Claims) -> dict[str, list[TableBatch]]:
    """The parts of a batch that each target is brought, by its name.

    Raises:
        ConfigError: two tables would be mixed in one target.
    """
    work: dict[str, list[TableBatch]] = {}
    for part in parts:
        claims.add([part.table])
        work.setdefault(claims.router.target(part.table), []).append(part)
    return work


def written(work: Mapping[str, list[TableBatch]]) -> list[Written]:
    """What a sink says when all of `work` is written."""
    return [Written.of(part, name) for name, parts in work.items() for part in parts]
