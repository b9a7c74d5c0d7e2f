"""Labels of enums and attributes of composite types, by the types of columns in which they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from tailrace.sources.postgres.wire.contents import TypeValues

#: From here on, types are those of users: values of others do not change (FirstNormalObjectId).
FIRST_OF_USERS = 16384
#: Of each type given those in it, by elements, bases, attributes and bounds; then what their text depends on.
TYPE_VALUES_QUERY = """\
WITH RECURSIVE used(root, oid) AS (
    SELECT r, r::oid FROM pg_catalog.unnest($1::int8[]) r
  UNION
    SELECT u.root, p.oid FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.oid CROSS JOIN LATERAL (
        SELECT t.typelem UNION ALL SELECT t.typbasetype
        UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a
                  WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
    ) p(oid) WHERE p.oid <> 0
)
SELECT u.root, e.oid::int8, e.enumlabel::text
FROM used u JOIN pg_catalog.pg_enum e ON e.enumtypid = u.oid
UNION ALL
SELECT u.root, 0, t.oid || ' ' || a.attnum || ' ' || a.atttypid || ' ' || a.atttypmod
FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.oid AND t.typtype = 'c'
JOIN pg_catalog.pg_attribute a ON a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
"""


def type_values(rows: Iterable[Sequence[Any]]) -> dict[int, TypeValues]:
    """What values of types depend on, for those with enums or composite types in them.

    Args:
        rows: of `TYPE_VALUES_QUERY`.
    """
    labels: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
    attributes: defaultdict[int, list[str]] = defaultdict(list)
    for root, number, text in rows:
        if number:
            labels[root].append((number, text))
        else:
            attributes[root].append(text)
    return {
        root: TypeValues(tuple(labels[root]), tuple(attributes[root]))
        for root in (*labels.keys(), *(attributes.keys() - labels.keys()))
    }
