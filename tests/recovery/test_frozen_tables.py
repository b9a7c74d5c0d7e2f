"""Tables as of one moment: several connections read ranges of them while others write."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tailrace.config.options import parse_options
from tailrace.errors import TransientSourceError
from tailrace.sources import registry

ROWS, CONNECTIONS = 3000, 3
RANGES = [(None, (900,)), ((900,), (1800,)), ((1800,), (2700,)), ((2700,), None)]


class _Place:
    """A server, with a table `t` (id, v) of ROWS rows."""

    def __init__(self, kind: str, request: pytest.FixtureRequest) -> None:
        self.kind, self.server = kind, request.getfixturevalue(kind)
        fixture = {"mysql": "database", "mariadb": "mariadb_database", "postgres": "postgres_database"}[kind]
        self.database = request.getfixturevalue(fixture)
        self.name = f"{self.database}.t" if kind != "postgres" else "public.t"
        rows = ", ".join(f"({i}, {i})" for i in range(ROWS))
        self.execute(
            f"CREATE TABLE {self.name} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {self.name} VALUES {rows}"
        )

    def execute(self, *statements: str) -> Any:
        return self.server.execute(
            *statements, **({"database": self.database} if self.kind == "postgres" else {})
        )

    def source(self) -> Any:
        server = self.server
        base = f"{server.scheme}://{server.host}:{server.port}"
        url = f"{base}/{self.database}" if self.kind == "postgres" else base
        return registry.source(
            parse_options(
                {
                    "url": url,
                    "user": server.user,
                    "password": server.password,
                    "tables": self.name.replace(".", r"\."),
                    "tlsMode": "disabled",
                }
            )
        )

    def end_readers(self) -> None:
        """End every connection that reads."""
        if self.kind == "postgres":
            self.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                f" WHERE datname = '{self.database}' AND state = 'idle in transaction'"
            )
            return
        threads = self.execute(
            "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_mysql_thread_id <> 0"
        )
        self.execute(*(f"KILL {thread}" for (thread,) in threads))


@pytest.fixture(params=["mysql", "mariadb", "postgres"])
def place(request: pytest.FixtureRequest) -> _Place:
    return _Place(request.param, request)


def rows_of(pages: Any) -> dict[int, int]:
    found: dict[int, int] = {}
    for page in pages:
        for row in page.rows.to_pylist():
            assert row["id"] not in found
            found[row["id"]] = row["v"]
    return found


def test_ranges_are_as_of_the_moment_whoever_reads_and_writes(place: _Place) -> None:
    source = place.source()
    (table,) = (captured.schema for captured in source.tables())
    frozen = source.frozen(CONNECTIONS)
    try:
        place.execute(
            f"UPDATE {place.name} SET v = -1",
            f"DELETE FROM {place.name} WHERE id > 100",
            f"INSERT INTO {place.name} VALUES (9999, 1)",
        )
        together = threading.Barrier(CONNECTIONS, timeout=20)

        def read(number: int) -> dict[int, int]:
            pages = frozen.read_range(table, *RANGES[number], 100)
            first = next(pages)
            if number < CONNECTIONS:
                together.wait()  # each has a connection
            return rows_of([first, *pages])

        with ThreadPoolExecutor(len(RANGES)) as pool:
            parts = list(pool.map(read, range(len(RANGES))))
        assert [len(part) for part in parts] == [901, 900, 900, 299]
        assert {key: value for part in parts for key, value in part.items()} == {i: i for i in range(ROWS)}
        assert len(rows_of(frozen.read_range(table, None, None, 100))) == ROWS
    finally:
        frozen.close()
        source.close()
    place.execute(f"ALTER TABLE {place.name} ADD x INT")  # waits for nobody


def test_a_connection_that_is_lost_is_not_opened_again(place: _Place) -> None:
    source = place.source()
    (table,) = (captured.schema for captured in source.tables())
    frozen = source.frozen(CONNECTIONS)
    try:
        if place.kind != "postgres":  # a transaction is listed once it has read something
            for _ in range(CONNECTIONS):
                assert len(rows_of(frozen.read_range(table, None, (0,), 100))) == 1
        place.end_readers()
        place.execute(f"UPDATE {place.name} SET v = -1")
        for _ in range(CONNECTIONS):
            with pytest.raises(TransientSourceError):
                rows_of(frozen.read_range(table, None, None, 100))
    finally:
        frozen.close()
        source.close()
