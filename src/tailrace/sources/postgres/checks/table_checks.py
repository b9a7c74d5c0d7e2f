"""Preconditions of the captured tables: privileges, replica identity, publication."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tailrace.config.options import SourceOptions
from tailrace.model.table import TableId
from tailrace.printable import printable
from tailrace.sources.postgres import catalog
from tailrace.sources.postgres.catalog import IDENTITIES, CatalogTable, without_identity
from tailrace.sources.postgres.connection import Connection
from tailrace.sources.postgres.protocol.literal import identifier
from tailrace.sources.postgres.replication import publication
from tailrace.sources.postgres.replication.slot import in_recovery
from tailrace.sources.postgres.snapshot.keys import WITHOUT_ORDER, as_text_hint
from tailrace.sources.preflight import Finding, Severity

_FACTS_QUERY = """\
SELECT c.oid::int8, has_schema_privilege(c.relnamespace, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'),
       pg_has_role(c.relowner, 'USAGE'),
       c.relrowsecurity AND NOT (SELECT r.rolsuper OR r.rolbypassrls FROM pg_catalog.pg_roles r
                                 WHERE r.rolname = current_user)
       AND (c.relforcerowsecurity OR NOT pg_has_role(c.relowner, 'USAGE'))
FROM pg_catalog.pg_class c WHERE c.oid = ANY ($1)
"""


class TableChecks:
    """The checks of the captured tables.

    Args:
        options: the stream's options.
        connection: an open one; stays the caller's.
        user: the user's name.
        is_super: whether it is a superuser.
    """

    def __init__(self, options: SourceOptions, connection: Connection, user: str, is_super: bool) -> None:
        self._options = options
        self._connection = connection
        self._user = user
        self._is_super = is_super
        self._publication = publication.read(connection, options.publication)

    def run(self) -> Iterator[Finding]:
        """Every finding."""
        tables = catalog.captured(self._connection, self._options)
        if not tables:
            yield Finding(
                "captured tables",
                f"none matches {self._options.choice}",
                "at least one table; each pattern must match a whole `schema.table`",
                "",
                Severity.ERROR,
                code="TR-1401",
            )
            return
        facts = {row[0]: row[1:] for row in self._connection.rows(_FACTS_QUERY, [t.oid for t in tables])}
        for table in tables:
            readable, _, hidden = facts[table.oid]
            yield from self._table(table, readable, hidden)
        if self._options.starting_position != "snapshot":
            yield from self._publication_findings(tables, {t.schema.id for t in tables if facts[t.oid][1]})
        yield from self._replays(tables)

    def _table(self, table: CatalogTable, readable: bool, hidden: bool) -> Iterator[Finding]:
        name, quoted = f"table {table.schema.id}", table.schema.id.sql
        user = identifier(self._user)
        findings: list[Finding] = []
        if not readable:
            grant = f"GRANT USAGE ON SCHEMA {identifier(printable(table.schema.id.database))} TO {user}; "
            grant += f"GRANT SELECT ON {quoted} TO {user};"
            findings.append(
                Finding(
                    name,
                    "SELECT is not granted",
                    "the privilege SELECT",
                    grant,
                    Severity.ERROR,
                    code="TR-2004",
                )
            )
        if hidden:
            remedy = f"ALTER ROLE {user} BYPASSRLS;"
            findings.append(
                Finding(
                    name, "row-level security hides rows", "all rows", remedy, Severity.ERROR, code="TR-2211"
                )
            )
        if table.unlogged:
            remedy = f"ALTER TABLE {quoted} SET LOGGED;"
            findings.append(
                Finding(
                    name,
                    "UNLOGGED",
                    "a table whose changes are logged",
                    remedy,
                    Severity.ERROR,
                    code="TR-2212",
                )
            )
        if names := self._options.columns.left_out(table.schema.id, table.schema.key):
            findings.append(
                Finding(
                    name,
                    f"key column {names[0]} is left out by {self._options.columns.text}",
                    "all columns of the key",
                    self._options.columns.key_hint(table.schema.id, names),
                    Severity.ERROR,
                    code="TR-5014",
                )
            )
        for column in map(table.schema.column, table.schema.key):
            if column.type.kind in WITHOUT_ORDER:
                remedy = as_text_hint(table.schema, column)
                found = f"key column {column.name} of type {column.type.native}"
                findings.append(
                    Finding(
                        name,
                        found,
                        "a key without arrays, or as text",
                        remedy,
                        Severity.ERROR,
                        code="TR-5008",
                    )
                )
        findings.extend(self._identity(table))
        if table.generated:
            listed = ", ".join(table.generated)
            findings.append(
                Finding(
                    name,
                    f"generated columns {listed}",
                    "none: the log does not contain them, so they are omitted "
                    "(stored ones are in the log from PostgreSQL 18 on)",
                    "",
                    Severity.WARNING,
                    code="TR-2213",
                )
            )
        if not findings:
            key = ", ".join(table.schema.key) or "none"
            findings.append(Finding(name, f"key {key}, replica identity {_identity(table)}", ""))
        yield from (replace(finding, table=str(table.schema.id)) for finding in findings)

    def _identity(self, table: CatalogTable) -> Iterator[Finding]:
        """In a published table without a replica identity updates and deletes fail, for all writers."""
        if "n" not in table.identity and (table.schema.key or table.has_whole_images):
            return
        if self._options.starting_position == "snapshot":
            return
        lacking = without_identity(self._connection, table.oid) if table.kind == "p" else []
        partitions = f", partitions without one: {', '.join(map(str, lacking))}" if lacking else ""
        yield Finding(
            f"table {table.schema.id}",
            f"replica identity {_identity(table)}, key {', '.join(table.schema.key) or 'none'}{partitions}",
            "a primary key or REPLICA IDENTITY FULL: without it, updates and deletes of a published "
            "table fail",
            " ".join(f"ALTER TABLE {t.sql} REPLICA IDENTITY FULL;" for t in (table.schema.id, *lacking)),
            Severity.ERROR,
            code="TR-2210",
        )

    def _publication_findings(self, tables: list[CatalogTable], owned: set[TableId]) -> Iterator[Finding]:
        name = f"publication {self._options.publication}"
        captured = [t.schema.id for t in tables]
        existing = self._publication
        if existing is None:
            statement = publication.creation(self._options.publication, captured, self._connection.version)
            allowed = self._connection.value(
                "SELECT has_database_privilege(current_database(), 'CREATE') OR "
                "(SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user)"
            )
            foreign = [t for t in captured if t not in owned]
            if self._options.max_parked and allowed and not self._is_super:
                yield from map(self._foreign, foreign)
                foreign = []
            may = bool(allowed) and not foreign
            if in_recovery(self._connection):
                yield self._on_standby(name, "does not exist", statement)
                return
            yield self._ownership(name, "does not exist", statement, may)
            return
        missing = {"insert", "update", "delete"} - existing.actions
        if missing:
            yield Finding(
                name,
                f"without {', '.join(sorted(missing))}",
                "all kinds of changes",
                f"ALTER PUBLICATION {identifier(existing.name)} SET (publish = 'insert, update, delete, "
                "truncate');",
                Severity.ERROR,
                code="TR-2214",
            )
        filtered = [t for t in captured if t in existing.filtered]
        if self._options.max_parked:
            yield from (
                Finding(
                    f"table {t}",
                    f"a WHERE in publication {existing.name}",
                    "all rows",
                    f"ALTER PUBLICATION {identifier(existing.name)} DROP TABLE {t.sql}; "
                    f"ALTER PUBLICATION {identifier(existing.name)} ADD TABLE {t.sql};",
                    Severity.ERROR,
                    code="TR-2215",
                    table=str(t),
                )
                for t in filtered
            )
        elif filtered:
            listed = ", ".join(f"`{t}`" for t in filtered)
            yield Finding(
                name,
                f"a WHERE on {listed}",
                "all rows: a snapshot reads all of them, and the log would contain changes of some only",
                f"ALTER PUBLICATION {identifier(existing.name)} SET TABLE ...; -- without WHERE",
                Severity.ERROR,
                code="TR-2215",
            )
        lacking = [t for t in captured if t not in existing.tables and not existing.all_tables]
        if not lacking:
            yield Finding(name, f"has all {len(captured)} captured tables", "")
            return
        statement = publication.addition(existing.name, lacking)
        if in_recovery(self._connection):
            yield self._on_standby(name, f"lacks {len(lacking)} tables", statement)
            return
        owner = self._connection.value(
            "SELECT pg_has_role(pubowner, 'USAGE') FROM pg_catalog.pg_publication "
            "WHERE oid = (SELECT oid FROM pg_catalog.pg_publication WHERE pubname = $1)",
            existing.name,
        )
        foreign = [t for t in lacking if not (owner and t in owned)]
        if self._options.max_parked and not self._is_super:
            yield from map(self._foreign, foreign)
            foreign = []
        yield self._ownership(name, f"lacks {len(lacking)} tables", statement, not foreign)

    def _foreign(self, table: TableId) -> Finding:
        """A table that its owner has to add to the publication."""
        return Finding(
            f"table {table}",
            f"not in the publication, and user {self._user} cannot add it",
            "a publication of all captured tables",
            f"{publication.addition(self._options.publication, [table])}; -- as the owner of the table and "
            "the publication",
            Severity.ERROR,
            code="TR-2216",
            table=str(table),
        )

    def _on_standby(self, name: str, found: str, statement: str) -> Finding:
        return Finding(
            name,
            f"{found}, and the server is a standby",
            "a publication of all captured tables: a standby cannot change it",
            f"{statement}; -- on the primary",
            Severity.ERROR,
            code="TR-2221",
        )

    def _ownership(self, name: str, found: str, statement: str, may: bool) -> Finding:
        if self._is_super or may:
            return Finding(name, f"{found}: the stream fixes this", "")
        return Finding(
            name,
            f"{found}, and user {self._user} owns neither the publication nor all of the tables",
            "a publication of all captured tables",
            f"{statement}; -- as the tables' owner",
            Severity.ERROR,
            code="TR-2216",
        )

    def _replays(self, tables: list[CatalogTable]) -> Iterator[Finding]:
        """The effect of a crash during a snapshot on tables without whole row images in the log."""
        if self._options.starting_position != "initial" or not self._options.exactly_once:
            return
        partly = [t.schema.id for t in tables if not t.has_whole_images]
        if not partly:
            yield Finding("replays of snapshot batches", "identical: REPLICA IDENTITY FULL", "")
            return
        listed = ", ".join(str(t) for t in partly[:5]) + (", ..." if len(partly) > 5 else "")
        yield Finding(
            "replays of snapshot batches",
            f"not identical for {len(partly)} tables ({listed})",
            "REPLICA IDENTITY FULL, if append-only targets must not hold a newer row twice after a crash, or "
            "upsert targets need large values that updates leave unchanged: the log omits them",
            "ALTER TABLE ... REPLICA IDENTITY FULL; -- for these tables",
            Severity.WARNING,
            code="TR-2217",
        )


def _identity(table: CatalogTable) -> str:
    return "/".join(IDENTITIES[letter] for letter in sorted(table.identity)) or "none"
