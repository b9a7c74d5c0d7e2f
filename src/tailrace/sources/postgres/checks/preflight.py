"""Everything a PostgreSQL server must have for capture, checked at once, with the SQL that mends it."""

from __future__ import annotations

from collections.abc import Iterator

from pg8000.exceptions import DatabaseError, InterfaceError

from tailrace.config.options import SourceOptions
from tailrace.errors import TailraceError
from tailrace.sources import network, preflight
from tailrace.sources.postgres.checks.table_checks import TableChecks
from tailrace.sources.postgres.connection import Connection, connect, translate
from tailrace.sources.postgres.literal import identifier, string
from tailrace.sources.postgres.replication import slot
from tailrace.sources.preflight import Finding, Severity

#: The oldest version: binary values in pgoutput came with it.
_OLDEST = 14
#: Slots and walsenders for the stream, a snapshot's slot, and a task that reads a large transaction.
_NEEDED_AT_ONCE = 3
#: A transaction that has written and is older than this is worth a word, seconds.
_LONG_S = 60
_RESTART = "; -- then restart the server"


def require(options: SourceOptions) -> None:
    """Refuses capture when a precondition is not met.

    Raises:
        PreflightError: names every precondition that is not met, with the SQL that mends it.
        TransientSourceError: the server cannot be reached.
    """
    preflight.require(_findings(options), f"PostgreSQL server `{options.host}:{options.port}`")


def check(options: SourceOptions) -> list[Finding]:
    """The outcome of every check, in an order in which one mends them.

    A server that cannot be reached is itself a finding, and the only one.
    """
    try:
        return _findings(options)
    except TailraceError as error:
        return [preflight.unreachable(options, error)]


def _findings(options: SourceOptions) -> list[Finding]:
    try:
        connection = connect(options, purpose="checking its set-up")
    except TailraceError as error:
        if error.retryable:
            raise
        return [preflight.unreachable(options, error)]
    with connection:
        connection.limit_whole(options.retry_timeout_ms / 1000)
        try:
            with network.sensible("its set-up"):
                return list(_Checks(options, connection).run())
        except (DatabaseError, InterfaceError, OSError) as error:
            raise translate(error, "checking the server's set-up") from error


class _Checks:
    """All checks over one connection."""

    def __init__(self, options: SourceOptions, connection: Connection) -> None:
        self._options = options
        self._connection = connection
        self._settings = dict(connection.rows("SELECT name::text, setting::text FROM pg_catalog.pg_settings"))
        self._user, self._is_super, self._may_replicate = connection.rows(
            "SELECT rolname::text, rolsuper, rolsuper OR rolreplication FROM pg_catalog.pg_roles "
            "WHERE rolname = current_user"
        )[0]
        self._slot = slot.read(connection, options.slot)
        self._needs_slot = options.starting_position != "snapshot"

    def run(self) -> Iterator[Finding]:
        """Every finding, in an order in which one mends them."""
        yield self._connected()
        yield self._version()
        yield self._wal_level()
        yield from self._room()
        yield self._replication()
        if self._needs_slot:
            yield from self._of_slot()
            yield from self._retention()
            yield from self._standbys()
        yield from self._long_transactions()
        yield from TableChecks(self._options, self._connection, self._user, self._is_super).run()

    def _connected(self) -> Finding:
        where = f"connection to {self._options.host}:{self._options.port}"
        if self._connection.is_encrypted:
            return Finding(where, f"{self._user}, over TLS", "")
        if self._options.tls.mode == "disabled" or self._options.host in ("localhost", "127.0.0.1", "::1"):
            return Finding(where, f"{self._user}, not encrypted", "")
        return Finding(
            where,
            f"{self._user}, not encrypted",
            "TLS, or rows cross the network in clear",
            "ALTER SYSTEM SET ssl = on; -- with ssl_cert_file and ssl_key_file; then set tlsMode to required",
            Severity.WARNING,
        )

    def _version(self) -> Finding:
        severity = Severity.OK if self._connection.version >= _OLDEST else Severity.ERROR
        found = f"PostgreSQL {self._settings['server_version']}"
        return Finding("server", found, f"PostgreSQL {_OLDEST} or later", "", severity)

    def _wal_level(self) -> Finding:
        found = self._settings["wal_level"]
        if found == "logical" or not self._needs_slot:
            return Finding("wal_level", found, "logical")
        remedy = f"ALTER SYSTEM SET wal_level = 'logical'{_RESTART}"
        return Finding("wal_level", found, "logical", remedy, Severity.ERROR)

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
                f"{needed} free: the stream's, a snapshot's, and that of a task which reads a large "
                "transaction",
                f"ALTER SYSTEM SET {name} = {most + 10}{_RESTART}",
                Severity.ERROR if free < min(needed, 2) else Severity.WARNING,
            )

    def _replication(self) -> Finding:
        """The attribute, or what a provider has in its place: a walsender must answer."""
        name = "privilege REPLICATION"
        try:
            connect(self._options, purpose="checking its set-up", replication=True).close()
        except TailraceError as error:
            if error.retryable:
                raise
            return Finding(
                name,
                "not granted" if not self._may_replicate else (error.detail or error.message),
                "granted, and pg_hba.conf lets this host in",
                f"ALTER ROLE {identifier(self._user)} REPLICATION; -- on Amazon RDS: GRANT "
                "rds_replication TO "
                f"{identifier(self._user)};",
                Severity.ERROR,
            )
        return Finding(name, "granted", "")

    def _of_slot(self) -> Iterator[Finding]:
        name = f"replication slot {self._options.slot}"
        there = self._slot
        if there is None:
            yield Finding(name, "not there: the stream makes it", "")
        elif there.plugin != slot.PLUGIN or there.database != self._options.database:
            yield Finding(
                name,
                f"plugin {there.plugin or 'none'}, database {there.database or 'none'}",
                f"plugin {slot.PLUGIN}, database {self._options.database}",
                "set the option slotName to another name",
                Severity.ERROR,
            )
        elif there.is_lost:
            yield Finding(
                name,
                f"invalidated by the server ({there.reason or there.wal_status})",
                "a slot that holds the log; a stream that was at it cannot go on",
                f"SELECT pg_drop_replication_slot({string(there.name)});",
                Severity.ERROR,
            )
        else:
            used = f"read by process {there.active_pid}, " if there.active_pid else ""
            yield Finding(name, f"{used}holds {there.held_bytes} bytes of WAL", "")

    def _retention(self) -> Iterator[Finding]:
        name = "max_slot_wal_keep_size"
        megabytes = int(self._settings.get(name, "-1"))
        if megabytes < 0:
            yield Finding(name, "no limit: WAL is kept while the stream stands still", "")
        elif megabytes >= 1024:
            yield Finding(name, f"{megabytes} MB", "")
        else:
            yield Finding(
                name,
                f"{megabytes} MB",
                "at least 1024 MB, or a stream that stands still for a while cannot go on",
                f"ALTER SYSTEM SET {name} = '10GB'; SELECT pg_reload_conf();",
                Severity.WARNING,
            )
        idle = self._settings.get("idle_replication_slot_timeout", "0")
        if idle != "0":
            yield Finding(
                "idle_replication_slot_timeout",
                f"{idle} s",
                "0, or a stream that stands still for longer cannot go on",
                "ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();",
                Severity.WARNING,
            )

    def _standbys(self) -> Iterator[Finding]:
        """What lets the stream go on after a failover, where there is a standby that could take over."""
        if self._connection.version < 17 or slot.in_recovery(self._connection):
            return
        name = "synchronized_standby_slots"
        named = [n.strip(' "') for n in self._settings[name].split(",") if n.strip()]
        # only standbys with hot_standby_feedback, which copying slots takes, give their physical slot an xmin
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
                "made without FAILOVER: standbys do not copy it",
                "a slot that a promoted standby has too, or the stream ends there",
                f"ALTER_REPLICATION_SLOT {identifier(self._slot.name)} (FAILOVER true); -- by a replication "
                "connection: psql 'dbname=... replication=database'",
                Severity.WARNING,
            )
        absent = [n for n in named if n not in used]
        if absent and survives:
            yield Finding(
                name,
                f"{', '.join(named)}, of which nothing follows by {', '.join(absent)}",
                "slots that a standby follows by: until it does, the server gives the stream nothing",
                f"ALTER SYSTEM SET {name} = {string(', '.join(n for n in named if n in used))}; "
                "SELECT pg_reload_conf(); -- or start the standby",
                Severity.WARNING,
            )
            return
        lacking = [n for n in standbys if n not in named]
        if lacking and survives:
            listed = string(", ".join([*named, *lacking]))
            yield Finding(
                name,
                f"without {', '.join(lacking)}: the stream may be ahead of a standby that follows by it",
                "the slot of each standby that may take over, or the stream ends if it does",
                f"ALTER SYSTEM SET {name} = {listed}; SELECT pg_reload_conf();",
                Severity.WARNING,
            )
        elif named:
            yield Finding(name, ", ".join(named), "")

    def _long_transactions(self) -> Iterator[Finding]:
        """Slots and snapshots wait for those that write."""
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
            "short ones: a new stream, and each snapshot, waits for all that were there before it",
            "SELECT pid, xact_start, query FROM pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY "
            "xact_start; "
            "SELECT gid, prepared FROM pg_prepared_xacts;",
            Severity.WARNING,
        )
