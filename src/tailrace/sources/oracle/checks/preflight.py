"""Everything that capture needs of an Oracle database, checked at once, with the SQL that fixes it."""

from __future__ import annotations

from collections.abc import Iterator

import oracledb

from tailrace.config.options import SourceOptions
from tailrace.errors import PreflightError, TailraceError
from tailrace.sources.oracle import catalog
from tailrace.sources.oracle.checks.table_checks import TableChecks
from tailrace.sources.oracle.connection import Connection, connect, ora_number, translate
from tailrace.sources.oracle.wire.types import identifier
from tailrace.sources.preflight import Finding, Preflight, Severity, errors

#: The oldest version: the first with all that LogMiner and the catalog are asked for here.
_OLDEST = 19
_VIEWS = (
    *("V$DATABASE", "V$LOG", "V$LOGFILE", "V$ARCHIVED_LOG", "V$LOGMNR_CONTENTS", "V$TRANSACTION"),
    *("V$SESSION", "V$THREAD", "V$INSTANCE"),
)
#: The name of a view's object, which grants name.
_OF_VIEWS = "V_$"
_NOT_THERE = frozenset([942, 1031])
#: LogMiner has not been started: the view may be read.
_NOT_STARTED = 1306
_RETENTION_S = 3600


class OraclePreflight(Preflight[Connection]):
    """The checks of an Oracle database."""

    product = "Oracle"
    driver_errors = (oracledb.Error, OSError)
    connect = staticmethod(connect)
    translate = staticmethod(translate)

    def __init__(self, options: SourceOptions, connection: Connection) -> None:
        super().__init__(options, connection)
        ((user, self._container),) = connection.rows(
            "SELECT USER, SYS_CONTEXT('USERENV', 'CON_NAME') FROM DUAL"
        )
        self._user = identifier(user)
        self._reads_log = options.starting_position != "snapshot"

    def run(self) -> Iterator[Finding]:
        """Every finding, in the order in which to fix them."""
        yield self._encryption(self._user, "-- configure a listener for TCPS, and set tlsMode to required")
        missing = list(self._views())
        yield from missing
        if missing:
            return  # nothing else can be asked for
        database = catalog.database(self._connection)
        yield from self._server(database)
        if self._reads_log:
            yield from self._log(database)
            yield from self._privileges(database)
        yield from self._undo()
        yield from TableChecks(self._options, self._connection, database, self._user).run()

    def _views(self) -> Iterator[Finding]:
        for view in _VIEWS if self._reads_log else ("V$DATABASE", "V$TRANSACTION", "V$SESSION", "V$INSTANCE"):
            try:
                self._connection.rows(f"SELECT 1 FROM {view} WHERE 1 = 0")
            except oracledb.Error as error:
                if ora_number(error) == _NOT_STARTED:
                    continue
                if ora_number(error) not in _NOT_THERE:
                    raise
                yield Finding(
                    f"view {view}",
                    f"{self._user} may not read it",
                    "SELECT on it",
                    f"GRANT SELECT ON {view.replace('V$', _OF_VIEWS)} TO {self._user};",
                    Severity.ERROR,
                    code="TR-4608",
                )

    def _server(self, database: catalog.Database) -> Iterator[Finding]:
        ((version,),) = self._connection.rows("SELECT VERSION_FULL FROM V$INSTANCE")
        major = int(str(version).partition(".")[0])
        severity = Severity.OK if major >= _OLDEST else Severity.ERROR
        yield Finding(
            "server", f"Oracle {version}", f"Oracle {_OLDEST} or later", "", severity, code="TR-2002"
        )
        is_open = database.open_mode == "READ WRITE" and database.role == "PRIMARY"
        yield Finding(
            "database",
            f"{database.role}, {database.open_mode}",
            "the primary, open for reading and writing: LogMiner uses its catalog, and its open transactions",
            "" if is_open else "-- name the primary in url",
            Severity.OK if is_open else Severity.ERROR,
            code=None if is_open else "TR-4601",
        )
        if database.is_container and self._container == "CDB$ROOT":
            yield Finding(
                "container",
                "the root of a container database",
                "the pluggable database of the tables: its service is the path of url",
                "SELECT NAME FROM V$SERVICES; -- then url: oracle://HOST/SERVICE",
                Severity.ERROR,
                code="TR-4607",
            )
        if database.is_container and not self._user.strip('"').upper().startswith("C##"):
            yield Finding(
                "user",
                f"{self._user} is a user of one pluggable database",
                "a common user: LogMiner reads the log in the root of the container database",
                "ALTER SESSION SET CONTAINER = CDB$ROOT; CREATE USER c##tailrace IDENTIFIED BY ... "
                "CONTAINER = ALL; GRANT CREATE SESSION, SET CONTAINER, LOGMINING TO c##tailrace "
                "CONTAINER = ALL;",
                Severity.ERROR if self._reads_log else Severity.OK,
                code="TR-4607" if self._reads_log else None,
            )

    def _log(self, database: catalog.Database) -> Iterator[Finding]:
        yield _setting(
            "log mode",
            ("ARCHIVELOG", "NOARCHIVELOG"),
            database.archives,
            (
                "TR-4602",
                "ARCHIVELOG, or the log is written over before it is read",
                "SHUTDOWN IMMEDIATE; STARTUP MOUNT; ALTER DATABASE ARCHIVELOG; ALTER DATABASE OPEN;",
            ),
        )
        yield _setting(
            "supplemental logging of the database",
            ("yes", "none"),
            database.logs_minimum,
            (
                "TR-4603",
                "at least the minimal one, or LogMiner cannot tell which change belongs to which row",
                "ALTER DATABASE ADD SUPPLEMENTAL LOG DATA; -- in the root of a container database",
            ),
        )
        yield _setting(
            "force logging",
            ("yes", "no"),
            database.forces_logging,
            (
                "TR-4605",
                "yes, or a direct load into a NOLOGGING table is not in the log",
                "ALTER DATABASE FORCE LOGGING;",
            ),
        )
        ((threads,),) = self._connection.rows("SELECT COUNT(*) FROM V$THREAD WHERE ENABLED <> 'DISABLED'")
        yield _setting(
            "redo threads",
            ("1", str(threads)),
            int(threads) == 1,
            (
                "TR-4606",
                "one: the order of changes in several logs of a cluster (RAC) is not known here",
                "-- none: a cluster cannot be captured",
            ),
        )

    def _privileges(self, database: catalog.Database) -> Iterator[Finding]:
        held = {row[0] for row in self._connection.rows("SELECT PRIVILEGE FROM SESSION_PRIVS")}
        may_run = int(
            self._connection.rows(
                "SELECT COUNT(*) FROM ALL_PROCEDURES WHERE OWNER = 'SYS' AND OBJECT_NAME = 'DBMS_LOGMNR'"
            )[0][0]
        )
        lacks = [] if "LOGMINING" in held else ["LOGMINING"]
        remedies = [f"GRANT {lack} TO {self._user};" for lack in lacks]
        if not may_run:
            lacks.append("EXECUTE on DBMS_LOGMNR")
            remedies.append(f"GRANT EXECUTE ON SYS.DBMS_LOGMNR TO {self._user};")
        if database.is_container and "SET CONTAINER" not in held:
            lacks.append("SET CONTAINER")
            remedies.append(f"GRANT SET CONTAINER TO {self._user} CONTAINER = ALL;")
        yield Finding(
            "privileges for the log",
            "all" if not lacks else f"{self._user} lacks {', '.join(lacks)}",
            "LOGMINING, and EXECUTE on DBMS_LOGMNR",
            "\n".join(remedies),
            Severity.ERROR if lacks else Severity.OK,
            code="TR-4608" if lacks else None,
        )

    def _undo(self) -> Iterator[Finding]:
        try:
            found = self._connection.rows("SELECT VALUE FROM V$PARAMETER WHERE NAME = 'undo_retention'")
        except oracledb.Error as error:
            if ora_number(error) not in _NOT_THERE:
                raise
            return  # a warning is all that it would be
        if found and int(found[0][0]) < _RETENTION_S:
            yield Finding(
                "undo_retention",
                f"{found[0][0]} s",
                f"{_RETENTION_S} s or more: a batch that is repeated after a crash reads rows as of its "
                "position, and fails if their undo is gone",
                f"ALTER SYSTEM SET UNDO_RETENTION = {_RETENTION_S};",
                Severity.WARNING,
                code="TR-4618",
            )


def _setting(check: str, found: tuple[str, str], is_right: bool, failure: tuple[str, str, str]) -> Finding:
    """The finding of a setting.

    Args:
        check: its name.
        found: what it is if it is right, and if it is not.
        is_right: which it is.
        failure: code, what is needed, and the remedy.
    """
    if is_right:
        return Finding(check, found[0], "")
    code, needed, remedy = failure
    return Finding(check, found[1], needed, remedy, Severity.ERROR, code=code)


def refusals(options: SourceOptions, connection: Connection) -> dict[str, TailraceError]:
    """The tables that cannot be captured as they are now, with the reason. Raises oracledb's errors."""
    ((user,),) = connection.rows("SELECT USER FROM DUAL")
    checks = TableChecks(options, connection, catalog.database(connection), identifier(user))
    return {
        f.table: PreflightError(
            f"table `{f.table}` cannot be captured",
            f"found {f.found}, needed {f.needed}",
            f.remedy or None,
            code=f.code,
            table=f.table,
        )
        for f in reversed(errors(list(checks.run())))
        if f.table is not None
    }


check, require = OraclePreflight.check, OraclePreflight.require
