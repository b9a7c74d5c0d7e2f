"""Columns of a replica's table become text, in place (`sinks.tables.text_form`).

Which ones follows from the needed schema and the types that the table really has, so a crash between the
change of the table and the ledger's entry does no harm. The values that the table holds become text by SQL.
Of a table with a target of its own they are read again anyway; of tables that share a target the others keep
theirs, so a type without an exact text in SQL cannot become text there.
"""

from __future__ import annotations

from dataclasses import replace

from tailrace.config.sinks import OnIncompatibleType
from tailrace.errors import SinkError, TransientSinkError
from tailrace.failpoints import failpoint
from tailrace.sinks.replica.dialect import Dialect, RefusalError, TableName, WriteSession
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sinks.tables.columns import incompatible
from tailrace.sinks.tables.text_form import TEXT, becomes_text

#: Types of columns that are text already, as servers print them.
_TEXTS = ("text", "longtext")


def become_text(
    session: WriteSession,
    dialect: Dialect,
    table: TableName,
    current: TargetSchema,
    needed: TargetSchema,
    *,
    shared: bool,
) -> TargetSchema:
    """Make columns text where `needed` has text.

    Args:
        session: a session outside a transaction.
        dialect: the database.
        table: the table.
        current: its schema according to the ledger.
        needed: the new schema, with the columns of `current` first.
        shared: whether several tables have the target.

    Returns:
        The table's schema then.

    Raises:
        SinkError: the server refuses it, or has no exact text for values that stay.
    """
    pairs = zip(current.columns, needed.columns[: len(current.columns)], strict=True)
    texts = {
        old.name: old for old, new in pairs if new.type == TEXT and becomes_text(TEXT.arrow, old.type.arrow)
    }
    if not texts:
        return current
    existing = session.existing(table)
    for column in texts.values():
        held = existing.get(column.name.lower())
        if held is None or held.type.lower() in _TEXTS:  # an earlier attempt has done it
            continue
        if shared and dialect.text_of(column) is None:
            found = f"other tables share the target, and {column.type.native} has no exact text in SQL"
            raise incompatible(column.name, current.target, found, OnIncompatibleType.TEXT)
        try:
            for statement in dialect.to_text(table, needed, column, list(existing)):
                session.run(statement)
        except TransientSinkError:
            raise
        except (SinkError, RefusalError) as error:
            reason = error.reason if isinstance(error, RefusalError) else error.detail or error.message
            found = f"the server does not make {column.type.native} text: {reason}"
            raise incompatible(column.name, current.target, found, OnIncompatibleType.TEXT) from error
    failpoint("sink.text")
    columns = (replace(c, type=TEXT) if c.name in texts else c for c in current.columns)
    return replace(current, columns=tuple(columns))
