"""How new tables are laid out: engine, order, partitions and settings, by the sink's settings. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tailrace.config.sinks import ClickHouseEngine, ClickHouseSettings, WriteMode
from tailrace.errors import SinkError
from tailrace.sinks.clickhouse import sql
from tailrace.sinks.clickhouse.columns import BATCH, DELETED, VERSION
from tailrace.sinks.clickhouse.target import Target

#: What an INSERT has written is to outlive a crash of the machine; by default it outlives one of the server.
_SETTINGS = {"fsync_after_insert": "1", "fsync_part_directory": "1"}
#: How many blocks a change log remembers (`division`), and for how long where there are replicas: a month.
WINDOW = 10_000
_WINDOW = {"non_replicated_deduplication_window": str(WINDOW)}
_REPLICATED_WINDOW = {
    "replicated_deduplication_window": str(WINDOW),
    "replicated_deduplication_window_seconds": "2592000",
}
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


def engine_of(mode: WriteMode, engine: ClickHouseEngine) -> str:
    """The engine of targets."""
    plain = "ReplacingMergeTree" if mode is WriteMode.UPSERT else "MergeTree"
    return f"Replicated{plain}" if engine is ClickHouseEngine.REPLICATED else plain


@dataclass(frozen=True)
class StorageLayout:
    """How a new table is laid out, by the sink's settings.

    Args:
        engine: whether it has replicas.
        cluster: the cluster on whose servers it is created and altered; None: this server's alone.
        order_by: the columns that it is sorted by, with commas; empty: the key, or `_seq`.
        partition_by: the expression that it is partitioned by; empty: none.
        settings: its settings.
    """

    engine: ClickHouseEngine = ClickHouseEngine.LOCAL
    cluster: str | None = None
    order_by: str = ""
    partition_by: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: ClickHouseSettings, target: str) -> StorageLayout:
        """That of a target."""
        order_by, partition_by = settings.order_by.get(target, ""), settings.partition_by.get(target, "")
        return cls(settings.engine, settings.cluster, order_by, partition_by, settings.table_settings)

    @property
    def on_cluster(self) -> str:
        """The clause of statements that define something."""
        return "" if self.cluster is None else f" ON CLUSTER {sql.name(self.cluster)}"

    def create_database(self, name: str) -> str:
        """The statement that creates a database, unless it exists."""
        return f"CREATE DATABASE IF NOT EXISTS {sql.name(name)}{self.on_cluster}"

    def create(self, target: Target) -> str:
        """The statement that creates a table, unless it exists.

        Raises:
            SinkError: rows of one key would be sorted apart.
        """
        columns = [f"{sql.name(name)} {type_}" for name, type_ in target.columns.items()]
        engine, settings = engine_of(target.mode, self.engine), dict(_SETTINGS)
        if target.mode is WriteMode.UPSERT:
            engine = f"{engine}({VERSION}, {DELETED})"
        else:
            columns.append(f"INDEX {sql.name(BATCH + '_index')} {BATCH} TYPE minmax GRANULARITY 1")
            settings |= _REPLICATED_WINDOW if self.engine is ClickHouseEngine.REPLICATED else _WINDOW
            if self.order_by or self.partition_by:
                settings["allow_nullable_key"] = "1"
        listed = ", ".join(f"{name} = {_literal(v)}" for name, v in {**settings, **self.settings}.items())
        partition = f" PARTITION BY {self.partition_by}" if self.partition_by else ""
        return (
            f"CREATE TABLE IF NOT EXISTS {target.path}{self.on_cluster} ({', '.join(columns)})"
            f" ENGINE = {engine}{partition} ORDER BY ({sql.names(self._order(target))})"
            f" SETTINGS {listed} COMMENT {sql.text(target.comment)}"
        )

    def _order(self, target: Target) -> Sequence[str]:
        by_name = {name.lower(): name for name in target.columns}
        asked = [name.strip() for name in self.order_by.split(",") if name.strip()]
        order = [by_name.get(name.lower(), name) for name in asked]
        if target.mode is WriteMode.CHANGELOG:
            return order or ["_seq"]
        if order and sorted(order) != sorted(target.schema.key):
            raise SinkError(
                f"target `{target.name}` cannot be sorted by ({', '.join(asked)})",
                f"the key is ({', '.join(target.schema.key)}); ClickHouse replaces a row by one with the same"
                " values of the columns that the table is sorted by",
                "list the key's columns at `sink.order-by`, in any order, or leave it out",
                code="TR-7709",
            )
        return order or target.schema.key


def _literal(value: str) -> str:
    """A setting's value: a number, or a text."""
    return value if _NUMBER.fullmatch(value) else sql.text(value)
