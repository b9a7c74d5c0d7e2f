"""What the server of `snapshotUrl` must be: a replica with the same tables, and nothing of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pymysql

from tailrace.config.options import SourceOptions
from tailrace.errors import TailraceError, TransientSourceError
from tailrace.sources.mysql import catalog
from tailrace.sources.mysql.checks.activity import activity
from tailrace.sources.mysql.connection import MARIADB, Server, connect, one, server_facts
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.snapshot.row_server import RowServer, executed, row_server_options
from tailrace.sources.preflight import Finding, Severity

#: Most seconds that a replica may be behind, without the option `snapshotMaxReplicaLag`.
_MOST_LAG_S = 30
#: How long the replica may take to have what the server has now.
_CATCH_UP_S = 10
_FILTERS = (
    "Replicate_Do_DB",
    "Replicate_Ignore_DB",
    "Replicate_Do_Table",
    "Replicate_Ignore_Table",
    "Replicate_Wild_Do_Table",
    "Replicate_Wild_Ignore_Table",
    "Replicate_Rewrite_DB",
)


def row_server_findings(
    options: SourceOptions, source: BoundedConnection, server: Server
) -> Iterator[Finding]:
    """The findings about the server of `snapshotUrl`, none without it.

    Args:
        options: the stream's options.
        source: a connection to the server of the stream.
        server: what that is.
    """
    if options.snapshot_url is None:
        return
    name = "snapshotUrl"
    if server.flavor == MARIADB or not server.gtid_mode:
        found = "MariaDB" if server.flavor == MARIADB else "gtid_mode is not ON"
        needed = "MySQL with gtid_mode = ON: rows of a replica are exact as of a position by its GTIDs"
        yield _wrong(name, found, needed, "leave out snapshotUrl")
        return
    try:
        with closing(connect(row_server_options(options), purpose="checks")) as replica:
            yield from _of_replica(options, source, replica, server)
    except TailraceError as error:
        found = error.message + (f" ({error.detail})" if error.detail else "")
        yield _wrong(name, found, "a replica that this user can read", error.hint or "correct snapshotUrl")


def rows_held(server: RowServer, options: SourceOptions) -> str:
    """Why no rows should be read now: the replica is lost, or too late; "" if they can be.

    Raises:
        SourceError: the user may not see the state of replication.
    """
    name = f"the server of snapshotUrl, {server.address},"
    try:
        lag = server.run(lambda c: activity(c, with_lag=True), "asking the replica").replica_lag_s
    except TransientSourceError:
        return f"{name} cannot be reached"
    most = options.snapshot_max_replica_lag or _MOST_LAG_S
    if lag is None:
        return f"{name} does not replicate"
    return f"{name} is {lag:.0f} s behind (allowed: {most} s)" if lag > most else ""


def _of_replica(
    options: SourceOptions, source: BoundedConnection, replica: BoundedConnection, server: Server
) -> Iterator[Finding]:
    facts = server_facts(replica)
    if facts.server_uuid == server.server_uuid:
        yield _wrong("snapshotUrl", "the server of `url` itself", "a replica of it", "leave out snapshotUrl")
        return
    if not facts.gtid_mode:
        yield _wrong("snapshotUrl: gtid_mode", "OFF", "ON", "SET PERSIST gtid_mode = ON; -- step by step")
        return
    statement = "SHOW REPLICA STATUS" if facts.version >= (8, 0, 22) else "SHOW SLAVE STATUS"
    try:
        status = _rows(replica, statement)
    except pymysql.err.MySQLError as error:
        remedy = "GRANT REPLICATION CLIENT ON *.* TO <user>; -- on the replica"
        yield _wrong("snapshotUrl: replication", f"not visible: error {error.args[0]}", "visible", remedy)
        return
    if not status:
        yield _wrong("snapshotUrl: replication", "none", "a replica of the server of `url`", "")
        return
    filters = [f"{key} = {row[key]}" for row in status for key in _FILTERS if row.get(key)]
    if filters:
        yield _wrong("snapshotUrl: filters", ", ".join(filters), "none: rows would be missing", "remove them")
    own = _errant(source, replica)
    if own:
        needed = "no transactions of its own: they cannot be rewound"
        yield _wrong("snapshotUrl: GTIDs", f"{own} are not on the source", needed, "rebuild the replica")
    yield from _tables(options, source, replica)
    ((read_only,),) = _values(replica, "SELECT @@global.super_read_only")
    if not read_only:
        yield Finding(
            "snapshotUrl: super_read_only",
            "OFF",
            "ON, or rows that are written with sql_log_bin = 0 are read as if they were the source's",
            "SET PERSIST super_read_only = ON; -- on the replica",
            Severity.WARNING,
            code="TR-2122",
        )
    else:
        yield Finding("snapshotUrl", "a replica of the server of `url`", "")


def _errant(source: BoundedConnection, replica: BoundedConnection) -> str:
    """The GTIDs that only the replica has."""
    has = executed(replica)
    with source.cursor() as cursor:
        # the source may execute last what a replica has acknowledged
        cursor.execute("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, 1)", (has,))
        if not one(cursor)[0]:
            return ""
        cursor.execute("SELECT GTID_SUBTRACT(%s, @@global.gtid_executed)", (has,))
        return str(one(cursor)[0])


def _tables(
    options: SourceOptions, source: BoundedConnection, replica: BoundedConnection
) -> Iterator[Finding]:
    """Captured tables that the replica has in another form."""
    wanted = {
        t.schema.id: t.schema for t in catalog.tables(source, options.captures, options.zero_dates.of, {})
    }
    with replica.cursor() as cursor:
        cursor.execute("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (executed(source), _CATCH_UP_S))
        one(cursor)
    found = {
        t.schema.id: t.schema for t in catalog.tables(replica, options.captures, options.zero_dates.of, {})
    }
    for id_, schema in sorted(wanted.items(), key=lambda item: str(item[0])):
        if found.get(id_) != schema:
            what = "other columns, types, collations or key" if id_ in found else "missing, or not readable"
            remedy = "let the replica catch up, rebuild it, or GRANT SELECT there"
            yield _wrong(f"snapshotUrl: table {id_}", what, "the table as on the source", remedy)


def _wrong(check: str, found: str, needed: str, remedy: str) -> Finding:
    return Finding(check, found, needed, remedy, Severity.ERROR, code="TR-2122")


def _rows(connection: BoundedConnection, statement: str) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _values(connection: BoundedConnection, statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()
