"""Everything that capture needs of a PostgreSQL server, checked at once, with the SQL that fixes it."""

from __future__ import annotations

from collections.abc import Iterator

from pg8000.exceptions import DatabaseError, InterfaceError

from tailrace.config.options import SourceOptions
from tailrace.errors import TailraceError
from tailrace.sources.postgres.checks.archive_check import archive_findings
from tailrace.sources.postgres.checks.table_checks import TableChecks
from tailrace.sources.postgres.connection import Connection, connect, translate
from tailrace.sources.postgres.protocol.literal import identifier, string
from tailrace.sources.postgres.replication import slot
from tailrace.sources.preflight import Finding, Preflight, Severity

#: The oldest version: the first with binary values in pgoutput.
_OLDEST = 14
#: The first version whose standbys decode the log.
_STANDBY = 16
#: Slots and walsenders: the stream's, a snapshot's, and that of a task that reads a large transaction.
_NEEDED_AT_ONCE = 3
#: A writing transaction older than this, in seconds, is reported.
_LONG_S = 60
_RESTART = "; -- then restart the server"


class PostgresPreflight(Preflight[Connection]):
    """The checks of a PostgreSQL server."""

    product = "PostgreSQL"
    driver_errors = (DatabaseError, InterfaceError, OSError)
    connect = staticmethod(connect)
    translate = staticmethod(translate)

    def __init__(self, options: SourceOptions, connection: Connection) -> None:
        super().__init__(options, connection)
        self._settings = dict(connection.rows("SELECT name::text, setting::text FROM pg_catalog.pg_settings"))
        self._user, self._is_super, self._may_replicate = connection.rows(
            "SELECT rolname::text, rolsuper, rolsuper OR rolreplication FROM pg_catalog.pg_roles "
            "WHERE rolname = current_user"
        )[0]
        self._slot = slot.read(connection, options.slot)
        self._needs_slot = options.starting_position != "snapshot"

    def run(self) -> Iterator[Finding]:
        """Every finding, in the order in which to fix them."""
        remedy = (
            "ALTER SYSTEM SET ssl = on; -- with ssl_cert_file and ssl_key_file; then set tlsMode to required"
        )
        yield self._encryption(self._user, remedy)
        yield self._version()
        yield from self._encoding()
        yield self._wal_level()
        yield from self._recovery()
        yield from self._room()
        yield self._replication()
        if self._needs_slot:
            yield from self._replication_slot()
            yield from self._retention()
            yield from self._standbys()
            yield from archive_findings(self._options, self._connection)
        yield from self._long_transactions()
        yield from TableChecks(self._options, self._connection, self._user, self._is_super).run()

    def _version(self) -> Finding:
        severity = Severity.OK if self._connection.version >= _OLDEST else Severity.ERROR
        found = f"PostgreSQL {self._settings['server_version']}"
        return Finding("server", found, f"PostgreSQL {_OLDEST} or later", "", severity, code="TR-2002")

    def _encoding(self) -> Iterator[Finding]:
        if self._settings["server_encoding"] == "SQL_ASCII":
            yield Finding(
                "encoding",
                "SQL_ASCII: the database may hold bytes that are no text",
                "valid UTF-8 in all captured columns, or the stream ends at the first other value",
                "",
                Severity.WARNING,
                code="TR-2218",
            )

    def _recovery(self) -> Iterator[Finding]:
        """Whether a standby can serve the stream."""
        if not self._needs_slot or not slot.in_recovery(self._connection):
            return
        if self._connection.version < _STANDBY:
            yield Finding(
                "server's role",
                "a standby",
                f"a primary, or PostgreSQL {_STANDBY} or later: older standbys have no logical log",
                "name the primary in url",
                Severity.ERROR,
                code="TR-2219",
            )
            return
        yield Finding(
            "server's role",
            "a standby",
            "a primary that writes: where it is idle, creating a slot and each snapshot wait on the standby",
            "SELECT pg_log_standby_snapshot(); -- on the primary, now and then while it is idle",
            Severity.WARNING,
            code="TR-2220",
        )

    def _wal_level(self) -> Finding:
        found = self._settings["wal_level"]
        if found == "logical" or not self._needs_slot:
            return Finding("wal_level", found, "logical")
        remedy = f"ALTER SYSTEM SET wal_level = 'logical'{_RESTART}"
        return Finding("wal_level", found, "logical", remedy, Severity.ERROR, code="TR-2201")

    def _room(self) -> Iterator[Finding]:
        """Free replication slots and walsenders."""
        for name, used in (
            ("max_replication_slots", "SELECT count(*)::int4 FROM pg_catalog.pg_replication_slots"),
            (
                "max_wal_senders",
                "SELECT count(*)::int4 FROM pg_catalog.pg_stat_activity WHERE backend_type = 'walsender'",
            ),
        ):
            most = int(self._settings[name])
            free = most - int(self._connection.value(used))
            held = self._slot is not None and (name == "max_replication_slots" or self._slot.active_pid)
            needed = _NEEDED_AT_ONCE - bool(held)
            found = f"{most}, of which {free} are free"
            if free >= needed:
                yield Finding(name, found, "")
                continue
            yield Finding(
                name,
                found,
                f"{needed} free: for the stream, a snapshot, and a task that reads a large transaction",
                f"ALTER SYSTEM SET {name} = {most + 10}{_RESTART}",
                Severity.ERROR if free < min(needed, 2) else Severity.WARNING,
                code="TR-2202",
            )

    def _replication(self) -> Finding:
        """The attribute, or a provider's replacement for it: a replication connection must work."""
        name = "privilege REPLICATION"
        try:
            connect(self._options, purpose="checking its set-up", replication=True).close()
        except TailraceError as error:
            if error.retryable:
                raise
            return Finding(
                name,
                "not granted" if not self._may_replicate else (error.detail or error.message),
                "granted, and a pg_hba.conf that admits this host",
                f"ALTER ROLE {identifier(self._user)} REPLICATION; -- on Amazon RDS: GRANT "
                "rds_replication TO "
                f"{identifier(self._user)};",
                Severity.ERROR,
                code="TR-2203",
            )
        return Finding(name, "granted", "")

    def _replication_slot(self) -> Iterator[Finding]:
        name = f"replication slot {self._options.slot}"
        found = self._slot
        if found is None:
            yield Finding(name, "does not exist: the stream creates it", "")
        elif found.plugin != slot.PLUGIN or found.database != self._options.database:
            yield Finding(
                name,
                f"plugin {found.plugin or 'none'}, database {found.database or 'none'}",
                f"plugin {slot.PLUGIN}, database {self._options.database}",
                "set the option slotName to another name",
                Severity.ERROR,
                code="TR-4203",
            )
        elif found.is_lost:
            refreshes = self._options.on_position_lost == "refresh"
            goes_on = refreshes or self._options.archive is not None
            yield Finding(
                name,
                f"invalidated by the server ({found.reason or found.wal_status})",
                "a slot that holds the log; a stream that used it " + self._without_slot(refreshes=refreshes),
                f"SELECT pg_drop_replication_slot({string(found.name)}); -- or onPositionLost: refresh",
                Severity.WARNING if goes_on else Severity.ERROR,
                code="TR-4201",
            )
        else:
            used = f"read by process {found.active_pid}, " if found.active_pid else ""
            yield Finding(name, f"{used}holds {found.held_bytes} bytes of WAL", "")

    def _without_slot(self, *, refreshes: bool) -> str:
        """What a stream does whose slot is lost."""
        again = "reads its tables again, with a new slot"
        if self._options.archive is not None:
            return f"goes on with the archive; if that lacks the log, it {again if refreshes else 'ends'}"
        return again if refreshes else "cannot continue"

    def _retention(self) -> Iterator[Finding]:
        name = "max_slot_wal_keep_size"
        megabytes = int(self._settings.get(name, "-1"))
        if megabytes < 0:
            yield Finding(name, "no limit: WAL is kept while the stream is stopped", "")
        elif megabytes >= 1024:
            yield Finding(name, f"{megabytes} MB", "")
        else:
            yield Finding(
                name,
                f"{megabytes} MB",
                "at least 1024 MB, or a stream that is stopped for a while cannot continue",
                f"ALTER SYSTEM SET {name} = '10GB'; SELECT pg_reload_conf();",
                Severity.WARNING,
                code="TR-2206",
            )
        idle = self._settings.get("idle_replication_slot_timeout", "0")
        if idle != "0":
            yield Finding(
                "idle_replication_slot_timeout",
                f"{idle} s",
                "0, or a stream that is stopped for longer cannot continue",
                "ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();",
                Severity.WARNING,
                code="TR-2206",
            )

    def _standbys(self) -> Iterator[Finding]:
        """Whether the stream can continue after a failover, where there is a standby that could take over."""
        if self._connection.version < 17 or slot.in_recovery(self._connection):
            return
        name = "synchronized_standby_slots"
        named = [n.strip(' "') for n in self._settings[name].split(",") if n.strip()]
        # only standbys with hot_standby_feedback, which copying slots needs, give their physical slot an xmin
        physical = self._connection.rows(
            "SELECT slot_name::text, active, xmin IS NOT NULL OR catalog_xmin IS NOT NULL "
            "FROM pg_catalog.pg_replication_slots WHERE slot_type = 'physical'"
        )
        used = [n for n, is_active, _ in physical if is_active]
        standbys = [n for n, is_active, may_take_over in physical if is_active and may_take_over]
        survives = self._slot is None or self._slot.failover
        if standbys and self._slot is not None and not survives:
            yield Finding(
                f"replication slot {self._options.slot}",
                "created without FAILOVER: standbys do not copy it",
                "a slot that a promoted standby also has, or the stream ends at a failover",
                f"ALTER_REPLICATION_SLOT {identifier(self._slot.name)} (FAILOVER true); -- over a "
                "replication connection: psql 'dbname=... replication=database'",
                Severity.WARNING,
                code="TR-2207",
            )
        absent = [n for n in named if n not in used]
        if absent and survives:
            yield Finding(
                name,
                f"{', '.join(named)}, of which no standby uses {', '.join(absent)}",
                "slots in use by a standby: until then the server sends the stream nothing",
                f"ALTER SYSTEM SET {name} = {string(', '.join(n for n in named if n in used))}; "
                "SELECT pg_reload_conf(); -- or start the standby",
                Severity.WARNING,
                code="TR-2208",
            )
            return
        lacking = [n for n in standbys if n not in named]
        if lacking and survives:
            listed = string(", ".join([*named, *lacking]))
            yield Finding(
                name,
                f"without {', '.join(lacking)}: the stream may be ahead of the standby that uses it",
                "the slot of each standby that may take over, or the stream ends when one does",
                f"ALTER SYSTEM SET {name} = {listed}; SELECT pg_reload_conf();",
                Severity.WARNING,
                code="TR-2208",
            )
        elif named:
            yield Finding(name, ", ".join(named), "")

    def _long_transactions(self) -> Iterator[Finding]:
        """Creating slots and snapshots waits for writing transactions."""
        oldest = self._connection.value(
            "SELECT max(extract(epoch FROM now() - xact_start))::int8 FROM pg_catalog.pg_stat_activity "
            "WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()"
        )
        prepared = self._connection.value("SELECT count(*)::int4 FROM pg_catalog.pg_prepared_xacts")
        if not prepared and (oldest or 0) < _LONG_S:
            yield Finding("transactions that write", "none is old", "")
            return
        found = [f"the oldest is {oldest} s old"] if (oldest or 0) >= _LONG_S else []
        found += [f"{prepared} prepared"] if prepared else []
        yield Finding(
            "transactions that write",
            ", ".join(found),
            "short ones: a new stream, and each snapshot, waits for all earlier ones",
            "SELECT pid, xact_start, query FROM pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY "
            "xact_start; "
            "SELECT gid, prepared FROM pg_prepared_xacts;",
            Severity.WARNING,
            code="TR-2209",
        )


check, require = PostgresPreflight.check, PostgresPreflight.require
