"""Targets that somebody changed by hand equal their tables again after a repair, beside a writer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.errors import StateError
from tailrace.verify.repair import compared, repair
from tailrace_dev.servers import MySqlServer
from tests.e2e.test_verify import Copy
from tests.support.databases import fresh_database

#: How long the stream may take to begin on a loaded machine, seconds.
PATIENCE_S = 180
#: Changes by hand: rows that are missing, different and extra.
DAMAGE = (
    "DELETE FROM {t} WHERE part BETWEEN 20 AND 30",
    "UPDATE {t} SET d = 7 WHERE part = 40",
    "INSERT INTO {t} SELECT * FROM {t} WHERE part = 50",
    "UPDATE {t} SET part = -1 WHERE part = 60",
)


@contextmanager
def running(*works: Callable[[], None]) -> Iterator[threading.Event]:
    """Repeat each of `works` in a thread until the event is set, or the block ends."""
    stop, failures = threading.Event(), list[BaseException]()

    def repeat(work: Callable[[], None]) -> None:
        try:
            while not stop.wait(0.2):
                work()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield stop
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        assert not failures, failures


def require_repaired(copy: Copy) -> None:
    """Repair `wide` while the pipeline runs, and rows are written until the reading has ended."""
    table = f"{copy.database}.wide"
    report = compared(copy.pipeline, copy.spark, [table])
    (target,) = report.targets
    assert target.differences is not None
    found = target.differences
    assert min(found.missing, found.extra, found.different) > 0, found
    written = iter(range(5000, 100_000))
    said: list[str] = []

    def write() -> None:
        i = next(written)
        copy.server.execute(
            f"INSERT INTO {table} (name, part) VALUES ('new', {i})",
            f"UPDATE {table} SET d = {i} WHERE part IN (40, 41, {i - 2})",
            f"DELETE FROM {table} WHERE part IN ({i - 4960}, {i - 3})",
        )

    with running(copy.run), running(write) as written_enough:

        def say(text: str) -> None:
            said.append(text)
            if "comparing again" in text:
                written_enough.set()

        after = repair(copy.pipeline, copy.spark, report, patience_s=PATIENCE_S, say=say)
    assert after.equal, after
    assert [t.target for t in after.targets] == ["wide"]
    assert len(said) == 3
    copy.run()
    assert compared(copy.pipeline, copy.spark, []).equal


def test_delta_table_that_was_changed_by_hand_is_repaired(
    mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    copy = Copy.in_delta(mysql, database, spark, tmp_path)
    copy.run()
    for statement in DAMAGE:
        spark.sql(statement.format(t=copy.target("wide")))
    require_repaired(copy)


def test_replica_that_was_changed_by_hand_is_repaired(
    mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    with fresh_database(mysql) as replica:
        url = f"mysql://{mysql.host}:{mysql.port}/{replica}"
        sink = f"type: mysql, url: '{url}', user: {mysql.user}, password: {mysql.password}"
        copy = Copy(mysql, database, spark, tmp_path, sink)
        copy.run()
        damage = [s for s in DAMAGE if not s.startswith("INSERT")]  # its key refuses a row twice
        mysql.execute(*(s.format(t=f"{replica}.wide") for s in damage))
        require_repaired(copy)


def test_stopped_pipeline_leaves_the_request_and_the_target(
    mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    copy = Copy.in_delta(mysql, database, spark, tmp_path)
    copy.run()
    spark.sql(f"DELETE FROM {copy.target('small')} WHERE id = 1")
    report = compared(copy.pipeline, spark, [])
    with pytest.raises(StateError, match="TR-6045"):
        repair(copy.pipeline, spark, report, patience_s=0)
    copy.run()
    assert compared(copy.pipeline, spark, []).equal
