"""Whatever is killed, and wherever, replicas are exact afterwards; whole batches are seen whole."""

from __future__ import annotations

import random
import threading
from contextlib import closing

import pytest

from tests.support.kills import SMALL_CHUNKS, TABLES, fill_tables, run_through, run_with_random_kills
from tests.support.pipelines import PipelineProcess
from tests.support.wait import wait_until

#: (failpoint, who is killed); `sink.task` kills the Python worker, which Spark replaces.
FEW = (("sink.task", "jvm"), ("sink.table", "self"))
KILLS = (
    *FEW,
    ("sink.task", "self"),
    ("sink.committed", "jvm"),
    ("snapshot.batch", "jvm"),
    ("batch.planned", "jvm"),
    ("log.batch", "jvm"),
    ("sink.table", "jvm"),
    ("log.batch", "self"),
    ("sink.committed", "self"),
)
#: target, transaction
TARGETS = [(t, mode) for t in ("mysql", "mariadb", "postgres") for mode in ("parts", "whole-batch")]


class Replica:
    """A pipeline from a database of MySQL into one of the test's servers."""

    def __init__(self, request, directory, kind, transaction, **pipeline) -> None:
        self.source, self.database = request.getfixturevalue("mysql"), request.getfixturevalue("database")
        self.server = request.getfixturevalue(kind)
        self.name = f"{self.database}_replica"
        self._quote = '"' if kind == "postgres" else "`"
        path = "postgres" if kind == "postgres" else self.name
        sink = {
            "type": "postgresql" if kind == "postgres" else "mysql",
            "url": f"{'postgresql' if kind == 'postgres' else 'mysql'}://{self.server.host}:{self.server.port}/{path}",
            "user": self.server.user,
            "password": self.server.password,
            "transaction": transaction,
        }
        if kind == "postgres":
            sink["schema"] = self.name
        self._arguments = (directory, self.source, rf"{self.database}\..*")
        self._keywords = {"sink": sink, **SMALL_CHUNKS}
        self.process = self.with_pipeline(**pipeline)

    def with_pipeline(self, **pipeline) -> PipelineProcess:
        """The same with other settings of the pipeline."""
        self.process = PipelineProcess(*self._arguments, **self._keywords, pipeline=pipeline)
        file = self.process.file
        route = f"\nroute: [{{source-table: '{self.database}\\.(\\w+)', sink-table: '{self.name}.$1'}}]\n"
        file.write_text(file.read_text() + route)
        return self.process

    def rows(self, table, columns="*"):
        sql = f"SELECT {columns} FROM {self._quote}{self.name}{self._quote}.{table}"
        with closing(self.server.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(sql)
            return sorted(tuple(row) for row in cursor.fetchall())

    def source_rows(self, table):
        return sorted(self.source.execute(f"SELECT * FROM `{self.database}`.{table}"))

    def drop(self) -> None:
        word = "SCHEMA" if self._quote == '"' else "DATABASE"
        cascade = " CASCADE" if self._quote == '"' else ""
        self.server.execute(f"DROP {word} IF EXISTS {self._quote}{self.name}{self._quote}{cascade}")


@pytest.fixture
def replica(request, tmp_path):
    kind, transaction = request.param
    found = Replica(request, tmp_path, kind, transaction)
    yield found
    found.drop()


def killed_at(replica, kills) -> None:
    fill_tables(replica.source, replica.database)
    run_through(replica.source, replica.database, replica.process, kills)
    assert_exact(replica)


def assert_exact(replica) -> None:
    for subject in TABLES:
        assert replica.rows(subject.name) == replica.source_rows(subject.name)


@pytest.mark.parametrize("replica", [("postgres", "parts")], indirect=True)
def test_replica_is_exact_after_kills_at_failpoints_of_the_sink(replica) -> None:
    killed_at(replica, FEW)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("replica", TARGETS, indirect=True, ids="-".join)
def test_replica_is_exact_after_kills_at_every_failpoint(replica) -> None:
    killed_at(replica, KILLS)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("replica", TARGETS, indirect=True, ids="-".join)
def test_replica_is_exact_after_fifty_random_kills(replica) -> None:
    fill_tables(replica.source, replica.database)
    run_with_random_kills(replica.source, replica.database, replica.process, 50)
    assert_exact(replica)


class Transfers:
    """Moves amounts between two tables, each time in one transaction: what both hold stays the same."""

    def __init__(self, server, database) -> None:
        self._server, self._database = server, database
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        for name in ("one", "two"):
            rows = ", ".join(f"({i}, 1000)" for i in range(200))
            server.execute(
                f"CREATE TABLE `{database}`.{name} (id INT PRIMARY KEY, v INT NOT NULL)",
                f"INSERT INTO `{database}`.{name} VALUES {rows}",
            )

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        draw = random.Random(1)
        with self._server.connect(autocommit=False, database=self._database) as connection:
            while not self._stopping.wait(0.005):
                with connection.cursor() as cursor:
                    amount = draw.randrange(-50, 50)
                    for name, sign in (("one", 1), ("two", -1)):
                        change = f"UPDATE {name} SET v = v + {sign * amount} WHERE id = {draw.randrange(200)}"
                        cursor.execute(change)
                connection.commit()


WHOLE = [("mysql", "whole-batch"), ("postgres", "whole-batch")]


@pytest.mark.slow
@pytest.mark.parametrize("replica", WHOLE, indirect=True, ids="-".join)
def test_reader_of_whole_batches_never_sees_half_a_transaction(replica) -> None:
    schema = f"{replica._quote}{replica.name}{replica._quote}"
    total = f"SELECT (SELECT SUM(v) FROM {schema}.one), (SELECT SUM(v) FROM {schema}.two)"
    with Transfers(replica.source, replica.database):
        assert replica.process.run() == 0, replica.process.output()
        process = replica.with_pipeline(trigger="interval", **{"interval-ms": 100})
        running = threading.Thread(target=process.run_for, args=(120,), daemon=True)
        running.start()
        seen: set[tuple[int, int]] = set()
        with closing(replica.server.connect()) as connection, closing(connection.cursor()) as cursor:

            def transfers() -> int:
                cursor.execute(total)
                one, two = (int(v) for v in cursor.fetchone())
                assert one + two == 400_000
                seen.add((one, two))
                return len(seen)

            wait_until(lambda: transfers() >= 8, 120, process.output)
        process.kill()
        running.join()
    assert replica.with_pipeline().run() == 0, replica.process.output()
    assert [replica.rows(t) for t in ("one", "two")] == [replica.source_rows(t) for t in ("one", "two")]
