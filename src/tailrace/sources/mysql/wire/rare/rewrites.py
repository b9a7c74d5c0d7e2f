"""Which schema changes may change rows that the log does not show. Pure.

The log holds a schema change as its statement. Some statements leave every stored value as it is: an index, a
comment, a new column that is NULL in old rows. All others change rows, or may: a default for old rows, a
conversion, a partition dropped, a table swapped by RENAME. Only the former are listed here. What is not
understood counts as a rewrite: at worst, a table is read once more than necessary.

Source: MySQL 8.4 manual, "ALTER TABLE Statement"; MariaDB's "ALTER TABLE".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tailrace.sources.mysql.wire.rare.statements import MARK, WORD, Token, tokens, unescaped_tokens

#: First words of table options and operations that change no row.
_HARMLESS = frozenset(
    """
    ALGORITHM ANALYZE AUTOEXTEND_SIZE AUTO_INCREMENT AVG_ROW_LENGTH CHARACTER CHARSET CHECK CHECKSUM
    COALESCE COLLATE COMMENT COMPRESSION CONNECTION DEFAULT DELAY_KEY_WRITE DISABLE ENABLE ENCRYPTED
    ENCRYPTION ENCRYPTION_KEY_ID ENGINE_ATTRIBUTE FORCE INSERT_METHOD KEY_BLOCK_SIZE LOCK
    MAX_ROWS MIN_ROWS NOWAIT OPTIMIZE ORDER PACK_KEYS PAGE_CHECKSUM PAGE_COMPRESSED
    PAGE_COMPRESSION_LEVEL PARTITION REBUILD REMOVE REORGANIZE ROW_FORMAT SECONDARY_ENGINE
    SECONDARY_ENGINE_ATTRIBUTE SECONDARY_LOAD SECONDARY_UNLOAD STATS_AUTO_RECALC STATS_PERSISTENT
    STATS_SAMPLE_PAGES TRANSACTIONAL WAIT WITHOUT
    """.split()  # noqa: SIM905 - sixty words
)
#: Storage engines that keep every row of a table that is given them. BLACKHOLE keeps none.
_KEEPING_ENGINES = frozenset(
    {"INNODB", "MYISAM", "ARIA", "MEMORY", "ROCKSDB", "ARCHIVE", "NDB", "NDBCLUSTER"}
)
_INDEXES = frozenset({"INDEX", "KEY", "FULLTEXT", "SPATIAL", "UNIQUE", "FOREIGN", "CHECK"})
#: Words that give a new column a value in old rows: by themselves, or by an implicit default.
_FILLING = frozenset(
    {"NOT", "AS", "GENERATED", "AUTO_INCREMENT", "SERIAL", "ON", "PERSISTENT", "STORED", "VIRTUAL", "PRIMARY"}
)


def rewrites_rows(text: str) -> bool:
    """Whether the schema change `text` may change rows of the tables it names without logging them."""
    if "\\" in text and _rewrites(list(unescaped_tokens(text))):  # by the session's sql_mode
        return True
    return _rewrites(list(tokens(text)))


def _rewrites(found: Sequence[Token]) -> bool:
    words = [_word(token) for token in found]
    match words[:1], words[1:2]:
        case ["RENAME"], _:
            return True
        case ["TRUNCATE"], _:
            return True
        case ["DROP"], [kind]:
            return kind in ("TABLE", "TABLES", "DATABASE", "SCHEMA")
        case ["CREATE"], _:
            return words[1:3] == ["OR", "REPLACE"] and "TABLE" in words[3:4]
        case ["ALTER"], _:
            return _alters(found, words)
        case _:
            return True


def _alters(found: Sequence[Token], words: Sequence[str]) -> bool:
    if "TABLE" not in words[1:4]:
        return words[1:2] not in (["DATABASE"], ["SCHEMA"], ["VIEW"], ["EVENT"], ["FUNCTION"], ["PROCEDURE"])
    if "IGNORE" in words[1:3]:  # drops rows with duplicate keys
        return True
    at = words.index("TABLE") + 1
    if words[at : at + 2] == ["IF", "EXISTS"]:
        at += 2
    if found[at : at + 1] == [(MARK, ".")]:  # in the default database
        at += 1
    at += 3 if found[at + 1 : at + 2] == [(MARK, ".")] else 1
    if words[at : at + 1] in (["WAIT"], ["NOWAIT"]):  # MariaDB
        at += 2 if words[at] == "WAIT" else 1
    return any(_spec_rewrites(spec) for spec in _listed(words[at:]))


def _listed(words: Sequence[str]) -> Iterator[list[str]]:
    """Parts between commas outside parentheses."""
    part: list[str] = []
    depth = 0
    for word in words:
        depth += {"(": 1, ")": -1}.get(word, 0)
        if word == "," and depth == 0:
            yield part
            part = []
        else:
            part.append(word)
    if part:
        yield part


def _spec_rewrites(spec: Sequence[str]) -> bool:
    first, second = [*spec, "", ""][:2]
    if first == "ADD":
        return _adds(spec[1:])
    if first == "DROP":
        # a dropped column may come back under its name, NULL in old rows: targets must not keep its values
        return second not in _INDEXES and second != "CONSTRAINT"
    if first == "ALTER":
        return second not in ("INDEX", "CHECK", "CONSTRAINT") and not _sets_default(spec[1:])
    if first == "RENAME":
        return second not in ("INDEX", "KEY")
    return first not in _HARMLESS | {"ENGINE"} or _changes_engine(spec)


def _changes_engine(options: Sequence[str]) -> bool:
    """Whether table options, which need no commas, name a storage engine that may lose rows."""
    words = [word for word in options if word != "="]
    return any(before == "ENGINE" and name not in _KEEPING_ENGINES for before, name in pairwise([*words, ""]))


def _adds(spec: Sequence[str]) -> bool:
    """Whether ADD gives old rows values in a new column, or changes rows in another way."""
    first = spec[0] if spec else ""
    if first in _INDEXES or first == "PARTITION" or spec[:2] in (["VECTOR", "INDEX"], ["VECTOR", "KEY"]):
        return False
    if first == "CONSTRAINT":
        return "PRIMARY" in spec
    words = list(spec[1:]) if first == "COLUMN" else list(spec)
    if words[:3] == ["IF", "NOT", "EXISTS"]:
        words = words[3:]
    if not words or words[0] in ("PRIMARY", "SYSTEM", "PERIOD"):
        return True
    columns = _listed(words[1:-1]) if words[0] == "(" else [words]
    return any(_fills(column[1:]) for column in columns)


def _fills(declaration: Sequence[str]) -> bool:
    """Whether a new column declared so may have other values than NULL in old rows."""
    outside = list(_outside_parentheses(declaration))
    if any(word in _FILLING for word in outside):
        return True
    if any(pair[1] == "KEY" and pair[0] != "UNIQUE" for pair in pairwise(outside)):  # PRIMARY may be left out
        return True
    if "DEFAULT" in outside:
        at = outside.index("DEFAULT")
        return outside[at + 1 : at + 2] != ["NULL"]
    # without explicit_defaults_for_timestamp, a TIMESTAMP is NOT NULL unless it says NULL
    return declaration[:1] == ["TIMESTAMP"] and "NULL" not in outside


def _sets_default(spec: Sequence[str]) -> bool:
    """Whether ALTER [COLUMN] name sets or drops the default of rows to come."""
    rest = spec[2:] if spec[:1] == ["COLUMN"] else spec[1:]
    return tuple(rest[:2]) in (("SET", "DEFAULT"), ("DROP", "DEFAULT"))


def _outside_parentheses(words: Sequence[str]) -> Iterator[str]:
    depth = 0
    for word in words:
        depth += {"(": 1, ")": -1}.get(word, 0)
        if depth == 0:
            yield word


def _word(token: Token) -> str:
    """A word in capitals, or a mark; a quoted name is no word, whatever it contains."""
    kind, text = token
    if kind == WORD:
        return text.upper()
    return text if kind == MARK else "`"
