"""PostgreSQL tables under load, and their rows at a position."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from typing import Any

from pg8000.exceptions import DatabaseError

from tailrace.config.options import SourceOptions, parse_options
from tests.support import workload
from tests.support.databases import named_rows
from tests.support.engine import State
from tests.support.workload import Subject, insert_rows


def options_for(server, database: str, tables: str, **given: Any) -> SourceOptions:
    return parse_options(
        {
            "url": f"postgresql://{server.host}:{server.port}/{database}",
            "user": server.user,
            "password": server.password,
            "tables": tables,
            "slotName": f"slot_{database}",
            "publicationName": "tailrace",
            "tlsMode": "disabled",
            "snapshotProtection": "none",
            **{k: str(v) for k, v in given.items()},
        }
    )


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
        connection.autocommit = False
        insert_rows(cursor, subject.name, subject, rows)
        connection.commit()


def now(server, database: str, subject: Subject) -> State:
    """The table's rows."""
    with closing(server.connect(database=database)) as connection, closing(connection.cursor()) as cursor:
        id_ = "id::text, v, pad" if subject.name == "numerics" else "*"
        rows = named_rows(cursor, f"SELECT {id_} FROM {subject.name}")
    return {tuple(row[k] for k in subject.key): row for row in rows}


def apply_partly(state: State, changes: list[tuple[str, Any, Any, str]], key: tuple[str, ...]) -> None:
    """Apply log changes; each must fit the present rows, as far as the log contains old values."""
    for op, before, after, _ in changes:
        if op == "d" or (op == "u" and before is not None):
            found = state.pop(tuple(before[k] for k in key), None)
            assert found is not None, f"{op} of a key that is not there: {before}"
            assert all(found[n] == v for n, v in before.items() if v is not None or n in key)
        elif op == "u":
            assert tuple(after[k] for k in key) in state, f"update of a key that is not there: {after}"
        if op != "d":
            new = tuple(after[k] for k in key)
            assert op == "u" or new not in state, f"create of a key that is there: {after}"
            state[new] = after


class Writers(workload.Writers):
    """The same over a database of PostgreSQL, whose tables are named after their subjects."""

    failure = DatabaseError
    #: Duplicate key, deadlock, serialization failure.
    expected = frozenset({"23505", "40P01", "40001"})
    insert, unless_there, rekey = "INSERT", "ON CONFLICT DO NOTHING", "UPDATE"

    def __init__(self, server, database: str, subject: Subject, *, count: int = 6, **given: Any) -> None:
        super().__init__(server, subject.name, subject, count=count, **given)
        self._database = database

    def _connect(self) -> AbstractContextManager[Any]:
        return closing(self._server.connect(database=self._database, autocommit=False))

    def _code(self, error: Exception) -> object:
        return error.args[0].get("C")
