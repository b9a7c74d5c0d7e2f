"""Preconditions of an Oracle database, each broken in the stand-in: the finding, and its remedy."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import PreflightError
from tailrace.sources import registry
from tailrace.sources.oracle import connection
from tailrace.sources.preflight import errors, render
from tests.contract.test_oracle import ID, NAME, options
from tests.support.oracle import Column, OracleServer, ora


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> OracleServer:
    found = OracleServer()
    monkeypatch.setattr(connection, "open_raw", lambda *_: (found.connection(), True))
    found.create("T", [ID, NAME], ("ID",))
    return found


def test_nothing_is_wrong_with_a_database_that_is_set_up(server: OracleServer) -> None:
    findings = registry.check(options())
    assert not [f for f in findings if f.code and f.severity != "ok"], render(findings)
    assert {f.check for f in findings} >= {
        "server",
        "database",
        "log mode",
        "supplemental logging of the database",
        "force logging",
        "redo threads",
        "privileges for the log",
        "table SHOP.T",
    }
    assert registry.drop(options()) == []


def _settings(**values: Any) -> Any:
    return lambda server: server.settings.update(values)


def _table(column: Column | None = None, key: tuple[str, ...] = ("ID",), **more: Any) -> Any:
    def make(server: OracleServer) -> None:
        server.create("X", [ID, *([] if column is None else [column])], key, **more)

    return make


@pytest.mark.parametrize(
    ("spoil", "code", "remedy"),
    [
        (_settings(version="12.2.0.1.0"), "TR-2002", ""),
        (_settings(open_mode="READ ONLY WITH APPLY"), "TR-4601", ""),
        (_settings(role="PHYSICAL STANDBY"), "TR-4601", ""),
        (_settings(log_mode="NOARCHIVELOG"), "TR-4602", "ALTER DATABASE ARCHIVELOG"),
        (_settings(minimal="NO"), "TR-4603", "ALTER DATABASE ADD SUPPLEMENTAL LOG DATA;"),
        (_settings(force="NO"), "TR-4605", "ALTER DATABASE FORCE LOGGING;"),
        (_settings(threads=2), "TR-4606", ""),
        (_settings(cdb="YES"), "TR-4607", "CREATE USER c##tailrace"),
        (_settings(cdb="YES", user="C##T", container="CDB$ROOT"), "TR-4607", "V$SERVICES"),
        (_settings(privileges=[]), "TR-4608", 'GRANT LOGMINING TO "TAILRACE";'),
        (_settings(may_mine=0), "TR-4608", 'GRANT EXECUTE ON SYS.DBMS_LOGMNR TO "TAILRACE";'),
        (_settings(denied={"V$ARCHIVED_LOG"}), "TR-4608", 'GRANT SELECT ON V_$ARCHIVED_LOG TO "TAILRACE";'),
        (_settings(undo_retention="900"), "TR-4618", "ALTER SYSTEM SET UNDO_RETENTION"),
        (
            _table(logs_all=False),
            "TR-4604",
            'ALTER TABLE "SHOP"."X" ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS;',
        ),
        (_table(may_flashback=False), "TR-4608", 'GRANT SELECT, FLASHBACK ON "SHOP"."X" TO "TAILRACE";'),
        (_table(Column("C", "CLOB")), "TR-4609", r"column.exclude.list: SHOP\.X\.C"),
        (_table(iot="IOT"), "TR-4610", ""),
        (_table(Column("C" * 31, "NUMBER")), "TR-4610", ""),
        (_table(Column("K", "NVARCHAR2", length=9), ("K",)), "TR-4611", ""),
        (_table(Column("K", "VARCHAR2", length=9, collation="BINARY_CI"), ("K",)), "TR-4611", ""),
        (_table(Column("K", "BINARY_DOUBLE"), ("K",)), "TR-4611", ""),
    ],
)
def test_each_precondition_has_a_finding_and_a_remedy(
    server: OracleServer, spoil: Any, code: str, remedy: str
) -> None:
    spoil(server)
    (found,) = [f for f in registry.check(options()) if f.code == code and f.severity != "ok"]
    assert remedy in found.remedy
    assert found.needed
    if found.severity == "error":
        with pytest.raises(PreflightError):
            registry.source(options()).require()


def test_a_text_key_needs_a_character_set_that_sorts_by_code_points(server: OracleServer) -> None:
    server.create("X", [Column("K", "VARCHAR2", length=9, nullable=False)], ("K",))
    assert not errors(registry.check(options()))
    server.settings["charset"] = "WE8MSWIN1252"
    assert [f.code for f in errors(registry.check(options()))] == ["TR-4611"]


def test_local_times_need_a_database_in_utc(server: OracleServer) -> None:
    server.create("X", [ID, Column("L", "TIMESTAMP(6) WITH LOCAL TIME ZONE", scale=6)], ("ID",))
    assert not errors(registry.check(options()))
    server.settings["dbtimezone"] = "+02:00"
    assert [f.code for f in errors(registry.check(options()))] == ["TR-4609"]


def test_a_column_that_is_left_out_need_not_be_captured(server: OracleServer) -> None:
    server.create("X", [ID, Column("C", "CLOB")], ("ID",))
    given = options(**{"column.exclude.list": r"SHOP\.X\.C"})
    assert not errors(registry.check(given))


def test_a_table_that_cannot_be_captured_can_be_parked(server: OracleServer) -> None:
    server.create("X", [ID, Column("C", "CLOB")], ("ID",))
    refused = registry.source(options(maxParked=1)).require()
    assert [(name, error.code) for name, error in refused.items()] == [("SHOP.X", "TR-4609")]


def test_a_snapshot_alone_needs_no_log(server: OracleServer) -> None:
    server.settings.update(log_mode="NOARCHIVELOG", minimal="NO", force="NO", threads=2, privileges=[])
    server.tables["T"].logs_all = False
    assert not errors(registry.check(options(startingPosition="snapshot")))


def test_no_table_is_a_finding(server: OracleServer) -> None:
    assert [f.code for f in errors(registry.check(options(tables="shop.t")))] == ["TR-1401"]


@pytest.mark.parametrize(
    ("number", "code"),
    [(1017, "TR-3101"), (12514, "TR-3004"), (3113, "TR-3001"), (18, "TR-3004"), (600, "TR-4620")],
)
def test_a_server_that_refuses_is_the_only_finding(
    monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    def refuse(*_: object) -> Any:
        raise ora(number)

    monkeypatch.setattr(connection, "open_raw", refuse)
    (found,) = registry.check(options())
    assert found.code == code
    assert f"ORA-{number:05d}" in found.found
