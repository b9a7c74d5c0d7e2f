"""A table of MySQL without a key in a change log, and what a target that holds rows says to it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.e2e.test_parking import Running, mysql_source
from tests.support.pipelines import delta_rows


def test_changes_of_a_table_without_a_key_add_up_to_it(
    spark: SparkSession, mysql: Any, database: str, tmp_path: Path
) -> None:
    table, keyed = f"{database}.t", f"{database}.u"
    mysql.execute(
        f"CREATE TABLE {table} (v INT, w TEXT)",
        f"INSERT INTO {table} VALUES (1, 'a'), (1, 'a'), (1, 'a'), (2, NULL), (3, '')",
        f"CREATE TABLE {keyed} (id INT PRIMARY KEY)",
    )
    sink = {"type": "delta", "path": str(tmp_path / "log"), "mode": "changelog"}
    log = Running(spark, tmp_path / "one", source=mysql_source(mysql, rf"{database}[.].*"), sink=sink)
    rows = Running(spark, tmp_path / "two", source=mysql_source(mysql, rf"{database}[.].*"))
    assert log.run() is None
    assert rows.run() is not None
    reason = rows.parked[table].reason
    assert reason.code == "TR-5001"
    mysql.execute(
        f"DELETE FROM {table} WHERE v = 1 LIMIT 1",
        f"UPDATE {table} SET w = 'b' WHERE v = 1 LIMIT 1",
        f"INSERT INTO {table} VALUES (2, NULL)",
    )
    assert log.run() is None
    held: Counter[tuple[Any, ...]] = Counter()
    for change in delta_rows(spark, tmp_path / "log" / table):
        if change["_op"] == "d":
            held[change["v"], change["w"]] -= 1
            continue
        held[change["v"], change["w"]] += 1
        if change["_op"] == "u":
            held[change["_before"]["v"], change["_before"]["w"]] -= 1
    assert +held == Counter(mysql.execute(f"SELECT v, w FROM {table}"))
    assert min(held.values()) >= 0
