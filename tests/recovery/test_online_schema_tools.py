"""Online schema tools: a table is filled beside the one that it then replaces by RENAME."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress

import pymysql
import pytest

from tailrace_dev.servers import debian
from tests.support import percona
from tests.support.engine import Engine, options_for
from tests.support.rereading import Target

ROWS = 60


def test_target_equals_the_table_that_gh_ost_changes_beside_writers(mysql, database):
    """By gh-ost's statements."""
    _create(mysql, database)
    writers = _Writers(mysql, database)
    with Engine(options_for(mysql, rf"{database}\..*", snapshotChunkRows=7)) as engine, writers:
        target = Target(engine, f"{database}.t")
        target.step()
        mysql.execute(
            f"USE `{database}`",
            "CREATE TABLE _t_ghc (id BIGINT AUTO_INCREMENT PRIMARY KEY, hint VARCHAR(64), value TEXT)",
            "CREATE TABLE _t_gho LIKE t",
            "ALTER TABLE _t_gho ADD COLUMN c INT NOT NULL DEFAULT 5, MODIFY a BIGINT",
        )
        for first in range(0, ROWS, 10):
            mysql.execute(
                f"USE `{database}`",
                "INSERT IGNORE INTO _t_gho (id, a, b) SELECT id, a, b FROM t "
                f"WHERE id > {first} AND id <= {first + 10} LOCK IN SHARE MODE",
                f"INSERT INTO _t_ghc (hint, value) VALUES ('copy', '{first}')",
            )
            target.step()
        _cut_over(mysql, database)
        target.step()
        writers.stop()
        target.drain_all()
        target.drain_all()
        target.equals(mysql)
        assert {*engine.offset.tables, *engine.offset.done} == {f"{database}.t"}
        assert target.readings == 1


@pytest.mark.skipif(not debian.available(), reason="percona-toolkit is downloaded as a Debian package")
@pytest.mark.parametrize("product", ["mysql", "mariadb"])
def test_target_equals_the_table_that_percona_s_tool_changes_beside_writers(request, product, tmp_path):
    server = request.getfixturevalue(product)
    database = request.getfixturevalue("database" if product == "mysql" else "mariadb_database")
    _create(server, database)
    writers = _Writers(server, database)
    with Engine(options_for(server, rf"{database}\..*", snapshotChunkRows=7)) as engine, writers:
        target = Target(engine, f"{database}.t")
        target.step()
        with ThreadPoolExecutor() as pool:
            change = "ADD COLUMN c INT NOT NULL DEFAULT 5, MODIFY a BIGINT"
            altering = pool.submit(percona.alter, server, f"{database}.t", change, tmp_path, chunk_size="10")
            while not altering.done():
                if not target.step():
                    wait([altering], timeout=0.05)
            altering.result()
        writers.stop()
        target.drain_all()
        target.drain_all()
        target.equals(server)
        assert {*engine.offset.tables, *engine.offset.done} == {f"{database}.t"}
        assert target.readings == 1


def _cut_over(mysql, database):
    # one session locks the table while the last changes are applied, another waits to rename it
    with mysql.connect() as locker, mysql.connect() as renamer:
        lock, rename = locker.cursor(), renamer.cursor()
        for cursor in (lock, rename):
            cursor.execute(f"USE `{database}`")
        lock.execute(
            "CREATE TABLE _t_del (id INT AUTO_INCREMENT PRIMARY KEY) COMMENT = 'ghost-cut-over-sentry'"
        )
        lock.execute("LOCK TABLES t WRITE, _t_del WRITE, _t_gho WRITE")
        lock.execute("DELETE FROM _t_gho")
        lock.execute("INSERT INTO _t_gho (id, a, b) SELECT id, a, b FROM t")
        waiting = threading.Thread(target=rename.execute, args=("RENAME TABLE t TO _t_del, _t_gho TO t",))
        waiting.start()
        lock.execute("DROP TABLE _t_del")
        lock.execute("UNLOCK TABLES")
        waiting.join()
        lock.execute("DROP TABLE _t_del, _t_ghc")


def _create(mysql, database):
    values = ", ".join(f"({i}, {i * 10}, 'row {i}')" for i in range(1, ROWS + 1))
    mysql.execute(
        f"USE `{database}`",
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(20))",
        f"INSERT INTO t VALUES {values}",
    )


class _Writers:
    """Threads that change rows of `t` until they are stopped."""

    def __init__(self, mysql, database, number=4):
        self._mysql, self._database = mysql, database
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(i,)) for i in range(number)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self, number):
        step = len(self._threads)
        with self._mysql.connect() as connection:
            cursor = connection.cursor()
            cursor.execute(f"USE `{self._database}`")
            turn = number
            while not self._stop.wait(0.005):
                turn += step
                with suppress(pymysql.Error):  # a deadlock, a row that is there
                    cursor.execute(f"UPDATE t SET a = a + 1 WHERE id = {turn % ROWS}")
                    cursor.execute(f"DELETE FROM t WHERE id = {turn * 7 % ROWS}")
                    cursor.execute(f"INSERT INTO t (id, a) VALUES ({turn * 5 % (2 * ROWS)}, {turn})")
                    connection.commit()
