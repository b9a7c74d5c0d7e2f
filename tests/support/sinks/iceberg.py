"""Iceberg tables in the contract suite."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from tailrace.config.sinks import IcebergSettings, WriteMode
from tailrace.sinks.iceberg.sink import IcebergSink
from tests.support.iceberg_catalogs import CatalogServer
from tests.support.sinks.case import Change, Row, SinkCase, as_change
from tests.support.sinks.delta import SYSTEM


def upsert(request: Any) -> SinkCase:
    path = request.getfixturevalue("tmp_path")
    settings = IcebergSettings(str(path))

    def rows(name: str) -> list[Row]:
        return table_rows(path, name).to_pylist()

    return SinkCase(
        lambda router: IcebergSink(settings, router),
        lambda name: _drop(path, name),
        rows=rows,
        takes_parts=True,
    )


def changelog(request: Any) -> SinkCase:
    path = request.getfixturevalue("tmp_path")
    settings = IcebergSettings(str(path), WriteMode.CHANGELOG)

    def changes(name: str) -> list[Change]:
        found = []
        for row in table_rows(path, name).sort_by("_seq").to_pylist():
            columns = {k: v for k, v in row.items() if k not in SYSTEM}
            found.append(as_change(row["_op"], columns, row["_before"]))
        return found

    return SinkCase(
        lambda router: IcebergSink(settings, router),
        lambda name: _drop(path, name),
        changes=changes,
        compares=True,
    )


def rest(request: Any) -> SinkCase:
    return _in_catalog(request.getfixturevalue("iceberg_rest"))


def hive(request: Any) -> SinkCase:
    return _in_catalog(request.getfixturevalue("iceberg_hive"))


def glue(request: Any) -> SinkCase:
    return _in_catalog(request.getfixturevalue("iceberg_glue"))


def settings_in(server: CatalogServer, mode: WriteMode = WriteMode.UPSERT) -> IcebergSettings:
    """Settings of a sink whose tables, none so far, are in a server's catalog."""
    server.clear()
    return IcebergSettings(
        f"{server.root}/{uuid.uuid4().hex[:8]}", mode, catalog={**server.properties, **server.store}
    )


def _in_catalog(server: CatalogServer) -> SinkCase:
    settings = settings_in(server)

    def rows(name: str) -> list[Row]:
        with server.opened() as catalog:
            return catalog.load_table(tuple(name.split("."))).scan().to_arrow().to_pylist()

    def drop(name: str) -> None:
        with server.opened() as catalog:
            catalog.drop_table(tuple(name.split(".")))

    return SinkCase(lambda router: IcebergSink(settings, router), drop, rows=rows, takes_parts=True)


def table_rows(path: Any, name: str) -> pa.Table:
    """The rows of a table in the sink's default catalog."""
    with open_table(path, name) as table:
        return table.scan().to_arrow()


def data_files(path: Any, name: str) -> set[str]:
    """The names of the data files of its snapshots, old ones included."""
    with open_table(path, name) as table:
        entries = (
            entry
            for snapshot in table.snapshots()
            for manifest in snapshot.manifests(table.io)
            for entry in manifest.fetch_manifest_entry(table.io)
        )
        return {entry.data_file.file_path.rpartition("/")[2] for entry in entries}


@contextmanager
def open_table(path: Any, name: str) -> Iterator[Table]:
    """A table in the sink's default catalog."""
    with _catalog(path) as catalog:
        yield catalog.load_table(tuple(name.split(".")))


def _drop(path: Any, name: str) -> None:
    with _catalog(path) as catalog:
        catalog.drop_table(tuple(name.split(".")))


@contextmanager
def _catalog(path: Any) -> Iterator[Catalog]:
    catalog = load_catalog("tailrace", type="sql", uri=f"sqlite:///{path}/_tailrace/iceberg.db")
    try:
        yield catalog
    finally:
        catalog.close()
