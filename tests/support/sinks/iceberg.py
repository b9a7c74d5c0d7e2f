"""Iceberg tables in the contract suite."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog

from tailrace.config.sinks import IcebergSettings, WriteMode
from tailrace.sinks.iceberg import iceberg_sink
from tests.support.sinks.case import Change, Row, SinkCase, as_change
from tests.support.sinks.delta import SYSTEM


def upsert(request: Any) -> SinkCase:
    path = request.getfixturevalue("tmp_path")
    settings = IcebergSettings(str(path))

    def rows(name: str) -> list[Row]:
        return table_rows(path, name).to_pylist()

    return SinkCase(lambda router: iceberg_sink(settings, router), rows=rows, takes_parts=True)


def changelog(request: Any) -> SinkCase:
    path = request.getfixturevalue("tmp_path")
    settings = IcebergSettings(str(path), WriteMode.CHANGELOG)

    def changes(name: str) -> list[Change]:
        found = []
        for row in table_rows(path, name).sort_by("_seq").to_pylist():
            columns = {k: v for k, v in row.items() if k not in SYSTEM}
            found.append(as_change(row["_op"], columns, row["_before"]))
        return found

    return SinkCase(lambda router: iceberg_sink(settings, router), changes=changes)


def table_rows(path: Any, name: str) -> pa.Table:
    """The rows of a table in the catalog that the sink makes by itself."""
    catalog = load_catalog("tailrace", type="sql", uri=f"sqlite:///{path}/_tailrace/iceberg.db")
    try:
        return catalog.load_table(tuple(name.split("."))).scan().to_arrow()
    finally:
        catalog.close()
