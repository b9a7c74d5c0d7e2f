"""Types and schemas of a PostgreSQL database, queried over `pgwire`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tailrace.model.table import Column, TableId, TableSchema
from tailrace.sources.postgres.wire.types import TYPES_QUERY, PostgresType, PostgresTypes
from tests.support.pgwire import Wire

_COLUMNS = """\
SELECT a.attname, a.atttypid, a.atttypmod, NOT a.attnotnull,
       EXISTS (SELECT FROM pg_index i
               WHERE i.indrelid = a.attrelid AND i.indisprimary AND a.attnum = ANY (i.indkey))
FROM pg_attribute a WHERE a.attrelid = '{}'::regclass AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""


def types_of(wire: Wire, tables: Sequence[str]) -> list[PostgresType]:
    """The types of the tables' columns, without those that `PostgresTypes` knows."""
    oids = ", ".join(f"'{table}'::regclass" for table in tables)
    query = TYPES_QUERY.replace("ANY ($1)", f"ANY (ARRAY[{oids}]::oid[])")
    query = (
        "SELECT oid, schema, name, form, element, base, modifier, to_json(labels) "
        f"FROM ({query}) q(oid, schema, name, form, element, base, modifier, labels)"
    )
    found = []
    for oid, schema, name, form, element, base, modifier, labels in wire.rows(query):
        assert labels is not None
        type_ = PostgresType(
            int(oid or 0),
            schema or "",
            name or "",
            form or "",
            int(element or 0),
            int(base or 0),
            int(modifier or 0),
            tuple(json.loads(labels)),
        )
        if type_.oid not in PostgresTypes():
            found.append(type_)
    return sorted(found, key=lambda t: t.oid)


def schema_of(wire: Wire, table: str, types: PostgresTypes | None = None) -> TableSchema:
    """The schema of a table in `public`, from the catalog."""
    known = types or PostgresTypes(types_of(wire, [table]))
    columns, key = [], []
    for name, oid, modifier, nullable, in_key in wire.rows(_COLUMNS.format(table)):
        type_ = known.column_type(int(oid or 0), int(modifier or 0))
        columns.append(Column(name or "", type_, nullable == "t"))
        if in_key == "t":
            key.append(name or "")
    return TableSchema(TableId("public", table), tuple(columns), tuple(key))
