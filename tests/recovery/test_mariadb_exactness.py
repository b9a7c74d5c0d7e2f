"""Every batch of a MariaDB stream is exact under load, as `test_exactness` shows for MySQL."""

from __future__ import annotations

import hashlib
import threading
import uuid
from dataclasses import replace
from functools import partial

import pytest

from tailrace.model.split import SnapshotSplit
from tailrace.reader.snapshot import read_snapshot
from tailrace.sources import registry
from tests.recovery.test_exactness import ROWS, Blind, verify_run
from tests.support.engine import Engine, multiset, options_for, rows_of
from tests.support.logged import end_of_log
from tests.support.replica import SlowReplica
from tests.support.workload import SUBJECTS, Subject, Writers, fill


class Uuids(Subject):
    """Keys of a type whose log does not say that it is one, and whose order is the server's."""

    def values(self, i: int) -> tuple[object, ...]:
        """The i-th key: versions 1 to 5, which sort in different ways."""
        digest = hashlib.md5(str(i).encode(), usedforsecurity=False).digest()
        return (str(uuid.UUID(bytes=digest, version=1 + i % 5)),)


#: With a collation that MariaDB 10.11 has, too.
CASELESS = replace(
    SUBJECTS[1], columns=SUBJECTS[1].columns.replace("utf8mb4_0900_ai_ci", "utf8mb4_uca1400_ai_ci")
)
UUIDS = Uuids("uuids", "id UUID PRIMARY KEY, v INT, pad VARCHAR(40) COMPRESSED", ("id",))


@pytest.mark.parametrize("subject", [SUBJECTS[0], CASELESS, SUBJECTS[2], UUIDS], ids=lambda s: s.name)
def test_every_batch_is_exact_while_eight_writers_write(mariadb, mariadb_database, subject):
    assert verify_run(mariadb, mariadb_database, subject, chunk_rows=100, min_batches=20) == 0


def test_every_batch_is_exact_with_a_group_commit_delay(mariadb, mariadb_database):
    mariadb.execute(
        "SET GLOBAL binlog_commit_wait_count = 1000", "SET GLOBAL binlog_commit_wait_usec = 200000"
    )
    try:
        assert verify_run(mariadb, mariadb_database, SUBJECTS[0], chunk_rows=200, min_batches=6) == 0
    finally:
        mariadb.execute("SET GLOBAL binlog_commit_wait_count = 0")


def test_every_batch_is_exact_with_row_images_without_duplicates(mariadb, mariadb_database):
    """With few writers: such rows are read some fifty times slower (docs/guarantees)."""
    few = partial(Writers, count=2, pause_s=0.02)
    mariadb.execute("SET GLOBAL binlog_row_image = FULL_NODUP")
    try:
        assert not verify_run(
            mariadb, mariadb_database, SUBJECTS[2], chunk_rows=100, min_batches=20, writers=few
        )
    finally:
        mariadb.execute("SET GLOBAL binlog_row_image = FULL")


def test_every_batch_is_exact_while_a_semi_synchronous_replica_answers_late(mariadb, mariadb_database):
    with SlowReplica(mariadb, 0.05):
        assert verify_run(mariadb, mariadb_database, SUBJECTS[0], chunk_rows=100, min_batches=6) == 0


def test_rows_as_of_a_position_that_is_not_visible_yet_are_right_only_with_the_wait(
    mariadb, mariadb_database
):
    """The test of the test: without the wait the very same split gives other rows."""
    table = f"{mariadb_database}.t"
    mariadb.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)", f"INSERT INTO {table} VALUES (1)")
    options = options_for(mariadb, table)
    (captured,) = registry.source(options).tables()
    with SlowReplica(mariadb, 2.0):
        before = end_of_log(mariadb)
        writer = threading.Thread(target=mariadb.execute, args=(f"INSERT INTO {table} VALUES (2)",))
        writer.start()
        while (logged := end_of_log(mariadb)) == before:
            assert writer.is_alive()
        split = SnapshotSplit(captured.schema, None, None, logged.to_json(), 100)
        found = [
            [row["id"] for batch in read_snapshot(split, session, exact=True) for row in rows_of([batch])]
            for session in (Blind(options), registry.session(options))
        ]
        writer.join()
    assert found == [[1], [1, 2]]


def test_batch_read_twice_with_writes_between_gives_the_same_rows(mariadb, mariadb_database):
    subject = SUBJECTS[0]
    table = f"{mariadb_database}.{subject.name}"
    fill(mariadb, table, subject, ROWS)
    options = options_for(mariadb, table, snapshotChunkRows=150)
    with Engine(options) as engine, Writers(mariadb, table, subject, count=4, keys=2 * ROWS):
        batches = []
        while engine.offset.is_new or engine.offset.tables:
            batch = engine.next()
            if batch is not None:
                batches.append((batch, multiset([b for part in engine.read(*batch) for b in part])))
        for batch, first in batches:
            with Engine(options) as other:
                assert multiset([b for part in other.read(*batch) for b in part]) == first
