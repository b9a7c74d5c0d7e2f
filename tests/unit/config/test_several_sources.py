"""Pipeline files with several sources."""

from __future__ import annotations

import pytest

from tailrace.config.load import parse_pipeline, parse_pipelines
from tailrace.config.sinks import DeltaSettings
from tailrace.errors import ConfigError

FILE = """
sources:
  - {name: east, type: mysql, hostname: east.example.org, username: reader, tables: shop.orders}
  - {name: west, type: postgresql, hostname: west.example.org, database: shop, username: reader,
     tables: public.orders}
sink: {type: delta, path: /lake}
route:
  - {source-table: '.*\\.orders', sink-table: '{source}_orders'}
pipeline: {name: shop}
"""


def test_each_source_is_a_pipeline_of_its_own_with_the_common_sections() -> None:
    east, west = parse_pipelines(FILE)
    assert (east.source.host, west.source.host) == ("east.example.org", "west.example.org")
    assert (east.source.dialect, west.source.dialect) == ("mysql", "postgresql")
    assert (east.settings.name, west.settings.name) == ("shop.east", "shop.west")
    assert east.checkpoint == "/lake/_tailrace/checkpoint/sources/east"
    assert east.sinks == west.sinks == (DeltaSettings("/lake"),)
    assert (east.routes[0].sink_table, west.routes[0].sink_table) == ("east_orders", "west_orders")
    assert east.source_name == "east"
    assert east.named is not None
    assert (east.named.pipeline, east.named.checkpoint) == ("shop", "/lake/_tailrace/checkpoint")


def test_one_source_has_no_name() -> None:
    text = "source: {url: 'mysql://h', user: u, tables: d.t}\nsink: {type: delta, path: '/l/{source}'}"
    (pipeline,) = parse_pipelines(text)
    assert (pipeline.named, pipeline.source_name) == (None, "")
    assert pipeline.checkpoint == "/l/{source}/_tailrace/checkpoint"


@pytest.mark.parametrize(
    ("old", "new", "code", "part"),
    [
        ("name: west", "name: EAST", "TR-1220", "`sources[0]` and `sources[1]` have the same name"),
        ("name: west", "name: 'a/b'", "TR-1220", "`sources[1].name` is wrong"),
        ("name: west, ", "", "TR-1220", "`sources[1].name` is missing"),
        ("pipeline:", "source: {}\npipeline:", "TR-1005", "exclude each other"),
        ("tables: public.orders", "table: public.orders", "TR-1007", "`sources[1].table`"),
        ("path: /lake", "path: '/lake/{source}'", "TR-1006", "`pipeline.checkpoint` is missing"),
        ("type: delta", "type: iceberg", "TR-1222", "the same path"),
        (
            "type: mysql, hostname: east.example.org",
            "type: postgresql, database: crm, hostname: west.example.org",
            "TR-1221",
            "the same replication slot `tailrace`",
        ),
    ],
)
def test_what_sources_must_not_share_is_refused(old: str, new: str, code: str, part: str) -> None:
    assert old in FILE
    with pytest.raises(ConfigError) as raised:
        parse_pipelines(FILE.replace(old, new, 1))
    assert raised.value.code == code
    assert part in str(raised.value)


def test_a_command_about_one_stream_wants_the_sources_name() -> None:
    with pytest.raises(ConfigError, match="--source east") as raised:
        parse_pipeline(FILE)
    assert raised.value.code == "TR-1320"
