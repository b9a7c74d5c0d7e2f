"""Logical messages (`pg_logical_emit_message`) as changes of a table that exists on no server.

So every sink that accepts changes accepts messages. A message is a row that is created and never changes. Its
key is its position in the log, so a message that is read twice is the same row.
"""

from __future__ import annotations

from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind

MESSAGES = TableSchema(
    TableId("logical", "message"),
    (
        Column("lsn", ColumnType(Kind.INTEGER, "int8", bits=64), nullable=False),
        Column("transactional", ColumnType(Kind.BOOLEAN, "bool"), nullable=False),
        Column("prefix", ColumnType(Kind.STRING, "text"), nullable=False),
        Column("content", ColumnType(Kind.BYTES, "bytea"), nullable=False),
    ),
    ("lsn",),
)
