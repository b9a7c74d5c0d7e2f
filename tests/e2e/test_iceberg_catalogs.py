"""A pipeline into catalogs that are servers: kills, schema changes, verification."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.iceberg_catalogs import CatalogServer
from tests.support.pipelines import PipelineProcess
from tests.support.sinks.iceberg import settings_in
from tests.support.token_gate import token_gate

pytestmark = pytest.mark.slow

TOKEN = "token-of-the-catalog"


@pytest.fixture(params=["rest", "hive", "glue"])
def server(request: pytest.FixtureRequest) -> CatalogServer:
    found: CatalogServer = request.getfixturevalue(f"iceberg_{request.param}")
    return found


@pytest.fixture
def catalog(server: CatalogServer) -> Iterator[dict[str, str]]:
    """The sink's `catalog`; the REST catalog wants a token here."""
    with ExitStack() as stack:
        found = dict(server.properties)
        if server.kind == "rest":
            found["uri"] = stack.enter_context(token_gate(found["uri"], TOKEN))
            found["token"] = "${env:CATALOG_TOKEN}"
        yield found
        server.clear()


def test_tables_equal_their_source_after_kills_and_schema_changes(
    server: CatalogServer, catalog: dict[str, str], mysql: Any, database: str, tmp_path: Path
) -> None:
    name = f"{database}.t"
    process = PipelineProcess(
        tmp_path,
        mysql,
        name,
        sink={
            "type": "iceberg",
            "path": settings_in(server).path,
            "catalog": catalog,
            "optimize-interval": 1,
            "expire-interval": 1,
            "snapshot-retention-hours": 1,
        },
        pipeline={"spark": dict(server.spark)},
        env={**server.environment, "CATALOG_TOKEN": TOKEN},
    )

    def run(failpoint: str | None = None) -> None:
        code = process.run(failpoint=failpoint)
        assert code == (0 if failpoint is None else -9), process.output()

    def rows(*columns: str) -> list[tuple[Any, ...]]:
        with server.opened() as opened:
            held = opened.load_table((database, "t")).scan().to_arrow()
        assert tuple(held.schema.names) == columns
        return sorted(tuple(row.values()) for row in held.to_pylist())

    mysql.execute(
        f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT, old VARCHAR(20), gone INT)",
        f"INSERT INTO {name} VALUES {', '.join(f'({i}, {i}, NULL, 1)' for i in range(300))}",
    )
    run("sink.table")
    run()
    assert len(rows("id", "a", "old", "gone")) == 300
    mysql.execute(
        f"UPDATE {name} SET a = a + 1000 WHERE id < 50",
        f"ALTER TABLE {name} RENAME COLUMN old TO new",
        f"ALTER TABLE {name} DROP COLUMN gone",
        f"ALTER TABLE {name} MODIFY a BIGINT",
        f"ALTER TABLE {name} ADD COLUMN more INT",
        f"INSERT INTO {name} VALUES (900, {1 << 40}, 'x', 7)",
        f"DELETE FROM {name} WHERE id BETWEEN 100 AND 120",
    )
    run("sink.table")
    run()
    wanted = [
        (int(i), int(a), new, None if more is None else int(more))
        for i, a, new, more in mysql.execute(f"SELECT id, a, new, more FROM {name}")
    ]
    assert rows("id", "a", "new", "more") == sorted(wanted)
    assert process.command("verify") == 0, process.output()
    assert process.command("status", "--json") == 0
    assert TOKEN not in process.output()
    assert TOKEN not in json.dumps([path.read_text(errors="replace") for path in files(tmp_path)])


def files(directory: Path) -> Iterator[Path]:
    return (path for path in directory.rglob("*") if path.is_file() and path.suffix != ".parquet")
