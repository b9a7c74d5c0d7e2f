"""The locations of targets, and that no two tables share one, with real sinks and batches made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from tailrace.config.kafka import KafkaSettings
from tailrace.config.model import RouteRule, TransformRule
from tailrace.config.sinks import DeltaSettings, IcebergSettings, JsonSettings, WriteMode
from tailrace.errors import ConfigError, SinkError, StateError
from tailrace.model.cell import decode_cell
from tailrace.pipeline.transform import Transformer
from tailrace.sinks.base import Sink, StreamId
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.sinks.files import FileSink
from tailrace.sinks.iceberg.sink import IcebergSink
from tailrace.sinks.kafka.sink import KafkaSink
from tailrace.sinks.route import Router
from tailrace_dev.servers import KafkaServer
from tests.support.cells import cell_batch
from tests.support.changes import INT, TEXT, changes, table

Open = Callable[[Path], Sink]


def delta(path: Path) -> Sink:
    return DeltaSink(DeltaSettings(str(path), merge_interval=0), Router([]))


def json_lines(path: Path) -> Sink:
    return FileSink(JsonSettings(str(path)), Router([]))


def iceberg(path: Path) -> Sink:
    return IcebergSink(IcebergSettings(str(path), WriteMode.CHANGELOG), Router([]))


def write(spark: SparkSession, sink: Sink, number: int, name: str = "shop.a:b", column: str = "v.w") -> None:
    schema = table(("id", INT), (column, TEXT), key=("id",), name=name)
    rows = [("r" if number == 0 else "c", None, {"id": number, column: "x"})]
    cells = [("snapshot" if number == 0 else "log", changes(schema, rows, first=10 * number))]
    sink.write(cell_batch(spark, number, cells))


def read(spark: SparkSession, path: Path) -> set[int]:
    frame = spark.read.format("delta").load(str(path))
    return {row["id"] for row in frame.collect()}


def test_old_delta_target_of_the_stream_keeps_its_path(spark: SparkSession, tmp_path: Path) -> None:
    with closing(delta(tmp_path)) as sink:
        write(spark, sink, 0)
    (tmp_path / "shop.a%3Ab").rename(tmp_path / "shop.a:b")
    with closing(delta(tmp_path)) as sink:
        write(spark, sink, 1)
    assert read(spark, tmp_path / "shop.a:b") == {0, 1}
    assert not (tmp_path / "shop.a%3Ab").exists()


def test_old_file_target_of_the_stream_keeps_its_path(spark: SparkSession, tmp_path: Path) -> None:
    with closing(json_lines(tmp_path)) as sink:
        write(spark, sink, 0)
    (tmp_path / "shop.a%3Ab").rename(tmp_path / "shop.a:b")
    with closing(json_lines(tmp_path)) as sink:
        write(spark, sink, 1)
    assert [p.name for p in tmp_path.iterdir()] == ["shop.a:b"]
    assert len(list(tmp_path.rglob("tailrace_batch=*"))) == 2


def test_old_iceberg_table_of_the_stream_keeps_its_name(spark: SparkSession, tmp_path: Path) -> None:
    with closing(iceberg(tmp_path)) as sink:
        write(spark, sink, 0)
    catalog = load_catalog("tailrace", type="sql", uri=f"sqlite:///{tmp_path}/_tailrace/iceberg.db")
    catalog.rename_table(("shop", "a%3Ab"), ("shop", "a:b"))
    with closing(iceberg(tmp_path)) as sink:
        write(spark, sink, 1)
    assert catalog.list_tables("shop") == [("shop", "a:b")]
    assert len(catalog.load_table(("shop", "a:b")).scan().to_arrow()) == 2
    catalog.close()


def test_target_of_another_stream_at_the_old_path_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    other = tmp_path / "shop.a:b"
    other.mkdir()
    owner = {"v": 1, "stream": "other", "pipeline": "x"}
    (other / "_tailrace.json").write_text(json.dumps(owner))
    with closing(json_lines(tmp_path)) as sink:
        write(spark, sink, 0)
    assert {p.name for p in tmp_path.iterdir()} == {"shop.a:b", "shop.a%3Ab"}
    assert [p.name for p in other.iterdir()] == ["_tailrace.json"]


@pytest.mark.parametrize("sink", [delta, json_lines, iceberg])
def test_names_that_a_file_system_or_catalog_takes_for_one_are_refused(
    spark: SparkSession, tmp_path: Path, sink: Open
) -> None:
    with closing(sink(tmp_path)) as opened:
        write(spark, opened, 0, "shop.a")
    if sink is iceberg:  # as a catalog that folds case would find it
        catalog = load_catalog("tailrace", type="sql", uri=f"sqlite:///{tmp_path}/_tailrace/iceberg.db")
        catalog.rename_table(("shop", "a"), ("shop", "A"))
        catalog.close()
    else:
        (tmp_path / "shop.a").rename(tmp_path / "shop.A")
    with closing(sink(tmp_path)) as opened, pytest.raises(StateError, match=r"`shop\.A` and `shop\.a`"):
        write(spark, opened, 1, "shop.A")


def test_table_that_appears_with_the_name_of_anothers_target_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    route = RouteRule(r"(\w+)\.(\w+)", "$1_$2")
    with closing(FileSink(JsonSettings(str(tmp_path)), Router([route]))) as sink:
        write(spark, sink, 0, "a_b.c")
        with pytest.raises(ConfigError, match=r"`a_b`\.`c` and `a`\.`b_c`"):
            write(spark, sink, 1, "a.b_c")
    assert len(list(tmp_path.rglob("tailrace_batch=*"))) == 1


@pytest.mark.parametrize(
    ("sink", "column"),
    [
        (delta, "_OP"),
        (delta, "_batch"),
        (json_lines, "tailrace_batch"),
        (json_lines, "_before"),
        (iceberg, "_seq"),
    ],
)
def test_column_with_a_name_that_the_target_needs_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, sink: Open, column: str
) -> None:
    with closing(sink(tmp_path)) as opened, pytest.raises(SinkError, match=f"column `{column}` of table"):
        write(spark, opened, 0, "shop.a", column)


def test_transform_takes_names_as_they_are_where_a_session_replaces_variables(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.variable.substitute", "true")
    names = ["${system:user.dir}", "v.w", "b`t", "line\nbreak"]
    schema = table(("id", INT), *((name, TEXT) for name in names), key=("id",), name="shop.${env:HOME}")
    row = {"id": 1, **dict.fromkeys(names, "x")}
    batch = cell_batch(session, 0, [("log", changes(schema, [("c", None, row)]))])
    (cell,) = Transformer([TransformRule(".*", filter="id > 0")], [])(batch.frame).collect()
    made = decode_cell(bytes(cell["cell"]))
    assert made.image("after").to_pylist() == [row]


def test_second_pipeline_with_a_topic_prefix_is_refused_at_its_first_start(
    spark: SparkSession, kafka: KafkaServer
) -> None:
    def run(pipeline: str, stream: str, prefix: str) -> None:
        settings = KafkaSettings(kafka.bootstrap, prefix, parallelism=1)
        schema = table(("id", INT), key=("id",))
        cells: list[Any] = [("log", changes(schema, [("c", None, {"id": 1})]))]
        with closing(KafkaSink(settings, Router([]), "mysql")) as sink:
            sink.write(cell_batch(spark, 0, cells, StreamId(pipeline, stream)))

    run("first", "s1", "same-prefix")
    with pytest.raises(StateError, match="another pipeline writes to topics with prefix `same-prefix`"):
        run("second", "s2", "same-prefix")
    run("second", "s2", "own-prefix")
    run("first", "s1", "same-prefix")
