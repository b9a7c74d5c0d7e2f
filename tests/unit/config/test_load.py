"""Pipeline files: what is read, and how errors name their place."""

from __future__ import annotations

import re

import pytest

from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline, TriggerMode
from tailrace.config.sinks import DeltaSettings, WriteMode
from tailrace.errors import ConfigError

FILE = """
source:
  type: mysql
  hostname: db.example.org
  port: 3307
  username: reader
  password: ${env:DB_PASSWORD}
  tables: [shop.orders, 'app_\\d+\\.items']
  snapshot-chunk-rows: 5000
  maxBytesPerTrigger: 16m
sink: {type: delta, path: /lake, mode: changelog}
route:
  - {source-table: 'app_(\\d+)\\.items', sink-table: items_$1}
pipeline: {name: shop, trigger: interval, interval-ms: 500, spark: {spark.driver.memory: 2g}}
"""


def changed(old: str, new: str) -> str:
    assert old in FILE
    return FILE.replace(old, new)


def test_file_is_read_into_typed_settings() -> None:
    pipeline = parse_pipeline(FILE)
    assert (pipeline.source.host, pipeline.source.port, pipeline.source.user) == (
        "db.example.org",
        3307,
        "reader",
    )
    assert pipeline.source.tables == ("shop.orders", r"app_\d+\.items")
    assert (pipeline.source.snapshot_chunk_rows, pipeline.source.max_bytes_per_trigger) == (5000, 16 << 20)
    assert pipeline.source.shape == "cells"
    assert pipeline.sinks == (DeltaSettings("/lake", WriteMode.CHANGELOG),)
    assert pipeline.settings.trigger is TriggerMode.INTERVAL
    assert pipeline.settings.spark == {"spark.driver.memory": "2g"}


def test_lists_of_what_is_left_out_may_be_lists() -> None:
    given = changed(
        "  maxBytesPerTrigger: 16m",
        "  table.exclude.list: shop.audit\n  column.exclude.list: ['.*[.]t[.]a', '.*[.]t[.]b{1,2}']",
    )
    source = parse_pipeline(given).source
    assert source.table_exclude_list == ("shop.audit",)
    assert source.column_exclude_list == (".*[.]t[.]a", ".*[.]t[.]b{1,2}")


def test_rows_that_are_read_first_are_named_by_statements() -> None:
    name = "snapshot.select.statement.overrides"
    lines = [f"  {name}: [shop.orders]", f"  {name}.shop.orders: SELECT * FROM shop.orders WHERE id > 7"]
    source = parse_pipeline(changed("  maxBytesPerTrigger: 16m", "\n".join(lines))).source
    assert source.first_rows_of("shop.orders") == "id > 7"
    with pytest.raises(ConfigError, match="cannot be taken") as error:
        parse_pipeline(changed("  maxBytesPerTrigger: 16m", lines[0]))
    assert error.value.code == "TR-1018"


def test_checkpoint_lies_below_the_sink_path_by_default() -> None:
    assert parse_pipeline(FILE).checkpoint == "/lake/_tailrace/checkpoint"


def test_one_stream_may_go_to_several_sinks() -> None:
    several = "sink: [{type: console}, {type: delta, path: /lake}, {type: parquet, path: /log/}]"
    pipeline = parse_pipeline(changed("sink: {type: delta, path: /lake, mode: changelog}", several))
    assert [s.type for s in pipeline.sinks] == ["console", "delta", "parquet"]
    assert pipeline.checkpoint == "/lake/_tailrace/checkpoint"


def test_transform_is_read_into_typed_rules() -> None:
    rules = """
transform:
  - source-table: shop\\.orders
    projection: \\*, 1 AS one
    primary-keys: id, one
    mask-hash: [email]
    mask-salt: ${env:SALT}
    truncate: {note: 10}
    skipped-operations: d
    converter-after-transform: SOFT_DELETE
route:"""
    (rule,) = parse_pipeline(changed("\nroute:", rules)).transforms
    assert (rule.primary_keys, rule.mask_hash, rule.truncate) == (("id", "one"), ("email",), {"note": "10"})
    assert rule.skipped_operations == ("d",)
    assert "SALT" not in repr(rule)


def test_name_is_the_files_by_default() -> None:
    assert parse_pipeline(changed("name: shop, ", ""), "orders").settings.name == "orders"


def test_secret_stays_a_reference_and_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "geheim")
    pipeline = parse_pipeline(FILE)
    assert pipeline.source_options["password"] == "${env:DB_PASSWORD}"
    assert "DB_PASSWORD" not in repr(pipeline)
    assert "geheim" not in repr(pipeline)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("path: /lake", "pathh: /lake", "unknown key `sink.pathh`"),
        ("hostname:", "hostnam:", "unknown key `source.hostnam`"),
        ("  type: mysql", "  shape: row", "unknown key in `source` at line 3, column 3"),
        ("sink-table:", "sink-tabel:", r"unknown key `route\[0\].sink-tabel`"),
        ("\npipeline:", "\npipelines:", "unknown key `pipelines`"),
        ("name: shop", "parallelism: two", "expected `int`, got `str` at `pipeline.parallelism`"),
        ("name: shop", "parallelism: true", "expected `int`, got `bool` at `pipeline.parallelism`"),
        ("name: shop", "parallelism: 0", "`pipeline.parallelism` must be > 0"),
        ("port: 3307", "port: x", "expected `int`, got `str` at `source.port`"),
        ("path: /lake, ", "", "`sink.path` is missing"),
        ("sink: {type: delta, path: /lake, mode: changelog}", "sink: []", "`sink` is an empty list"),
        (
            "sink: {type: delta, path: /lake, mode: changelog}",
            "sink: [{type: delta, path: /a}, {type: json, path: /a/}]",
            "two sinks have the path `/a`",
        ),
        (
            "\nroute:",
            "\ntransform: [{source-table: x, mask-hash: a}]\nroute:",
            r"`transform\[0\].mask-salt` is missing",
        ),
        (
            "\nroute:",
            "\ntransform: [{source-table: x, skipped-operations: x}]\nroute:",
            r"unknown value `x` at `transform\[0\].skipped-operations`",
        ),
        ("path: /lake", "path: [a]", "expected `str`, got `array` at `sink.path`"),
        ("type: delta", "type: detla", "unknown value `detla` at `sink.type`"),
        ("mode: changelog", "mode: merge", "unknown value `merge` at `sink.mode`"),
        ("trigger: interval, ", "", "`pipeline.interval-ms` has no effect"),
        ("  username: reader\n", "", "`source.user` is missing"),
        ("hostname: db", "url: mysql://x\n  hostname: db", "`source.url` and `source.hostname` are the same"),
        (
            "snapshot-chunk-rows: 5000",
            "snapshot-chunk-rows: -1",
            "source option `snapshotChunkRows` is wrong",
        ),
        ("'app_(\\d+)\\.items'", "'app_(\\d+'", r"`route\[0\].source-table` is not a regular expression"),
        ("sink: {", "sink: [", "not YAML at line 11"),
        ("sink: {", "sink: \0{", "the pipeline file is not YAML"),
        ("name: shop", "log: {}", "unknown key in `pipeline` at line 14"),
    ],
)
def test_wrong_file_names_the_place(old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_pipeline(changed(old, new))


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("path: /lake", "pathh: /lake", "did you mean `path`?"),
        ("hostname:", "hostnam:", "did you mean `hostname`?"),
        ("snapshot-chunk-rows:", "snapshotChunkRow:", "did you mean `snapshot-chunk-rows`?"),
        ("type: delta", "type: detla", "did you mean `delta`?"),
        ("mode: changelog", "mode: upserts", "did you mean `upsert`?"),
    ],
)
def test_wrong_file_says_what_may_be_meant(old: str, new: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_pipeline(changed(old, new))
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ("{type: delta, path: /l, mode: changelog, merge-interval: 5}", "`sink.merge-interval` must be >= 0"),
        ("{type: delta, path: /l, merge-interval: -1}", "`sink.merge-interval` must be >= 0"),
        ("{type: delta, path: /l, optimize-interval: 0}", "`sink.optimize-interval` must be > 0"),
        ("{type: delta, path: /l, vacuum-retention-hours: 0}", "`sink.vacuum-retention-hours` must be > 0"),
        ("{type: iceberg, path: /l, mode: scd2}", "Iceberg sinks do not support mode scd2 at `sink.mode`"),
    ],
)
def test_setting_of_a_lake_sink_that_makes_no_sense_is_refused(sink: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_pipeline(changed("{type: delta, path: /lake, mode: changelog}", sink))


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("{type: delta, path: /l, optimize-interval: 0}", "`sink[1].optimize-interval` must be > 0"),
        ("{type: delta, path: /l, merge-interval: -1}", "`sink[1].merge-interval` must be >= 0"),
        ("{type: iceberg, path: /l, mode: scd2}", "mode scd2 at `sink[1].mode`"),
        ("{type: mysql, url: 'x://h', user: u}", "`sink[1].url` is wrong"),
        ("{type: json, path: 's3://u:p@b/l'}", "`sink[1].path` holds a user or password"),
        (
            "{type: kafka, bootstrap-servers: h, topic-prefix: p, time-precision-mode: adaptive}",
            "unknown value `adaptive` at `sink[1].time-precision-mode`",
        ),
    ],
)
def test_wrong_setting_of_one_of_several_sinks_is_named_by_its_path(second: str, message: str) -> None:
    sinks = "[{type: json, path: /j}, " + second + "]"
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_pipeline(changed("{type: delta, path: /lake, mode: changelog}", sinks))


def test_settings_of_a_sink_validate_themselves() -> None:
    with pytest.raises(ConfigError, match=r"`sink\.parallelism` must be > 0"):
        DeltaSettings("/l", parallelism=0)


def test_merges_and_maintenance_of_delta_are_set() -> None:
    text = "{type: delta, path: /l, mode: scd2, merge-interval: 30, optimize-interval: 3600}"
    (sink,) = parse_pipeline(changed("{type: delta, path: /lake, mode: changelog}", text)).sinks
    assert sink == DeltaSettings("/l", WriteMode.SCD2, merge_interval=30, optimize_interval=3600)


def test_console_sink_needs_a_checkpoint() -> None:
    with pytest.raises(ConfigError, match=r"`pipeline\.checkpoint` is missing"):
        parse_pipeline(changed("{type: delta, path: /lake, mode: changelog}", "{type: console}"))


def test_key_in_both_spellings_is_refused() -> None:
    with pytest.raises(ConfigError, match="given twice"):
        parse_pipeline(changed("name: shop", "name: shop, intervalMs: 3"))


_KAFKA = "sink: {type: kafka, bootstrap-servers: 'h:1', topic-prefix: p, %s}"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("skipped-operations: x", "unknown value `x` at `sink.skipped-operations`"),
        ("skipped-operations: 'c,none'", "unknown value `none` at `sink.skipped-operations`"),
        (
            "skipped-operations: none, value-format: canal-json",
            "must have `t` with `value-format: canal-json`",
        ),
    ],
)
def test_skipped_operations_are_debeziums(given: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_pipeline(_with_kafka(given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("add-fields: op", "`sink.add-fields` has no meaning here"),
        ("add-fields-prefix: x", "`sink.add-fields-prefix` has no meaning here"),
        ("delete-tombstone-handling-mode: rewrite", "`sink.delete-tombstone-handling-mode` has no meaning"),
        ("value-format: flat-json, tombstones: false", "`sink.tombstones` must be true"),
        ("value-format: flat-avro", "`sink.schema-registry-url` is missing"),
        ("value-format: flat-json, skipped-operations: none", "must have `t` with `value-format: flat-json`"),
        ("value-format: flat-json, delete-tombstone-handling-mode: keep", "unknown value `keep`"),
        ("value-format: flat-json, add-fields: row.x", "`sink.add-fields` is wrong"),
        ("value-format: flat-json, add-headers: row.x", "`sink.add-headers` is wrong"),
        ("value-format: flat-json, add-headers: id", "provide-transaction-metadata` must be true"),
        ("value-format: flat-json, add-headers: op, headers: {__op: a}", "gets the name `__op`"),
        ("extension-attributes-enable: false", "`sink.extension-attributes-enable` has no meaning here"),
        ("add-headers: op", "`sink.add-headers` has no meaning here"),
        ("value-format: flat-json, add-fields: transaction.gtid", "names a field that no message has"),
        ("value-format: flat-json, add-fields: 'table,source.ts_ms:table'", "give the same name"),
        ("value-format: flat-json, add-fields: total_order", "provide-transaction-metadata` must be true"),
        (
            "value-format: flat-json, delete-tombstone-handling-mode: rewrite, add-fields: 'op:deleted'",
            "gets the name `__deleted`",
        ),
    ],
)
def test_settings_of_flat_rows_that_do_not_fit_are_refused(given: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_pipeline(_with_kafka(given))


def test_settings_of_flat_rows_are_read() -> None:
    given = "value-format: flat-json, delete-tombstone-handling-mode: rewrite"
    given += ", add-fields: 'op, source.ts_ms:at'"
    (sink,) = parse_pipeline(_with_kafka(given)).sinks
    assert [(f.struct, f.field, f.name) for f in sink.fields_to_add] == [
        ("", "op", "__op"),
        ("source", "ts_ms", "__at"),
    ]
    assert sink.key_encoding.value == "json"


def test_truncate_with_a_schema_is_refused_beside_a_transform() -> None:
    rule = "\ntransform: [{source-table: x, projection: id}]\nroute:"
    given = _with_kafka("skipped-operations: none, schemas-enable: true")
    assert parse_pipeline(given).sinks[0].skipped_letters == ()
    with pytest.raises(ConfigError, match="must have `t` here"):
        parse_pipeline(given.replace("\nroute:", rule))
    assert parse_pipeline(_with_kafka("schemas-enable: true").replace("\nroute:", rule))


def _with_kafka(given: str) -> str:
    sink = "sink: {type: delta, path: /lake, mode: changelog}"
    return changed(sink, _KAFKA % given).replace("name: shop", "name: shop, checkpoint: /c")


@pytest.mark.parametrize("name", ["on-truncate", "onDropTable"])
def test_soft_delete_needs_a_transform_that_marks_rows(name: str) -> None:
    given = changed("snapshot-chunk-rows: 5000", f"{name}: soft-delete")
    with pytest.raises(ConfigError, match="cannot ask for a soft delete here") as raised:
        parse_pipeline(given)
    assert raised.value.code == "TR-1032"
    rule = "{source-table: .*, projection: '*, __data_event_type__ = ''-D'' AS gone'"
    transform = f"\ntransform: [{rule}, converter-after-transform: SOFT_DELETE}}]\nroute:"
    pipeline = parse_pipeline(given.replace("\nroute:", transform))
    assert pipeline.soft_deletes
    option = "onTruncate" if name == "on-truncate" else name
    assert pipeline.source_options[option] == "apply"
    assert not parse_pipeline(FILE).soft_deletes


REPLICA = "{type: postgresql, url: 'postgresql://h/db', user: u}"
ICEBERG = "{type: iceberg, path: /lake}"
DELTA = "{type: delta, path: /lake/d}"


@pytest.mark.parametrize(
    ("sink", "more", "follows"),
    [
        (REPLICA, "", True),
        (f"[{REPLICA}, {ICEBERG}, {DELTA}]", "", True),
        (REPLICA, "route: [{source-table: 'shop.(.*)', sink-table: all}]", True),
        (REPLICA, "route: [{source-table: 'shop.(.*)', sink-table: all, shard-column: s}]", False),
        (REPLICA, "transform: [{source-table: 'shop.t', projection: id}]", False),
        ("{type: iceberg, path: /lake, mode: changelog}", "", False),
        ("{type: iceberg, path: /lake, on-incompatible-type: new-column}", "", False),
        ("{type: delta, path: /lake, mode: scd2}", "", False),
        ("{type: delta, path: /lake, on-incompatible-type: new-column}", "", False),
        (f"[{REPLICA}, {{type: parquet, path: /log}}]", "", False),
    ],
)
@pytest.mark.parametrize("product", ["mysql", "postgresql"])
def test_renamed_columns_are_followed_only_if_all_targets_do(
    product: str, sink: str, more: str, follows: bool
) -> None:
    def pipeline(options: str) -> Pipeline:
        source = f"{{type: {product}, hostname: h, database: d, username: u, tables: shop.t{options}}}"
        return parse_pipeline(f"source: {source}\nsink: {sink}\n{more}\npipeline: {{checkpoint: /c}}")

    assert pipeline("").follows_former_columns is follows
    for behavior in ("try_evolve", "lenient", "ignore"):
        assert not pipeline(f", schema.change.behavior: {behavior}").follows_former_columns
    if follows:
        assert pipeline(", former-columns: follow").source.former_columns == "follow"
    else:
        with pytest.raises(ConfigError, match="former-columns") as raised:
            pipeline(", former-columns: follow")
        assert raised.value.code == "TR-1033"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("topic-regex: a", "`sink.topic-regex` needs `topic-replacement`"),
        ("key-field-replacement: a", "`sink.key-field-replacement` needs `key-field-regex`"),
        ("key-field-name: a", "`sink.key-field-name` has no meaning here"),
        ("topic-regex: '(', topic-replacement: a", "no regular expression at `sink.topic-regex`"),
        ("topic-regex: a, topic-replacement: $1", "a group that does not exist"),
        (
            "topic-regex: a, topic-replacement: b, key-enforce-uniqueness: false, key-field-name: c",
            "`sink.key-field-name` has no meaning here",
        ),
        ("topic-by-value: topic", "`sink.topic-by-value` has no meaning here"),
    ],
)
def test_names_of_topics_that_cannot_be_made_are_refused(given: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_pipeline(_with_kafka(given))


_TOPICS = "{type: kafka, bootstrap-servers: 'b:1', topic-prefix: p}"


def test_statements_are_given_to_a_sink_of_messages() -> None:
    given = changed("snapshot-chunk-rows: 5000", "include.query: true")
    assert parse_pipeline(
        given.replace("{type: delta, path: /lake, mode: changelog}", _TOPICS).replace(
            "pipeline: {", "pipeline: {checkpoint: /c, "
        )
    ).source.include_query


@pytest.mark.parametrize(
    ("sink", "more", "code"),
    [
        ("{type: delta, path: /lake, mode: changelog}", "", "TR-1011"),
        (_TOPICS.replace("}", ", value-format: canal-json}"), "", "TR-1011"),
        (_TOPICS, "transform: [{source-table: shop.orders, filter: id > 1}]", "TR-1090"),
        (_TOPICS, "route: [{source-table: shop.orders, sink-table: t, shard-column: s}]", "TR-1090"),
    ],
)
def test_statements_are_refused_where_they_would_show_what_is_hidden(sink: str, more: str, code: str) -> None:
    given = f"""
source: {{url: 'mysql://h', user: u, tables: shop.orders, include.query: true}}
sink: {sink}
pipeline: {{checkpoint: /c}}
{more}
"""
    with pytest.raises(ConfigError, match=r"include\.query") as error:
        parse_pipeline(given)
    assert error.value.code == code


@pytest.mark.parametrize(
    ("sink", "fits"),
    [
        ("{type: delta, path: /lake, mode: changelog}", False),
        (_TOPICS, False),
        (_TOPICS.replace("}", ", schemas-enable: true}"), True),
        (_TOPICS.replace("}", ", value-format: avro, schema-registry-url: 'http://r'}"), True),
        (_TOPICS.replace("}", ", value-format: protobuf, schema-registry-url: 'http://r'}"), False),
    ],
)
def test_comments_of_columns_need_a_sink_of_schemas(sink: str, fits: bool) -> None:
    given = f"""
source: {{url: 'mysql://h', user: u, tables: shop.orders, include.schema.comments: true}}
sink: {sink}
pipeline: {{checkpoint: /c}}
"""
    if fits:
        assert parse_pipeline(given).source.propagation.comments
        return
    with pytest.raises(ConfigError, match="have no effect here") as error:
        parse_pipeline(given)
    assert error.value.code == "TR-1011"
