"""DuckDB: one transaction per batch, one program at a time, names, change logs whose columns change."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.sinks import (
    DuckDbSettings,
    OnIncompatibleType,
    WriteMode,
)
from tailrace.errors import ConfigError, SinkError, StateError, TransientSinkError
from tailrace.failpoints import VARIABLE, InjectedError
from tailrace.model.table import TableId
from tailrace.sinks.duckdb.sink import DuckSink
from tailrace.sinks.route import Router
from tests.support.cells import cell_batch
from tests.support.changes import BIGINT, INT, TEXT, changes, table
from tests.support.sinks.duckdb import opened, rows_of

EVERYTHING = Router([])
SCHEMA = table(("id", INT), ("name", TEXT), key=("id",))
OTHER = table(("id", INT), ("name", TEXT), key=("id",), name="shop.u")


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[DuckDbSettings]:
    yield DuckDbSettings(database=f"{tmp_path}/shop.duckdb")
    assert not list(tmp_path.glob("*.tailrace")), "files of a batch are left"


def row(id_: int, name: str = "x") -> dict[str, Any]:
    return {"id": id_, "name": name}


def write(settings: DuckDbSettings, *batches: Any) -> None:
    with closing(DuckSink(settings, EVERYTHING)) as sink:
        for batch in batches:
            sink.write(batch)


def test_batch_is_there_in_all_tables_or_in_none(
    spark: SparkSession, settings: DuckDbSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [("snapshot", changes(schema, [("r", None, row(1))])) for schema in (SCHEMA, OTHER)]
    batch = cell_batch(spark, 0, parts)
    monkeypatch.setenv(VARIABLE, f"sink.table=raise@{tmp_path / 'failed'}")
    with pytest.raises(InjectedError):
        write(settings, batch)
    monkeypatch.delenv(VARIABLE)
    with opened(settings) as connection:
        found = connection.execute("SELECT count(*) FROM duckdb_tables() WHERE database_name = 'db'")
        assert found.fetchone() == (0,)
    write(settings, batch, batch)
    assert rows_of(settings, "shop.t") == rows_of(settings, "shop.u") == [row(1)]


def test_file_that_another_program_has_open_makes_the_batch_wait(
    spark: SparkSession, settings: DuckDbSettings
) -> None:
    batch = cell_batch(spark, 0, [("snapshot", changes(SCHEMA, [("r", None, row(1))]))])
    write(settings, batch)
    later = cell_batch(spark, 1, [("log", changes(SCHEMA, [("c", None, row(2))], first=10))])
    # within one process DuckDB's lock of a file says nothing
    reader = subprocess.Popen(
        [sys.executable, "-c", _READER, settings.database], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert reader.stdin is not None
    assert reader.stdout is not None
    with reader:
        assert reader.stdout.readline().strip() == b"open"
        with pytest.raises(TransientSinkError, match="is open in another program") as busy:
            write(settings, later)
        assert busy.value.code == "TR-7901"
        reader.stdin.close()
    write(settings, later)
    assert rows_of(settings, "shop.t") == [row(1), row(2)]


_READER = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1], read_only=True)
print("open", flush=True)
sys.stdin.read()
"""


def test_change_log_follows_its_columns_in_old_rows_too(
    spark: SparkSession, settings: DuckDbSettings
) -> None:
    logged = replace(settings, mode=WriteMode.CHANGELOG)
    wide = table(("id", BIGINT), ("name", TEXT), ("more", TEXT), key=("id",))
    first = cell_batch(spark, 0, [("log", changes(SCHEMA, [("u", row(1, "a"), row(1, "b"))]))])
    update = ("u", {**row(1 << 40, "b"), "more": None}, {**row(1 << 40, "c"), "more": "m"})
    second = cell_batch(spark, 1, [("log", changes(wide, [update], first=10))])
    third = cell_batch(spark, 2, [("log", changes(SCHEMA, [("u", row(1, "c"), row(1, "d"))], first=20))])
    write(logged, first, second, second, third)
    found = [(held["id"], held["more"], held["_before"]) for held in rows_of(logged, "shop.t", "_seq")]
    assert found == [
        (1, None, {"id": 1, "name": "a", "more": None}),
        (1 << 40, "m", {"id": 1 << 40, "name": "b", "more": None}),
        (1, None, {"id": 1, "name": "c", "more": None}),
    ]


def test_names_and_tables_that_are_not_the_streams_are_refused(
    spark: SparkSession, settings: DuckDbSettings
) -> None:
    with closing(DuckSink(settings, EVERYTHING)) as sink:
        with pytest.raises(ConfigError, match="would be mixed in one target"):
            sink.claim([TableId("shop", "Orders"), TableId("shop", "orders")])
        with pytest.raises(ConfigError, match="a schema that the sink needs"):
            sink.claim([TableId("_tailrace", "targets")])
    with opened(settings) as connection:
        connection.execute("CREATE SCHEMA db.shop; CREATE TABLE db.shop.t (id INTEGER)")
    batch = cell_batch(spark, 0, [("snapshot", changes(SCHEMA, [("r", None, row(1))]))])
    with pytest.raises(StateError, match="is not this stream's"):
        write(settings, batch)
    assert rows_of(settings, "shop.t") == []


def test_file_that_is_none_of_duckdb_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "shop.duckdb"
    file.write_bytes(b"something else" * 1000)
    batch = cell_batch(spark, 0, [("snapshot", changes(SCHEMA, [("r", None, row(1))]))])
    with pytest.raises(SinkError, match="cannot open") as refused:
        write(DuckDbSettings(database=str(file)), batch)
    assert refused.value.code == "TR-7900"


@pytest.mark.parametrize(
    "given",
    [
        {"mode": WriteMode.SCD2},
        {"on_incompatible_type": OnIncompatibleType.TEXT},
        {"on_incompatible_type": OnIncompatibleType.NEW_COLUMN},
        {"database": "s3://bucket/shop.duckdb"},
        {"parallelism": 0},
    ],
)
def test_settings_that_the_sink_does_not_have_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        DuckDbSettings(**{"database": "/data/shop.duckdb", **given})
