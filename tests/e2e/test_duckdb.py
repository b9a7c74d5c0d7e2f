"""A pipeline into DuckDB: kills, schema changes, a table read again, verification."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace.config.sinks import DuckDbSettings, WriteMode
from tests.support.pipelines import PipelineProcess
from tests.support.sinks.duckdb import opened

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mode", [WriteMode.UPSERT, WriteMode.CHANGELOG])
def test_tables_equal_their_source_after_kills_and_schema_changes(
    mysql: Any, database: str, tmp_path: Path, mode: WriteMode
) -> None:
    name = f"{database}.t"
    settings = DuckDbSettings(database=f"{tmp_path}/shop.duckdb", mode=mode)
    sink = {"type": "duckdb", "mode": str(mode), "database": settings.database}
    process = PipelineProcess(
        tmp_path, mysql, name, sink=sink, pipeline={"checkpoint": str(tmp_path / "checkpoint")}
    )

    def run(failpoint: str | None = None) -> None:
        code = process.run(failpoint=failpoint)
        assert code == (0 if failpoint is None else -9), process.output()

    def rows(columns: str) -> list[tuple[Any, ...]]:
        held = f'db."{database}".t'
        if mode is WriteMode.CHANGELOG:
            held = (
                f"(SELECT * FROM {held} QUALIFY row_number() OVER (PARTITION BY id ORDER BY _seq DESC) = 1)"
            )
        only = "" if mode is WriteMode.UPSERT else " WHERE _op <> 'd'"
        with opened(settings) as connection:
            return connection.execute(f"SELECT {columns} FROM {held}{only} ORDER BY id").fetchall()

    mysql.execute(
        f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT, old VARCHAR(20), gone INT)",
        f"INSERT INTO {name} VALUES {', '.join(f'({i}, {i}, NULL, 1)' for i in range(300))}",
    )
    run("sink.table")
    run()
    assert rows("id, a") == [(i, i) for i in range(300)]
    mysql.execute(
        f"UPDATE {name} SET a = a + 1000 WHERE id < 50",
        f"ALTER TABLE {name} RENAME COLUMN old TO new",
        f"ALTER TABLE {name} DROP COLUMN gone",
        f"ALTER TABLE {name} MODIFY a BIGINT",
        f"ALTER TABLE {name} ADD COLUMN more INT",
        f"INSERT INTO {name} VALUES (900, {1 << 40}, 'x', 7)",
        f"DELETE FROM {name} WHERE id BETWEEN 100 AND 120",
        f"UPDATE {name} SET id = 901 WHERE id = 200",
    )
    run("sink.table")
    run()
    wanted = [(int(i), int(a)) for i, a in mysql.execute(f"SELECT id, a FROM {name} ORDER BY id")]
    assert rows("id, a") == wanted
    assert process.command("verify") == 0, process.output()
    mysql.execute(f"TRUNCATE TABLE {name}", f"INSERT INTO {name} VALUES (1, 5, 'after', NULL)")
    run("sink.table")
    run()
    assert rows("id, a, new") == [(1, 5, "after")]
    assert process.command("verify") == 0, process.output()
    assert process.command("status") == 0
    mysql.execute(f"INSERT INTO {name} VALUES (2, 6, 'last', NULL)")
    run("sink.committed")
    run()
    assert rows("id, a, new") == [(1, 5, "after"), (2, 6, "last")]
