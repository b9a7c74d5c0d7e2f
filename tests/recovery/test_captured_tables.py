"""Tables that come into the stream and leave it: created, renamed, revoked; `tables` narrowed and widened."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.enumerator.offset import StreamOffset
from tests.support.engine import Engine, options_for
from tests.support.rereading import Target, read

pytestmark = pytest.mark.usefixtures("_soon")

#: What happens to table `b` while the stream does not capture it.
MEANWHILE = (
    "INSERT INTO {b} VALUES (6, 6)",
    "UPDATE {b} SET v = 20 WHERE id = 2",
    "DELETE FROM {b} WHERE id = 1",
)


class _Stream:
    """A stream whose engine is started anew with other tables, or as another user."""

    def __init__(self, mysql: Any, table: str) -> None:
        self.mysql = mysql
        self.table = table
        self.offset = StreamOffset()
        self.target: Target | None = None

    def run(self, tables: str, *, batches: int | None = None, server: Any = None) -> None:
        """Read some batches, or up to the log's end."""
        options = options_for(server or self.mysql, tables, snapshotChunkRows=2)
        with Engine(options, parallelism=1) as engine:
            engine.offset = StreamOffset.from_json(self.offset.to_json())
            if self.target is None:
                self.target = Target(engine, self.table)
            self.target.engine = engine
            if batches is None:
                self.target.step()  # which finds new tables
                self.target.drain(self.mysql)
            else:
                for _ in range(batches):
                    self.target.step()
            self.offset = engine.offset

    def equals(self) -> None:
        assert self.target is not None
        self.target.equals(self.mysql)


@pytest.fixture
def tables(mysql: Any, database: str) -> dict[str, str]:
    names = {"a": f"{database}.a", "b": f"{database}.b", "d": database}
    for table in "ab":
        mysql.execute(
            f"CREATE TABLE {names[table]} (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO {names[table]} VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)",
        )
    return names


@pytest.mark.parametrize("batches", [None, 1, 3], ids=["followed", "not begun", "in its snapshot"])
def test_table_that_is_taken_out_and_in_again_is_complete(
    mysql: Any, tables: dict[str, str], batches: int | None
) -> None:
    both, one = rf"{tables['d']}\.[ab]", rf"{tables['d']}\.a"
    stream = _Stream(mysql, tables["b"])
    stream.run(both, batches=batches)
    mysql.execute(MEANWHILE[0].format(**tables))
    stream.run(one)
    mysql.execute(*(s.format(**tables) for s in MEANWHILE[1:]), f"INSERT INTO {tables['a']} VALUES (9, 9)")
    stream.run(one)
    stream.run(both)
    stream.equals()


class _User:
    """Another account on a server."""

    def __init__(self, server: Any) -> None:
        self.host, self.port = server.host, server.port
        self.user, self.password = f"u{uuid.uuid4().hex[:8]}", "secret"


@pytest.fixture
def user(mysql: Any, tables: dict[str, str]) -> Iterator[_User]:
    account = _User(mysql)
    mysql.execute(
        f"CREATE USER '{account.user}' IDENTIFIED BY 'secret'",
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT, XA_RECOVER_ADMIN ON *.* TO '{account.user}'",
        f"GRANT SELECT ON {tables['a']} TO '{account.user}'",
        f"GRANT SELECT ON {tables['b']} TO '{account.user}'",
    )
    yield account
    mysql.execute(f"DROP USER '{account.user}'")


@pytest.mark.parametrize("batches", [None, 3], ids=["followed", "in its snapshot"])
def test_table_that_is_revoked_and_granted_again_is_complete(
    mysql: Any, tables: dict[str, str], user: _User, batches: int | None
) -> None:
    both = rf"{tables['d']}\.[ab]"
    stream = _Stream(mysql, tables["b"])
    stream.run(both, batches=batches, server=user)
    mysql.execute(f"REVOKE SELECT ON {tables['b']} FROM '{user.user}'")
    mysql.execute(*(s.format(**tables) for s in MEANWHILE), f"INSERT INTO {tables['a']} VALUES (9, 9)")
    stream.run(both, server=user)
    mysql.execute(f"GRANT SELECT ON {tables['b']} TO '{user.user}'")
    mysql.execute(f"UPDATE {tables['b']} SET v = 30 WHERE id = 3")
    stream.run(both, server=user)
    stream.equals()


def test_table_that_is_renamed_out_and_in_again_is_complete(mysql: Any, tables: dict[str, str]) -> None:
    both, away = rf"{tables['d']}\.[ab]", f"{tables['d']}.away"
    stream = _Stream(mysql, tables["b"])
    stream.run(both)
    mysql.execute(f"RENAME TABLE {tables['b']} TO {away}")
    mysql.execute(*(s.format(b=away) for s in MEANWHILE))
    stream.run(both)
    mysql.execute(f"RENAME TABLE {away} TO {tables['b']}", f"UPDATE {tables['b']} SET v = 7 WHERE id = 3")
    stream.run(both)
    stream.equals()


@pytest.mark.parametrize("when", ["running", "stopped"])
@pytest.mark.parametrize("how", ["created", "renamed in", "created like", "created as select"])
def test_new_table_is_complete(mysql: Any, tables: dict[str, str], when: str, how: str) -> None:
    new = f"{tables['d']}.n"
    pattern = rf"{tables['d']}\.[an]"
    stream = _Stream(mysql, new)
    stream.run(pattern)
    statements = {
        "created": [f"CREATE TABLE {new} (id INT PRIMARY KEY, v INT)"],
        "renamed in": [f"RENAME TABLE {tables['b']} TO {new}"],
        "created like": [f"CREATE TABLE {new} LIKE {tables['b']}"],
        "created as select": [f"CREATE TABLE {new} (PRIMARY KEY (id)) SELECT * FROM {tables['b']}"],
    }[how]
    statements.append(f"INSERT INTO {new} VALUES (10, 10), (11, 11), (12, 12)")
    for statement in statements:
        mysql.execute(statement)
        if when == "running":
            stream.run(pattern)
    mysql.execute(f"UPDATE {new} SET v = 0 WHERE id = 11")
    stream.run(pattern)
    stream.equals()


def test_table_into_which_the_pattern_is_widened_is_complete(mysql: Any, tables: dict[str, str]) -> None:
    stream = _Stream(mysql, tables["b"])
    stream.run(rf"{tables['d']}\.a")
    mysql.execute(*(s.format(**tables) for s in MEANWHILE))
    stream.run(rf"{tables['d']}\.[ab]")
    stream.equals()


def test_staging_table_that_is_truncated_all_the_time_is_right_beside_a_snapshot(
    mysql: Any, tables: dict[str, str]
) -> None:
    rows = ", ".join(f"({i}, {i})" for i in range(10, 400))
    mysql.execute(f"INSERT INTO {tables['b']} VALUES {rows}")
    ended = threading.Event()

    def stage() -> None:
        with mysql.connect() as connection, connection.cursor() as cursor:
            number = 0
            while not ended.wait(0.15):
                number += 1
                cursor.execute(f"TRUNCATE TABLE {tables['a']}")
                cursor.execute(f"INSERT INTO {tables['a']} VALUES (1, {number}), ({number + 1}, 0)")
                cursor.execute(f"UPDATE {tables['a']} SET v = -1 WHERE id = 1")

    writer = threading.Thread(target=stage)
    with Engine(options_for(mysql, rf"{tables['d']}\.[ab]", snapshotChunkRows=20), parallelism=1) as engine:
        targets = [Target(engine, tables["a"]), Target(engine, tables["b"])]

        def step() -> bool:
            batch = engine.next()
            if batch is not None:
                parts = read(engine, batch)
                for target in targets:
                    target.apply(*parts, end=batch[1].to_json())
            return batch is not None

        writer.start()
        try:
            until = time.monotonic() + 6
            while time.monotonic() < until:
                if not step():
                    time.sleep(0.01)
        finally:
            ended.set()
            writer.join()
        engine.plan.hold()
        while step():
            pass
        for target in targets:
            target.equals(mysql)


def test_table_that_the_user_may_not_read_is_never_mixed_with_one_of_the_same_text(
    mysql: Any, tables: dict[str, str], user: _User
) -> None:
    """Database `d` with table `q.t`, and database `d.q` with table `t`: both are `d.q.t`."""
    seen, hidden = f"`{tables['d']}`.`q.t`", f"`{tables['d']}.q`.`t`"
    mysql.execute(f"CREATE DATABASE `{tables['d']}.q`")
    try:
        mysql.execute(
            *(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)" for table in (seen, hidden)),
            f"INSERT INTO {seen} VALUES (1, 1)",
            f"GRANT SELECT ON {seen} TO '{user.user}'",
        )
        stream = _Stream(mysql, f"{tables['d']}.q.t")
        for statements in (
            (),
            (f"INSERT INTO {hidden} VALUES (7, 7)", f"INSERT INTO {seen} VALUES (2, 2)"),
            (f"TRUNCATE {hidden}", f"DROP TABLE {hidden}", f"UPDATE {seen} SET v = 9"),
        ):
            mysql.execute(*statements)
            stream.run(rf"{tables['d']}\.q.*", server=user)
            assert stream.target is not None
            found = sorted((row["id"], row["v"]) for row in stream.target.rows)
            assert found == sorted(tuple(row) for row in mysql.execute(f"SELECT * FROM {seen}"))
    finally:
        mysql.execute(f"DROP DATABASE `{tables['d']}.q`")
