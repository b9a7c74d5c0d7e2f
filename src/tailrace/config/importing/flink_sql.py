"""`tailrace import flink-cdc` of Flink SQL: the sources that `CREATE TABLE ... WITH (...)` declares.

Tables of one server become one source. What the statements then do with them has to be written by hand, as
transforms and a sink.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tailrace.config.importing.draft import Draft, DraftEntry
from tailrace.config.importing.flink_cdc import TOOL
from tailrace.config.importing.flink_source import source
from tailrace.config.importing.given import Given
from tailrace.errors import ConfigError

_CONNECTORS = {"mysql-cdc": "mysql", "postgres-cdc": "postgres"}
_CREATE = re.compile(
    r"CREATE\s+(?:TEMPORARY\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?([\w.`$-]+)\s*", re.IGNORECASE
)
_OPTION = re.compile(r"'((?:[^']|'')*)'\s*=\s*'((?:[^']|'')*)'")
#: Texts, quoted names and comments, in which parentheses and semicolons have no meaning.
_QUOTED = re.compile(r"'(?:[^']|'')*'|`[^`]*`|--[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMENT = re.compile(r"'(?:[^']|'')*'|`[^`]*`|(--[^\n]*|/\*.*?\*/)", re.DOTALL)
_NO_COLUMN = re.compile(r"(PRIMARY\s+KEY|WATERMARK|CONSTRAINT|UNIQUE)\b", re.IGNORECASE)
_NAME = re.compile(r"`[^`]*`|\S+")
_NAMES = ("database-name", "schema-name", "table-name")


@dataclass(frozen=True)
class _Table:
    """A table that a statement declares."""

    name: str
    columns: tuple[str, ...]
    metadata: tuple[str, ...]
    options: dict[str, str]


def draft(text: str, name: str) -> Draft:
    """The pipeline file that reads what the statements declare as sources.

    Args:
        text: the statements.
        name: the file's name.

    Raises:
        ConfigError: there is no source among them, or they are on several servers.
    """
    made = Draft(TOOL, name)
    tables, others = [], []
    for statement in _statements(text):
        declared = _declared(statement)
        if declared is not None and declared.options.get("connector") in _CONNECTORS:
            tables.append(declared)
        else:
            others.append(
                " ".join(statement.split()[:2]).upper() if declared is None else f"table {declared.name}"
            )
    if not tables:
        raise ConfigError(
            "the file declares no source of MySQL or PostgreSQL",
            f"needed: CREATE TABLE ... WITH ('connector' = '{next(iter(_CONNECTORS))}', ...)",
            code="TR-1350",
        )
    shared = [{k: v for k, v in one.options.items() if k not in _NAMES} for one in tables]
    if any(one != shared[0] for one in shared):
        raise ConfigError(
            "the tables are read with different settings",
            f"found: {', '.join(one.name for one in tables)}",
            "make a file for each server, with the tables that have the same settings",
            code="TR-1352",
        )
    names = {key: f"'{key}'" for key in shared[0]}
    patterns = [_pattern(one) for one in tables]
    given = Given(
        {**shared[0], "type": _CONNECTORS[shared[0]["connector"]], "tables": ",".join(patterns)}, names
    )
    given.take("connector")
    source(given, made)
    _columns(tables, made)
    for left in given.left():
        given.take(left, is_secret=True)
        made.miss(given.named(left), "there is no such setting of a source here")
    for other in others:
        made.miss(other, "write what it does as transforms, routes and a sink")
    made.sink["type"] = DraftEntry("console")
    made.must_set("sink", "the target: this one only shows changes")
    made.settle("")
    return made


def _statements(text: str) -> list[str]:
    """The statements, without comments."""
    plain = _COMMENT.sub(lambda match: " " if match[1] else match[0], text)
    masked = _masked(plain)
    ends = [match.start() for match in re.finditer(";", masked)]
    parts = [plain[a:b] for a, b in zip([0, *(end + 1 for end in ends)], [*ends, len(plain)], strict=True)]
    return [part.strip() for part in parts if part.strip()]


def _masked(text: str) -> str:
    return _QUOTED.sub(lambda match: "x" * len(match[0]), text)


def _declared(statement: str) -> _Table | None:
    """The table that a statement declares; None: it declares none."""
    head = _CREATE.match(statement)
    if head is None:
        return None
    masked = _masked(statement)
    body = ""
    at = head.end()
    if masked[at : at + 1] == "(":
        end = _closing(masked, at)
        body = statement[at + 1 : end]
        at = end + 1
    options = re.search(r"\bWITH\s*\(", masked[at:], re.IGNORECASE)
    found: dict[str, str] = {}
    if options is not None:
        for match in _OPTION.finditer(statement, at + options.end()):
            found[match[1].replace("''", "'")] = match[2].replace("''", "'")
    columns, metadata = [], []
    for part in _parts(body):
        name = _NAME.findall(part)[0].strip("`")
        if _NO_COLUMN.match(part):
            continue
        if re.search(r"\bMETADATA\b", _masked(part), re.IGNORECASE):
            metadata.append(name)
        elif not re.match(r"(`[^`]*`|\S+)\s+AS\b", part, re.IGNORECASE):
            columns.append(name)
    return _Table(head[1].strip("`"), tuple(columns), tuple(metadata), found)


def _closing(masked: str, at: int) -> int:
    depth = 0
    for place in range(at, len(masked)):
        depth += {"(": 1, ")": -1}.get(masked[place], 0)
        if depth == 0:
            return place
    raise ConfigError("a statement has a parenthesis that is not closed", code="TR-1350")


def _parts(body: str) -> list[str]:
    """What commas divide outside of parentheses and angle brackets."""
    masked, depth, start, found = _masked(body), 0, 0, []
    for place, letter in enumerate(masked):
        depth += {"(": 1, "<": 1, ")": -1, ">": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            found.append(body[start:place])
            start = place + 1
    return [part.strip() for part in [*found, body[start:]] if part.strip()]


def _pattern(table: _Table) -> str:
    """The table as a pipeline of Flink CDC names it: a dot divides, and an escaped one is a pattern's."""
    parts = [table.options.get(name) for name in _NAMES]
    if table.options["connector"] == "mysql-cdc":
        parts = [parts[0], parts[2]]
    if None in parts:
        raise ConfigError(
            f"table `{table.name}` lacks a name",
            "needed: 'database-name', 'table-name' and, of PostgreSQL, 'schema-name'",
            code="TR-1351",
        )
    return ".".join(str(part).replace(".", "\\.") for part in parts)


def _columns(tables: list[_Table], made: Draft) -> None:
    """Only the declared columns are captured."""
    if all(table.columns for table in tables):
        patterns = [
            rf"{pattern}\.({'|'.join(map(re.escape, table.columns))})"
            for table, pattern in zip(tables, made.source["tables"].value, strict=True)
        ]
        made.source["column.include.list"] = DraftEntry(patterns, "the declared columns")
    for table in tables:
        for name in table.metadata:
            made.miss(f"{table.name}.{name}", "its METADATA: sinks have columns of their own for them")
