"""Writes a batch to several targets at the same time: one thread per target, its tables in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from tailrace.errors import SinkError, concerning
from tailrace.sinks.base import CellBatch, Written
from tailrace.sinks.claims import Claims
from tailrace.spark.cells import TableBatch
from tailrace.spark.task_errors import task_errors_concerning

#: Conditions about a column that cannot follow its source.
_INCOMPATIBLE = ("TR-7001", "TR-7035")
#: Most tables that an error names.
_MOST_NAMED = 3


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
        self.run([partial(_write, write, name, parts) for name, parts in work.items()])
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


def _write(write: Callable[[str, list[TableBatch]], None], name: str, parts: list[TableBatch]) -> None:
    """Write a target; an error is that of its table, if it has one in the batch."""
    with of_one_table(part.table for part in parts):
        write(name, parts)


@contextmanager
def of_one_table(tables: Iterable[object]) -> Iterator[None]:
    """Errors raised in this context concern a table if it is the only one of `tables`."""
    found = set(tables)
    if len(found) != 1:
        yield
        return
    (table,) = found
    with concerning(table, sink=True), task_errors_concerning(table):
        yield


@contextmanager
def following(table: object, target: Iterable[object]) -> Iterator[None]:
    """A target is changed in this context to fit one of its tables, which an error concerns and names.

    Args:
        table: the table.
        target: all tables of the target.
    """
    try:
        yield
    except SinkError as error:
        others = [str(other) for other in target if other != table]
        if not others or error.code not in _INCOMPATIBLE:
            raise
        named = ", ".join(f"`{other}`" for other in others[:_MOST_NAMED])
        more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        error.detail = f"{error.detail}; table `{table}` brings it, and {named}{more} share the target"
        error.args = (error.message, error.detail, error.hint)
        error.concern(str(table))
        raise


def by_target(parts: Iterable[TableBatch], claims: Claims) -> dict[str, list[TableBatch]]:
    """The parts of a batch by the name of their target.

    Raises:
        ConfigError: two tables would be mixed in one target.
    """
    work: dict[str, list[TableBatch]] = {}
    for part in parts:
        with concerning(part.table):
            claims.add([part.table])
        work.setdefault(claims.router.target(part.table), []).append(part)
    return work


def add_targets_without_rows(
    work: dict[str, list[TableBatch]], batch: CellBatch, claims: Claims, read: Iterable[str]
) -> None:
    """Add the targets that a batch concerns though it has no rows of them.

    Args:
        work: the parts of the batch by target (`by_target`).
        batch: the batch.
        claims: names the targets.
        read: the targets of which the batch ends a reading: rows may go even if none has come.
    """
    altered = {event.table for event in batch.column_events}
    of_altered = [claims.router.target(table) for table in claims.tables if str(table) in altered]
    for name in (*read, *of_altered):
        work.setdefault(name, [])


def written(work: Mapping[str, list[TableBatch]]) -> list[Written]:
    """What a sink reports when all of `work` is written."""
    return [Written.of(part, name) for name, parts in work.items() for part in parts]
