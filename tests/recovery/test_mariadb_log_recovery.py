"""MariaDB's log under faults: a killed server, new files, a barrier that waits."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from tailrace.errors import TransientSourceError
from tailrace.sources.mysql.binlog.visibility import Barrier, barrier_kind, wait_visible
from tailrace.sources.mysql.connection import connect
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.mysql.start.starting import log_end_position
from tailrace_dev.servers import start_mariadb
from tests.recovery.test_failover import SUBJECT, TABLE, Replica
from tests.support.engine import Engine, options_for
from tests.support.logged import end_of_log
from tests.support.replica import SlowReplica
from tests.support.wait import wait_until
from tests.support.workload import fill


def test_stream_goes_on_over_new_files_and_a_killed_server():
    with start_mariadb() as server:
        server.execute("CREATE DATABASE shop")
        fill(server, TABLE, SUBJECT, 200)
        with Engine(options_for(server, TABLE, snapshotChunkRows=50)) as engine:
            sink = Replica(engine)
            sink.until_equal(server)
            for round_ in range(4):
                server.execute(f"UPDATE {TABLE} SET v = v + 1 WHERE c % 4 = {round_}", "FLUSH BINARY LOGS")
                if round_ == 1:
                    server.kill()
                    server.start()
                if round_ == 2:
                    server.restart()
                sink.until_equal(server)
            assert engine.offset.log["epoch"] == 0
        assert len(sink.seqs) == len(set(sink.seqs)) == 200


def test_wait_ends_when_the_position_is_visible_and_not_before(mariadb, mariadb_database):
    mariadb.execute(f"CREATE TABLE {mariadb_database}.t (id INT PRIMARY KEY)")
    options = options_for(mariadb, f"{mariadb_database}.t")
    with SlowReplica(mariadb, 1.0), closing(connect(options, purpose="test")) as connection:
        assert barrier_kind(connection, options) is Barrier.SNAPSHOT
        before = end_of_log(mariadb)
        writer = threading.Thread(
            target=mariadb.execute, args=(f"INSERT INTO {mariadb_database}.t VALUES (1)",)
        )
        writer.start()
        wait_until(lambda: end_of_log(mariadb) != before, 10, "the INSERT in the log")
        logged = end_of_log(mariadb)
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT COUNT(*) FROM {mariadb_database}.t")
            assert cursor.fetchone() == (0,), "logged, and not yet visible"
            with pytest.raises(TransientSourceError, match="not visible yet"):
                wait_visible(connection, options, logged, 0.05)
            wait_visible(connection, options, logged, 10)
            cursor.execute(f"SELECT COUNT(*) FROM {mariadb_database}.t")
            assert cursor.fetchone() == (1,)
        writer.join()


def test_the_head_of_a_new_file_is_visible_at_once(mariadb, mariadb_database):
    mariadb.execute(f"CREATE TABLE {mariadb_database}.t (id INT PRIMARY KEY)", "FLUSH BINARY LOGS")
    options = options_for(mariadb, f"{mariadb_database}.t")
    end = log_end_position(options)
    with closing(connect(options, purpose="test")) as connection:
        wait_visible(connection, options, MySqlPosition(end.file, 4, end.gtids, end.server), 1)
        wait_visible(connection, options, end, 1)
