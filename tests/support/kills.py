"""Busy tables of MySQL, and pipelines over them that are killed.

TAILRACE_KILLS=15 TAILRACE_SEED=2 makes so many random kills only, with that seed.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from tailrace.errors import TailraceError
from tailrace_dev.servers.server import wait_until
from tests.support.pipelines import PipelineProcess
from tests.support.workload import SUBJECTS, Writers, fill

ROWS = 3000
TABLES = SUBJECTS[:2]
SMALL_CHUNKS = {"snapshot-chunk-rows": 500, "snapshot-parallelism": 2}
#: How long what was written while a pipeline was killed again and again may take, on a loaded machine.
BACKLOG_S = 1800
#: (failpoint, who is killed): the process itself, or the driver's JVM. The first ones hit the snapshot's
#: first batches; a killed source process or worker is replaced within the run, which goes on to the end.
KILLS = (
    ("batch.planned", "jvm"),
    ("snapshot.batch", "jvm"),
    ("sink.table", "self"),
    ("sink.committed", "jvm"),
    ("snapshot.batch", "self"),
    ("offset.planned", "self"),
    ("log.batch", "jvm"),
    ("sink.table", "jvm"),
    ("log.batch", "self"),
    ("sink.committed", "self"),
)


def fill_tables(server, database: str) -> None:
    """Create each of `TABLES`."""
    for subject in TABLES:
        fill(server, f"{database}.{subject.name}", subject, ROWS)


@contextmanager
def writing(server, database: str) -> Iterator[None]:
    """Write to each of `TABLES`: enough to affect every batch, little enough to leave the CPU to Spark."""
    first, second = (
        Writers(server, f"{database}.{subject.name}", subject, count=1, keys=2 * ROWS, pause_s=0.05)
        for subject in TABLES
    )
    with first, second:
        yield


@contextmanager
def brought_back(target) -> Iterator[None]:
    """Restart the server `target` when it has been killed."""
    ended = threading.Event()

    def start() -> None:
        wait_until(lambda: ended.is_set() or not target.running, BACKLOG_S)
        ended.wait(1)
        for _ in range(30):  # what is left of PostgreSQL's processes may still hold its memory
            with suppress(TailraceError):
                target.start()
                return
            time.sleep(1)

    thread = threading.Thread(target=start)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def run_through(server, database: str, run: PipelineProcess, kills: Iterable[tuple[str, str]]) -> None:
    """Run during writes to the tables, killed at each failpoint; then to the end."""
    for failpoint, victim in kills:
        with writing(server, database):
            run.run(failpoint=failpoint, victim=victim)
    assert run.run() == 0, run.output()


def run_with_random_kills(server, database: str, run: PipelineProcess, kills: int) -> None:
    """Run during writes to the tables, killed so many times; then to the end."""
    kill_at_random(run, lambda: writing(server, database), kills)


def kill_at_random(
    run: PipelineProcess, writing_: Callable[[], AbstractContextManager[object]], kills: int
) -> None:
    """Run during writes, killed so many times; then to the end.

    Each fifth kill may hit the start; the others come after the first batch.
    """
    kills = int(os.environ.get("TAILRACE_KILLS", kills))
    draw = random.Random(int(os.environ.get("TAILRACE_SEED", kills)))
    for number in range(kills):
        with writing_():
            if number % 5:
                run.work_for(draw.uniform(0, 8))
            else:
                run.run_for(draw.uniform(3, 20))
    assert run.run(timeout_s=BACKLOG_S) == 0, run.output()


#: (failpoint, who is killed) of a sink that sends messages: while the snapshot lasts, then a worker that has
#: sent some of them, the JVM between two writers, and everything around.
MESSAGE_KILLS = (
    ("snapshot.batch", "self"),
    ("sink.produced", "self"),
    ("sink.task", "jvm"),
    ("sink.committed", "self"),
    ("sink.produced", "jvm"),
    ("sink.task", "self"),
    ("batch.planned", "jvm"),
    ("sink.table", "self"),
    ("log.batch", "jvm"),
    ("offset.planned", "self"),
)


def added_up(found: Iterable[tuple[str, str, str, bytes]]) -> list[dict]:
    """The rows that messages add up to; each must fit what is there, and come once.

    Args:
        found: key, `seq`, operation and value, in Debezium's JSON, of each message.
    """
    state, last = {}, {}
    for key, seq, op, value in found:
        assert (seq, op) > last.get(key, ("", "")), f"{op} of {key} came again, or late"
        last[key] = seq, op
        change = json.loads(value)
        assert change["op"] == op
        if op in ("r", "c"):
            assert key not in state, f"{op} of a key that is there"
        else:
            assert state.pop(key) == change["before"]
        if op != "d":
            state[key] = change["after"]
    return list(state.values())


def once(found: Iterable[tuple[str, str, str, bytes]]) -> Iterator[tuple[str, str, str, bytes]]:
    """Messages as a receiver takes them that ignores what is not above the last `seq` of its key.

    Args:
        found: see `added_up`.
    """
    last: dict[str, tuple[str, str]] = {}
    for key, seq, op, value in found:
        if (seq, op) > last.get(key, ("", "")):
            last[key] = seq, op
            yield key, seq, op, value
