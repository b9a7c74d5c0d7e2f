"""Preconditions of captured tables: readable, supported types, a key, every change in the log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tailrace.config.options import SourceOptions
from tailrace.errors import SchemaMismatchError
from tailrace.printable import printable
from tailrace.sources.mysql import catalog
from tailrace.sources.mysql.checks.probe import Probe
from tailrace.sources.mysql.connection import MARIADB, Server
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.snapshot.literal import identifier, table_name
from tailrace.sources.preflight import Finding, Severity

#: The first version that logs the rows that a foreign key's CASCADE changes.
_CASCADES_LOGGED = (9, 6, 0)


def whole_database(name: str) -> str:
    """All tables of a database, as GRANT expects them: `_` and `%`, which are wildcards there, escaped."""
    escaped = re.sub("[_%]", r"\\\g<0>", name)
    return f"{identifier(escaped)}.*"


class TableChecks:
    """The checks of every captured table over one connection."""

    def __init__(
        self,
        options: SourceOptions,
        connection: BoundedConnection,
        probe: Probe,
        server: Server,
    ) -> None:
        self._options = options
        self._connection = connection
        self._probe = probe
        self._server = server
        rows = probe.rows(
            "SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) AS name FROM information_schema.TABLES"
            " WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND TABLE_SCHEMA NOT IN"
            " ('information_schema', 'mysql', 'performance_schema', 'sys') ORDER BY 1"
        )
        names = [str(row["name"]) for row in rows]
        #: Captured tables that this user may see.
        self._names = [name for name in names if options.captures(name)]
        #: Those that lists of tables or databases leave out.
        self._left_out = [name for name in names if options.leaves_out(name)]
        #: Those that a pattern matches, but that are not captured.
        self._hidden = [name for name in names if options.matches(name) and options.hides(name)]

    def run(self) -> Iterator[Finding]:
        """Every finding, by table."""
        for pattern in self._options.tables:
            yield from self._pattern(pattern)
        yield from self._helpers()
        found, refused = self._described()
        yield from refused
        cascading = self._cascading()
        for table in found:
            yield from self._table(table, cascading)

    def _described(self) -> tuple[list[catalog.CatalogTable], list[Finding]]:
        """The captured tables, and a finding for each that cannot be described."""
        try:
            return self._tables(self._options.captures), []
        except SchemaMismatchError:
            # Only the first one was named: check each table by itself to name all of them.
            found: list[catalog.CatalogTable] = []
            refused: list[Finding] = []
            for name in self._names:
                try:
                    found += self._tables(name.__eq__)
                except SchemaMismatchError as error:
                    needed = (error.detail or "a supported type").removeprefix("supported: ")
                    refused.append(
                        Finding(
                            f"table {name}",
                            error.message,
                            needed,
                            error.hint or "",
                            Severity.ERROR,
                            code=error.code,
                            table=name,
                        )
                    )
            return found, refused

    def _tables(self, captures: Callable[[str], bool]) -> list[catalog.CatalogTable]:
        options = self._options
        return catalog.tables(self._connection, captures, options.zero_dates.of, columns=options.columns)

    def _pattern(self, pattern: str) -> Iterator[Finding]:
        if not any(re.fullmatch(pattern, name, re.DOTALL) for name in self._names):
            database = re.match(r"(\w+)\\?\.", pattern)
            scope = whole_database(database[1]) if database else "<database>.*"
            is_left_out = any(re.fullmatch(pattern, name, re.DOTALL) for name in self._left_out)
            yield Finding(
                f"tables `{pattern}`",
                "every matching table is left out by a list"
                if is_left_out
                else "no matching table, or none that this user may read",
                "at least one table",
                "give fewer patterns in the lists that leave tables out"
                if is_left_out
                else f"GRANT SELECT ON {scope} TO {self._probe.account};",
                # Tables may be created later, but options that match none at all are probably a mistake.
                Severity.ERROR if len(self._options.tables) == 1 or not self._names else Severity.WARNING,
                code="TR-1401",
            )

    def _helpers(self) -> Iterator[Finding]:
        for name in self._hidden:
            yield Finding(
                f"table {name}",
                "not captured: its name is that of an online schema tool's helper table",
                "a name of another form, if it is a table of its own",
                "set `captureHelperTables` to true, or name the table in `tables` without wildcards",
                Severity.WARNING,
                code="TR-1450",
                table=name,
            )

    def _table(self, table: catalog.CatalogTable, cascading: set[str]) -> Iterator[Finding]:
        id_ = table.schema.id
        check, shown = f"table {id_}", printable(table_name(id_))
        is_fine = True
        refusal = self._probe.refusal(f"SELECT * FROM {table_name(id_)} LIMIT 0")
        if refusal:
            is_fine = False
            yield Finding(
                check,
                refusal,
                "the privilege SELECT",
                f"GRANT SELECT ON {shown} TO {self._probe.account};",
                Severity.ERROR,
                code="TR-2004",
                table=str(id_),
            )
        if table.key_kind == "none":
            is_fine = False
            snapshot = self._options.starting_position in ("initial", "snapshot")
            yield Finding(
                check,
                "no key",
                "a primary key, or a UNIQUE index over whole NOT NULL columns"
                + ("" if snapshot else ": without it rows cannot be merged"),
                f"ALTER TABLE {shown} ADD COLUMN id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY;",
                Severity.ERROR if snapshot else Severity.WARNING,
                code="TR-5001",
                table=str(id_),
            )
        if table.engine.lower() != "innodb":
            is_fine = False
            yield Finding(
                check,
                f"storage engine {table.engine}",
                "InnoDB, or a snapshot may hold rows that are not in the log yet",
                f"ALTER TABLE {shown} ENGINE = InnoDB;",
                Severity.WARNING,
                code="TR-2117",
                table=str(id_),
            )
        if str(id_) in cascading:
            is_fine = False
            yield Finding(
                check,
                "a foreign key with CASCADE or SET NULL, whose changes are not in this server's log",
                "no such foreign key, or changes are missed"
                if self._server.flavor == MARIADB
                else "MySQL 9.6 or later with innodb_native_foreign_keys = OFF, or changes are missed",
                "`pipeline.verify` with `repair: schedule` finds such rows and corrects them",
                Severity.WARNING,
                code="TR-2118",
                table=str(id_),
            )
        if table.generated:
            is_fine = False
            yield Finding(
                check,
                f"generated columns {', '.join(table.generated)}",
                "none: MariaDB leaves them out of the log of updates, so they are omitted",
                "",
                Severity.WARNING,
                code="TR-1451",
                table=str(id_),
            )
        if is_fine:
            yield Finding(check, f"key {', '.join(table.schema.key)}", "", table=str(id_))

    def _cascading(self) -> set[str]:
        """Tables whose rows change with those of another table without an event in the log."""
        native = self._probe.variables.get("innodb_native_foreign_keys", "OFF")
        mysql = self._server.flavor != MARIADB
        if mysql and self._server.version >= _CASCADES_LOGGED and native.upper() == "OFF":
            return set()
        rows = self._probe.rows(
            "SELECT CONCAT(CONSTRAINT_SCHEMA, '.', TABLE_NAME) AS name"
            " FROM information_schema.REFERENTIAL_CONSTRAINTS"
            " WHERE UPDATE_RULE IN ('CASCADE', 'SET NULL') OR DELETE_RULE IN ('CASCADE', 'SET NULL')"
        )
        return {str(row["name"]) for row in rows}
