"""Writes a batch to several targets at the same time: one thread per target, its tables in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tailrace.sinks.base import Written
from tailrace.sinks.claims import Claims
from tailrace.spark.cells import TableBatch


class TargetPool:
    """A pool of threads that write targets.

    Args:
        claims: names the targets.
        parallelism: how many targets are written at the same time.
    """

    def __init__(self, claims: Claims, parallelism: int) -> None:
        self._claims = claims
        self._pool = ThreadPoolExecutor(parallelism, "sink-target")

    def write(
        self, parts: Iterable[TableBatch], write: Callable[[str, list[TableBatch]], None]
    ) -> list[Written]:
        """Call `write` with the name of each target and its parts of a batch.

        Raises:
            ConfigError: two tables would be mixed in one target.
            Exception: the first that `write` raised, once all threads have finished.
        """
        work = by_target(parts, self._claims)
        self.run([partial(write, name, parts) for name, parts in work.items()])
        return written(work)

    def run(self, jobs: Iterable[Callable[[], None]]) -> None:
        """Run jobs at the same time.

        Raises:
            Exception: the first that a job raised, once all have finished.
        """
        running = [self._pool.submit(job) for job in jobs]
        failures = [e for e in (job.exception() for job in running) if e is not None]
        if failures:
            raise failures[0]

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


def by_target(parts: Iterable[TableBatch], claims: Claims) -> dict[str, list[TableBatch]]:
    """The parts of a batch by the name of their target.

    Raises:
        ConfigError: two tables would be mixed in one target.
    """
    work: dict[str, list[TableBatch]] = {}
    for part in parts:
        claims.add([part.table])
        work.setdefault(claims.router.target(part.table), []).append(part)
    return work


def written(work: Mapping[str, list[TableBatch]]) -> list[Written]:
    """What a sink reports when all of `work` is written."""
    return [Written.of(part, name) for name, parts in work.items() for part in parts]
