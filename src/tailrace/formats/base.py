"""Interfaces of message formats: an encoding of keys, an encoding of values, and their assembly to messages.

    table's schema ──schemas()──► registry (driver, once per schema) ──► ids, plain data
    ChangeBatch, ids ──messages()──► topic, key, value, headers, partition (tasks)

An encoding converts a batch to one key or one value per change. Partitions, tombstones and headers are
independent of it. Keys and values may have different encodings. All of this is pure: the caller provides the
time and the schemas' ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableId, TableSchema

#: The registry's id of each schema, by `SchemaText.reference`.
SchemaIds = Mapping[str, int]

NO_IDS: SchemaIds = {}


@dataclass(frozen=True)
class SchemaText:
    """A schema that must be registered before messages with it are written.

    Args:
        subject: the registry's subject, of which the schema is a version.
        type: `AVRO` or `PROTOBUF`.
        text: the schema.
    """

    subject: str
    type: str
    text: str

    @property
    def reference(self) -> str:
        """A short identifier of subject and content: a key of SchemaIds."""
        return f"{self.subject}#{hashlib.sha256(self.text.encode()).hexdigest()[:16]}"


class Encoding(Protocol):
    """Converts keys and values to bytes."""

    @property
    def has_tombstones(self) -> bool:
        """Whether consumers expect an empty message after a delete."""

    def key_schema(self, table: TableSchema) -> SchemaText | None:
        """The schema to register for the keys of `table`; None: none, or the table has no key."""

    def value_schema(self, table: TableSchema) -> SchemaText | None:
        """The schema to register for the values of `table`; None: none."""

    def keys(self, batch: ChangeBatch, ids: SchemaIds) -> pa.Array:
        """The key of each change: of the row before a delete, after other changes; null without a key."""

    def values(self, batch: ChangeBatch, now_ms: int, ids: SchemaIds) -> pa.Array:
        """The value of each change."""


class MessageFormat(Protocol):
    """Converts changes to messages: `formats.assemble.KeyValueFormat`."""

    def topic(self, table: TableId) -> str:
        """The topic of a table's changes."""

    def schemas(self, table: TableSchema) -> tuple[SchemaText, ...]:
        """The schemas to register before messages of `table` are written: of keys and values, or none."""

    def messages(self, batch: ChangeBatch, now_ms: int, ids: SchemaIds = NO_IDS) -> pa.RecordBatch:
        """The messages of a batch's changes in their order.

        Args:
            batch: changes of one table.
            now_ms: processing time to write, milliseconds since 1970 UTC.
            ids: ids of the schemas that `schemas(batch.table)` returns.

        Returns:
            Columns topic, key, value, headers, partition (`formats.debezium.messages.debezium_schema`): one
            message per change, and after a delete a message with its key and no value if the format has
            tombstones. `partition` is null: the writer chooses it by the key.

        Raises:
            SinkError: the messages of the batch are larger than 2 GiB, or the format cannot represent a
                value.
        """
