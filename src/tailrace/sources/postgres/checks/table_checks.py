"""Preconditions of the captured tables: privileges, replica identity, publication."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.config.options import SourceOptions
from tailrace.model.table import TableId
from tailrace.printable import printable
from tailrace.sources.postgres import catalog
from tailrace.sources.postgres.catalog import IDENTITIES, CatalogTable
from tailrace.sources.postgres.connection import Connection
from tailrace.sources.postgres.literal import identifier
from tailrace.sources.postgres.replication import publication
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
                f"none matches {', '.join(self._options.tables)}",
                "at least one table; each pattern must match a whole `schema.table`",
                "",
                Severity.ERROR,
            )
            return
        facts = {row[0]: row[1:] for row in self._connection.rows(_FACTS_QUERY, [t.oid for t in tables])}
        for table in tables:
            readable, _, hidden = facts[table.oid]
            yield from self._of_table(table, readable, hidden)
        if self._options.starting_position != "snapshot":
            yield from self._of_publication(tables, {t.schema.id for t in tables if facts[t.oid][1]})
        yield from self._replays(tables)

    def _of_table(self, table: CatalogTable, readable: bool, hidden: bool) -> Iterator[Finding]:
        name, quoted = f"table {table.schema.id}", table.schema.id.sql
        user = identifier(self._user)
        findings: list[Finding] = []
        if not readable:
            grant = f"GRANT USAGE ON SCHEMA {identifier(printable(table.schema.id.database))} TO {user}; "
            grant += f"GRANT SELECT ON {quoted} TO {user};"
            findings.append(
                Finding(name, "SELECT is not granted", "the privilege SELECT", grant, Severity.ERROR)
            )
        if hidden:
            remedy = f"ALTER ROLE {user} BYPASSRLS;"
            findings.append(
                Finding(name, "row-level security hides rows", "all rows", remedy, Severity.ERROR)
            )
        if table.unlogged:
            remedy = f"ALTER TABLE {quoted} SET LOGGED;"
            findings.append(
                Finding(name, "UNLOGGED", "a table whose changes are logged", remedy, Severity.ERROR)
            )
        findings.extend(self._identity(table))
        if table.left_out:
            listed = ", ".join(table.left_out)
            findings.append(
                Finding(
                    name,
                    f"generated columns {listed}",
                    "none: the log does not carry them, so they are left out "
                    "(stored ones are in it with PostgreSQL 18)",
                    "",
                    Severity.WARNING,
                )
            )
        if not findings:
            key = ", ".join(table.schema.key) or "none"
            yield Finding(name, f"key {key}, replica identity {_identity(table)}", "")
        yield from findings

    def _identity(self, table: CatalogTable) -> Iterator[Finding]:
        """Updates and deletes of a published table without a replica identity fail, for all its writers."""
        if "n" not in table.identity and (table.schema.key or table.has_whole_images):
            return
        if self._options.starting_position == "snapshot":
            return
        yield Finding(
            f"table {table.schema.id}",
            f"replica identity {_identity(table)}, key {', '.join(table.schema.key) or 'none'}",
            "a primary key or REPLICA IDENTITY FULL: once it is published its updates and deletes fail "
            "without",
            f"ALTER TABLE {table.schema.id.sql} REPLICA IDENTITY FULL;"
            + (" -- and of each partition" if len(table.identity) > 1 else ""),
            Severity.ERROR,
        )

    def _of_publication(self, tables: list[CatalogTable], owned: set[TableId]) -> Iterator[Finding]:
        name = f"publication {self._options.publication}"
        wanted = [t.schema.id for t in tables]
        there = self._publication
        if there is None:
            statement = publication.creation(self._options.publication, wanted, self._connection.version)
            allowed = self._connection.value(
                "SELECT has_database_privilege(current_database(), 'CREATE') OR "
                "(SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user)"
            )
            yield self._ownership(name, "not there", statement, bool(allowed) and owned.issuperset(wanted))
            return
        missing = {"insert", "update", "delete"} - there.actions
        if missing:
            yield Finding(
                name,
                f"without {', '.join(sorted(missing))}",
                "all kinds of changes",
                f"ALTER PUBLICATION {identifier(there.name)} SET (publish = 'insert, update, delete, "
                "truncate');",
                Severity.ERROR,
            )
        filtered = [t for t in wanted if t in there.filtered]
        if filtered:
            listed = ", ".join(f"`{t}`" for t in filtered)
            yield Finding(
                name,
                f"a WHERE on {listed}",
                "all rows: a snapshot reads all, and rows would come and go with their changes",
                f"ALTER PUBLICATION {identifier(there.name)} SET TABLE ...; -- without WHERE",
                Severity.ERROR,
            )
        lacking = [t for t in wanted if t not in there.tables and not there.all_tables]
        if not lacking:
            yield Finding(name, f"has all {len(wanted)} captured tables", "")
            return
        statement = publication.addition(there.name, lacking)
        owner = self._connection.value(
            "SELECT pg_has_role(pubowner, 'USAGE') FROM pg_catalog.pg_publication "
            "WHERE oid = (SELECT oid FROM pg_catalog.pg_publication WHERE pubname = $1)",
            there.name,
        )
        yield self._ownership(
            name, f"lacks {len(lacking)} tables", statement, bool(owner) and owned.issuperset(lacking)
        )

    def _ownership(self, name: str, found: str, statement: str, may: bool) -> Finding:
        if self._is_super or may:
            return Finding(name, f"{found}: the stream sees to it", "")
        return Finding(
            name,
            f"{found}, and user {self._user} owns neither it nor all of the tables",
            "a publication of all captured tables",
            f"{statement}; -- as the tables' owner",
            Severity.ERROR,
        )

    def _replays(self, tables: list[CatalogTable]) -> Iterator[Finding]:
        """What a crash within a snapshot means for tables whose log has no whole rows."""
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
            "REPLICA IDENTITY FULL, if append-only targets must hold no newer row twice after a crash, or "
            "upsert targets get large values that updates leave alone: the log lacks them",
            "ALTER TABLE ... REPLICA IDENTITY FULL; -- of those tables",
            Severity.WARNING,
        )


def _identity(table: CatalogTable) -> str:
    return "/".join(IDENTITIES[letter] for letter in sorted(table.identity)) or "none"
