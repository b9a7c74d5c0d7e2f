"""The file that a worker runs: absolute paths, the subscription's name, and nothing else changed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tailrace.config.load import parse_pipeline, parse_pipelines
from tailrace.control.places import local_path, resolved

SPEC = """\
source:
  url: mysql://db.example/shop
  user: reader
  password: ${file:secrets/shop}
  tables: shop\\.orders
  tlsCa: ca.pem
transform:
  - {source-table: 'shop\\.orders', projection: "*, '${file:x}' AS note", filter: id > 0}
sink:
  - {type: delta, path: lake/NAME}
  - {type: iceberg, path: /ice, catalog: {type: sql, uri: 'sqlite:///cat.db', warehouse: 'file:///ice/w'}}
  - {type: duckdb, database: shop.duckdb}
notifications: {file: notes.jsonl}
"""
DATA = Path("/srv/tailrace")


def test_relative_paths_are_below_the_data_directory() -> None:
    pipeline = parse_pipeline(resolved(SPEC, "shop", DATA))
    delta, iceberg, duckdb = pipeline.sinks
    assert getattr(delta, "path", "") == "/srv/tailrace/lake/NAME"
    assert getattr(iceberg, "path", "") == "/ice"
    assert getattr(iceberg, "catalog", {}) == {
        "type": "sql",
        "uri": "sqlite:////srv/tailrace/cat.db",
        "warehouse": "/ice/w",
    }
    assert getattr(duckdb, "database", "") == "/srv/tailrace/shop.duckdb"
    assert pipeline.checkpoint == "/srv/tailrace/lake/NAME/_tailrace/checkpoint"
    assert pipeline.notifications.file == "/srv/tailrace/notes.jsonl"
    assert pipeline.source_options["tlsCa"] == "/srv/tailrace/ca.pem"
    assert pipeline.source_options["password"] == "${file:/srv/tailrace/secrets/shop}"


def test_sql_and_everything_else_stay_as_they_are() -> None:
    made = parse_pipeline(resolved(SPEC, "shop", DATA))
    given = parse_pipeline(SPEC, default_name="shop")
    assert made.settings.name == "shop"
    assert made.transforms == given.transforms
    assert made.source.tables == given.source.tables
    assert dataclasses.replace(made.settings, checkpoint="") == dataclasses.replace(
        given.settings, checkpoint=""
    )


def test_resolving_again_changes_nothing() -> None:
    once = resolved(SPEC, "shop", DATA)
    assert resolved(once, "shop", Path("/elsewhere")) == once


def test_each_of_several_sources_is_resolved() -> None:
    spec = """\
sources:
  - {name: east, url: 'mysql://e/shop', user: u, password: '${env:P}', tables: 'shop\\.o', tls-ca: ca.pem}
  - {name: west, url: 'mysql://w/shop', user: u, password: '${env:P}', tables: 'shop\\.o', tls-ca: /w.pem}
route: [{source-table: '.*', sink-table: '{source}_<>', replace-symbol: <>}]
sink: {type: delta, path: lake}
"""
    east, west = parse_pipelines(resolved(spec, "both", DATA))
    assert (east.source_options["tlsCa"], west.source_options["tlsCa"]) == ("/srv/tailrace/ca.pem", "/w.pem")
    assert east.checkpoint == "/srv/tailrace/lake/_tailrace/checkpoint/sources/east"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("lake/x", "lake/x"),
        ("/lake", "/lake"),
        ("file:///lake", "/lake"),
        ("file:/lake", "/lake"),
        ("file://host/lake", None),
        ("s3://bucket/lake", None),
        ("sqlite:////a.db", "/a.db"),
    ],
)
def test_urls_of_files_are_paths(text: str, path: str | None) -> None:
    assert local_path(text) == path
