"""The documentation's table of what differs from Debezium's messages, from the rules of the comparison.

`python -m bench.peers.differences` writes it into `docs/reference/debezium.md`; a test fails if that is not
the table of today's rules. A rule that no message needs fails the comparison itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.peers import compare, compare_postgres, workload, workload_postgres
from bench.peers.workload import Table

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "debezium.md"
_FIRST, _LAST = "<!-- the comparison's tables: begin -->", "<!-- the comparison's tables: end -->"
#: Types of a table that exist to differ.
_APART = ("others", "defaults")


def page() -> str:
    """The tables, with the marks around them."""
    built_in = _types(workload_postgres.tables(()))
    extended = _types(workload_postgres.tables(workload_postgres.EXTENSIONS))
    types = {
        "MySQL": _types(workload.TABLES),
        "PostgreSQL": built_in,
        "PostgreSQL, where the server has the extension": [name for name in extended if name not in built_in],
    }
    lines = [_FIRST, "", "### Compared", ""]
    lines += [f"* {database}: {', '.join(names)}." for database, names in types.items()]
    for database, rules in (("MySQL", compare.ALLOWED), ("PostgreSQL", compare_postgres.ALLOWED)):
        lines += ["", f"### Differs, {database}", "", "| What | Debezium and Tailrace |", "|---|---|"]
        lines += [f"| {_cell(rule.subject)} | {_cell(rule.reason)} |" for rule in rules]
    return "\n".join([*lines, "", _LAST])


def written(text: str) -> str:
    """A document with today's tables in place of those between the marks."""
    before, _, rest = text.partition(_FIRST)
    return before + page() + rest.partition(_LAST)[2]


def _types(tables: Mapping[str, Table]) -> list[str]:
    names: dict[str, None] = {}
    for name, table in tables.items():
        if name not in _APART:
            names.update(dict.fromkeys(_named(table)))
    return list(names)


def _named(table: Table) -> Iterator[str]:
    for declared in table.columns.values():
        yield f"`{declared.removesuffix(' NULL').replace('mood', 'enum')}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
