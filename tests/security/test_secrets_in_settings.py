"""Passwords in unexpected places of pipeline files and options: no error shows them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tailrace.config.kafka import KafkaSettings
from tailrace.config.load import load_pipeline, parse_pipeline
from tailrace.config.options import parse_options
from tailrace.config.secret import Secret, resolve_all
from tailrace.config.sinks import IcebergSettings
from tailrace.errors import ConfigError, SinkError

PW = "hunter2"
FILE = """\
source:
  hostname: db
  username: reader
  password: ${env:DB_PASSWORD}
  tables: shop.orders
sink: {type: delta, path: /lake}
pipeline:
  name: shop
"""


def file(old: str, new: str) -> str:
    assert old in FILE
    return FILE.replace(old, new)


PASSWORD = "password: ${env:DB_PASSWORD}"
SINK = "sink: {type: delta, path: /lake}"
#: Files with a password where none belongs, and what the error says instead.
WRONG = [
    (file("hostname: db", f"url: mysql://user:{PW}@db"), "`url` is wrong"),
    (file("hostname: db", f"url: mysql://{PW}@db"), "`url` is wrong"),
    (file("hostname: db", f"url: mysql://user:{PW}/x@db"), "`url` is wrong"),
    (file("hostname: db", f"url: mysql:user:{PW}@db"), "`url` is wrong"),
    (file("hostname: db", f"url: postgresql://user:{PW}@db/shop"), "`url` is wrong"),
    (file("hostname: db", f"hostname: user:{PW}@db"), "`source.hostname` is wrong"),
    (file("hostname: db", f"hostname: {PW}@db"), "`source.hostname` is wrong"),
    (file("hostname: db", f"hostname: db\n  port: {PW}"), "at `source.port`"),
    (file(PASSWORD, f"password: *{PW}"), "not YAML at line 4, column 13"),
    (file(PASSWORD, f"password: !{PW}"), "the value at line 4, column 13"),
    (file(PASSWORD, f"password: !{PW} [x]"), "the value at line 4, column 13"),
    (file(PASSWORD, f"password: !!int {PW}"), "the value at line 4, column 13"),
    (file(PASSWORD, f"password: %{PW}"), "not YAML at line 4, column 13"),
    (file(PASSWORD, f"password: `{PW}"), "not YAML at line 4, column 13"),
    (file(PASSWORD, f'password: "{PW}'), "not YAML at line"),
    (file(PASSWORD, f'password: "\\{PW}"'), "not YAML at line 4"),
    (file(PASSWORD, f"password: {PW}: x"), "not YAML at line 4"),
    (file(PASSWORD, f"password: {{{PW}"), "not YAML at line"),
    (file(PASSWORD, f"password {PW}: x"), "unknown key in `source` at line 4, column 3"),
    (file(PASSWORD, f"password{PW}: x"), "unknown key in `source` at line 4, column 3"),
    (file(PASSWORD, f"password {PW}"), "not YAML at line"),
    (file(PASSWORD, f"password: {{{PW}: 1}}"), "expected `str`, got `object` at `source.password`"),
    (file(PASSWORD, f"password: [{PW}]"), "expected `str`, got `array` at `source.password`"),
    (file(PASSWORD, f"password: {PW}\n  password: {PW}"), "at line 5, column 3 .* is given twice"),
    (file(PASSWORD, f"password: ${{env:{PW}"), "`source.password` is wrong"),
    (file(PASSWORD, f"password: ${{ENV:{PW}}}"), "`source.password` is wrong"),
    (file(PASSWORD, f"password: $env:{PW}"), "`source.password` is wrong"),
    (file(SINK, f"sink: {{type: mysql, url: 'mysql://u:{PW}@h', user: u}}"), "`sink.url`"),
    (
        file(SINK, f"sink: {{type: mysql, url: 'mysql://h', user: u, password: 1{PW}: }}"),
        "`sink.password`|YAML",
    ),
    (file(SINK, f"sink: {{type: postgresql, url: 'postgresql://u:{PW}@h/d', user: u}}"), "`sink.url`"),
    (
        file(SINK, f"sink: {{type: 'mysql://u:{PW}@h'}}"),
        "unknown value a value that is not shown at `sink.type`",
    ),
    (file(SINK, f"sink: {{type: delta, path: 's3://key:{PW}@bucket/x'}}"), "`sink.path`"),
    (file(SINK, f"sink: {{type: delta, path: /lake, mode: 'u:{PW}@h'}}"), "`sink.mode`"),
    (
        file(SINK, f"sink: {{type: kafka, topic-prefix: p, bootstrap-servers: 'u:{PW}@h:9092'}}"),
        "`sink.bootstrap-servers`",
    ),
    (
        file(
            SINK,
            "sink: {type: kafka, topic-prefix: p, bootstrap-servers: h, value-format: avro,"
            f" schema-registry-url: 'http://u:{PW}@h'}}",
        ),
        "`sink.schema-registry-url`",
    ),
    (
        file(SINK, f"sink: {{type: kafka, topic-prefix: p, bootstrap-servers: h, properties: [{PW}]}}"),
        "`sink.properties`",
    ),
    (
        file(
            SINK,
            "sink:\n  type: kafka\n  topic-prefix: p\n  bootstrap-servers: h\n"
            f"  properties:\n    sasl.password {PW}:\n",
        ),
        "the key in `sink.properties` at line 11, column 5 is wrong",
    ),
    (file("name: shop", f"spark: {{spark.password {PW}: x}}"), "the key in `pipeline.spark` at line 8"),
    (file("name: shop", f"checkpoint: s3://key:{PW}@bucket/x"), "`pipeline.checkpoint`"),
    (file("name: shop", f"spark: {{a: '${{env:{PW}'}}"), "`pipeline.spark.a` is wrong"),
    (file("name: shop", f"spark: {PW}"), "at `pipeline.spark`"),
    (f"- {PW}", "expected `object`, got `array`"),
    (PW, "expected `object`, got `str`"),
    (f"? [{PW}]\n: x", "the key at line 1, column 3"),
    (f"{PW}: x", "unknown section at line 1, column 1"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=range(len(WRONG)))
def test_error_names_the_place_and_not_what_stands_there(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        parse_pipeline(text)
    shown = f"{error.value} {error.value.__cause__} {error.value!r}"
    assert PW not in shown


def test_key_with_a_slip_of_the_pen_is_shown() -> None:
    with pytest.raises(ConfigError, match=r"unknown key `source\.pasword` at line 4, column 3") as error:
        parse_pipeline(file("password:", "pasword:"))
    assert error.value.hint == "did you mean `password`?"


@pytest.mark.parametrize(
    "url",
    [f"mysql://u:{PW}@h", f"mysql://u:{PW}/x@h", f"jdbc:mysql://h?password={PW}", f"mysql://h?password={PW}"],
)
def test_option_of_spark_code_does_not_show_its_url(url: str) -> None:
    with pytest.raises(ConfigError, match="option `url` is wrong") as error:
        parse_options({"url": url, "user": "u", "tables": "a.b"})
    assert PW not in str(error.value)


def test_unknown_option_that_is_no_name_is_not_shown() -> None:
    with pytest.raises(ConfigError, match="unknown option") as error:
        parse_options({f"password {PW}": "x"})
    assert PW not in str(error.value)


def test_aliases_that_stand_for_too_much_are_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40))]
    merges = ["b0: &b0 {k: 1}", *(f"b{i}: &b{i} {{<<: [*b{i - 1}, *b{i - 1}]}}" for i in range(1, 40))]
    for bomb in ("\n".join(lines), "\n".join(merges), "[" * 20_000, "{a: " * 20_000):
        begun = time.monotonic()
        with pytest.raises(ConfigError, match="too large"):
            parse_pipeline(bomb)
        assert time.monotonic() - begun < 20


def test_anchors_and_merges_are_read() -> None:
    text = FILE.replace(SINK, "sink: [&d {type: delta, path: /a}, {<<: *d, path: /b}]")
    assert [sink.path for sink in parse_pipeline(text).sinks] == ["/a", "/b"]  # type: ignore[union-attr]


def test_huge_file_is_refused_without_reading_all_of_it() -> None:
    with pytest.raises(ConfigError, match="too large"):
        load_pipeline(Path("/dev/zero"))


def test_secret_with_text_around_its_reference_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PART", "geheim")
    assert Secret("a-${env:PART}-z").resolve() == "a-geheim-z"


def test_what_a_reference_leads_to_is_not_resolved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRST", "${env:SECOND}")
    monkeypatch.setenv("SECOND", "wrong")
    assert Secret("${env:FIRST}").resolved().resolve() == "${env:SECOND}"


def test_secret_that_is_not_there_is_an_error_of_its_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`NOT_THERE` is not set") as error:
        resolve_all({"spark.hadoop.k": "${env:NOT_THERE}"}, "pipeline.spark")
    assert "`pipeline.spark.spark.hadoop.k` refers to it" in (error.value.detail or "")
    (tmp_path / "latin1").write_bytes(b"geh\xe4im")
    with pytest.raises(ConfigError, match="cannot be read") as error:
        Secret(f"${{file:{tmp_path}/latin1}}").resolve()
    assert "geh" not in str(error.value)


def test_settings_do_not_show_their_secrets() -> None:
    text = FILE.replace(SINK, f"sink: {{type: iceberg, path: /lake, catalog: {{token: {PW}}}}}")
    text = text.replace("name: shop", f"spark: {{a: {PW}}}").replace("${env:DB_PASSWORD}", PW)
    text += f"transform: [{{source-table: x, mask-hash: a, mask-salt: {PW}}}]\n"
    assert PW not in repr(parse_pipeline(text))


def test_kafka_setting_that_is_wrong_is_named_without_its_value() -> None:
    pytest.importorskip("confluent_kafka")
    from tailrace.sinks.kafka.client import Client
    from tailrace.sinks.kafka.cluster import Cluster
    from tailrace.sinks.kafka.librdkafka import KafkaError, Producer

    settings = KafkaSettings("localhost:1", "p", properties={"security.protocol": PW})
    client = Client(settings.bootstrap_servers, settings.properties)
    with pytest.raises(SinkError, match=r"security\.protocol") as error:
        Cluster(client)
    assert PW not in f"{error.value}{error.value.__cause__}"
    with pytest.raises(KafkaError) as refused:
        Producer(client.settings())
    assert PW not in str(refused.value)


@pytest.mark.parametrize(
    "catalog",
    [
        {"uri": f"nonsense://u:{PW}@h/d"},
        {"type": "sql", "uri": f"postgresql+nonsense://u:{PW}@h/d"},
        {"type": f"x{PW}"},
    ],
)
def test_catalog_that_cannot_be_opened_is_an_error_without_its_settings(catalog: dict[str, str]) -> None:
    pytest.importorskip("pyiceberg")
    from tailrace.sinks.iceberg.catalog import open_catalog

    with pytest.raises(SinkError, match="the Iceberg catalog cannot be opened") as error:
        open_catalog(IcebergSettings("/lake", catalog=catalog), "file:///lake")
    assert PW not in f"{error.value}{error.value.__cause__}"
