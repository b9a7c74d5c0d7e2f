"""Which columns of a table decide the message key, the partition, and the writer of each change.

    message key   the table's key; or `message-key-columns`
    partition     by the message key; or by those of its columns that `partition-by` names
    writer        by the columns that decide the partition: their equal values keep the order of the log

Columns of `partition-by` must be in the message key. So the partition is a function of the key, and all
messages of a key are in one partition, in their order.

A batch that comes again must be divided as before, or a change would be written twice, or not at all: so
markers have `Division.stamp` (`markers`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace

import pyarrow as pa

from tailrace.config.table_columns import TableColumns
from tailrace.errors import SinkError
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.formats.debezium.outbox import Outbox
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableId, TableSchema
from tailrace.sinks.kafka.message_keys import keyed, named_columns, with_key


@dataclass(frozen=True)
class Division:
    """What decides keys, partitions and writers.

    Args:
        outbox: makes the messages of outbox tables; None: there are none.
        message_keys: columns of message keys; None: those of the tables' keys.
        partition_by: columns of partitions; None: those of the message keys.
        format: writes the columns of partitions as keys in JSON; needed with `partition_by`.
    """

    outbox: Outbox | None = None
    message_keys: TableColumns | None = None
    partition_by: TableColumns | None = None
    format: DebeziumFormat | None = None

    @property
    def stamp(self) -> str:
        """Stands for what decides the writers; empty: the tables' keys alone do."""
        settings: dict[str, object] = {}
        if self.outbox is not None:
            settings["outbox"] = [self.outbox.settings.tables, self.outbox.order_column()]
        for columns in (self.message_keys, self.partition_by):
            if columns is not None:
                settings[columns.setting] = columns.entries
        return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16] if settings else ""

    def outbox_of(self, table: TableId) -> Outbox | None:
        """What makes the messages of a table's rows if it is an outbox."""
        return self.outbox if self.outbox is not None and self.outbox.takes(table) else None

    def schema(self, table: TableSchema) -> TableSchema:
        """A table with the key of its messages.

        Raises:
            SinkError: the table does not have the columns that settings name.
        """
        if (outbox := self.outbox_of(table.id)) is not None:
            outbox.check(table)
            return table
        return with_key(table, named_columns(self.message_keys, table) or table.key)

    def batch(self, batch: ChangeBatch) -> ChangeBatch:
        """Changes with the key of their messages.

        Raises:
            SinkError: the table, or its log, does not have the columns that settings name.
        """
        key = self.schema(batch.table).key
        return keyed(batch, key)

    def columns(self, table: TableSchema) -> tuple[str, ...]:
        """The columns whose equal values keep the order of the log; empty: all changes of the table do.

        Args:
            table: a table with the key of its messages.

        Raises:
            SinkError: the message key does not have the columns of `partition-by`.
        """
        if (outbox := self.outbox_of(table.id)) is not None:
            return (outbox.order_column(),)
        return self._partition_columns(table) or table.key

    def ordered(self, batch: ChangeBatch) -> ChangeBatch:
        """Changes with the columns that decide their writers as their key."""
        return replace(batch, table=with_key(batch.table, self.columns(batch.table)))

    def partition_keys(self, batch: ChangeBatch) -> pa.Array | None:
        """What decides the partition of each change, as a message key; None: the message key itself."""
        by = self._partition_columns(batch.table)
        if not by or self.outbox_of(batch.table.id) is not None:
            return None
        assert self.format is not None
        return self.format.keys(replace(batch, table=with_key(batch.table, by)))

    def _partition_columns(self, table: TableSchema) -> tuple[str, ...]:
        by = named_columns(self.partition_by, table)
        if outside := [name for name in by if name not in table.key]:
            has = ", ".join(f"`{name}`" for name in table.key) or "no column"
            raise SinkError(
                f"column `{outside[0]}` is not in the message key of table `{table.id}`",
                f"`partition-by` names it, and the key has {has}: messages of a key would be in several "
                "partitions, without their order",
                "add the column to `message-key-columns`, beside those of the key",
                code="TR-7610",
            )
        return by


#: Tables' keys decide everything.
NO_DIVISION = Division()
