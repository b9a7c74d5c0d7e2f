"""The publication: the tables whose changes are in the log. The pipeline creates and extends it.

PostgreSQL decides by the publication *as it was when a change was written*: a table is in the log from the
moment it was added. A transaction that was running then is in the log in part, so a table's snapshot must be
as of a position at which all such transactions have ended. A slot's consistent point is such a position, if
its creation began after the table was added (`snapshots`).

An existing publication keeps its settings; only tables are added to it.

Source: PostgreSQL manual, "CREATE PUBLICATION", "pg_publication".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pg8000.exceptions import DatabaseError

from tailrace.errors import SourceError
from tailrace.model.table import TableId
from tailrace.sources import network
from tailrace.sources.postgres.connection import Connection, sqlstate, translate
from tailrace.sources.postgres.literal import identifier, string, table_name
from tailrace.sources.postgres.replication import mark


@dataclass(frozen=True)
class Publication:
    """The state of a publication.

    Args:
        name: its name.
        all_tables: whether it is FOR ALL TABLES.
        via_root: whether changes of partitions are published as those of the partitioned table.
        generated: whether stored generated columns are in it.
        actions: the published ones of insert, update, delete, truncate.
        tables: every table in it, partitioned ones by the root if `via_root`.
        columns: by table the numbers of the published columns, where they are listed.
        filtered: tables with a WHERE.
    """

    name: str
    all_tables: bool = False
    via_root: bool = True
    generated: bool = False
    actions: frozenset[str] = frozenset({"insert", "update", "delete", "truncate"})
    tables: frozenset[TableId] = frozenset()
    columns: tuple[tuple[TableId, frozenset[int]], ...] = ()
    filtered: frozenset[TableId] = frozenset()


def planned(name: str, version: int) -> Publication:
    """The publication that `ensure` would create."""
    return Publication(name, generated=version >= 18)


@network.sensible("the publication")
def read(connection: Connection, name: str) -> Publication | None:
    """The publication called `name`, None if there is none. Raises pg8000's errors."""
    version = connection.version
    generated = "pubgencols = 's'" if version >= 18 else "false"
    found = connection.rows(
        f"SELECT oid::int8, puballtables, pubviaroot, {generated}, pubinsert, pubupdate, pubdelete, "
        "pubtruncate "
        f"FROM pg_catalog.pg_publication WHERE pubname = {string(name)}"
    )
    if not found:
        return None
    oid, all_tables, via_root, gencols, *acts = found[0]
    names = ("insert", "update", "delete", "truncate")
    actions = frozenset(n for n, is_in in zip(names, acts, strict=True) if is_in)
    tables = connection.rows(
        "SELECT schemaname::text, tablename::text FROM pg_catalog.pg_publication_tables "
        f"WHERE pubname = {string(name)}"
    )
    parts = []
    if version >= 15:
        parts = connection.rows(
            "SELECT n.nspname::text, c.relname::text, r.prattrs::text, r.prqual IS NOT NULL "
            "FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_class c ON c.oid = r.prrelid "
            f"JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE r.prpubid = {oid}"
        )
    return Publication(
        name,
        all_tables,
        via_root,
        gencols,
        actions,
        frozenset(TableId(*t) for t in tables),
        tuple((TableId(s, t), frozenset(map(int, attrs.split()))) for s, t, attrs, _ in parts if attrs),
        frozenset(TableId(s, t) for s, t, _, has_filter in parts if has_filter),
    )


def ensure(connection: Connection, name: str, tables: Sequence[TableId]) -> list[TableId]:
    """Create the publication, or add the missing ones of `tables` to it; returns the added tables.

    Raises:
        SourceError: the user lacks the privilege.
        TailraceError: see `translate`.
    """
    existing = read(connection, name)
    if existing is None:
        if not tables:
            return []
        statement = creation(name, tables, connection.version)
        _execute(connection, statement)
        mark.write(connection, name, mark.Mark())
        return list(tables)
    missing = [t for t in tables if t not in existing.tables]
    if not missing or existing.all_tables:
        return []
    _execute(connection, addition(name, missing))
    return missing


def creation(name: str, tables: Sequence[TableId], version: int) -> str:
    """The statement that creates the publication."""
    settings = "publish_via_partition_root = true"
    if version >= 18:
        settings += ", publish_generated_columns = stored"
    return f"CREATE PUBLICATION {identifier(name)} FOR TABLE {_listed(tables)} WITH ({settings})"


def addition(name: str, tables: Sequence[TableId]) -> str:
    """The statement that adds tables to the publication."""
    return f"ALTER PUBLICATION {identifier(name)} ADD TABLE {_listed(tables)}"


def drop(connection: Connection, name: str) -> bool:
    """Remove the publication if a stream created it and no stream has a slot; returns whether it was removed.

    Raises TailraceError.
    """
    found = mark.read(connection, name)
    if found is None or found.slots:
        return False
    _execute(connection, f"DROP PUBLICATION {identifier(name)}")
    return True


def _listed(tables: Sequence[TableId]) -> str:
    return ", ".join(table_name(t) for t in tables)


def _execute(connection: Connection, statement: str) -> None:
    try:
        connection.wait_for(statement)  # waits for locks on the tables
    except DatabaseError as error:
        state = sqlstate(error)
        if state == "42710":  # another process has just done the same
            return
        if state != "42501":
            raise translate(error, "changing the publication") from error
        raise SourceError(
            "this user cannot create or extend the publication",
            f"user `{connection.value('SELECT current_user::text')}` owns neither the publication nor all of "
            "the tables",
            f"as the owner of the tables: {statement};",
            code="TR-2216",
        ) from error
