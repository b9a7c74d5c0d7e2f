"""Tables of ClickHouse are compared with their source, and repaired: rows and change logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.errors import StateError
from tailrace.verify.portion import Keys
from tailrace.verify.repair import requested
from tailrace_dev.servers import MySqlServer
from tests.e2e.test_verify import Copy
from tests.support.sinks.clickhouse import target_of


@pytest.mark.parametrize("mode", ["upsert", pytest.param("changelog", marks=pytest.mark.slow)])
def test_tables_are_compared_row_by_row_and_repaired(  # noqa: PLR0917 - fixtures
    request: pytest.FixtureRequest,
    mysql: MySqlServer,
    database: str,
    spark: SparkSession,
    tmp_path: Path,
    mode: str,
) -> None:
    target = target_of(request)
    copy = Copy(
        mysql, database, spark, tmp_path, f"type: clickhouse, url: '{target.settings.url}', mode: {mode}"
    )
    copy.run()
    copy.change()
    copy.run()
    mysql.execute(f"DELETE FROM {database}.wide WHERE part > 5")  # since the batch
    report = copy.verify()
    assert [(t.target, t.source_rows, t.equal) for t in report.targets] == [
        ("small", 2, True),
        ("wide", 389, True),
    ]
    (small,) = copy.verify(pattern=r".*\.small", portion=Keys(2, 9)).targets
    assert (small.source_rows, small.target_rows, small.equal) == (1, 1, True)
    client = target.server.connect()
    client.command("ALTER TABLE default.small UPDATE v = 9 WHERE id = 2 SETTINGS mutations_sync = 2")
    client.command("ALTER TABLE default.wide DELETE WHERE part = 3 SETTINGS mutations_sync = 2")
    small, wide = copy.verify().targets
    assert [(d.key, d.columns) for d in small.differences.shown] == [((2,), ("v",))]
    assert (wide.differences.missing, wide.differences.extra, wide.differences.different) == (1, 0, 0)
    requested(copy.pipeline, copy.verify())
    copy.run()
    assert copy.verify().equal
    left = client.command("SELECT count() FROM system.tables WHERE name LIKE '_tailrace_verify%'")
    assert left == 0
    if mode == "upsert":
        client.command(
            "INSERT INTO _tailrace_state SELECT target, stream, pipeline, begun + 1, done, version + 9"
            " FROM _tailrace_state FINAL WHERE target = 'small'"
        )
        with pytest.raises(StateError, match="`small` is being written") as raised:
            copy.verify(patience_s=0.1)
        assert raised.value.code == "TR-8104"
