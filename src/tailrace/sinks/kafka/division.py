"""Which columns of a table decide the message key, the partition, and the writer of each change.

    message key   the table's key; or `message-key-columns`
    partition     by the message key; or by those of its columns that `partition-by` names
    writer        by the columns that decide the partition: their equal values keep the order of the log

    topic         the table's; or `topic-by`: the same with the value of a column of the message key behind
                  it, or this value alone (`topic-by-value: topic`)

Columns of `partition-by` and `topic-by` must be in the message key. So topic and partition are functions of
the key, and all messages of a key are in one partition of one topic, in their order.

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
from tailrace.formats.connect.topics import is_topic
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.formats.debezium.outbox import Outbox
from tailrace.model.change import ChangeBatch
from tailrace.model.messages import MESSAGES
from tailrace.model.table import TableId, TableSchema
from tailrace.reader.log import keys_of
from tailrace.sinks.kafka.message_keys import keyed, named_columns, with_key


@dataclass(frozen=True)
class Division:
    """What decides keys, partitions and writers.

    Args:
        outbox: makes the messages of outbox tables; None: there are none.
        message_keys: columns of message keys; None: those of the tables' keys.
        partition_by: columns of partitions; None: those of the message keys.
        topic_by: columns whose values are parts of the names of topics; None: each table has one topic.
        format: names the tables' topics, and writes the columns of partitions as keys in JSON; needed with
            `partition_by` and `topic_by`.
        topic_is_value: whether the values of `topic_by` are the names of topics, rather than their ends.
    """

    outbox: Outbox | None = None
    message_keys: TableColumns | None = None
    partition_by: TableColumns | None = None
    topic_by: TableColumns | None = None
    format: DebeziumFormat | None = None
    topic_is_value: bool = False

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

    def names_topics(self, table: TableId) -> bool:
        """Whether the rows of a table name their topics, so that it has none of its own."""
        if self.outbox_of(table) is not None:
            return True
        return self.topic_by is not None and table != MESSAGES.id and bool(self.topic_by.of(str(table)))

    def topics(self, batch: ChangeBatch) -> set[str]:
        """The topics that changes name, without those that no topic can have.

        Args:
            batch: changes of a table whose rows name topics, with the key of its messages.

        Raises:
            SinkError: the column that names them cannot do that.
        """
        if (outbox := self.outbox_of(batch.table.id)) is not None:
            outbox.check(batch.table)
            return outbox.topics(batch)
        return set(filter(None, self._named(batch)[0]))

    def topic_column(self, batch: ChangeBatch) -> pa.StringArray | None:
        """The topic of each change by `topic-by`; None: that of the table, or of an outbox's events.

        Raises:
            SinkError: a row names no topic.
        """
        if self.outbox_of(batch.table.id) is not None or not self.names_topics(batch.table.id):
            return None
        topics, indices = self._named(batch)
        if None in topics:
            raise SinkError(
                f"a row of table `{batch.table.id}` names no topic",
                "the column of `topic-by` is empty, or has characters that Kafka does not allow in names of "
                "topics (other than letters, digits, `.`, `_` and `-`)",
                "correct the row; or set `on-refused-row: quarantine`",
                code="TR-7607",
            )
        return pa.array(topics, pa.string()).take(indices)

    def _named(self, batch: ChangeBatch) -> tuple[list[str | None], pa.Array]:
        """The different topics of changes, None for a value that names none; and each change's among them."""
        by = self._of_key(self.topic_by, batch.table)
        values = keys_of(replace(batch, table=with_key(batch.table, by[:1]))).field(0)
        type_ = values.type
        if len(by) > 1 or not (pa.types.is_string(type_) or pa.types.is_integer(type_)):
            named = ", ".join(f"`{name}`" for name in by)
            raise SinkError(
                f"topics of table `{batch.table.id}` cannot be named by {named}",
                "`topic-by` needs one column, of text or integers",
                "name one such column of the message key",
                code="TR-7610",
            )
        assert self.format is not None
        own = "" if self.topic_is_value else f"{self.format.topic(batch.table.id)}."
        encoded = values.cast(pa.string()).fill_null("").dictionary_encode()
        names = [(value, f"{own}{value}") for value in encoded.dictionary.to_pylist()]
        return [name if value and is_topic(name) else None for value, name in names], encoded.indices

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
        return self._of_key(self.partition_by, table)

    @staticmethod
    def _of_key(columns: TableColumns | None, table: TableSchema) -> tuple[str, ...]:
        """The columns that a setting names for a table, all of them in its message key.

        Raises:
            SinkError: one is not.
        """
        by = named_columns(columns, table)
        if outside := [name for name in by if name not in table.key]:
            assert columns is not None
            has = ", ".join(f"`{name}`" for name in table.key) or "no column"
            raise SinkError(
                f"column `{outside[0]}` is not in the message key of table `{table.id}`",
                f"`{columns.setting}` names it, and the key has {has}: messages of a key would be in several "
                "partitions or topics, without their order",
                "add the column to `message-key-columns`, beside those of the key",
                code="TR-7610",
            )
        return by


#: Tables' keys decide everything.
NO_DIVISION = Division()
