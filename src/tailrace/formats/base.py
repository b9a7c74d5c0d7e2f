"""What a format of messages is: an encoding of keys, one of values, and how they become messages.

    table's shape ──schemas()──► registry (driver, once per shape) ──► ids, plain data
    ChangeBatch, ids ──messages()──► topic, key, value, headers, partition (tasks)

An encoding turns a batch into one key or one value per change and knows nothing of topics' partitions,
tombstones or headers; those are the same whatever the bytes are. Keys and values may be encoded differently
(`key.format`, `value.format`). All of it is pure: who writes messages gives the time and the schemas' ids.
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
    """A schema that the registry must know before messages of it are written.

    Args:
        subject: what it is a version of.
        type: `AVRO` or `PROTOBUF`.
        text: the schema.
    """

    subject: str
    type: str
    text: str

    @property
    def reference(self) -> str:
        """The schema by its subject and content, short: a key of SchemaIds."""
        return f"{self.subject}#{hashlib.sha256(self.text.encode()).hexdigest()[:16]}"


class Encoding(Protocol):
    """How keys and values become bytes."""

    @property
    def has_tombstones(self) -> bool:
        """Whether readers of it expect an empty message after a delete."""

    def key_schema(self, table: TableSchema) -> SchemaText | None:
        """What the keys of `table` need registered; None: nothing, or the table has no key."""

    def value_schema(self, table: TableSchema) -> SchemaText | None:
        """What the values of `table` need registered; None: nothing."""

    def keys(self, batch: ChangeBatch, ids: SchemaIds) -> pa.Array:
        """The key of each change: of the row before a delete, after all else; null without a key."""

    def values(self, batch: ChangeBatch, now_ms: int, ids: SchemaIds) -> pa.Array:
        """The value of each change."""


class MessageFormat(Protocol):
    """Turns changes into messages: `formats.assemble.KeyValueFormat`."""

    def topic(self, table: TableId) -> str:
        """The topic of a table's changes."""

    def schemas(self, table: TableSchema) -> tuple[SchemaText, ...]:
        """The schemas to register before messages of `table` are made: none, or a key's and a value's."""

    def messages(self, batch: ChangeBatch, now_ms: int, ids: SchemaIds = NO_IDS) -> pa.RecordBatch:
        """The messages of a batch's changes in their order.

        Args:
            batch: changes of one table.
            now_ms: processing time to write, milliseconds since 1970 UTC.
            ids: ids of all that `schemas(batch.table)` names.

        Returns:
            Columns topic, key, value, headers, partition (`formats.debezium.messages.debezium_schema`): one
            message per change, and behind a delete one with its key and no value if the format has
            tombstones; `partition` is null: whoever writes chooses it by the key.

        Raises:
            SinkError: the messages of the batch are larger than 2 GiB, or a value has no form in the
                format.
        """
