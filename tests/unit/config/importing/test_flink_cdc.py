"""Pipelines of Flink CDC and sources in its SQL become pipelines that load and mean the same."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tailrace.cli import cli
from tailrace.config.importing import flink_cdc, flink_sql
from tailrace.config.importing.draft import Draft
from tailrace.config.importing.flink_sql_functions import unknown_functions
from tailrace.config.kafka import KafkaSettings, ValueEncoding
from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline, TriggerMode
from tailrace.config.options import _in_list
from tailrace.config.sinks import IcebergSettings
from tailrace.errors import ConfigError

SOURCE = {
    "type": "mysql",
    "name": "MySQL Source",
    "hostname": "db.example.com",
    "port": 3306,
    "username": "admin",
    "password": "not-to-be-seen",
    "tables": r"adb.\.*, bdb.user_table_[0-9]+, [ab]pp.order_\.*",
    "server-id": "5401-5404",
    "treat-tinyint1-as-boolean.enabled": False,
}
KAFKA = {"type": "kafka", "name": "Kafka Sink", "properties.bootstrap.servers": "PLAINTEXT://broker:62510"}
KAFKA |= {"partition.strategy": "hash-by-key"}


def imported(source: dict[str, Any] | None = None, **sections: Any) -> tuple[Pipeline, Draft]:
    document = {"source": SOURCE | (source or {}), "sink": {"type": "values"}, **sections}
    return loaded(flink_cdc.draft(yaml.safe_dump(document), "file"))


def loaded(made: Draft) -> tuple[Pipeline, Draft]:
    text = made.text("test")
    assert "not-to-be-seen" not in text
    return parse_pipeline(text), made


def missing(made: Draft) -> set[str]:
    return {note.name for note in made.missing}


def test_source_is_taken_over() -> None:
    pipeline, made = imported(pipeline={"name": "MySQL to Kafka", "parallelism": 4})
    source = pipeline.source
    assert (source.dialect, source.host, source.port, source.user) == (
        "mysql",
        "db.example.com",
        3306,
        "admin",
    )
    assert (source.password.text, source.server_id) == ("${env:DATABASE_PASSWORD}", 5401)
    names = ("adb.x", "adb.y.z", "bdb.user_table_12", "bdb.user_table_x", "app.order_", "adbx", "xadb.t")
    assert [source.captures(name) for name in names] == [True, True, True, False, True, False, False]
    assert (source.starting_position, source.schema_change_behavior) == ("initial", "lenient")
    assert source.on_truncate == "ignore", "lenient does not truncate targets by default"
    assert (pipeline.settings.name, pipeline.settings.parallelism) == ("MySQL_to_Kafka", 4)
    assert missing(made) == set()


def test_source_of_postgresql_is_taken_over() -> None:
    given = {
        "type": "postgres",
        "tables": r"shop.public.\.*,shop.audit.log",
        "slot.name": "flink",
        "server-id": None,
    }
    pipeline, made = imported({**given, "scan.startup.mode": "committed-offset"})
    source = pipeline.source
    assert (source.dialect, source.database, source.slot) == ("postgresql", "shop", "flink")
    assert [source.captures(name) for name in ("public.t", "audit.log", "audit.x")] == [True, True, False]
    assert source.starting_position == "earliest"
    assert missing(made) == set()
    with pytest.raises(ConfigError) as error:
        imported({**given, "tables": "a.b.c,d.e.f"})
    assert error.value.code == "TR-1351"


@pytest.mark.parametrize(
    ("startup", "start"),
    [
        ({"mode": "latest-offset"}, "latest"),
        ({"mode": "earliest-offset"}, "earliest"),
        ({"mode": "snapshot"}, "snapshot"),
        ({"mode": "timestamp", "timestamp-millis": 1667232000000}, "timestamp:1667232000000"),
        ({"mode": "specific-offset", "specific-offset.gtid-set": "a:1-5, b:3"}, "gtid:a:1-5,b:3"),
        (
            {
                "mode": "specific-offset",
                "specific-offset.file": "b.3",
                "specific-offset.pos": 1234,
                "specific-offset.skip-events": 2,
            },
            "file-at-or-before:b.3:1234",
        ),
    ],
)
def test_start_is_that_of_the_source(startup: dict[str, Any], start: str) -> None:
    pipeline, _ = imported({f"scan.startup.{name}": value for name, value in startup.items()})
    assert pipeline.source.starting_position == start


def test_rules_are_taken_over_with_names_of_tables_as_here() -> None:
    pipeline, made = imported(
        transform=[
            {
                "source-table": r"adb.web_order\.*",
                "projection": r"\*, UPPER(name) AS name_upper, CAST(a AS DECIMAL(10, 2)) AS a",
                "filter": "id > 10 AND order_id > 100",
                "primary-keys": "id, order_id",
                "description": "a note",
                "converter-after-transform": "SOFT_DELETE",
            },
            {"source-table": "adb.x", "projection": "id, DATE_FORMAT(t, 'y') AS y", "partition-keys": "y"},
        ],
        route=[
            {"source-table": r"adb.web_order_\.*", "sink-table": "ods.orders"},
            {"source-table": r"adb.\.*", "sink-table": "ods.t_<>", "replace-symbol": "<>"},
        ],
    )
    first = pipeline.transforms[0]
    assert first.source_table == r"adb\.web_order.*"
    assert (first.filter, first.primary_keys) == ("id > 10 AND order_id > 100", ("id", "order_id"))
    assert first.converter_after_transform is not None
    assert [(r.source_table, r.sink_table, r.replace_symbol) for r in pipeline.routes] == [
        (r"adb\.web_order_.*", "ods.orders", None),
        (r"adb\..*", "ods.t_<>", "<>"),
    ]
    assert missing(made) == {
        "transform[1]: DATE_FORMAT()",
        "transform[1].partition-keys",
        "pipeline.route-mode",
    }


def test_functions_that_spark_may_not_have_are_named() -> None:
    found = unknown_functions(
        "UPPER(a) || my.udf(b) || 'TO_DATE(x)' || CAST(c AS VARCHAR(3)) || AI_CHAT (d) IN (1)"
    )
    assert set(found) == {"my.udf", "AI_CHAT"}


def test_kafka_sink_is_taken_over() -> None:
    pipeline, made = imported(
        sink={
            **KAFKA,
            "value.format": "canal-json",
            "topic": "changes",
            "properties.compression.type": "zstd",
            "properties.security.protocol": "SASL_SSL",
            "properties.sasl.jaas.config": 'X required username="u" password="not-to-be-seen";',
            "sink.custom-header": "a:b",
        }
    )
    (sink,) = pipeline.sinks
    assert isinstance(sink, KafkaSettings)
    assert (sink.bootstrap_servers, sink.topic_prefix) == ("broker:62510", "changes")
    assert sink.value_format == ValueEncoding.CANAL_JSON
    assert dict(sink.properties) == {
        "security.protocol": "SASL_SSL",
        "compression.type": "zstd",
        "sasl.username": "u",
        "sasl.password": "${env:KAFKA_PASSWORD}",
    }
    assert missing(made) == {"sink.topic", "sink.sink.custom-header"}


@pytest.mark.parametrize(("kind", "catalog"), [("rest", {"type": "rest", "uri": "http://c"}), ("hadoop", {})])
def test_iceberg_sink_is_taken_over(kind: str, catalog: dict[str, str]) -> None:
    given = {"type": kind, "warehouse": "/lake"} | ({"uri": "http://c"} if catalog else {})
    pipeline, made = imported(
        sink={"type": "iceberg"} | {f"catalog.properties.{k}": v for k, v in given.items()}
    )
    (sink,) = pipeline.sinks
    assert isinstance(sink, IcebergSettings)
    assert (sink.path, dict(sink.catalog)) == ("/lake", catalog)
    assert missing(made) == (set() if catalog else {"sink.catalog.properties.type"})


def test_address_of_a_catalog_with_a_password_is_a_secret() -> None:
    given = {"type": "rest", "warehouse": "/lake", "uri": "http://u:not-to-be-seen@c"}
    pipeline, _ = imported(
        sink={"type": "iceberg"} | {f"catalog.properties.{k}": v for k, v in given.items()}
    )
    (sink,) = pipeline.sinks
    assert isinstance(sink, IcebergSettings)
    assert sink.catalog["uri"] == "${env:CATALOG_URI}"


def test_sink_that_is_not_there_is_named() -> None:
    pipeline, made = imported(sink={"type": "doris", "fenodes": "f:8030", "password": "not-to-be-seen"})
    assert (pipeline.sinks[0].type, missing(made)) == ("console", {"sink.type"})


@pytest.mark.parametrize(
    ("behavior", "lists", "expected"),
    [
        ("evolve", {}, ("evolve", (), (), "apply", "apply")),
        (
            "evolve",
            {"exclude.schema.changes": "[drop.column, truncate.table]"},
            ("evolve", (), ("drop.column",), "ignore", "apply"),
        ),
        ("lenient", {"include.schema.changes": "[column, truncate]"}, None),
        (
            "try_evolve",
            {"include.schema.changes": ["add.column"]},
            ("try_evolve", ("add.column",), (), "ignore", "ignore"),
        ),
        ("evolve", {"include.schema.changes": "[truncate.table]"}, ("ignore", (), (), "apply", "ignore")),
        ("ignore", {"exclude.schema.changes": "[drop.table]"}, ("ignore", (), (), "apply", "ignore")),
        (
            "exception",
            {"exclude.schema.changes": "[truncate.table]"},
            ("exception", (), ("truncate.table",), "apply", "ignore"),
        ),
    ],
)
def test_schema_changes_are_followed_as_there(behavior: str, lists: dict[str, Any], expected: Any) -> None:
    pipeline, _ = imported(sink={**KAFKA, **lists}, pipeline={"schema.change.behavior": behavior})
    source = pipeline.source
    found = (source.schema_change_behavior, source.include_schema_changes, source.exclude_schema_changes)
    if expected is None:
        columns = ("add.column", "drop.column", "rename.column", "alter.column.type")
        expected = ("lenient", columns, (), "apply", "ignore")
    assert (*found, source.on_truncate, source.on_drop_table) == expected


def test_what_is_needless_or_not_there_is_named() -> None:
    pipeline, made = imported(
        {
            "treat-tinyint1-as-boolean.enabled": None,
            "server-time-zone": "UTC",
            "scan.incremental.snapshot.chunk.size": 8096,
            "jdbc.properties.useSSL": "false",
            "debezium.min.row.count.to.stream.results": 1,
            "metadata.list": "op_ts",
            "no.such": "not-to-be-seen",
        },
        pipeline={"execution.runtime-mode": "BATCH", "user-defined-function": "x"},
    )
    assert pipeline.source.tls.mode == "disabled"
    assert pipeline.settings.trigger == TriggerMode.AVAILABLE_NOW
    assert missing(made) == {
        "source.treat-tinyint1-as-boolean.enabled",
        "source.metadata.list",
        "source.no.such",
        "debezium.min.row.count.to.stream.results",
        "pipeline.user-defined-function",
    }
    assert {"source.server-time-zone", "source.scan.incremental.snapshot.chunk.size"} <= {
        n.name for n in made.needless
    }


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("source: 3", "TR-1350"),
        ("a: [", "TR-1002"),
        ("source: {type: oracle}", "TR-1352"),
        ("source: {type: mysql, hostname: h, username: u, tables: a}", "TR-1351"),
        ("source: {type: mysql, hostname: h, username: u, tables: a.b}\nroute: 3", "TR-1350"),
        ("source: {type: mysql, hostname: h, username: u, tables: a.b, port: not-to-be-seen}", "TR-1351"),
    ],
)
def test_what_cannot_be_taken_over_is_an_error(text: str, code: str) -> None:
    with pytest.raises(ConfigError) as error:
        flink_cdc.draft(text, "x")
    assert error.value.code == code
    assert "not-to-be-seen" not in str(error.value)


SQL = """
-- the shop; with a comment
CREATE TABLE orders (
  order_id INT, price DECIMAL(10, 5), `customer name` STRING,
  total AS price * 2,
  db_name STRING METADATA FROM 'database_name' VIRTUAL,
  PRIMARY KEY (order_id) NOT ENFORCED
) WITH (
  'connector' = 'mysql-cdc', 'hostname' = 'db.example.com', 'port' = '3306', 'username' = 'flink',
  'password' = 'not;to-be-seen', 'database-name' = 'shop', 'table-name' = 'orders_.*',
  'treat-tinyint1-as-boolean.enabled' = 'false', 'scan.startup.mode' = 'latest-offset'
);
CREATE TABLE customers (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'mysql-cdc', 'hostname' = 'db.example.com', 'port' = '3306', 'username' = 'flink',
  'password' = 'not;to-be-seen', 'database-name' = 'shop', 'table-name' = 'customers',
  'treat-tinyint1-as-boolean.enabled' = 'false', 'scan.startup.mode' = 'latest-offset'
);
CREATE TABLE target (order_id INT) WITH ('connector' = 'jdbc', 'password' = 'not;to-be-seen');
INSERT INTO target SELECT order_id FROM orders;
"""


def test_sources_in_sql_are_taken_over() -> None:
    made = flink_sql.draft(SQL, "shop")
    text = made.text("test")
    assert "to-be-seen" not in text
    source = parse_pipeline(text).source
    assert [source.captures(name) for name in ("shop.orders_1", "shop.customers", "shop.x")] == [
        True,
        True,
        False,
    ]
    names = ("shop.orders_1.price", "shop.orders_1.customer name", "shop.orders_1.note", "shop.customers.id")
    assert [_in_list(source.column_include_list, [name]) for name in names] == [True, True, False, True]
    assert (source.starting_position, source.user) == ("latest", "flink")
    assert missing(made) == {"orders.db_name", "table target", "INSERT INTO"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT 1", "TR-1350"),
        ("CREATE TABLE t (a INT", "TR-1350"),
        (SQL.replace("db.example.com", "other", 1), "TR-1352"),
        (SQL.replace("'table-name' = 'customers',", ""), "TR-1351"),
    ],
)
def test_sql_that_cannot_be_taken_over_is_an_error(text: str, code: str) -> None:
    with pytest.raises(ConfigError) as error:
        flink_sql.draft(text, "x")
    assert error.value.code == code


@pytest.mark.parametrize("name", ["p.yaml", "p.sql"])
def test_command_reads_both_forms(tmp_path: Any, name: str) -> None:
    file = tmp_path / name
    file.write_text(
        SQL if name.endswith("sql") else yaml.safe_dump({"source": SOURCE, "sink": {"type": "values"}})
    )
    done = CliRunner().invoke(cli, ["import", "flink-cdc", str(file)], catch_exceptions=False)
    assert parse_pipeline(done.stdout).settings.name == "p"
