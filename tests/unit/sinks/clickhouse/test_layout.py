"""Statements of new tables, and settings that rows would not be exact with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tailrace.config.sinks import ClickHouseEngine, ClickHouseSettings, WriteMode
from tailrace.errors import ConfigError, SinkError
from tailrace.sinks.base import StreamId
from tailrace.sinks.clickhouse.client import ClickHouseClient
from tailrace.sinks.clickhouse.layout import StorageLayout
from tailrace.sinks.clickhouse.target import Target
from tailrace.sinks.replica.dialect import TableName
from tailrace.sinks.replica.target_schema import TargetSchema
from tests.support.changes import INT, TEXT, table

SCHEMA = table(("id", INT), ("name", TEXT), key=("id",))
ROWS = Target(
    "shop.t", TableName("shop", "t"), StreamId("p", "q"), TargetSchema("shop.t", SCHEMA.columns, SCHEMA.key)
)
LOG = replace(ROWS, schema=replace(ROWS.schema, key=()), mode=WriteMode.CHANGELOG)


def test_tables_with_replicas_are_created_on_a_cluster() -> None:
    settings = ClickHouseSettings("http://h", engine=ClickHouseEngine.REPLICATED, cluster="c`1")
    layout = StorageLayout.of(settings, "shop.t")
    assert layout.create_database("shop") == "CREATE DATABASE IF NOT EXISTS `shop` ON CLUSTER `c\\`1`"
    rows = layout.create(ROWS)
    assert rows.startswith("CREATE TABLE IF NOT EXISTS `shop`.`t` ON CLUSTER `c\\`1` (`id` Int64,")
    assert (
        "ENGINE = ReplicatedReplacingMergeTree(_tailrace_version, _tailrace_deleted) ORDER BY (`id`)" in rows
    )
    log = layout.create(LOG)
    assert ") ENGINE = ReplicatedMergeTree ORDER BY (`_seq`)" in log
    # the server's own default forgets blocks after an hour
    assert "replicated_deduplication_window = 10000" in log
    assert "replicated_deduplication_window_seconds = 2592000" in log


def test_settings_of_a_table_are_numbers_or_texts_and_those_given_come_first() -> None:
    given = {"storage_policy": "it's", "fsync_after_insert": "0", "ratio": "0.5"}
    settings = ClickHouseSettings("http://h", mode=WriteMode.CHANGELOG, table_settings=given)
    log = StorageLayout.of(settings, "shop.t").create(LOG)
    assert "fsync_after_insert = 0" in log
    assert "storage_policy = 'it\\'s'" in log
    assert "ratio = 0.5" in log
    assert "non_replicated_deduplication_window = 10000" in log
    assert "allow_nullable_key" not in log


@pytest.mark.parametrize("name", ["async_insert", "insert_deduplication_token", "alter_sync"])
def test_setting_that_the_sink_needs_itself_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot have `{name}`"):
        ClickHouseSettings("http://h", connection_settings={name: "1"})


@pytest.mark.parametrize("key", ["table_settings", "connection_settings"])
def test_name_that_no_setting_has_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="a name that no setting has"):
        ClickHouseSettings("http://h", **{key: {"a = 1, b": "1"}})


def test_mode_that_clickhouse_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="do not support mode scd2"):
        ClickHouseSettings("http://h", mode=WriteMode.SCD2)


@pytest.mark.parametrize("kept", [0, 1])
def test_server_that_keeps_inserts_asynchronous_is_refused(
    monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    class Server:
        def raw_query(self, query: str, settings: dict[str, Any], fmt: str) -> bytes:
            assert settings == {"async_insert": 0}
            assert (query.split(maxsplit=1)[0], fmt) == ("SELECT", "ArrowStream")
            rows = pa.table({"v": pa.array([kept], pa.uint8())})
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows)
            return sink.getvalue().to_pybytes()

    client = ClickHouseClient(ClickHouseSettings("http://h"))
    monkeypatch.setattr(client, "_connected", Server)
    if not kept:
        client.require_synchronous_inserts()
        return
    with pytest.raises(SinkError, match="insert rows asynchronously") as raised:
        client.require_synchronous_inserts()
    assert raised.value.code == "TR-7711"
