"""What the sink notes of its targets, in the transaction that changes them: table `_tailrace.targets`."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import duckdb

from tailrace.errors import StateError
from tailrace.sinks.duckdb import sql

#: The form of the notes.
_VERSION = 1
_TABLE = sql.own("targets")


@dataclass(frozen=True)
class TargetNote:
    """What is noted of a target.

    Args:
        target: its name.
        stream: the stream that writes it.
        mode: its content.
        batch: the last batch that it has.
        key: the columns of its key.
        lease: the newest lease under which it was written (`sinks.lease`); 0: none.
    """

    target: str
    stream: str
    mode: str
    batch: int
    key: tuple[str, ...] = ()
    lease: int = 0

    def written(self, batch: int, key: tuple[str, ...], lease: int) -> TargetNote:
        """The note after a batch."""
        return replace(self, batch=batch, key=key or self.key, lease=lease or self.lease)


def prepare(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the table of notes, if it is not there; one without leases gets them."""
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {sql.name(sql.DATABASE, sql.OWN_SCHEMA)}")
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {_TABLE} (target VARCHAR, stream VARCHAR, mode VARCHAR, batch BIGINT,"
        " key VARCHAR, version INTEGER)"
    )
    connection.execute(f"ALTER TABLE {_TABLE} ADD COLUMN IF NOT EXISTS lease BIGINT DEFAULT 0")


def read(connection: duckdb.DuckDBPyConnection) -> dict[str, TargetNote]:
    """The notes by target; none if there is no table of them.

    Raises:
        StateError: they are of a later Tailrace.
    """
    found = connection.execute(
        "SELECT 1 FROM duckdb_tables()"
        " WHERE database_name = ? AND schema_name = ? AND table_name = 'targets'",
        [sql.DATABASE, sql.OWN_SCHEMA],
    ).fetchone()
    if found is None:
        return {}
    notes = {}
    for row in connection.execute(f"SELECT * FROM {_TABLE}").to_arrow_table().to_pylist():
        target, version = row["target"], row["version"]
        if version > _VERSION:
            raise StateError(
                f"target `{target}` was written by a later version of Tailrace",
                f"its notes have version {version}, this Tailrace knows {_VERSION}",
                "install that version again",
                code="TR-7903",
            )
        key, lease = tuple(json.loads(row["key"])), row.get("lease", 0)  # a reader may come before `prepare`
        notes[target] = TargetNote(target, row["stream"], row["mode"], row["batch"], key, lease)
    return notes


def write(connection: duckdb.DuckDBPyConnection, note: TargetNote) -> None:
    """Replace the note of a target."""
    connection.execute(f"DELETE FROM {_TABLE} WHERE target = ?", [note.target])
    connection.execute(
        f"INSERT INTO {_TABLE} VALUES (?, ?, ?, ?, ?, ?, ?)",
        [note.target, note.stream, note.mode, note.batch, json.dumps(note.key), _VERSION, note.lease],
    )
