"""Ends of chunks that a real MySQL and MariaDB estimate: each row is in one chunk, and none is too large."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tailrace.config.options import parse_options
from tailrace.model.split import Key
from tailrace.sources.mysql.catalog import tables
from tailrace.sources.mysql.connection import connect
from tailrace.sources.mysql.snapshot import chunk_ends, keys
from tailrace.sources.mysql.snapshot.chunk_ends import ChunkEnds
from tests.support.databases import fresh_database

ROWS = 10_000


class Filled:
    """A table with the keys that a SELECT gives, and its chunks."""

    def __init__(
        self,
        server: Any,
        database: str,
        key: str,
        selected: str,
        *,
        without: str = "",
        thousands: int = 80,
    ) -> None:
        self._server = server
        self._name = f"{database}.t"
        server.execute(
            f"CREATE TABLE {database}.digits (d INT PRIMARY KEY)",
            f"INSERT INTO {database}.digits VALUES {', '.join(f'({d})' for d in range(1000))}",
            f"CREATE TABLE {self._name} (id {key} PRIMARY KEY, v CHAR(20) NOT NULL DEFAULT '')",
            f"INSERT INTO {self._name} (id) SELECT {selected} FROM (SELECT 1000 * a.d + b.d AS n "
            f"FROM {database}.digits a, {database}.digits b WHERE a.d < {thousands}) AS numbers",
            *([f"DELETE FROM {self._name} WHERE {without}"] if without else []),
            f"ANALYZE TABLE {self._name}",
        )
        self._options = parse_options(
            {"url": server.url, "user": server.user, "password": server.password, "tables": ".*[.].*"}
        )

    def chunks(self) -> list[tuple[Key | None, Key | None]]:
        """The ranges of all chunks."""
        found: list[tuple[Key | None, Key | None]] = []
        with closing(connect(self._options, purpose="a test")) as connection:
            table = tables(connection, lambda t: t == self._name)[0].schema
            ends, after = ChunkEnds(), None
            while not found or after is not None:
                end = ends.find(connection, table, after, ROWS)
                found.append((after, end))
                after = end
        return found

    def counts(self, chunks: list[tuple[Key | None, Key | None]]) -> list[int]:
        """The rows of each chunk."""
        bounds = [
            " AND ".join(
                [f"id > {after[0]}" if after else "TRUE", f"id <= {end[0]}" if end is not None else "TRUE"]
            )
            for after, end in chunks
        ]
        sums = ", ".join(f"CAST(SUM({bound}) AS SIGNED)" for bound in bounds)
        return list(self._server.execute(f"SELECT {sums} FROM {self._name}")[0])

    def count(self) -> int:
        return int(self._server.execute(f"SELECT COUNT(*) FROM {self._name}")[0][0])


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_ends, "LEAST_ROWS", ROWS)


@pytest.fixture(params=["mysql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def schema(server: Any) -> Iterator[str]:
    with fresh_database(server) as name:
        yield name


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[Key | None]:
    """Where the server has counted rows from."""
    found: list[Key | None] = []
    boundary = keys.boundary

    def counted(connection: Any, table: Any, after: Key | None, rows: int) -> Key | None:
        found.append(after)
        return boundary(connection, table, after, rows)

    monkeypatch.setattr(keys, "boundary", counted)
    return found


def test_even_keys_are_counted_twice_and_at_the_end(
    server: Any, schema: str, scans: list[Key | None]
) -> None:
    table = Filled(server, schema, "BIGINT", "3 * n - 120000")
    chunks = table.chunks()
    counts = table.counts(chunks)
    assert sum(counts) == table.count() == 80_000
    assert 7 <= len(chunks) <= 9
    assert max(counts) <= ROWS + 1
    assert scans[:2] == [None, chunks[1][0]]
    assert len(scans) <= 5  # the first two, and where the table ends


@pytest.mark.parametrize(
    ("selected", "deleted"),
    [
        pytest.param("IF(n < 40000, 1000 * n, 40000000 + n)", "", id="denser"),
        pytest.param("IF(n < 40000, n, 1000 * n)", "", id="sparser"),
        pytest.param("n + 1000000 * (n DIV 17000)", "", id="gaps"),
        pytest.param("n", "id BETWEEN 22000 AND 50000 AND id % 10 <> 0", id="deleted"),
    ],
)
def test_no_chunk_is_much_larger_however_keys_lie(
    server: Any, schema: str, selected: str, deleted: str
) -> None:
    table = Filled(server, schema, "BIGINT UNSIGNED", selected, without=deleted)
    chunks = table.chunks()
    counts = table.counts(chunks)
    assert sum(counts) == table.count()
    assert max(counts) <= 1.7 * ROWS


def test_estimate_where_rows_were_deleted_is_no_measure_for_others(server: Any, schema: str) -> None:
    deleted = "id BETWEEN 10000 AND 60000 AND id % 5 <> 0"
    table = Filled(server, schema, "BIGINT", "n", without=deleted, thousands=300)
    assert max(table.counts(table.chunks())) <= 1.7 * ROWS


@pytest.mark.parametrize("key", ["INT", "INT UNSIGNED", "BIGINT UNSIGNED"])
def test_end_is_a_value_of_the_keys_type(
    mysql: Any, database: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where the estimate says that there are as many rows again."""
    monkeypatch.setattr(chunk_ends, "_is_like", lambda *_: True)
    largest = {"INT": (1 << 31) - 1, "INT UNSIGNED": (1 << 32) - 1, "BIGINT UNSIGNED": (1 << 64) - 1}[key]
    table = Filled(mysql, database, key, f"{largest} - n", without=f"id <= {largest - 75_000}")
    chunks = table.chunks()
    assert sum(table.counts(chunks)) == table.count() == 75_000
    assert all(end is None or end[0] <= largest for _, end in chunks)
