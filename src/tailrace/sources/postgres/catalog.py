"""The catalog: the tables and their schemas, equal to those of the log's Relation messages.

A schema holds the columns that the publication carries: generated columns where the publication has them (18
and later), but no columns that a column list leaves out.

A table's key is the part of a deleted row that the log carries: the primary key, the index that is its
REPLICA IDENTITY, or with FULL the primary key or else a UNIQUE index over NOT NULL columns; a table may have
none. A partitioned table counts as one table under its own name where the publication has
publish_via_partition_root (ours has), else each partition counts by itself.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pg8000.exceptions import DatabaseError, InterfaceError

from tailrace.config.options import SourceOptions
from tailrace.model.column_filter import ALL_COLUMNS, ColumnFilter
from tailrace.model.declaration import TableTexts
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.sources import network
from tailrace.sources.base import KeyPlace
from tailrace.sources.postgres.connection import Connection, translate
from tailrace.sources.postgres.protocol.literal import identifier
from tailrace.sources.postgres.replication import publication
from tailrace.sources.postgres.wire.contents import Contents, Partition, StoredColumn
from tailrace.sources.postgres.wire.shapes import Shape, ShapeColumn
from tailrace.sources.postgres.wire.type_values import FIRST_OF_USERS, TYPE_VALUES_QUERY, type_values
from tailrace.sources.postgres.wire.types import TYPES_QUERY, PostgresType, PostgresTypes

KeyKind = Literal["primary", "identity", "unique", "none"]
#: Types whose values are in the same order as those of another type.
_ORDERS = {"int2": "int8", "int4": "int8", "varchar": "text"}
#: REPLICA IDENTITY by its letter in the catalog.
IDENTITIES = {"d": "default", "f": "full", "i": "index", "n": "nothing"}

_TABLES_QUERY = """\
SELECT c.oid::int8, n.nspname::text, c.relname::text, c.relkind::text, c.relispartition,
       c.relpersistence::text,
       ARRAY(SELECT a.relid::oid::int8 FROM pg_catalog.pg_partition_ancestors(c.oid) a WHERE a.relid <>
       c.oid),
       CASE WHEN c.relkind = 'p'
            THEN (SELECT coalesce(sum(greatest(l.reltuples, 0)), 0) FROM pg_catalog.pg_partition_tree(c.oid) p
                  JOIN pg_catalog.pg_class l ON l.oid = p.relid WHERE p.isleaf)
            ELSE greatest(c.reltuples, 0) END::int8,
       CASE WHEN c.relkind = 'p'
            THEN (SELECT coalesce(string_agg(DISTINCT l.relreplident::text, ''), '')
                  FROM pg_catalog.pg_partition_tree(c.oid) p
                  JOIN pg_catalog.pg_class l ON l.oid = p.relid WHERE p.isleaf)
            ELSE c.relreplident::text END, c.relnamespace::int8, c.relfilenode::int8,
       c.relnatts::int4
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND n.nspname !~ '^pg_'
  AND n.nspname <> 'information_schema'
"""
_COLUMNS_QUERY = """\
SELECT a.attrelid::oid::int8, a.attnum::int4, a.attname::text, a.atttypid::int8, a.atttypmod, a.attnotnull,
       a.attgenerated::text,
       CASE WHEN a.attcollation <> 0 AND a.attcollation <> t.typcollation
            THEN (SELECT n.nspname::text || '.' || c.collname::text FROM pg_catalog.pg_collation c
                  JOIN pg_catalog.pg_namespace n ON n.oid = c.collnamespace WHERE c.oid = a.attcollation) END,
       a.xmin::text, a.atthasdef OR a.atthasmissing,
       CASE WHEN a.attgenerated <> '' THEN pg_catalog.pg_get_expr(d.adbin, d.adrelid) ELSE '' END
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = ANY ($1) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""
#: A column's row in the catalog is that of its creation until it is altered, and ATTACH alters every column:
#: a partition with a column as old as its system columns was created as a partition.
_PARTS_QUERY = """\
SELECT r.oid::int8, p.relid::oid::int8, c.relfilenode::int8, i.xmin::text,
       EXISTS (SELECT FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_attribute s ON s.attrelid = a.attrelid
               WHERE a.attrelid = c.oid AND a.attnum > 0 AND s.attname = 'tableoid' AND s.attnum < 0
               AND s.xmin = a.xmin AND s.cmin = a.cmin AND s.xmin = i.xmin),
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.atthasmissing)
FROM pg_catalog.unnest($1::int8[]) r(oid) CROSS JOIN LATERAL pg_catalog.pg_partition_tree(r.oid::oid) p
JOIN pg_catalog.pg_class c ON c.oid = p.relid JOIN pg_catalog.pg_inherits i ON i.inhrelid = p.relid
WHERE p.relid <> r.oid::oid
"""
_INDEXES_QUERY = """\
SELECT i.indrelid::oid::int8, i.indisprimary, i.indisreplident, i.indnkeyatts::int4, i.indkey::text
FROM pg_catalog.pg_index i
WHERE i.indrelid = ANY ($1) AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL
ORDER BY i.indrelid, i.indexrelid
"""


@dataclass(frozen=True)
class CatalogTable:
    """A table of the catalog.

    Args:
        schema: its schema.
        estimated_rows: the planner's estimate of its number of rows.
        oid: its object id.
        identity: the letters of its REPLICA IDENTITY: of a partitioned table those of its partitions.
        key_kind: where the schema's key comes from.
        unlogged: whether its changes are not logged.
        generated: generated columns that the log does not carry.
        whole: the schema with the columns that the stream's column filter leaves out.
        numbered: as `numbers`, of these columns.
        kind: r table, p partitioned table.
        numbers: of each column of the schema the number, type's oid and modifier.
        entry: the publication's entry for it (`Publication.entries`), "" if it needs none or has none.
        live: how many columns it has, with those that the schema lacks.
        contents: what the values of its old rows depend on, None if not known.
        described: as `numbers`, with the type as the server describes it in results.
        shape: its columns as the stream stores them; None if some are generated: their rows follow others.
        types: the types of the database, as far as captured tables have them.
    """

    schema: TableSchema
    estimated_rows: int
    oid: int
    identity: str
    key_kind: KeyKind
    unlogged: bool
    generated: tuple[str, ...]
    whole: TableSchema
    numbered: tuple[tuple[int, int, int], ...]
    kind: str = "r"
    numbers: tuple[tuple[int, int, int], ...] = ()
    entry: str = ""
    live: int = 0
    contents: Contents | None = None
    described: tuple[tuple[int, int, int], ...] = ()
    shape: Shape | None = None
    types: PostgresTypes = field(default_factory=PostgresTypes, compare=False, repr=False)

    @property
    def identity_text(self) -> str:
        """What tells the table from another one of its name, and its key from another key of it.

        Four parts: the table, the publication's entry for it, what the order of its key depends on, and what
        the values of its rows depend on.
        """
        number_of = {c.name: n for c, (n, _, _) in zip(self.schema.columns, self.numbers, strict=True)}
        key = [
            f"{number_of[c.name]}{_ORDERS.get(c.type.native, c.type.native)}{c.type.collation or ''}"
            for c in map(self.schema.column, self.schema.key)
        ]
        order = hashlib.sha256(",".join(key).encode()).hexdigest()[:8]
        return f"{self.oid}/{self.entry}/{order}" + (f"/{self.contents.text}" if self.contents else "")

    @property
    def left_out(self) -> tuple[str, ...]:
        """Columns that are not in the schema: generated ones, and those of the column filter."""
        known = {column.name for column in self.schema.columns}
        return (*self.generated, *(c.name for c in self.whole.columns if c.name not in known))

    @property
    def texts(self) -> TableTexts:
        """Nothing: no option asks for comments, or for declared types."""
        return {}

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """The key by which its rows are read."""
        return (self.schema.key,)

    @property
    def key_in(self) -> KeyPlace:
        """The catalog: with REPLICA IDENTITY FULL the log marks every column."""
        return "catalog"

    @property
    def has_whole_images(self) -> bool:
        """Whether the log carries the whole row before each change."""
        return self.identity == "f"


def tables(
    connection: Connection,
    captures: Callable[[str], bool],
    published: publication.Publication,
    unfit: Callable[[str], str | None] = lambda _: None,
    columns: ColumnFilter = ALL_COLUMNS,
) -> list[CatalogTable]:
    """The tables that are captured, ordered by name.

    Args:
        connection: an ordinary one.
        captures: whether the table `schema.table` is captured.
        published: the publication, or the one that would be created.
        unfit: `SourceOptions.unfit`.
        columns: the columns that are captured; those of keys are in the schemas all the same.

    Raises:
        TransientSourceError: the connection is lost.
        SourceError: the server refuses.
    """
    try:
        return list(_tables(connection, captures, published, unfit, columns))
    except (DatabaseError, InterfaceError, OSError) as error:
        raise translate(error, "reading the catalog") from error


@network.sensible("the catalog")
def captured(
    connection: Connection,
    options: SourceOptions,
    *,
    published: publication.Publication | None = None,
) -> list[CatalogTable]:
    """The tables that a stream captures. Raises as `tables`, and pg8000's errors.

    Args:
        connection: an ordinary one.
        options: the stream's options.
        published: the publication, if it has been read already.
    """
    name = options.publication
    published = published or publication.read(connection, name)
    published = published or publication.planned(name, connection.version)
    return tables(connection, options.captures, published, options.unfit, options.columns)


@network.sensible("types")
def types(connection: Connection, captures: Callable[[str], bool]) -> PostgresTypes:
    """The types of the captured tables' columns. Raises pg8000's errors."""
    return _types(
        connection, [row[0] for row in connection.rows(_TABLES_QUERY) if captures(f"{row[1]}.{row[2]}")]
    )


def without_identity(connection: Connection, oid: int) -> list[TableId]:
    """The partitions of a table whose updates fail once it is published. Raises pg8000's errors."""
    rows = connection.rows(
        "SELECT n.nspname::text, c.relname::text FROM pg_catalog.pg_partition_tree($1::oid) p "
        "JOIN pg_catalog.pg_class c ON c.oid = p.relid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE p.isleaf AND (c.relreplident = 'n' OR (c.relreplident = 'd' AND NOT EXISTS ("
        "SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))) ORDER BY 1, 2",
        oid,
    )
    return [TableId(*row) for row in rows]


def altered(connection: Connection, found: Iterable[CatalogTable]) -> bool:
    """Whether one of these tables was altered or replaced since it was found. Raises pg8000's errors."""
    known = {t.oid: t for t in found}
    rows = connection.rows(
        "SELECT c.oid::int8, n.nspname::text, c.relname::text, "
        "array_agg(a.attnum || ' ' || a.atttypid || ' ' || a.atttypmod || ' ' || a.attname) "
        "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
        "WHERE c.oid = ANY ($1) GROUP BY 1, 2, 3",
        list(known),
    )
    now = {oid: (TableId(schema, name), set(columns)) for oid, schema, name, columns in rows}
    for oid, table in known.items():
        id_, columns = now.get(oid, (None, set()))
        described = {
            f"{number} {type_} {modifier} {column.name}"
            for column, (number, type_, modifier) in zip(table.whole.columns, table.numbered, strict=True)
        }
        if id_ != table.schema.id or len(columns) != table.live or not columns.issuperset(described):
            return True
    return False


def _types(connection: Connection, oids: list[int]) -> PostgresTypes:
    found = [
        PostgresType(oid, schema, name, form, element, base, modifier, tuple(labels or ()))
        for oid, schema, name, form, element, base, modifier, labels in connection.rows(TYPES_QUERY, oids)
    ]
    return PostgresTypes(found)


def _tables(
    connection: Connection,
    captures: Callable[[str], bool],
    published: publication.Publication,
    unfit: Callable[[str], str | None],
    captured: ColumnFilter,
) -> Iterator[CatalogTable]:
    captured_rows = _captured_rows(connection.rows(_TABLES_QUERY), captures, published.via_root)
    oids = [row[0] for row in captured_rows]
    if not oids:
        return
    known = _types(connection, oids)
    columns, indexes = defaultdict(list), defaultdict(list)
    for row in connection.rows(_COLUMNS_QUERY, oids):
        columns[row[0]].append(row)
    of_users = sorted({c[3] for of_table in columns.values() for c in of_table if c[3] >= FIRST_OF_USERS})
    values = type_values(connection.rows(TYPE_VALUES_QUERY, of_users) if of_users else ())
    for row in connection.rows(_INDEXES_QUERY, oids):
        indexes[row[0]].append(row)
    parts: defaultdict[int, list[Partition]] = defaultdict(list)
    filled: defaultdict[int, set[str]] = defaultdict(set)
    roots = [row[0] for row in captured_rows if row[3] == "p"]
    for root, part, file, attached, is_born, missing in connection.rows(_PARTS_QUERY, roots) if roots else ():
        parts[root].append(Partition(part, file, attached, is_born))
        filled[root] |= set(missing)
    listed = dict(published.columns)
    entries = dict(published.entries)
    for oid, schema, name, kind, _, persistence, above, rows, identity, namespace, file, last in sorted(
        captured_rows, key=lambda r: (r[1], r[2])
    ):
        id_ = TableId(schema, name)
        chosen, generated = [], []
        for column in columns[oid]:
            if id_ in listed and column[1] not in listed[id_]:
                continue
            if column[6] and not (column[6] == "s" and published.generated):
                generated.append(column[2])
                continue
            chosen.append(column)
        key, key_kind = _key(indexes[oid], {c[1]: c for c in chosen}, identity)
        whole = TableSchema(id_, tuple(_column(id_, c, known, unfit) for c in chosen), key)
        table = captured.schema(whole)
        names = {column.name for column in table.columns}
        read = [c for c in chosen if c[2] in names]
        yield CatalogTable(
            table,
            rows,
            oid,
            identity,
            key_kind,
            persistence == "u",
            tuple(generated),
            whole,
            tuple((c[1], c[3], c[4]) for c in chosen),
            kind,
            tuple((c[1], c[3], c[4]) for c in read),
            next(
                (entries[of] for of in (f"{oid}", *map(str, above), f"schema {namespace}") if of in entries),
                "",
            ),
            len(columns[oid]),
            Contents(
                tuple(
                    StoredColumn(
                        c[1],
                        c[2],
                        f"{c[3]} {c[4]} {c[10]}",
                        c[8],
                        c[9] or c[2] in filled[oid],
                        values.get(c[3]),
                    )
                    for c in chosen
                ),
                file,
                tuple(parts[oid]),
            ),
            tuple((c[1], *known.described(c[3], c[4])) for c in read),
            _shape(oid, last, key, chosen, columns[oid]),
            known,
        )


def _shape(
    oid: int, last: int, key: tuple[str, ...], chosen: list[list[Any]], live: list[list[Any]]
) -> Shape | None:
    if any(column[6] for column in chosen):
        return None
    numbers = {column[2]: column[1] for column in chosen}
    return Shape(
        oid,
        last,
        tuple(numbers[name] for name in key),
        tuple(ShapeColumn(c[1], c[2], c[3], c[4], not c[5]) for c in chosen),
        frozenset(c[1] for c in live) - frozenset(numbers.values()),
    )


def _captured_rows(rows: list[list[Any]], captures: Callable[[str], bool], via_root: bool) -> list[list[Any]]:
    found = {row[0]: row for row in rows if captures(f"{row[1]}.{row[2]}")}
    if via_root:  # a partition counts by itself only if no ancestor of it is captured
        return [row for row in found.values() if not any(above in found for above in row[6])]
    return [row for row in found.values() if row[3] != "p"]


def _column(id_: TableId, row: list[Any], types: PostgresTypes, unfit: Callable[[str], str | None]) -> Column:
    _, _, name, type_oid, modifier, not_null, _, collation, *_ = row
    type_ = types.column_type(type_oid, modifier, unfit=unfit(f"{id_}.{name}"))
    if collation is not None:
        schema, _, collname = collation.partition(".")
        type_ = replace(type_, collation=f"{identifier(schema)}.{identifier(collname)}")
    return Column(name, type_, not not_null)


def _key(
    indexes: list[list[Any]], columns: dict[int, list[Any]], identity: str
) -> tuple[tuple[str, ...], KeyKind]:
    usable: list[tuple[bool, bool, tuple[str, ...]]] = []
    for _, primary, chosen, count, numbers in indexes:
        parts = [columns.get(int(n)) for n in numbers.split()[:count]]
        if all(part is not None and part[5] for part in parts):
            usable.append((primary, chosen, tuple(part[2] for part in parts if part is not None)))
    if identity == "i":
        for _, chosen, key in usable:
            if chosen:
                return key, "identity"
    for primary, _, key in usable:
        if primary:
            return key, "primary"
    if identity == "f" and usable:
        return min((key for *_, key in usable), key=lambda key: (len(key), key)), "unique"
    return (), "none"
