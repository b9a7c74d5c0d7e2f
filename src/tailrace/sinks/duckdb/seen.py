"""Tables that are read again: the keys that their target receives meanwhile (`model.reread`).

They are in a table of ours beside the target, written in the transaction of the rows: a batch that fails
leaves none. The batch that ends the reading removes, or marks, the rows of all other keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.config.sinks import WriteMode
from tailrace.failpoints import failpoint
from tailrace.sinks.duckdb import sql
from tailrace.sinks.duckdb.change_log import literal, tell_gone, unmarked
from tailrace.sinks.duckdb.table import Table
from tailrace.sinks.tables.rereads import Refresh

#: The columns before the key: the table, and its reading.
_TABLE, _READING = "table of a key", "reading of a key"


@dataclass(frozen=True)
class KeysTable:
    """The keys of one target.

    Args:
        table: the target's table.
        key: the key's columns.
    """

    table: Table
    key: Sequence[str]

    @property
    def _path(self) -> str:
        return sql.own(f"seen {self.table.target}")

    def add(self, refresh: Refresh, query: str) -> None:
        """Note keys.

        Args:
            refresh: the reading.
            query: gives the columns of the key.
        """
        connection, whose = self.table.connection, self._whose(refresh)
        empty = (
            f"SELECT ''::VARCHAR AS {sql.name(_TABLE)}, ''::VARCHAR AS {sql.name(_READING)},"
            f" {sql.names(self.key)} FROM {self.table.path} LIMIT 0"
        )
        connection.execute(f"CREATE TABLE IF NOT EXISTS {self._path} AS {empty}")
        connection.execute(
            f"DELETE FROM {self._path} WHERE {sql.name(_TABLE)} = {sql.text(refresh.name)} AND NOT ({whose})"
        )
        self._fit(empty)
        connection.execute(
            f"INSERT INTO {self._path} SELECT {sql.text(refresh.name)}, {sql.text(refresh.reread.id)},"
            f" {sql.names(self.key)} FROM ({query})"
        )

    def _fit(self, empty: str) -> None:
        """Give the table the columns of a query without rows; its own rows are of readings that go on."""
        connection = self.table.connection
        described = (connection.execute(f"DESCRIBE {q}").fetchall() for q in (self._path, empty))
        held, needed = ([row[:2] for row in rows] for rows in described)
        if held == needed:
            return
        # a column of the key has another name or has become wider; or the key has other columns: of tables
        # that share the target, those that lack one have NULL in it
        how, kept = "", [name for name, _ in held]
        if len(held) != len(needed):
            how, names = "BY NAME", {name.lower() for name, _ in needed}
            kept = [name for name in kept if name.lower() in names]
        connection.execute(
            f"CREATE OR REPLACE TABLE {self._path} AS {empty.removesuffix(' LIMIT 0')} WHERE false"
            f" UNION ALL {how} SELECT {sql.names(kept)} FROM {self._path}"
        )

    def end(self, refresh: Refresh, ts_ms: int) -> None:
        """Remove or mark the rows of all other keys, and forget these."""
        table, marks = self.table, refresh.marks
        seen = f"(SELECT * FROM {self._path} WHERE {self._whose(refresh)})"
        only = "true"
        if refresh.shard is not None:
            only = f"{sql.name(refresh.shard)} = {sql.text(refresh.name)}"
        if table.mode is WriteMode.CHANGELOG:
            tell_gone(table, seen, self.key, only=only, ts_ms=ts_ms, marks=marks)
        else:
            gone = f"{only} AND NOT EXISTS (SELECT 1 FROM {seen} AS seen"
            gone += f" WHERE {sql.same_key('seen', 'held', self.key)})"
            if marks is None:
                table.connection.execute(f"DELETE FROM {table.path} AS held WHERE {gone}")
            elif marks.gone:
                columns = table.columns()
                types = table.types(columns)
                by_name = {name.lower(): name for name in columns.names}
                values = ", ".join(
                    f"{sql.name(by_name[n.lower()])} = CAST({literal(v)} AS {types[by_name[n.lower()]]})"
                    for n, v in marks.gone.items()
                )
                where = f"{gone} AND {unmarked(columns.names, marks)}"
                table.connection.execute(f"UPDATE {table.path} AS held SET {values} WHERE {where}")
        failpoint("sink.reread")
        table.connection.execute(
            f"DELETE FROM {self._path} WHERE {sql.name(_TABLE)} = {sql.text(refresh.name)}"
        )

    def drop(self) -> None:
        """Forget all keys: the target is gone."""
        self.table.connection.execute(f"DROP TABLE IF EXISTS {self._path}")

    def _whose(self, refresh: Refresh) -> str:
        return (
            f"{sql.name(_TABLE)} = {sql.text(refresh.name)}"
            f" AND {sql.name(_READING)} = {sql.text(refresh.reread.id)}"
        )
