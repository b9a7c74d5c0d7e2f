"""Whether an existing table keeps the rows that a replica writes to it.

Tailrace creates tables that do. One that was adopted, or altered by hand since, may have other types, columns
that the server computes, or no key any more: then values would change, or rows double, without an error.
"""

from __future__ import annotations

from tailrace.errors import SinkError
from tailrace.sinks.replica.dialect import Dialect, WriteSession
from tailrace.sinks.replica.existing import Loss, losing
from tailrace.sinks.replica.target_schema import TargetSchema


def require_faithful(session: WriteSession, dialect: Dialect, schema: TargetSchema) -> None:
    """Check the types and the key of an existing table.

    Raises:
        SinkError: the server would change values, or cannot find the row of a key.
    """
    table = dialect.table_name(schema.target)
    lost = losing(schema.columns, session.existing(table), dialect.fraction)
    if lost:
        wrong = [loss for loss in lost if loss.change != "computes"]
        statements = [dialect.retype(table, schema, loss.column) for loss in wrong]
        if len(wrong) < len(lost):
            statements.append("make computed columns ordinary ones, or leave them out by a projection")
        raise SinkError(
            f"target `{schema.target}` would not keep the source's values",
            "; ".join(map(_in_words, lost)),
            "; ".join([*statements, "or drop the table and read the source's again: tailrace resync"]),
            code="TR-7061",
        )
    if not session.is_unique(table, schema.key):
        key = ", ".join(map(dialect.quote, schema.key))
        raise SinkError(
            f"target `{schema.target}` has no key",
            f"needed is a primary key, or a unique index over all rows, of ({', '.join(schema.key)}):"
            " changes find their rows by it",
            f"ALTER TABLE {dialect.name(table)} ADD PRIMARY KEY ({key})",
            code="TR-7062",
        )


def _in_words(loss: Loss) -> str:
    column = f"column `{loss.column.name}`"
    if loss.change == "computes":
        return f"{column} is computed by the server"
    return f"{column} is {loss.found}, which {loss.change} values of {loss.column.type.native}, silently"
