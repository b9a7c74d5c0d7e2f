"""What a table of PostgreSQL held at any time, whatever wrote to it at once: known from the server alone.

A trigger notes each change with its transaction and a number. As a row stays locked until its transaction has
ended, the numbers of a row's changes are in the order of commits. A replication slot of the test tells the
transactions in the order of their commits, with their times.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tailrace_dev.servers.postgres import PostgresServer
from tests.support.databases import named_rows

#: Microseconds from 1970 to 2000.
_EPOCH_US = 946_684_800_000_000
#: Of a Begin message: where its transaction commits, when, and its number.
_BEGIN = struct.Struct("!cQqI")
#: What is noted of a change besides the new row.
_NOTED = frozenset({"n", "op", "xid", "was"})

Row = dict[str, Any]
Rows = dict[tuple[Any, ...], Row]


@dataclass(frozen=True)
class Commit:
    """A committed transaction: the LSN of its commit, its time in microseconds since 1970, its number."""

    lsn: int
    at_us: int
    xid: int


class History:
    """The history of a table from its creation on.

    Args:
        server: the server.
        database: the database.
        table: the table, empty and unwritten so far.
        key: its key.
        publication: a publication that has the table.
    """

    def __init__(
        self, server: PostgresServer, database: str, table: str, key: Sequence[str], publication: str
    ) -> None:
        self._server, self._database, self._table, self._key = server, database, table, tuple(key)
        self._publication, self._slot = publication, f"history_{database}"
        columns = server.execute(
            f"SELECT attname::text FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0",
            database=database,
        )
        was = ", ".join(f"OLD.{name}" for name in key)
        now = ", ".join(f"NEW.{name}" for (name,) in columns)
        server.execute(
            f"SELECT pg_create_logical_replication_slot('{self._slot}', 'pgoutput')",
            "CREATE SCHEMA history",
            "CREATE SEQUENCE history.n",
            "CREATE TABLE history.changes AS SELECT 0::int8 AS n, '0'::xid8 AS xid, ''::text AS op, "
            f"NULL::jsonb AS was, {table}.* FROM {table} WITH NO DATA",
            "ALTER TABLE history.changes ALTER n SET DEFAULT nextval('history.n'), "
            "ALTER xid SET DEFAULT pg_current_xact_id()",
            f"""CREATE FUNCTION history.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO history.changes SELECT nextval('history.n'), pg_current_xact_id(), TG_OP,
                CASE WHEN TG_OP IN ('UPDATE', 'DELETE') THEN jsonb_build_array({was}) END, {now};
            RETURN NULL; END $$""",
            f"CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION history.note()",
            f"CREATE TRIGGER emptied AFTER TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION history.note()",
            database=database,
        )

    def rewrite(self, column: str) -> None:
        """Add one to a column of all rows, by a statement that the log does not have."""
        self._server.execute(
            "BEGIN",
            f"LOCK TABLE {self._table}",
            f"ALTER TABLE {self._table} ALTER {column} TYPE int USING {column} + 1",
            f"INSERT INTO history.changes (op, was) VALUES ('REWRITE', '\"{column}\"')",
            "SELECT pg_logical_emit_message(true, 'history', '')",
            "COMMIT",
            database=self._database,
        )

    def size(self) -> int:
        """How many changes are committed."""
        found = self._server.execute("SELECT count(*) FROM history.changes", database=self._database)
        return int(found[0][0])

    def commits(self) -> list[Commit]:
        """The transactions so far, in the order of their commits."""
        begins = self._server.execute(
            f"SELECT data FROM pg_logical_slot_peek_binary_changes('{self._slot}', NULL, NULL, "
            f"'proto_version', '1', 'publication_names', '{self._publication}', 'messages', 'true') "
            "WHERE get_byte(data, 0) = ascii('B')",
            database=self._database,
        )
        found = []
        for (data,) in begins:
            _, lsn, at_us, xid = _BEGIN.unpack(data)
            found.append(Commit(lsn, at_us + _EPOCH_US, xid))
        return found

    def changes(self) -> list[Row]:
        """The changes so far, those of each row in the order of commits."""
        with closing(self._server.connect(database=self._database)) as connection:
            cursor = connection.cursor()
            return named_rows(cursor, "SELECT *, xid::text::int8 AS xid FROM history.changes ORDER BY n")

    def rows(self, changes: Sequence[Row], commits: Sequence[Commit]) -> Rows:
        """The rows after transactions."""
        done = {commit.xid for commit in commits}
        rows: Rows = {}
        for change in changes:
            if change["xid"] not in done:
                continue
            if change["op"] == "TRUNCATE":
                rows.clear()
                continue
            if change["op"] == "REWRITE":
                for row in rows.values():
                    row[change["was"]] = None if row[change["was"]] is None else row[change["was"]] + 1
                continue
            if change["op"] != "INSERT":
                del rows[tuple(change["was"])]
            if change["op"] != "DELETE":
                row = {name: value for name, value in change.items() if name not in _NOTED}
                key = tuple(row[name] for name in self._key)
                assert key not in rows
                rows[key] = row
        return rows
