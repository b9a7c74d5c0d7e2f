"""Tables of MySQL and MariaDB without a key: their rows are as of one position, equal ones counted."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Any

import pymysql
import pytest

from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import SourceError
from tailrace.sources import registry
from tailrace.sources.mysql.binlog import keyless
from tests.support.databases import group_commit_delay
from tests.support.engine import Engine, changes_of, multiset, options_for, rows_of, whole_log

VALUES = 5


def rows(changes: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    assert min(changes.values(), default=0) >= 0, "a row is gone that was not there"
    return +changes


def counted(found: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter((row["v"], row["pad"]) for row in found)


def sum_of(log: list[tuple[str, Any, Any, str]]) -> Counter[tuple[Any, ...]]:
    """What changes add to a table; not a row may become fewer than none."""
    held: Counter[tuple[Any, ...]] = Counter()
    for _, before, after, _ in log:
        held.subtract(counted([] if before is None else [before]))
        held.update(counted([] if after is None else [after]))
    return held


class Keyless:
    """A table `t` without a key, with many equal rows."""

    def __init__(self, server: Any, database: str) -> None:
        self.server, self.name = server, f"{database}.t"
        self.server.execute(f"CREATE TABLE {self.name} (v INT, pad TEXT)")
        #: Where the log has none of its rows yet.
        with closing(registry.source(self.options())) as source:
            self.begin = source.log_end().to_json()
        values = ", ".join(f"({i % VALUES}, REPEAT('x', {i % 3}))" for i in range(200))
        self.server.execute(f"INSERT INTO {self.name} VALUES {values}")

    def options(self, **given: Any) -> Any:
        return options_for(self.server, self.name, **given)

    def now(self) -> Counter[tuple[Any, ...]]:
        return Counter(self.server.execute(f"SELECT v, pad FROM {self.name}"))

    def at(self, offset: StreamOffset) -> Counter[tuple[Any, ...]]:
        """The rows at an offset, by the log since the table was created."""
        assert offset.log is not None
        return rows(sum_of(whole_log(self.options(), self.begin, dict(offset.log))))

    @contextmanager
    def writers(self, count: int, pause_s: float) -> Iterator[None]:
        stop = threading.Event()

        def write(seed: int) -> None:
            numbers = random.Random(seed)
            with closing(self.server.connect()) as connection, connection.cursor() as cursor:
                while not stop.wait(pause_s * numbers.random()):
                    v = numbers.randrange(VALUES)
                    with suppress(pymysql.err.OperationalError):  # a deadlock
                        cursor.execute(
                            numbers.choice(
                                [
                                    f"INSERT INTO {self.name} VALUES ({v}, 'new'), ({v}, 'new')",
                                    f"DELETE FROM {self.name} WHERE v = {v} LIMIT 1",
                                    f"UPDATE {self.name} SET v = (v + 1) % {VALUES}, pad = '' LIMIT 2",
                                ]
                            )
                        )
                        connection.commit()

        threads = [threading.Thread(target=write, args=(seed,)) for seed in range(count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()


@pytest.fixture(params=["mysql", "mariadb"])
def table(request: pytest.FixtureRequest) -> Keyless:
    name = {"mysql": "database", "mariadb": "mariadb_database"}[request.param]
    return Keyless(request.getfixturevalue(request.param), request.getfixturevalue(name))


def test_rows_are_as_of_the_batch_and_come_again_as_they_were(table: Keyless) -> None:
    with table.writers(8, 0.04), Engine(table.options()) as engine:
        first = engine.next()
        assert first is not None
        snapshot, log = engine.read(*first)
        assert counted(rows_of(snapshot)) == table.at(first[1])
        assert not log
        with Engine(table.options()) as other:  # a replay, later
            again, _ = other.read(*first)
        assert multiset(again) == multiset(snapshot)
        held = counted(rows_of(snapshot))
        for _ in range(5):
            while (batch := engine.next()) is None:
                time.sleep(0.02)
            read, log = engine.read(*batch)
            assert not read
            held.update(sum_of(changes_of(log)))
            assert rows(held) == table.at(batch[1])
    with Engine(table.options()) as engine:
        engine.offset = batch[1]
        deadline = time.monotonic() + 60
        while rows(held) != table.now():
            assert time.monotonic() < deadline
            if (found := engine.next()) is not None:
                held.update(sum_of(changes_of(engine.read(*found)[1])))


def committing(table: Keyless) -> threading.Thread:
    """A transaction that is in the log for a while before it is visible."""
    found = threading.Thread(target=table.server.execute, args=(f"INSERT INTO {table.name} VALUES (1, 'x')",))
    found.start()
    time.sleep(0.25)
    return found


@pytest.mark.parametrize("is_checked", [True, False])
def test_rows_are_right_while_a_transaction_is_being_committed_and_only_with_the_check(
    mysql: Any, database: str, monkeypatch: pytest.MonkeyPatch, is_checked: bool
) -> None:
    """The test of the test: without the check the very same batch gives other rows, or an error."""
    table = Keyless(mysql, database)
    if not is_checked:
        monkeypatch.setattr(keyless, "_TOUCHES", 0)
    with Engine(table.options()) as engine:
        batch = engine.next()
        assert batch is not None
        expected = table.at(batch[1])
        with group_commit_delay(mysql, 900_000):
            writer = committing(table)
            try:
                with nullcontext() if is_checked else suppress(SourceError):
                    found = counted(rows_of(engine.read(*batch)[0]))
                    assert (found == expected) == is_checked
            finally:
                writer.join()


def test_table_that_is_written_to_all_the_time_is_an_error_that_names_the_remedy(
    mysql: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Keyless(mysql, database)
    monkeypatch.setattr(keyless, "TRIES_S", 0.3)
    with Engine(table.options()) as engine:
        batch = engine.next()
        assert batch is not None
        with group_commit_delay(mysql, 900_000):
            writer = committing(table)
            try:
                with pytest.raises(SourceError, match="cannot be read exactly") as error:
                    engine.read(*batch)
            finally:
                writer.join()
        assert error.value.code == "TR-5001"
        assert not error.value.retryable
        assert rows_of(engine.read(*batch)[0])  # once it is not
        mysql.execute((error.value.hint or "").partition(";")[0])


def test_table_that_is_no_longer_consistent_is_an_error(mysql: Any, database: str) -> None:
    table = Keyless(mysql, database)
    with Engine(table.options()) as engine:
        batch = engine.next()
        assert batch is not None
        mysql.execute(f"ALTER TABLE {table.name} ENGINE = MyISAM")
        with pytest.raises(SourceError, match=r"MyISAM|cannot be read exactly") as error:
            engine.read(*batch)
        assert error.value.code == "TR-5001"


def test_rows_are_read_without_gtids_by_the_status_of_the_log(
    mysql: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a server without GTIDs, which the task takes this one for."""
    table = Keyless(mysql, database)
    visible = keyless.KeylessRead._visible
    monkeypatch.setattr(
        keyless.KeylessRead, "_visible", lambda self, *, by_gtid: visible(self, by_gtid=False)
    )
    with table.writers(4, 0.04), Engine(table.options()) as engine:
        batch = engine.next()
        assert batch is not None
        assert counted(rows_of(engine.read(*batch)[0])) == table.at(batch[1])


def test_all_rows_deleted_before_they_are_read_are_reconstructed(table: Keyless) -> None:
    with Engine(table.options()) as engine:
        batch = engine.next()
        assert batch is not None
        expected = table.now()
        table.server.execute(f"DELETE FROM {table.name}")
        assert counted(rows_of(engine.read(*batch)[0])) == expected
