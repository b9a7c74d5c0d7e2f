"""Writers that keep a table busy, and the tables they write to."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from typing import Any

import pymysql


@dataclass(frozen=True)
class Subject:
    """A kind of table to test with.

    Args:
        name: for test ids.
        columns: the columns' definitions with the key.
        key: names of the key columns.
        values: the i-th key, in the key's order of columns.
    """

    name: str
    columns: str
    key: tuple[str, ...]
    values: Callable[[int], tuple[object, ...]]

    def on(self, server) -> Subject:
        """The same with a collation that the server supports."""
        if server.product != "mariadb":
            return self
        return replace(self, columns=self.columns.replace("utf8mb4_0900_ai_ci", "utf8mb4_uca1400_ai_ci"))


SUBJECTS = (
    Subject("integer", "id INT PRIMARY KEY, v INT, pad VARCHAR(40)", ("id",), lambda i: (i,)),
    Subject(
        "caseless",
        "id VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, v INT, pad VARCHAR(40)",
        ("id",),
        lambda i: (("Ab" if i % 2 else "aB") + "zé"[i % 2] + format(i, "x"),),
    ),
    Subject(
        "composite",
        "a INT, b VARCHAR(20) COLLATE utf8mb4_general_ci, c BIGINT UNSIGNED, v INT, pad VARCHAR(40), "
        "PRIMARY KEY (b, a, c)",
        ("a", "b", "c"),
        lambda i: (i % 13, f"K{i // 13}" if i % 3 else f"k{i // 13}", i),
    ),
)


class Writers:
    """Threads that insert, update, delete and re-key rows at random until `stop()`.

    Args:
        server: a dev server.
        table: the table's name in statements, created with `subject.columns`.
        subject: the table's definition.
        count: threads.
        keys: keys are drawn from 0..keys-1.
        pause_s: pause of each thread after a transaction, in seconds.
    """

    #: What the database's driver raises, and what random writers run into by design: duplicate key,
    #: deadlock, lock wait timeout.
    failure: type[Exception] = pymysql.err.MySQLError
    expected: frozenset[object] = frozenset({1062, 1213, 1205})
    #: How statements begin and end whose new key may be there already.
    insert, unless_there, rekey = "INSERT IGNORE", "", "UPDATE IGNORE"

    def __init__(
        self, server, table: str, subject: Subject, *, count: int = 8, keys: int = 2000, pause_s: float = 0
    ) -> None:
        self._server, self._table, self._subject, self._keys = server, table, subject, keys
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self.errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(seed,), daemon=True) for seed in range(count)
        ]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        assert not self.errors, self.errors

    def _change(self, cursor, draw: random.Random) -> None:
        """The statements of one transaction."""
        names = ", ".join(self._subject.key)
        marks = ", ".join(["%s"] * len(self._subject.key))
        equal = " AND ".join(f"{n} = %s" for n in self._subject.key)
        assign = ", ".join(f"{n} = %s" for n in self._subject.key)
        for _ in range(draw.choice((1, 1, 1, 3, 20))):
            key = self._subject.values(draw.randrange(self._keys))
            dice = draw.random()
            if dice < 0.5:
                cursor.execute(f"UPDATE {self._table} SET v = v + 1 WHERE {equal}", key)
            elif dice < 0.7:
                cursor.execute(
                    f"{self.insert} INTO {self._table} ({names}, v, pad) VALUES ({marks}, %s, %s)"
                    f" {self.unless_there}",
                    (*key, draw.randrange(1000), "x" * draw.randrange(40)),
                )
            elif dice < 0.85:
                cursor.execute(f"DELETE FROM {self._table} WHERE {equal}", key)
            else:
                other = self._subject.values(draw.randrange(self._keys))
                cursor.execute(f"{self.rekey} {self._table} SET {assign} WHERE {equal}", (*other, *key))

    def _connect(self) -> AbstractContextManager[Any]:
        return self._server.connect(autocommit=False)

    def _code(self, error: Exception) -> object:
        """The element of `expected` that fits an error."""
        return error.args[0]

    def _run(self, seed: int) -> None:
        draw = random.Random(seed)
        try:
            with self._connect() as connection, closing(connection.cursor()) as cursor:
                while not self._stopping.wait(self._pause_s):
                    try:
                        self._change(cursor, draw)
                        if draw.random() < 0.05:
                            connection.rollback()
                        else:
                            connection.commit()
                    except self.failure as error:
                        if self._code(error) not in self.expected:
                            raise
                        connection.rollback()
        except BaseException as error:  # noqa: BLE001 - told by stop()
            self.errors.append(error)


def fill(server, table: str, subject: Subject, rows: int) -> None:
    """Create the table with every other key of 0..2 * rows - 1."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {table} ({subject.columns})")
        insert_rows(cursor, table, subject, rows)


def insert_rows(cursor, table: str, subject: Subject, rows: int) -> None:
    """Rows with every other key of 0..2 * rows - 1."""
    marks = ", ".join(["%s"] * (len(subject.key) + 2))
    cursor.executemany(
        f"INSERT INTO {table} ({', '.join(subject.key)}, v, pad) VALUES ({marks})",
        [(*subject.values(2 * i), 0, "pad") for i in range(rows)],
    )
