"""An instance of Canal becomes a pipeline that loads and reads the same tables from the same position."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from tailrace.cli import cli
from tailrace.config.importing import canal
from tailrace.config.importing.draft import Draft
from tailrace.config.kafka import KafkaSettings, ValueEncoding
from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline
from tailrace.errors import ConfigError

INSTANCE = r"""
canal.instance.mysql.slaveId=1234
canal.instance.gtidon=false
canal.instance.master.address=db.example.com:3307
canal.instance.master.journal.name=
canal.instance.master.position=
canal.instance.master.timestamp=
canal.instance.rds.accesskey=
canal.instance.tsdb.enable=true
canal.instance.dbUsername=canal
canal.instance.dbPassword=not-to-be-seen
canal.instance.connectionCharset = UTF-8
canal.instance.filter.regex=shop\\..*,Web\\\\.hits_[0-9]+
canal.instance.filter.black.regex=shop\\.tmp_.*
canal.mq.topic=example
canal.mq.partitionsNum=3
canal.mq.partitionHash=.*\\..*:$pk$
"""
SERVER = """
canal.port = 11111
canal.serverMode = kafka
canal.mq.flatMessage = true
kafka.bootstrap.servers = broker:9092
kafka.acks = all
kafka.compression.type = lz4
canal.instance.filter.query.ddl = true
"""


def imported(more: str = "", server: str | None = SERVER) -> tuple[Pipeline, Draft]:
    made = canal.draft(canal.read(INSTANCE + more, server), "example")
    text = made.text("test")
    assert "not-to-be-seen" not in text
    return parse_pipeline(text), made


def missing(made: Draft) -> set[str]:
    return {note.name for note in made.missing}


def test_instance_is_taken_over() -> None:
    pipeline, made = imported()
    source, (sink,) = pipeline.source, pipeline.sinks
    assert (source.dialect, source.host, source.port) == ("mysql", "db.example.com", 3307)
    assert (source.user, source.password.text, source.server_id) == (
        "canal",
        "${env:DATABASE_PASSWORD}",
        1234,
    )
    names = ("shop.orders", "SHOP.x", "shop.tmp_1", "web.hits_3", "web.hits")
    assert [source.captures(name) for name in names] == [True, True, False, True, False]
    assert source.starting_position == "latest"
    assert isinstance(sink, KafkaSettings)
    assert (sink.value_format, sink.bootstrap_servers) == (ValueEncoding.CANAL_JSON, "broker:9092")
    assert (sink.topic_prefix, sink.topic_partitions) == ("example", 3)
    assert dict(sink.properties) == {"compression.type": "lz4"}
    assert missing(made) == {"canal.mq.topic"}, "one topic for all tables"
    assert {"canal.mq.partitionHash", "canal.instance.tsdb.enable", "kafka.acks"} <= {
        n.name for n in made.needless
    }


@pytest.mark.parametrize(
    ("more", "start"),
    [
        (
            "canal.instance.master.journal.name=b.3\ncanal.instance.master.position=1234",
            "file-at-or-before:b.3:1234",
        ),
        ("canal.instance.master.journal.name=b.3", "file-at-or-before:b.3:4"),
        ("canal.instance.master.timestamp=1764070000000", "timestamp:1764070000000"),
        ("canal.instance.gtidon=true\ncanal.instance.master.gtid=a:1-5, b:1", "gtid:a:1-5,b:1"),
        ("canal.instance.master.gtid=a:1-5", "latest"),
    ],
)
def test_start_is_that_of_the_instance(more: str, start: str) -> None:
    assert imported(more)[0].source.starting_position == start


def test_columns_that_are_named_or_left_out_are_so_in_their_tables_alone() -> None:
    source = imported("canal.instance.filter.field=shop.orders:id/total,shop.t:id")[0].source
    names = ("shop.orders.id", "shop.orders.note", "shop.t.x", "shop.other.x")
    from tailrace.config.options import _in_list

    assert [_in_list(source.column_include_list, [n]) for n in names] == [True, False, False, True]
    source = imported("canal.instance.filter.black.field=shop.orders:note/pin")[0].source
    assert source.column_exclude_list == (r"shop\.orders\.(note|pin)",)
    with pytest.raises(ConfigError) as error:
        imported("canal.instance.filter.field=a.b:c\ncanal.instance.filter.black.field=a.b:d")
    assert error.value.code == "TR-1352"


def test_what_has_no_equivalent_is_named() -> None:
    pipeline, made = imported(
        "canal.instance.standby.address=other:3306\ncanal.instance.rds.accesskey=not-to-be-seen\n"
        "canal.mq.dynamicTopic=.*\\\\..*\ncanal.mq.partitionHash=shop.orders:customer\n"
        "canal.mq.flatMessage=false\ncanal.instance.filter.dml.delete=true\nno.such=1\n"
        "canal.instance.filter.query.ddl=false"
    )
    (sink,) = pipeline.sinks
    assert isinstance(sink, KafkaSettings)
    assert sink.skipped_operations == ("d", "t")
    assert missing(made) == {
        "canal.instance.standby.address",
        "canal.instance.rds.*",
        "canal.mq.dynamicTopic",
        "canal.mq.partitionHash",
        "canal.mq.flatMessage",
        "canal.instance.filter.query.ddl",
        "no.such",
    }


def test_server_without_a_queue_has_no_target_yet() -> None:
    pipeline, made = imported(server="canal.serverMode = tcp")
    assert pipeline.sinks[0].type == "console"
    assert "canal.serverMode" in missing(made)
    assert "sink" in {note.name for note in made.to_set}


def meta(*positions: Any) -> str:
    clients = [{"clientIdentity": {"clientId": 1001}, "cursor": {"postion": one}} for one in positions]
    return json.dumps({"clientDatas": clients, "destination": "example"})


def test_position_of_the_consumer_is_taken_over() -> None:
    made = imported()[1]
    canal.start(made, meta({"gtid": "a:1-5", "included": False, "journalName": "b.7", "position": 5432}))
    assert parse_pipeline(made.text("test")).source.starting_position == "file-at-or-before:b.7:5432"
    for text in (meta(), meta({"journalName": "b.7"}), meta({}, {}), '{"clientDatas": null}', "[]"):
        with pytest.raises(ConfigError) as error:
            canal.start(made, text)
        assert error.value.code in ("TR-1350", "TR-1354")


def test_command_reads_the_instance_and_the_server(tmp_path: Any) -> None:
    files = {
        "instance.properties": INSTANCE,
        "canal.properties": SERVER,
        "meta.dat": meta({"journalName": "b.7", "position": 5}),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    arguments = [
        "import",
        "canal",
        "instance.properties",
        "--server",
        "canal.properties",
        "--position",
        "meta.dat",
    ]
    paths = [str(tmp_path / one) if one in files else one for one in arguments]
    done = CliRunner().invoke(cli, paths, catch_exceptions=False)
    pipeline = parse_pipeline(done.stdout)
    assert pipeline.source.starting_position == "file-at-or-before:b.7:5"
    assert "canal.mq.topic" in done.stderr
