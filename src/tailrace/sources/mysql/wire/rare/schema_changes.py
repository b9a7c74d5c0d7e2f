"""Schema changes of a statement's text, typed. Pure.

The text tells what schemas cannot: that a column was renamed rather than dropped and added, which value old
rows have in a new column, what became of the rows. Types and keys are the catalog's, from before the
statement and after it; the latter may be ahead of it. So a column is described only as far as both agree
with the text. What is not understood counts as a rewrite of rows: at worst, a table is read once more than
necessary (docs/design/0007-schema-events.md).

Source: MySQL 8.4 manual, "ALTER TABLE Statement", "RENAME TABLE Statement"; MariaDB's "ALTER TABLE".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tailrace.model.schema_change import (
    ColumnAdded,
    ColumnAltered,
    ColumnDropped,
    ColumnRenamed,
    KeyAltered,
    RowsRewritten,
    SchemaChange,
    TableCreated,
    TableDropped,
    TableRenamed,
    TableTruncated,
)
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.sources.mysql.wire.rare.rewrites import rewrites_rows
from tailrace.sources.mysql.wire.rare.statements import TOKEN, table_id

Changes = tuple[SchemaChange, ...]

_INDEXES = frozenset({"INDEX", "KEY", "FULLTEXT", "SPATIAL", "UNIQUE"})
#: A constant behind DEFAULT.
_LITERAL = re.compile(
    r"""\s* (?P<value>
        0[xb][0-9a-f]+ | [-+]?\s*(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?
      | (?:[bxn]|_\w+\s*)?'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*"
      | true | false | null ) (?![\w.(])""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
#: Words that make a column's old values depend on more than a constant.
_COMPUTED = frozenset({"AS", "GENERATED", "AUTO_INCREMENT", "SERIAL", "PERSISTENT", "STORED", "VIRTUAL"})


class _Token(NamedTuple):
    """A token of a statement: a word in capitals, a mark, or "`" for a quoted name, "'" for a string."""

    word: str
    name: str
    end: int


@dataclass(frozen=True)
class Catalog:
    """The captured tables before a statement and after it, as far as they are known.

    Args:
        before: schemas by table name.
        after: the same, without columns that later statements may have changed again.
        ahead: tables that later statements have changed: their key may be another one again.
    """

    before: Mapping[str, TableSchema]
    after: Mapping[str, TableSchema]
    ahead: Collection[str] = ()


def schema_changes(
    text: str,
    database: str,
    captures: Callable[[TableId], bool],
    catalog: Catalog,
    *,
    folds: bool = False,
) -> dict[TableId, Changes]:
    """What a statement changes, by captured table in the order they are named.

    A table that it names and leaves as it is has no changes.

    Args:
        text: the statement.
        database: its default database, "" for none.
        captures: whether a table is captured.
        catalog: the tables before and after.
        folds: see `statements.table_id`.
    """
    found = _Statement(list(_tokens(text)), text, database, catalog, folds).changes()
    return {table: changes for table, changes in found.items() if table.database and captures(table)}


@dataclass(frozen=True)
class _Statement:
    """One statement."""

    tokens: Sequence[_Token]
    text: str
    database: str
    catalog: Catalog
    folds: bool

    def changes(self) -> dict[TableId, Changes]:
        words = [token.word for token in self.tokens]
        match words[:1], words[1:2]:
            case (["CREATE"], ["TEMPORARY"]) | (["DROP"], ["TEMPORARY"]):
                return {}
            case ["RENAME"], _:
                return self._renames(2)
            case ["TRUNCATE"], _:
                table, _ = self.table_at(2 if words[1:2] == ["TABLE"] else 1)
                return {table: (TableTruncated(),)}
            case ["DROP"], ["TABLE" | "TABLES"]:
                return dict.fromkeys(self._tables(self.behind(2, "IF", "EXISTS")), (TableDropped(),))
            case ["DROP"], ["DATABASE" | "SCHEMA"]:
                return self._drops_database()
            case ["CREATE"], _ if "TABLE" in words[1:4]:
                return self._creates(words)
            case ["ALTER"], _ if "TABLE" in words[1:4]:
                return self._alters(words)
            case ["CREATE" | "DROP"], _ if "ON" in words and _INDEXES & set(words[1:3]):
                table, _ = self.table_at(words.index("ON") + 1)
                return {table: self._of_key(str(table), ())}
        return {}

    def _drops_database(self) -> dict[TableId, Changes]:
        at = self.behind(2, "IF", "EXISTS")
        name = self.tokens[at].name if at < len(self.tokens) else ""
        name = name.lower() if self.folds else name
        known = (schema.id for schema in self.catalog.before.values())
        return {table: (TableDropped(),) for table in known if table.database == name}

    def _creates(self, words: list[str]) -> dict[TableId, Changes]:
        at = words.index("TABLE") + 1
        table, _ = self.table_at(self.behind(at, "IF", "NOT", "EXISTS"))
        if str(table) not in self.catalog.before:
            return {table: (TableCreated(),)}
        if "REPLACE" in words[1:3]:
            return {table: (RowsRewritten("the table was replaced"),)}
        is_new = words[at : at + 1] != ["IF"]
        return {table: (TableCreated(),) if is_new else ()}

    def _renames(self, at: int) -> dict[TableId, Changes]:
        """RENAME TABLE a TO b, c TO a: one change of each table."""
        pairs = []
        for part in _listed(self.tokens[at:]):
            statement = replace(self, tokens=part)
            old, behind = statement.table_at(statement.behind(0, "IF", "EXISTS"))
            words = [token.word for token in part]
            if "TO" not in words[behind:]:
                return {}
            pairs.append((old, statement.table_at(words.index("TO", behind) + 1)[0]))
        return _renamed(pairs)

    def _alters(self, words: list[str]) -> dict[TableId, Changes]:
        at = self.behind(words.index("TABLE") + 1, "IF", "EXISTS")
        table, at = self.table_at(at)
        if words[at : at + 1] in (["WAIT"], ["NOWAIT"]):  # MariaDB
            at += 2 if words[at] == "WAIT" else 1
        found: list[SchemaChange] = []
        if "IGNORE" in words[1:3]:
            found.append(RowsRewritten("ALTER IGNORE drops rows with duplicate keys"))
        renamed: dict[TableId, Changes] = {}
        absorbed: dict[TableId, Changes] = {}
        for spec in _listed(self.tokens[at:]):
            alteration = _Alteration(replace(self, tokens=spec), str(table))
            if (new := alteration.new_name()) is not None:
                renamed = _renamed([(table, new)])
            else:
                if [token.word for token in spec[:2]] == ["CONVERT", "TABLE"]:  # to a partition (MariaDB)
                    absorbed[alteration.statement.table_at(2)[0]] = (TableDropped(),)
                found += alteration.changes()
        found = _with_one_key(found)
        found += self._of_key(str(table), found)
        if not found and not renamed and rewrites_rows(self.text):
            found.append(RowsRewritten(f"not understood: {' '.join(words[:2])}"))
        return {**renamed, table: (*found, *renamed.get(table, ())), **absorbed}

    def _of_key(self, table: str, changes: Sequence[SchemaChange]) -> Changes:
        """The change of the key that the catalog shows, which the statement may have made by an index."""
        before, after = self.catalog.before.get(table), self.catalog.after.get(table)
        if before is None or after is None or table in self.catalog.ahead:
            return ()
        if any(isinstance(change, KeyAltered) for change in changes):
            return ()
        names = {c.old: c.new for c in changes if isinstance(c, ColumnRenamed)}
        if tuple(names.get(name, name) for name in before.key) == after.key:
            return ()
        return (KeyAltered(before.key, after.key),)

    def behind(self, at: int, *words: str) -> int:
        """The place behind `words` if they are there."""
        found = tuple(token.word for token in self.tokens[at : at + len(words)])
        return at + len(words) if found == words else at

    def table_at(self, at: int) -> tuple[TableId, int]:
        """The table named at a place, and the place behind it."""
        if at < len(self.tokens) and self.tokens[at].word == ".":  # in the default database
            at += 1
        names = [token.name for token in self.tokens[at : at + 3]]
        if len(names) == 3 and self.tokens[at + 1].word == ".":
            return table_id(names[0], names[2], folds=self.folds), at + 3
        if not names:
            return TableId("", ""), at + 1
        return table_id(self.database, names[0], folds=self.folds), at + 1

    def _tables(self, at: int) -> list[TableId]:
        return [replace(self, tokens=part).table_at(0)[0] for part in _listed(self.tokens[at:])]


@dataclass(frozen=True)
class _Alteration:
    """One alteration of ALTER TABLE.

    Args:
        statement: its tokens only.
        table: the table's name.
    """

    statement: _Statement
    table: str

    @property
    def _words(self) -> list[str]:
        return [token.word for token in self.statement.tokens]

    def new_name(self) -> TableId | None:
        """The name that the table gets."""
        words = self._words
        if words[:1] != ["RENAME"] or words[1:2] in (["COLUMN"], ["INDEX"], ["KEY"]):
            return None
        at = 2 if words[1:2] in (["TO"], ["AS"], ["="]) else 1
        return self.statement.table_at(at)[0]

    def changes(self) -> list[SchemaChange]:
        """What it changes."""
        words = self._words
        match words[:1], words[1:2]:
            case ["ADD"], _ if "PRIMARY" in words[1:4]:
                return [self._new_key()]
            case ["ADD"], [second] if second not in _INDEXES and self._adds_columns(words):
                return self._adds(2 if second == "COLUMN" else 1)
            case ["DROP"], ["PRIMARY"]:
                return [KeyAltered(self._key(), ())]
            case ["DROP"], [second] if second not in _INDEXES | {"PARTITION", "FOREIGN", "SYSTEM", "PERIOD"}:
                if second in ("CONSTRAINT", "CHECK"):
                    return []
                at = self._at_name(1)
                return [ColumnDropped(self._spelled(self._name(at)))]
            case ["RENAME"], ["COLUMN"]:
                at = self.statement.behind(2, "IF", "EXISTS")
                return [ColumnRenamed(self._spelled(self._name(at)), self._name(at + 2))]
            case ["CHANGE"], _:
                at = self._at_name(1)
                return self._redefines(self._name(at), self._name(at + 1))
            case ["MODIFY"], _:
                name = self._name(self._at_name(1))
                return self._redefines(name, name)
        if rewrites_rows(f"ALTER TABLE t {self._source()}"):
            return [RowsRewritten(" ".join(word for word in words[:2] if word.isalpha()) or "not understood")]
        return []

    def _source(self) -> str:
        """The alteration in a form that has the same words."""
        return " ".join("`q`" if word in ("`", "'") else word for word in self._words)

    @staticmethod
    def _adds_columns(words: list[str]) -> bool:
        if words[1:2] == ["COLUMN"]:
            return True
        if words[1:3] in (["VECTOR", "INDEX"], ["VECTOR", "KEY"]):
            return False
        return words[1] not in ("CONSTRAINT", "FOREIGN", "CHECK", "PARTITION", "SYSTEM", "PERIOD")

    def _adds(self, at: int) -> list[SchemaChange]:
        behind = self.statement.behind(at, "IF", "NOT", "EXISTS")
        tokens = self.statement.tokens[behind:]
        if behind > at and _find(self.statement.catalog.before, self.table, self._name(behind)):
            return []
        if tokens and tokens[0].word == "(":
            return [change for part in _listed(tokens[1:-1]) for change in self._added(part)]
        return self._added(tokens)

    def _added(self, declaration: Sequence[_Token]) -> list[SchemaChange]:
        """A new column, from its name on, or an index among new columns."""
        if not declaration or declaration[0].word in _INDEXES | {"CONSTRAINT", "FOREIGN", "CHECK"}:
            return []
        if declaration[0].word == "PRIMARY":
            return [RowsRewritten("a primary key was added")]
        name = declaration[0].name
        outside = list(_outside_parentheses(declaration[1:]))
        words = [token.word for token in outside]
        default, why = self._default(outside, words)
        column = _find(self.statement.catalog.after, self.table, name)
        found: list[SchemaChange] = []
        if column is not None:
            found.append(ColumnAdded(column, default))
        if {"PRIMARY", "SERIAL"} & set(words):
            found.append(KeyAltered(self._key(), (name,)))
        if why or (column is None and default is not None):
            found.append(RowsRewritten(why or f"`{name}` was added with a default"))
        return found

    def _default(self, outside: Sequence[_Token], words: list[str]) -> tuple[str | None, str]:
        """The constant that old rows have in a new column; else why they may have other values."""
        if _COMPUTED & set(words):
            return None, "a computed column was added"
        if "DEFAULT" in words:
            match = _LITERAL.match(self.statement.text, outside[words.index("DEFAULT")].end)
            if match is None:
                return None, "a column was added whose default is an expression"
            return (None if match["value"].upper() == "NULL" else match["value"]), ""
        if "NOT" in words or (words[:1] == ["TIMESTAMP"] and "NULL" not in words):
            return None, "a column was added with the implicit default of its type"
        return None, ""

    def _redefines(self, old: str, new: str) -> list[SchemaChange]:
        """CHANGE, or MODIFY."""
        catalog = self.statement.catalog
        before, after = _find(catalog.before, self.table, old), _find(catalog.after, self.table, new)
        found: list[SchemaChange] = []
        if old.lower() != new.lower():
            found.append(ColumnRenamed(self._spelled(old), new))
        if before is None or after is None or replace(before, name=after.name) == after:
            found.append(RowsRewritten(f"column `{new}` was redefined"))
        else:
            found.append(ColumnAltered(replace(before, name=after.name), after))
        return found

    def _new_key(self) -> SchemaChange:
        words = self._words
        if "(" not in words:
            return RowsRewritten("a primary key was added")
        parts = _listed(self.statement.tokens[words.index("(") + 1 : -1])
        new = tuple(self._spelled(part[0].name) for part in parts)
        return KeyAltered(() if self._key() == new else self._key(), new)  # else it is known too late

    def _key(self) -> tuple[str, ...]:
        before = self.statement.catalog.before.get(self.table)
        return () if before is None else before.key

    def _at_name(self, at: int) -> int:
        at = self.statement.behind(at, "COLUMN")
        return self.statement.behind(at, "IF", "EXISTS")

    def _name(self, at: int) -> str:
        tokens = self.statement.tokens
        return tokens[at].name if at < len(tokens) else ""

    def _spelled(self, name: str) -> str:
        """A column's name as the table has it: statements may write it in another case."""
        column = _find(self.statement.catalog.before, self.table, name)
        return name if column is None else column.name


def applied(schema: TableSchema, changes: Sequence[SchemaChange]) -> TableSchema | None:
    """A table's schema after changes, as far as they tell; None if it has another name, or is gone."""
    columns, key = list(schema.columns), schema.key
    for change in changes:
        match change:
            case ColumnAdded(column=column):
                columns.append(column)
            case ColumnDropped(name=name):
                columns = [c for c in columns if c.name != name]
            case ColumnRenamed(old=old, new=new):
                columns = [replace(c, name=new) if c.name == old else c for c in columns]
                key = tuple(new if name == old else name for name in key)
            case ColumnAltered(new=column):
                columns = [column if c.name == column.name else c for c in columns]
            case KeyAltered(new=names):
                key = names
            case TableDropped() | TableRenamed():
                return None
    return replace(schema, columns=tuple(columns), key=key)


def _with_one_key(changes: Sequence[SchemaChange]) -> list[SchemaChange]:
    """`changes` with one change of the key for all of them."""
    keys = [change for change in changes if isinstance(change, KeyAltered)]
    if len(keys) < 2:
        return list(changes)
    others = [change for change in changes if not isinstance(change, KeyAltered)]
    return [*others, KeyAltered(keys[0].old, keys[-1].new)]


def _renamed(pairs: Sequence[tuple[TableId, TableId]]) -> dict[TableId, Changes]:
    """What renames of tables, one after the other, do to each."""
    content: dict[TableId, TableId] = {}  # by a table's name: the former name of what it holds
    moved: dict[TableId, None] = {}
    for old, new in pairs:
        content[new] = content.pop(old, old)
        moved[old] = None
    found: dict[TableId, Changes] = {}
    for former in moved:
        if former in content.values() and former not in content:
            (now,) = (name for name, held in content.items() if held == former)
            found[former] = (TableRenamed(str(now)),)
    for name, former in content.items():
        if name in moved and former != name:
            found[name] = (RowsRewritten(f"`{former}` was renamed to its name"),)
        elif former != name:
            found[name] = (TableCreated(),)
    return found


def _find(tables: Mapping[str, TableSchema], table: str, name: str) -> Column | None:
    schema = tables.get(table)
    columns = () if schema is None else schema.columns
    return next((column for column in columns if column.name.lower() == name.lower()), None)


def _listed(tokens: Sequence[_Token]) -> Iterator[list[_Token]]:
    """Parts between commas outside parentheses."""
    part: list[_Token] = []
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token.word, 0)
        if token.word == "," and depth == 0:
            yield part
            part = []
        else:
            part.append(token)
    if part:
        yield part


def _outside_parentheses(tokens: Sequence[_Token]) -> Iterator[_Token]:
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token.word, 0)
        if depth == 0 and token.word != ")":
            yield token


def _tokens(text: str) -> Iterator[_Token]:
    for match in TOKEN.finditer(text):
        if match["word"]:
            yield _Token(match["word"].upper(), match["word"], match.end())
        elif match["quoted"]:
            yield _Token("`", match["quoted"].replace("``", "`"), match.end())
        elif match["ansi"]:
            yield _Token("`", match["ansi"].replace('""', '"'), match.end())
        elif match["text"]:
            yield _Token("'", "", match.end())
        elif match["mark"]:
            yield _Token(match["mark"], "", match.end())
