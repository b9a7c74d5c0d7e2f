"""What Iceberg tables hold of a stream: their property `tailrace.batch`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from tailrace.config.sinks import IcebergSettings
from tailrace.errors import SinkError
from tailrace.model.table import TableId
from tailrace.sinks.iceberg.names import identifier
from tailrace.sinks.iceberg.sink import BATCH, STREAM, open_catalog
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
    with closing(open_catalog(settings, f"file://{root}" if is_local(root) else root)) as catalog:
        for name in {router.target(table) for table in tables}:
            try:
                properties = catalog.load_table(identifier(name)).properties
            except (NoSuchTableError, NoSuchNamespaceError):
                continue
            except Exception as error:  # noqa: BLE001 - of any library; its message may hold secrets
                raise SinkError(
                    "the Iceberg catalog does not answer", type(error).__name__, code="TR-7201"
                ) from None
            if properties.get(STREAM) == stream:
                found[name] = TargetStanding(int(properties.get(BATCH, "-1")))
    return found
