"""What Iceberg tables hold of a stream: their property `tailrace.batch`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from tailrace.config.sinks import IcebergSettings
from tailrace.model.table import TableId
from tailrace.sinks.iceberg.catalog import answered, open_catalog
from tailrace.sinks.iceberg.names import identifier
from tailrace.sinks.iceberg.sink import BATCH, STREAM
from tailrace.sinks.route import Router
from tailrace.sinks.standing import TargetStanding
from tailrace.spark.checkpoint import absolute, is_local


def targets(
    settings: IcebergSettings, router: Router, tables: Iterable[TableId], stream: str
) -> dict[str, TargetStanding]:
    """The targets of `tables` that exist and belong to the stream, by name."""
    root = absolute(settings.path)
    if not settings.catalog and not Path(root, "_tailrace", "iceberg.db").exists():
        return {}  # opening the catalog would create it
    found = {}
    place = f"file://{root}" if is_local(root) else root
    with answered(settings), closing(open_catalog(settings, place)) as catalog:
        for name in {router.target(table) for table in tables}:
            try:
                properties = catalog.load_table(identifier(name)).properties
            except (NoSuchTableError, NoSuchNamespaceError):
                continue
            if properties.get(STREAM) == stream:
                found[name] = TargetStanding(int(properties.get(BATCH, "-1")))
    return found
