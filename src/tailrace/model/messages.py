"""Logical messages, as the changes of a table that no server has: `pg_logical_emit_message`'s.

So every sink that takes changes takes them. Each is a row that is created and never changes: its key is its
place in the log, a message that is read twice is the same row.
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
