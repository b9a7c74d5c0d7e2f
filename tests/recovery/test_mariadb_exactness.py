"""What only MariaDB has, under load: its types, its row images, its semi-synchronous commits."""

from __future__ import annotations

import hashlib
import threading
import uuid
from functools import partial

from tailrace.model.split import SnapshotSplit
from tailrace.reader.snapshot import read_snapshot
from tailrace.sources import registry
from tests.recovery.test_exactness import Blind
from tests.support.databases import global_variable
from tests.support.engine import options_for, rows_of
from tests.support.exactness import BusyTable, wrong_batches
from tests.support.logged import end_of_log
from tests.support.replica import SlowReplica
from tests.support.workload import SUBJECTS, Subject, Writers


def uuid_key(i: int) -> tuple[str]:
    """The i-th key of a type whose log does not say that it is one, and whose order is the server's.

    Versions 1 to 5 sort in different ways.
    """
    digest = hashlib.md5(str(i).encode(), usedforsecurity=False).digest()
    return (str(uuid.UUID(bytes=digest, version=1 + i % 5)),)


UUIDS = Subject("uuids", "id UUID PRIMARY KEY, v INT, pad VARCHAR(40) COMPRESSED", ("id",), uuid_key)


def test_every_batch_is_exact_with_keys_that_only_the_catalog_knows(mariadb, mariadb_database):
    assert wrong_batches(BusyTable(mariadb, mariadb_database, UUIDS)) == 0


def test_every_batch_is_exact_with_row_images_without_duplicates(mariadb, mariadb_database):
    """With few writers: such rows are read some fifty times slower (docs/explanation/guarantees.md)."""
    few = partial(Writers, count=2, pause_s=0.02)
    with global_variable(mariadb, "binlog_row_image", "FULL_NODUP"):
        assert wrong_batches(BusyTable(mariadb, mariadb_database, SUBJECTS[2], few)) == 0


def test_every_batch_is_exact_while_a_semi_synchronous_replica_answers_late(mariadb, mariadb_database):
    with SlowReplica(mariadb, 0.05):
        assert wrong_batches(BusyTable(mariadb, mariadb_database, SUBJECTS[0]), min_batches=6) == 0


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
