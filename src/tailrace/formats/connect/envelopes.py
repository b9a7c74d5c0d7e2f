"""Debezium's envelopes for a registry: Connect schemas with adjusted names, subjects, the wire format.

A message with a registered schema has Confluent's wire format: a zero byte, the schema's id in four bytes,
then the encoded value. One of Confluent's strategies names the subject:

    TopicNameStrategy         `<topic>-key`, `<topic>-value`
    RecordNameStrategy        the schema's full name
    TopicRecordNameStrategy   `<topic>-<the schema's full name>`

If tables with different schemas go to one topic, TopicNameStrategy makes their schemas versions of one
subject.

Source: confluentinc/schema-registry `AbstractKafkaSchemaSerDe`, `io.confluent.kafka.serializers.subject`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tailrace import __version__
from tailrace.errors import SinkError
from tailrace.formats.base import SchemaIds, SchemaText
from tailrace.formats.connect import schemas
from tailrace.formats.connect.builders import Schema, primitive
from tailrace.formats.connect.modes import DEFAULT_MODES, Modes
from tailrace.formats.connect.names import adjusted
from tailrace.formats.connect.source_block import SourceBlock
from tailrace.formats.connect.topics import Topics
from tailrace.model.table import TableId, TableSchema

SubjectStrategy = Literal["TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy"]


@dataclass(frozen=True)
class Envelopes:
    """The schemas and names of a stream's envelopes, for all encodings.

    Args:
        topics: names of topics; their prefix is also `source.name`.
        connector: kind of source, for `source.connector` and the name of the source's schema.
        version: for `source.version`.
        modes: Debezium's handling modes.
        subjects: naming strategy of subjects.
        database: PostgreSQL's database, for `source.db`; MySQL's is part of the table's name.
    """

    topics: Topics
    connector: str = "mysql"
    version: str = __version__
    modes: Modes = DEFAULT_MODES
    subjects: SubjectStrategy = "TopicNameStrategy"
    database: str = ""

    @property
    def source(self) -> SourceBlock:
        """The `source` block of the envelopes."""
        return SourceBlock(self.connector, self.topics.prefix, self.version, self.database)

    def key(self, table: TableSchema) -> Schema:
        """Connect schema of the keys of `table`."""
        return adjusted(self.plain_key(table))

    def plain_key(self, table: TableSchema) -> Schema:
        """The same with the names as they are.

        Raises:
            SinkError: a column has the name of the added field.
        """
        topics = self.topics
        added = topics.key_field(table.id)
        if added is not None and added[0] in table.key:
            raise SinkError(
                f"column `{added[0]}` of the key of table `{table.id}` has the name of the added field",
                "`key-field-name` names a field that tells the tables of a topic apart",
                "set `key-field-name` to another name",
                code="TR-7005",
            )
        fields = [] if added is None else [primitive("string", added[0])]
        return schemas.key_schema(table, topics.topic(table.id), self.modes, fields)

    def value(self, table: TableSchema) -> Schema:
        """Connect schema of the values of `table`."""
        prefix = self.topics.topic(table.id)
        return adjusted(schemas.envelope_schema(table, prefix, self.connector, self.modes))

    def subject(self, table: TableId, part: str, record: str) -> str:
        """The subject of a schema called `record`; `part`: `key` or `value`."""
        return subject(self.subjects, self.topics.topic(table), part, record)


def subject(strategy: SubjectStrategy, topic: str, part: str, record: str) -> str:
    """The subject of a schema."""
    match strategy:
        case "TopicNameStrategy":
            return f"{topic}-{part}"
        case "RecordNameStrategy":
            return record
        case "TopicRecordNameStrategy":
            return f"{topic}-{record}"


def frame(schema: SchemaText, ids: SchemaIds) -> bytes:
    """The first bytes of a message: the wire format's header.

    Raises:
        SinkError: `ids` does not contain the schema.
    """
    id_ = ids.get(schema.reference)
    if id_ is None:
        raise SinkError(
            f"the schema of subject `{schema.subject}` was not registered",
            "its id is needed to write messages",
            code="TR-7602",
        )
    return b"\0" + id_.to_bytes(4, "big")
