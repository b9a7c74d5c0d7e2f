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
from functools import cached_property

from pg8000.exceptions import DatabaseError

from tailrace.errors import SourceError, TableLockedError
from tailrace.model.table import TableId
from tailrace.sources import network
from tailrace.sources.postgres.connection import Connection, sqlstate, translate
from tailrace.sources.postgres.protocol.literal import identifier, string, table_name
from tailrace.sources.postgres.replication import mark
from tailrace.sources.postgres.waits.locks import lock

#: How much longer than `deadlock_timeout` adding tables waits for locks: the stream waits meanwhile. After
#: that time the server ends an autovacuum that holds one, as it may for minutes after a large load.
_LOCK_WAIT_S = 1.0
_DEADLOCK_MS = "SELECT setting::int8 FROM pg_catalog.pg_settings WHERE name = 'deadlock_timeout'"


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
        identity: differs once the publication was dropped and created again, or its settings were changed,
            by anything but a change of its owner.
        entries: by the oid of a table or, prefixed with `schema `, of a schema, the oid of the entry with
            which the publication has it: another one once it was removed and added again, or its WHERE or
            column list was changed.
    """

    name: str
    all_tables: bool = False
    via_root: bool = True
    generated: bool = False
    actions: frozenset[str] = frozenset({"insert", "update", "delete", "truncate"})
    tables: frozenset[TableId] = frozenset()
    columns: tuple[tuple[TableId, frozenset[int]], ...] = ()
    filtered: frozenset[TableId] = frozenset()
    identity: str = ""
    entries: tuple[tuple[str, str], ...] = ()

    def tells_new_files(self, oid: int) -> bool:
        """Whether the log has what became of a table's rows when its file was replaced by another.

        It has each TRUNCATE that is published. That a table was UNLOGGED for a time, it has not: the server
        keeps only tables that a publication names from it, not those of a schema or of all.
        """
        return "truncate" in self.actions and str(oid) in self._by_oid

    @cached_property
    def _by_oid(self) -> dict[str, str]:
        return dict(self.entries)


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
        "pubtruncate, oid::text || '/' || xmin::text || '/' || pubowner::text "
        f"FROM pg_catalog.pg_publication WHERE pubname = {string(name)}"
    )
    if not found:
        return None
    oid, all_tables, via_root, gencols, *acts, identity = found[0]
    names = ("insert", "update", "delete", "truncate")
    actions = frozenset(n for n, is_in in zip(names, acts, strict=True) if is_in)
    tables = connection.rows(
        "SELECT schemaname::text, tablename::text FROM pg_catalog.pg_publication_tables "
        f"WHERE pubname = {string(name)}"
    )
    entries = connection.rows(
        f"SELECT prrelid::text, oid::text FROM pg_catalog.pg_publication_rel WHERE prpubid = {oid}"
    )
    parts = []
    if version >= 15:
        parts = connection.rows(
            "SELECT n.nspname::text, c.relname::text, r.prattrs::text, r.prqual IS NOT NULL "
            "FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_class c ON c.oid = r.prrelid "
            f"JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE r.prpubid = {oid}"
        )
        entries += connection.rows(
            "SELECT 'schema ' || pnnspid::text, oid::text FROM pg_catalog.pg_publication_namespace "
            f"WHERE pnpubid = {oid}"
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
        identity,
        tuple((of, entry) for of, entry in entries),
    )


def require_whole(published: Publication | None, tables: Sequence[TableId]) -> None:
    """Refuse a publication that lacks some changes of its tables.

    Raises:
        SourceError: it does.
    """
    if published is None:
        return
    missing = {"insert", "update", "delete"} - published.actions
    filtered = [t for t in tables if t in published.filtered]
    name = identifier(published.name)
    if missing:
        raise SourceError(
            f"publication `{published.name}` lacks changes of its tables",
            f"it is without {', '.join(sorted(missing))}",
            f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate');",
            code="TR-2214",
        )
    if filtered:
        raise _filtered(published, filtered)


def _filtered(published: Publication, tables: Sequence[TableId]) -> SourceError:
    """The error of tables of which the publication has some rows only."""
    name = identifier(published.name)
    return SourceError(
        f"publication `{published.name}` lacks changes of {', '.join(f'`{t}`' for t in tables)}",
        "it has a WHERE there: a snapshot reads all rows, and the log would have changes of some only",
        " ".join(
            f"ALTER PUBLICATION {name} DROP TABLE {t.sql}; ALTER PUBLICATION {name} ADD TABLE {t.sql};"
            for t in tables
        ),
        code="TR-2215",
    )


def ensure(
    connection: Connection, name: str, tables: Sequence[TableId]
) -> tuple[list[TableId], dict[TableId, TableLockedError]]:
    """Create the publication, or add the missing ones of `tables` to it.

    Adding a table waits for those that alter, vacuum or index it. Such a table must not delay the others.

    Returns:
        The added tables, and those that are locked.

    Raises:
        SourceError: the user lacks the privilege.
        TailraceError: see `translate`.
    """
    existing = read(connection, name)
    missing = [t for t in tables if existing is None or t not in existing.tables]
    if not missing or (existing is not None and existing.all_tables):
        return [], {}
    locked: dict[TableId, TableLockedError] = {}
    parts = [missing]
    added: list[TableId] = []
    while parts:
        part = parts.pop(0)
        create = existing is None and not added
        statement = creation(name, part, connection.version) if create else addition(name, part)
        try:
            _execute(connection, statement, part)
        except TableLockedError as error:
            if len(part) > 1:
                parts = [[t] for t in part]
            else:
                locked[part[0]] = error
            continue
        if create:
            mark.write(connection, name, mark.Mark())
        added += part
    return added, locked


def refusals(
    connection: Connection, name: str, published: Publication | None, tables: Sequence[TableId]
) -> dict[TableId, SourceError]:
    """Those of `tables` whose changes the publication cannot get, or lacks in part, each with the reason.

    Raises pg8000's errors.
    """
    if published is not None and published.all_tables:
        return {}
    found = (
        {} if published is None else {t: _filtered(published, [t]) for t in tables if t in published.filtered}
    )
    missing = [t for t in tables if published is None or t not in published.tables]
    if not missing:
        return found
    owns = published is None or connection.value(
        f"SELECT pg_has_role(pubowner, 'USAGE') FROM pg_catalog.pg_publication WHERE pubname = {string(name)}"
    )
    for table in _foreign(connection, missing) if owns else missing:
        statement = (
            creation(name, [table], connection.version) if published is None else addition(name, [table])
        )
        found[table] = _not_ours(connection, statement, f"`{table}`" if owns else "the publication")
    return found


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
    # a partitioned table's partitions are in it in any case; tables that inherit from it are not ours
    return ", ".join(f"ONLY {table_name(t)}" for t in tables)


def _execute(connection: Connection, statement: str, tables: Sequence[TableId] = ()) -> None:
    try:
        lock(connection, statement, tables, connection.value(_DEADLOCK_MS) / 1000 + _LOCK_WAIT_S)
    except DatabaseError as error:
        state = sqlstate(error)
        if state == "42710":  # another process has just done the same
            return
        if state != "42501":
            raise translate(error, "changing the publication") from error
        foreign = _foreign(connection, tables)
        what = ", ".join(f"`{t}`" for t in foreign) if foreign else "the publication"
        raise _not_ours(connection, statement, what) from error


def _not_ours(connection: Connection, statement: str, what: str) -> SourceError:
    """The error if `statement` needs another user, the owner of `what`."""
    which = f"user `{connection.value('SELECT current_user::text')}` does not own {what}"
    return SourceError(
        "this user cannot create or extend the publication",
        f"{which}; the publication's tables are added by their owner, and so is the publication",
        f"as the owner of the tables: {statement};",
        code="TR-2216",
    )


def _foreign(connection: Connection, tables: Sequence[TableId]) -> list[TableId]:
    """Those of `tables` that the user does not own."""
    if not tables:
        return []
    names = ", ".join(string(table_name(t)) for t in tables)
    rows = connection.rows(
        "SELECT n.nspname::text, c.relname::text FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE c.oid = ANY (ARRAY[{names}]::regclass[]) AND NOT pg_has_role(c.relowner, 'USAGE') "
        "ORDER BY 1, 2"
    )
    return [TableId(*row) for row in rows]
