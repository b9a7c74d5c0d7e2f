"""Jobs of SeaTunnel become pipelines that load, read the same tables and write the same targets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from tailrace.cli import cli
from tailrace.config.importing import seatunnel
from tailrace.config.importing.draft import Draft
from tailrace.config.importing.hocon import flat, read_hocon
from tailrace.config.kafka import KafkaSettings, ValueEncoding
from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline, TriggerMode
from tailrace.config.sinks import PostgresSettings
from tailrace.errors import ConfigError
from tailrace.model.table import TableId
from tailrace.sinks.route import Router

JOB = r"""
env {
  # the engine
  job.mode = "STREAMING"
  job.name = "shop job"
  parallelism = 3
  checkpoint.interval = 10000 // ms
}
source {
  MySQL-CDC {
    plugin_output = "raw"
    url = "jdbc:mysql://db.example.com:3307/shop?useSSL=false"
    username = "reader"
    password = "not-to-be-seen"
    table-names = ["shop.orders", "shop.customers"]
    startup.mode = "initial"
    server-id = "6500-8500"
    int_type_narrowing = false
    schema-changes.enabled = true
    snapshot.split.size = 8096
    MORE
  }
}
transform { TRANSFORM }
sink { SINK }
"""


def imported(more: str = "", transform: str = "", sink: str = "Console {}") -> tuple[Pipeline, Draft]:
    text = JOB.replace("MORE", more).replace("TRANSFORM", transform).replace("SINK", sink)
    made = seatunnel.draft(text, "file")
    written = made.text("test")
    assert "not-to-be-seen" not in written
    return parse_pipeline(written), made


def missing(made: Draft) -> set[str]:
    return {note.name for note in made.missing}


def test_source_is_taken_over() -> None:
    pipeline, made = imported()
    source = pipeline.source
    assert (source.dialect, source.host, source.port, source.user) == (
        "mysql",
        "db.example.com",
        3307,
        "reader",
    )
    assert (source.password.text, source.server_id) == ("${env:DATABASE_PASSWORD}", 6500)
    assert source.tables == (r"shop\.orders", r"shop\.customers")
    assert (source.starting_position, source.tls.mode) == ("initial", "disabled")
    assert source.schema_change_behavior == "evolve"
    assert pipeline.settings.name == "shop_job"
    assert missing(made) == set()
    assert {"env.parallelism", "source.MySQL-CDC.snapshot.split.size"} <= {
        note.name for note in made.needless
    }


def test_job_in_json_is_the_same() -> None:
    job = {
        "env": {"job.mode": "BATCH"},
        "source": [
            {
                "plugin_name": "Postgres-CDC",
                "url": "jdbc:postgresql://db.example.com:5432/shop?loggerLevel=OFF",
                "username": "reader",
                "password": "not-to-be-seen",
                "database-names": ["shop"],
                "schema-names": ["public"],
                "table-names": ["shop.public.orders"],
                "slot.name": "seatunnel",
            }
        ],
        "transform": [],
        "sink": [{"plugin_name": "Doris", "fenodes": "f", "password": "not-to-be-seen"}],
    }
    made = seatunnel.draft(json.dumps(job, indent=2), "file")
    text = made.text("test")
    assert "not-to-be-seen" not in text
    pipeline = parse_pipeline(text)
    source = pipeline.source
    assert (source.dialect, source.database, source.slot) == ("postgresql", "shop", "seatunnel")
    assert source.tables == (r"public\.orders",)
    assert source.schema_change_behavior == "ignore", "they are not followed by default there"
    assert pipeline.settings.trigger == TriggerMode.AVAILABLE_NOW
    assert (pipeline.sinks[0].type, missing(made)) == ("console", {"sink.Doris"})


@pytest.mark.parametrize(
    ("startup", "start"),
    [
        ('startup.mode = "latest"', "latest"),
        ('startup.mode = "timestamp"\nstartup.timestamp = 1667232000000', "timestamp:1667232000000"),
        (
            'startup { mode = "specific", specific-offset { file = "b.3", pos = 1234 } }',
            "file-at-or-before:b.3:1234",
        ),
        ('startup.mode = "specific"\nstartup.specific-offset.gtid-set = "a:1-5, b:2"', "gtid:a:1-5,b:2"),
    ],
)
def test_start_is_that_of_the_source(startup: str, start: str) -> None:
    assert imported(startup)[0].source.starting_position == start


@pytest.mark.parametrize(
    ("stop", "end"),
    [
        ('stop.mode = "never"', None),
        ('stop.mode = "latest"', "latest"),
        ('stop.mode = "timestamp"\nstop.timestamp = 1667232000000', "timestamp:1667232000000"),
        ('stop { mode = "specific", specific-offset { file = "b.3", pos = 1234 } }', "file:b.3:1234"),
    ],
)
def test_end_is_that_of_the_source(stop: str, end: str | None) -> None:
    pipeline, made = imported(stop)
    assert pipeline.source.ending_position == end
    assert not made.missing


def test_tables_are_named_by_patterns_and_databases_too() -> None:
    source = imported('table-pattern = "shop\\\\.o.*"')[0].source
    assert [source.captures(name) for name in ("shop.orders", "shop.x")] == [True, False]
    text = JOB.replace('table-names = ["shop.orders", "shop.customers"]', 'database-names = ["a", "b"]')
    made = seatunnel.draft(text.replace("MORE", "").replace("TRANSFORM", "").replace("SINK", ""), "x")
    assert parse_pipeline(made.text("test")).source.tables == (r"a\..*", r"b\..*")


def test_keys_and_kinds_of_rows_are_transforms_of_all_tables() -> None:
    pipeline, made = imported(
        'table-names-config = [{"table": "shop.orders", "primaryKeys": ["id", "n"]}]',
        'FilterRowKind { exclude_kinds = ["DELETE"] } Sql { query = "select 1" }',
    )
    first, second = pipeline.transforms
    assert (first.source_table, first.primary_keys) == (r"shop\.orders", ("id", "n"))
    assert (first.skipped_operations, second.skipped_operations) == (("d",), ("d",))
    assert second.source_table == ".*"
    assert missing(made) == {"transform.Sql"}
    pipeline, _ = imported(transform='FilterRowKind { include_kinds = ["DELETE"] }')
    assert set(pipeline.transforms[0].skipped_operations) == {"c", "u", "r"}


def test_fields_that_are_filtered_are_columns_that_are_left_out() -> None:
    source = imported(transform='Filter { exclude_fields = ["pin", "iban"] }')[0].source
    assert source.column_exclude_list == (r"[^.]+\.[^.]+\.(pin|iban)",)


def test_kafka_sink_is_taken_over() -> None:
    pipeline, made = imported(
        sink="""Kafka {
          topic = "changes"
          bootstrap.servers = "broker:9092"
          format = canal_json
          semantics = EXACTLY_ONCE
          kafka.config = { security.protocol = "SASL_SSL"
            sasl.jaas.config = "X required username=\\"u\\" password=\\"not-to-be-seen\\";" }
        }"""
    )
    (sink,) = pipeline.sinks
    assert isinstance(sink, KafkaSettings)
    assert (sink.topic_prefix, sink.value_format) == ("changes", ValueEncoding.CANAL_JSON)
    assert sink.delivery.value == "exactly-once"
    assert dict(sink.properties) == {
        "security.protocol": "SASL_SSL",
        "sasl.username": "u",
        "sasl.password": "${env:KAFKA_PASSWORD}",
    }
    assert missing(made) == {"sink.Kafka.topic"}


def test_database_sink_is_a_replica() -> None:
    pipeline, made = imported(
        sink="""jdbc {
          url = "jdbc:postgresql://pg:5433/lake"
          driver = "org.postgresql.Driver"
          user = writer
          password = "not-to-be-seen"
          generate_sink_sql = true
          database = lake
          table = "public.${table_name}"
        }"""
    )
    (sink,) = pipeline.sinks
    assert isinstance(sink, PostgresSettings)
    assert (sink.url, sink.user, sink.password.text) == (
        "postgresql://pg:5433/lake",
        "writer",
        "${env:SINK_PASSWORD}",
    )
    assert Router(pipeline.routes).target(TableId("shop", "orders")) == "public.orders"
    assert missing(made) == set()


def test_what_has_no_equivalent_is_named() -> None:
    _, made = imported(
        'int_type_narrowing = true\ndebezium { snapshot.mode = "never" }\nno.such = 1',
        sink='Console {} Kafka { topic = "t" }',
    )
    assert missing(made) == {
        f"source.MySQL-CDC.{name}" for name in ("int_type_narrowing", "debezium.snapshot.mode", "no.such")
    } | {"sink.Kafka"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("source { MySQL-CDC { url = ", "TR-1350"),
        ("source { MySQL-CDC { url = ${URL} } }", "TR-1350"),
        ('include "other"', "TR-1350"),
        ("a += 1", "TR-1350"),
        ('a = "not-to-be-seen', "TR-1350"),
        ("{ a = 1 } b", "TR-1350"),
        ("a = [1", "TR-1350"),
        ("a = " + "[" * 50, "TR-1350"),
        ("source = 3", "TR-1350"),
        ("env = 3, source { MySQL-CDC { a = 1 } }", "TR-1350"),
        ("source { Oracle-CDC { a = 1 } }", "TR-1352"),
        ("", "TR-1352"),
        ('source { MySQL-CDC { url = "not-to-be-seen" } }', "TR-1351"),
    ],
)
def test_what_cannot_be_taken_over_is_an_error(text: str, code: str) -> None:
    with pytest.raises(ConfigError) as error:
        seatunnel.draft(text, "x")
    assert error.value.code == code
    assert "not-to-be-seen" not in str(error.value)


def test_hocon_is_read() -> None:
    text = '''
    a.b = 1, c { d : "x\\ty" } // no
    "e.f" = plain text with spaces # no
    g = [1, "two", {h = 3}]
    i = """raw "\\n" text"""
    c.d = last
    url = "a#b//c"
    '''
    found = flat(read_hocon(text))
    assert found == {
        "a.b": "1",
        "c.d": "last",
        "e.f": "plain text with spaces",
        "g": ["1", "two", [("h", "3")]],
        "i": 'raw "\\n" text',
        "url": "a#b//c",
    }
    assert flat(read_hocon('{"a": {"b": true, "c": [1, 2]}}')) == {"a.b": "true", "a.c": ["1", "2"]}


def test_command_prints_a_file(tmp_path: Any) -> None:
    file = tmp_path / "job.conf"
    file.write_text(JOB.replace("MORE", "").replace("TRANSFORM", "").replace("SINK", "Console {}"))
    done = CliRunner().invoke(cli, ["import", "seatunnel", str(file), "--strict"], catch_exceptions=False)
    assert parse_pipeline(done.stdout).source.host == "db.example.com"
