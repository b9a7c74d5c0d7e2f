"""PostgreSQL tables under load, and what they hold at a position."""

from __future__ import annotations

import random
import threading
from contextlib import closing
from typing import Any

from pg8000.exceptions import DatabaseError

from tailrace.config.options import SourceOptions, parse_options

#: Errors that random writers run into by design: duplicate key, deadlock, serialization failure.
_EXPECTED = {"23505", "40P01", "40001"}


def options_for(server, database: str, tables: str, **given: Any) -> SourceOptions:
    return parse_options(
        {
            "url": f"postgresql://{server.host}:{server.port}/{database}",
            "user": server.user,
            "tables": tables,
            "slotName": f"slot_{database}",
            "publicationName": "tailrace",
            "tlsMode": "disabled",
            **{k: str(v) for k, v in given.items()},
        }
    )


class Subject:
    """A kind of table to test with: `key` columns and values of the i-th key."""

    def __init__(self, name: str, columns: str, key: tuple[str, ...], values) -> None:
        self.name, self.columns, self.key, self.values = name, columns, key, values


SUBJECTS = (
    Subject("numbers", "id int PRIMARY KEY, v int, pad text", ("id",), lambda i: (i,)),
    # text in Arrow, sorted by value: only the server can compare
    Subject(
        "numerics", "id numeric PRIMARY KEY, v int, pad text", ("id",), lambda i: (str(i * i - 900) + ".5",)
    ),
    Subject(
        "composite",
        "a int, b text, c timestamptz, v int, pad text, PRIMARY KEY (b, c, a)",
        ("b", "c", "a"),
        lambda i: (f"K{i // 13}" if i % 3 else f"k{i // 13}", f"2026-01-01 00:00:{i % 13:02}+00", i),
    ),
)


def fill(server, database: str, subject: Subject, rows: int, *, identity: str = "DEFAULT") -> None:
    """Create the table with every other key of 0..2 * rows - 1."""
    with closing(server.connect(database=database)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(f"CREATE TABLE {subject.name} ({subject.columns})")
        cursor.execute(f"ALTER TABLE {subject.name} REPLICA IDENTITY {identity}")
        marks = ", ".join(["%s"] * (len(subject.key) + 2))
        connection.autocommit = False
        cursor.executemany(
            f"INSERT INTO {subject.name} ({', '.join(subject.key)}, v, pad) VALUES ({marks})",
            [(*subject.values(2 * i), 0, "pad") for i in range(rows)],
        )
        connection.commit()


class Writers:
    """Threads that insert, update, delete and re-key rows at random until `stop()`."""

    def __init__(
        self, server, database: str, subject: Subject, *, count: int = 6, keys: int = 2000, pause_s: float = 0
    ) -> None:
        self._server, self._database, self._subject, self._keys = server, database, subject, keys
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(s,), daemon=True) for s in range(count)]

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

    def _run(self, seed: int) -> None:
        try:
            with closing(self._server.connect(database=self._database, autocommit=False)) as connection:
                self._write(connection, random.Random(seed))
        except BaseException as error:  # noqa: BLE001 - told by stop()
            self.errors.append(error)

    def _write(self, connection: Any, draw: random.Random) -> None:
        key, table = self._subject.key, self._subject.name
        marks = ", ".join(["%s"] * len(key))
        equal = " AND ".join(f"{n} = %s" for n in key)
        assign = ", ".join(f"{n} = %s" for n in key)
        cursor = connection.cursor()
        while not self._stopping.wait(self._pause_s):
            try:
                for _ in range(draw.choice((1, 1, 1, 3, 20))):
                    values = self._subject.values(draw.randrange(self._keys))
                    dice = draw.random()
                    if dice < 0.5:
                        cursor.execute(f"UPDATE {table} SET v = v + 1 WHERE {equal}", values)
                    elif dice < 0.7:
                        cursor.execute(
                            f"INSERT INTO {table} ({', '.join(key)}, v, pad) VALUES ({marks}, %s, %s) "
                            "ON CONFLICT DO NOTHING",
                            (*values, draw.randrange(1000), "x" * draw.randrange(40)),
                        )
                    elif dice < 0.85:
                        cursor.execute(f"DELETE FROM {table} WHERE {equal}", values)
                    else:
                        other = self._subject.values(draw.randrange(self._keys))
                        cursor.execute(f"UPDATE {table} SET {assign} WHERE {equal}", (*other, *values))
                if draw.random() < 0.05:
                    connection.rollback()
                else:
                    connection.commit()
            except DatabaseError as error:
                if error.args[0].get("C") not in _EXPECTED:
                    raise
                connection.rollback()
