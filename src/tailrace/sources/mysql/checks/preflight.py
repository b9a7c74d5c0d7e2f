"""Everything that capture needs of a MySQL or MariaDB server, checked at once, with the SQL that fixes it.

Privileges are checked by trying them: grants come through roles, wildcards and partial revokes, and only the
server knows their sum. Every statement tried is harmless.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymysql

from tailrace.config.options import SourceOptions
from tailrace.errors import PreflightError
from tailrace.model.table import TableId
from tailrace.printable import printable
from tailrace.sources.mysql.binlog.visibility import Barrier, barrier_kind
from tailrace.sources.mysql.checks.archive_check import archive_findings
from tailrace.sources.mysql.checks.probe import Probe
from tailrace.sources.mysql.checks.row_server_checks import row_server_findings
from tailrace.sources.mysql.checks.table_checks import TableChecks
from tailrace.sources.mysql.connection import (
    MARIADB,
    Server,
    connect,
    server_facts,
    translate,
)
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.snapshot.literal import table_name
from tailrace.sources.mysql.xa.prepared import require_unused
from tailrace.sources.preflight import Finding, Preflight, Severity

#: The oldest version: the first with binlog_row_metadata (MariaDB: 10.5, which is out of support).
_OLDEST = {"mysql": (8, 0, 1), MARIADB: (10, 6, 0)}
_PRODUCTS = {"mysql": ("MySQL", "8.0"), MARIADB: ("MariaDB", "10.6")}
#: Row images with the whole row before a change, from which the row after it follows.
_WHOLE_BEFORE = frozenset({"FULL", "FULL_NODUP"})
#: Starting positions with a snapshot.
_WITH_SNAPSHOT = frozenset({"initial", "snapshot"})
_DAY_S = 86_400
#: Bytes that any statement with a key fits into: a key has at most 3072.
_SMALL_PACKET = 1 << 16

_SESSION_FORMATS = (
    "SELECT t.PROCESSLIST_USER AS user, v.VARIABLE_VALUE AS format, COUNT(*) AS sessions"
    " FROM performance_schema.variables_by_thread v JOIN performance_schema.threads t USING (THREAD_ID)"
    " WHERE v.VARIABLE_NAME = 'binlog_format' AND v.VARIABLE_VALUE <> 'ROW' GROUP BY 1, 2 ORDER BY 1, 2"
)
#: Privileges that let a session change its binlog_format.
_FORMAT_PRIVILEGES = {
    "mysql": ("SUPER", "SYSTEM_VARIABLES_ADMIN", "SESSION_VARIABLES_ADMIN"),
    MARIADB: ("SUPER", "BINLOG ADMIN"),
}
#: Accounts that every server has, as the catalog writes them.
_ADMINISTRATORS = ("'root'@", "'mysql.", "'mariadb.")

_ENABLE_GTIDS = """\
SET PERSIST enforce_gtid_consistency = ON;
SET PERSIST gtid_mode = OFF_PERMISSIVE;
SET PERSIST gtid_mode = ON_PERMISSIVE;
SET PERSIST gtid_mode = ON;"""


class MySqlPreflight(Preflight[BoundedConnection]):
    """The checks of a MySQL or MariaDB server."""

    product = "MySQL"
    driver_errors = (pymysql.err.MySQLError, OSError)
    connect = staticmethod(connect)
    translate = staticmethod(translate)

    def __init__(self, options: SourceOptions, connection: BoundedConnection) -> None:
        super().__init__(options, connection)
        self._probe = Probe(connection)
        self._variables = self._probe.variables
        self._account = self._probe.account
        self._server = server_facts(connection)
        self._mariadb = self._server.flavor == MARIADB

    def run(self) -> Iterator[Finding]:
        """Every finding, in the order in which to fix them."""
        remedy = "give the server a certificate (ssl_cert, ssl_key), then set tlsMode to required"
        yield self._encryption(self._account, remedy)
        server = self._server
        yield self._version(server)
        yield from self._settings()
        yield from self._retention()
        yield self._visibility()
        yield from self._prepared()
        yield from self._replication(server)
        yield from self._server_id()
        yield from archive_findings(self._options, self._connection, server.server_uuid)
        yield from row_server_findings(self._options, self._connection, server)
        yield from TableChecks(self._options, self._connection, self._probe, server).run()

    def _version(self, server: Server) -> Finding:
        version = ".".join(map(str, server.version))
        product, oldest = _PRODUCTS[server.flavor]
        severity = Severity.OK if server.version >= _OLDEST[server.flavor] else Severity.ERROR
        return Finding(
            "server", f"{product} {version}", f"{product} {oldest} or later", "", severity, code="TR-2002"
        )

    def _set(self, name: str, value: str) -> str:
        """The statement that sets a global variable permanently."""
        if self._mariadb:  # it has no SET PERSIST
            return f"SET GLOBAL {name} = {value}; -- and in the server's configuration file: {name} = {value}"
        return f"SET PERSIST {name} = {value};"

    def _settings(self) -> Iterator[Finding]:
        """Global variables with one correct value."""
        yield self._setting(
            "log_bin",
            "ON",
            "in the server's configuration file: log_bin = binlog, then restart it",
            "TR-2101",
        )
        for name, needed, code in (
            ("binlog_format", "ROW", "TR-2102"),
            ("binlog_row_metadata", "FULL", "TR-2103"),
        ):
            yield self._setting(name, needed, self._set(name, needed), code)
        if self._options.gtid_sources:
            yield self._gtids()
        if self._options.include_query:
            name = "binlog_annotate_row_events" if self._mariadb else "binlog_rows_query_log_events"
            yield self._setting(name, "ON", self._set(name, "ON"), "TR-1091")
        yield self._row_image()
        yield from self._other_formats()
        yield from self._durability()
        packet = int(self._variables.get("max_allowed_packet", _SMALL_PACKET))
        if packet < _SMALL_PACKET:
            yield Finding(
                "max_allowed_packet",
                str(packet),
                f"at least {_SMALL_PACKET}: statements with long keys do not fit",
                self._set("max_allowed_packet", str(64 << 20)),
                Severity.WARNING,
                code="TR-2119",
            )
        if self._mariadb:
            name = "mysql56_temporal_format"
            yield self._setting(name, "ON", self._set(name, "ON"), "TR-2106")
            if engine := self._variables.get("binlog_storage_engine"):
                yield Finding(
                    "binlog_storage_engine",
                    engine,
                    "a log in separate files (12.3 and later can keep it in a storage engine)",
                    "in the server's configuration file: remove binlog_storage_engine, then restart it",
                    Severity.ERROR,
                    code="TR-2107",
                )
            return
        yield self._value_options()

    def _gtids(self) -> Finding:
        """GTIDs of MySQL, which tell the server of each transaction."""
        name, found = "gtid_mode", self._variables.get("gtid_mode", "none, as this is MariaDB")
        if found.upper() == "ON":
            return Finding(name, found, "ON")
        needed = "ON: gtid.source.includes and gtid.source.excludes name servers by GTIDs of MySQL"
        remedy = "leave out the options" if self._mariadb else _ENABLE_GTIDS
        return Finding(name, found, needed, remedy, Severity.ERROR, code="TR-1093")

    def _row_image(self) -> Finding:
        """Whole row images, which exactly-once snapshots rewind by and upsert targets need."""
        name = "binlog_row_image"
        found = self._variables.get(name, "FULL").upper()
        if found == "FULL":
            return Finding(name, found, "FULL")
        if found in _WHOLE_BEFORE:
            needed = "FULL, or the log is read far slower: an Arrow batch ends where other columns change"
            return Finding(name, found, needed, self._set(name, "FULL"), Severity.WARNING, code="TR-2104")
        if self._options.exactly_once and self._options.starting_position in _WITH_SNAPSHOT:
            needed = "FULL: an exactly-once snapshot reconstructs rows from the images before each change"
            return Finding(name, found, needed, self._set(name, "FULL"), Severity.ERROR, code="TR-2104")
        needed = "FULL, or columns that a change omits are unknown: upsert targets stop there"
        return Finding(name, found, needed, self._set(name, "FULL"), Severity.WARNING, code="TR-2104")

    def _other_formats(self) -> Iterator[Finding]:
        """Sessions that log statements instead of rows now, and accounts whose sessions can."""
        name = "binlog_format of sessions"
        needed = "ROW in every session: changes that are logged as statements end the stream"
        formats = () if self._mariadb else self._rows_or_none(_SESSION_FORMATS)  # MariaDB does not show them
        if formats:
            shown = ", ".join(
                f"{row['format']} in {row['sessions']} of {printable(str(row['user']))}" for row in formats
            )
            yield Finding(
                name, shown, needed, "let these sessions reconnect", Severity.WARNING, code="TR-2102"
            )
        elif formats is not None and not self._mariadb:
            yield Finding(name, "ROW", "ROW")
        privileges = _FORMAT_PRIVILEGES[self._server.flavor]
        rows = self._rows_or_none(
            "SELECT GRANTEE AS account, GROUP_CONCAT(PRIVILEGE_TYPE ORDER BY 1 SEPARATOR ', ') AS privileges"
            f" FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE IN {privileges}"
            " GROUP BY GRANTEE ORDER BY GRANTEE"
        )
        accounts = [row for row in rows or () if not str(row["account"]).startswith(_ADMINISTRATORS)]
        if accounts:
            yield Finding(
                "accounts that can change binlog_format",
                ", ".join(printable(str(row["account"])) for row in accounts),
                "administrators only",
                "\n".join(
                    f"REVOKE {row['privileges']} ON *.* FROM {printable(str(row['account']))};"
                    for row in accounts
                ),
                Severity.WARNING,
                code="TR-2120",
            )

    def _rows_or_none(self, statement: str) -> list[dict[str, Any]] | None:
        """The rows of a statement; None if this user may not run it."""
        return None if self._probe.refusal(statement) else self._probe.rows(statement)

    def _durability(self) -> Iterator[Finding]:
        """Settings by which a crash can make tables and log differ for good."""
        for name, needed in (
            ("innodb_flush_log_at_trx_commit", "1, or a crash can undo transactions that the log holds"),
            ("sync_binlog", "1, or a crash can remove transactions from the log that tables hold"),
        ):
            found = self._variables.get(name, "1")
            if found == "1":
                yield Finding(name, found, "1")
            else:
                yield Finding(name, found, needed, self._set(name, "1"), Severity.WARNING, code="TR-2121")

    def _value_options(self) -> Finding:
        """A partial JSON update is applied to the earlier value, which only whole images have."""
        name = "binlog_row_value_options"
        found = self._variables.get(name, "")
        whole = self._variables.get("binlog_row_image", "FULL").upper() in _WHOLE_BEFORE
        if not found or whole:
            return Finding(name, found or "no PARTIAL_JSON", "")
        remedy = "SET PERSIST binlog_row_value_options = '';"
        return Finding(
            name, found, "no PARTIAL_JSON without whole row images", remedy, Severity.ERROR, code="TR-2105"
        )

    def _setting(self, name: str, needed: str, remedy: str, code: str) -> Finding:
        found = self._variables.get(name)
        if found is None or found.upper() == needed:
            return Finding(name, found or needed, needed)
        return Finding(name, found, needed, remedy, Severity.ERROR, code=code)

    def _retention(self) -> Iterator[Finding]:
        seconds = int(self._variables.get("binlog_expire_logs_seconds", 0))
        automatic = self._variables.get("binlog_expire_logs_auto_purge", "ON").upper() == "ON"
        if seconds == 0 or not automatic:
            yield Finding("binlog_expire_logs_seconds", "the log is kept until it is purged by hand", "")
        elif seconds >= _DAY_S:
            yield Finding("binlog_expire_logs_seconds", f"{seconds} ({seconds / _DAY_S:.1f} days)", "")
        else:
            yield Finding(
                "binlog_expire_logs_seconds",
                str(seconds),
                f"at least {_DAY_S}, or a stream that is stopped for longer cannot continue",
                self._set("binlog_expire_logs_seconds", str(7 * _DAY_S)),
                Severity.WARNING,
                code="TR-2108",
            )

    def _visibility(self) -> Finding:
        """How to make sure that a SELECT sees everything in the log up to a position."""
        name = "exactly-once snapshots"
        if not self._options.exactly_once:
            return Finding(name, "not requested (delivery is at-least-once)", "")
        mode = self._variables.get("gtid_mode", "OFF")
        match barrier_kind(self._connection, self._options):
            case Barrier.GTID:
                return Finding(name, f"gtid_mode is {mode}", "")
            case Barrier.SNAPSHOT:
                return Finding(name, "binlog_snapshot_position is available", "")
            case Barrier.LOG_STATUS:
                return Finding(name, f"gtid_mode is {mode}, performance_schema.log_status may be read", "")
            case Barrier.HEARTBEAT:
                return self._heartbeat(name, mode)
        if self._options.heartbeat_table:
            return Finding(
                name,
                f"gtid_mode is {mode}, binlog_order_commits is OFF",
                "commits in the log's order, or a heartbeat does not show that earlier ones are visible",
                "SET PERSIST binlog_order_commits = ON;",
                Severity.ERROR,
                code="TR-2109",
            )
        return Finding(
            name,
            f"gtid_mode is {mode}, and performance_schema.log_status may not be read",
            "GTIDs, or the privileges to read log_status, or the option heartbeatTable: "
            "changes in the log may not be visible yet",
            f"{_ENABLE_GTIDS}\n-- or\nGRANT BACKUP_ADMIN ON *.* TO {self._account};\n"
            f"GRANT SELECT ON performance_schema.log_status TO {self._account};",
            Severity.ERROR,
            code="TR-2109",
        )

    def _prepared(self) -> Iterator[Finding]:
        """Whether the user may see prepared XA transactions, where they are used."""
        try:
            require_unused(self._connection)
            return
        except PreflightError as error:
            refusal = error
        try:
            self._probe.rows("XA RECOVER")
        except pymysql.err.MySQLError:
            yield Finding(
                "XA transactions",
                "used, and the user may not see which ones are prepared",
                "XA_RECOVER_ADMIN when a stream starts: a transaction prepared then may be committed later",
                f"{refusal.hint};",
                Severity.WARNING,
                code="TR-2111",
            )

    def _heartbeat(self, name: str, mode: str) -> Finding:
        table = table_name(TableId.parse(str(self._options.heartbeat_table)))
        # needs the same privileges as a heartbeat, and writes nothing
        refusal = self._probe.refusal(
            f"INSERT INTO {table} (id, ts) SELECT 1, NOW(6) FROM DUAL WHERE FALSE"
            " ON DUPLICATE KEY UPDATE ts = NOW(6)"
        )
        if not refusal:
            return Finding(name, f"gtid_mode is {mode}, the heartbeat table may be written", "")
        return Finding(
            name,
            f"gtid_mode is {mode}, heartbeat table: {refusal}",
            "a heartbeat table that may be written",
            f"CREATE TABLE IF NOT EXISTS {table} (id INT PRIMARY KEY, ts TIMESTAMP(6) NOT NULL);\n"
            f"GRANT INSERT, UPDATE ON {table} TO {self._account};",
            Severity.ERROR,
            code="TR-2110",
        )

    def _replication(self, server: Server) -> Iterator[Finding]:
        denied = self._probe.refusal(server.log_status_sql)
        yield self._privilege("BINLOG MONITOR" if self._mariadb else "REPLICATION CLIENT", denied)
        if not denied:
            yield from self._log_filters(server)
            yield from self._replica(server)
        if self._mariadb:  # there SHOW REPLICA HOSTS needs more privileges than reading the log
            refused = self._probe.registration_refusal()
        else:
            refused = self._probe.refusal(
                "SHOW REPLICAS" if server.version >= (8, 0, 22) else "SHOW SLAVE HOSTS"
            )
        yield self._privilege("REPLICATION SLAVE", refused)
        reads_rows = self._options.starting_position in _WITH_SNAPSHOT
        if self._mariadb and reads_rows and self._options.snapshot_protection == "auto":
            yield self._sessions_of_others()

    def _sessions_of_others(self) -> Finding:
        """MariaDB says only with PROCESS what others do; by MySQL it is counted without."""
        name = "privilege PROCESS"
        if not self._probe.refusal("SHOW ENGINE INNODB STATUS"):  # it needs the privilege
            return Finding(name, "granted", "")
        return Finding(
            name,
            "not granted",
            "granted, or tables are read at full speed while others use the server",
            f"GRANT PROCESS ON *.* TO {self._account}; -- or set snapshotProtection to none",
            Severity.WARNING,
            code="TR-2123",
        )

    def _privilege(self, name: str, denied: str | None) -> Finding:
        check = f"privilege {name}"
        if not denied:
            return Finding(check, "granted", "")
        return Finding(
            check,
            "not granted",
            "granted",
            f"GRANT {name} ON *.* TO {self._account};",
            Severity.ERROR,
            code="TR-2112",
        )

    def _log_filters(self, server: Server) -> Iterator[Finding]:
        """Databases that the server omits from its log: their changes are never captured."""
        for status in self._probe.rows(server.log_status_sql):
            only, never = str(status["Binlog_Do_DB"] or ""), str(status["Binlog_Ignore_DB"] or "")
            if only or never:
                yield Finding(
                    "databases in the log",
                    f"binlog-do-db = {only}" if only else f"binlog-ignore-db = {never}",
                    "no filter, or changes of captured tables may be missing",
                    "remove the filter from the server's configuration file, then restart it",
                    Severity.WARNING,
                    code="TR-2113",
                )

    def _replica(self, server: Server) -> Iterator[Finding]:
        """A replica must write what it replicates to its own log."""
        status = "SHOW REPLICA STATUS" if server.version >= (8, 0, 22) else "SHOW SLAVE STATUS"
        name = "log_slave_updates" if self._mariadb else "log_replica_updates"
        writes = self._variables.get(name, self._variables.get("log_slave_updates", "ON"))
        if writes.upper() == "ON":
            return
        # MariaDB requires REPLICA MONITOR for it, which capture does not need
        is_known = not self._mariadb or not self._probe.refusal(status)
        if not is_known or self._probe.rows(status):
            yield Finding(
                name,
                writes,
                "ON, as this server is a replica" if is_known else "ON, if this server is a replica",
                f"in the server's configuration file: {name} = ON, then restart it",
                Severity.ERROR if is_known else Severity.WARNING,
                code="TR-2114",
            )

    def _server_id(self) -> Iterator[Finding]:
        own = int(self._variables.get("server_id", 0))
        if own == 0:
            yield Finding(
                "server_id", "0", "a number > 0", self._set("server_id", "1"), Severity.ERROR, code="TR-2115"
            )
        chosen = self._options.server_id
        if chosen is None:
            return
        if chosen == own:
            yield Finding(
                "option serverId",
                f"{chosen}, the server's own",
                "a number that no server of this replication topology has",
                "omit the option serverId, or set it to another number",
                Severity.ERROR,
                code="TR-2116",
            )
        else:
            yield Finding("option serverId", str(chosen), "")


check, require = MySqlPreflight.check, MySqlPreflight.require
