"""Preflight against a real server set up wrongly in every way at once, and one by one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tailrace.config.options import SourceOptions, parse_options
from tailrace.errors import PreflightError, TransientSourceError
from tailrace.sources.mysql.checks.preflight import check, require
from tailrace.sources.preflight import Finding, Severity, errors, render
from tailrace_dev.servers import MySqlServer, start_mysql
from tests.support.databases import global_variable


def _options(server: MySqlServer, tables: str, **more: str) -> SourceOptions:
    return parse_options(
        {"url": server.url, "user": server.user, "password": server.password, "tables": tables, **more}
    )


def _finding(findings: list[Finding], check_: str) -> Finding:
    found = [f for f in findings if f.check == check_ and f.severity is not Severity.OK]
    assert len(found) == 1, render(findings)
    return found[0]


@pytest.fixture
def user(mysql: MySqlServer, database: str) -> Iterator[str]:
    """A user who may do nothing."""
    name = f"u_{database[2:14]}"
    mysql.execute(f"CREATE USER '{name}'@'%' IDENTIFIED BY '{mysql.password}'")
    yield name
    mysql.execute(f"DROP USER '{name}'@'%'")


def test_server_set_up_for_capture_has_no_finding(mysql: MySqlServer, database: str) -> None:
    mysql.execute(f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
    options = _options(mysql, rf"{database}\.t")
    with (
        global_variable(mysql, "sync_binlog", "1"),
        global_variable(mysql, "innodb_flush_log_at_trx_commit", "1"),
    ):
        findings = check(options)
    assert {f.severity for f in findings} == {Severity.OK}, render(findings)
    require(options)


def test_tables_left_out_for_their_names_are_named(mysql: MySqlServer, database: str) -> None:
    for table in ("t", "_t_old"):
        mysql.execute(f"CREATE TABLE `{database}`.{table} (id INT PRIMARY KEY)")
    finding = _finding(check(_options(mysql, rf"{database}\..*")), f"table {database}._t_old")
    assert (finding.severity, finding.code) == (Severity.WARNING, "TR-1450")
    findings = check(_options(mysql, rf"{database}\..*", captureHelperTables="true"))
    assert "TR-1450" not in {f.code for f in findings}


@pytest.mark.parametrize(
    ("name", "bad", "severity", "remedy"),
    [
        ("binlog_row_image", "MINIMAL", Severity.ERROR, "SET PERSIST binlog_row_image = FULL;"),
        ("binlog_row_metadata", "MINIMAL", Severity.ERROR, "SET PERSIST binlog_row_metadata = FULL;"),
        ("binlog_format", "STATEMENT", Severity.ERROR, "SET PERSIST binlog_format = ROW;"),
        (
            "binlog_expire_logs_seconds",
            "3600",
            Severity.WARNING,
            "SET PERSIST binlog_expire_logs_seconds = 604800;",
        ),
        ("sync_binlog", "100", Severity.WARNING, "SET PERSIST sync_binlog = 1;"),
        (
            "innodb_flush_log_at_trx_commit",
            "0",
            Severity.WARNING,
            "SET PERSIST innodb_flush_log_at_trx_commit = 1;",
        ),
    ],
)
def test_wrong_setting_is_found_with_the_statement_that_fixes_it(
    mysql: MySqlServer, database: str, *, name: str, bad: str, severity: Severity, remedy: str
) -> None:
    with global_variable(mysql, name, bad):
        finding = _finding(check(_options(mysql, rf"{database}\..*")), name)
    assert finding.found.upper() == bad.strip("'")
    assert (finding.severity, finding.remedy) == (severity, remedy)


@pytest.mark.filterwarnings("ignore::pymysql.err.Warning")
def test_sessions_that_log_statements_and_accounts_that_can_are_named(
    mysql: MySqlServer, database: str, user: str
) -> None:
    options = _options(mysql, rf"{database}\..*")
    mysql.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    assert all("binlog_format" not in f.check or f.severity is Severity.OK for f in check(options))
    mysql.execute(f"GRANT SESSION_VARIABLES_ADMIN ON *.* TO {user}")
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_format = MIXED")
        findings = check(options)
    sessions = _finding(findings, "binlog_format of sessions")
    assert (sessions.severity, sessions.found) == (Severity.WARNING, f"MIXED in 1 of {mysql.user}")
    accounts = _finding(findings, "accounts that can change binlog_format")
    assert (accounts.severity, accounts.found) == (Severity.WARNING, f"'{user}'@'%'")
    mysql.execute(accounts.remedy.rstrip(";"))
    assert all(f.check != accounts.check for f in check(options))


def test_user_who_may_not_see_prepared_transactions_is_warned_where_xa_is_used(
    mysql: MySqlServer, database: str, user: str
) -> None:
    mysql.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)", "XA START 'used'", "XA END 'used'")
    options = _options(mysql, rf"{database}\..*", user=user)
    finding = _finding(check(options), "XA transactions")
    assert finding.severity is Severity.WARNING
    mysql.execute(finding.remedy.rstrip(";"))
    assert all(found.check != "XA transactions" for found in check(options))


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
@pytest.mark.parametrize(
    ("position", "delivery", "severity"),
    [
        ("initial", "exactly-once", Severity.ERROR),
        ("snapshot", "exactly-once", Severity.ERROR),
        ("latest", "exactly-once", Severity.WARNING),
        ("initial", "at-least-once", Severity.WARNING),
    ],
)
def test_parts_of_rows_are_refused_where_rows_must_be_put_back(
    mysql: MySqlServer, database: str, *, image: str, position: str, delivery: str, severity: Severity
) -> None:
    with global_variable(mysql, "binlog_row_image", image):
        options = _options(mysql, rf"{database}\..*", startingPosition=position, delivery=delivery)
        finding = _finding(check(options), "binlog_row_image")
    assert (finding.severity, finding.remedy) == (severity, "SET PERSIST binlog_row_image = FULL;")


@pytest.mark.parametrize(("image", "severity"), [("FULL", Severity.OK), ("MINIMAL", Severity.ERROR)])
def test_partial_json_values_need_whole_rows(
    mysql: MySqlServer, database: str, image: str, severity: Severity
) -> None:
    with (
        global_variable(mysql, "binlog_row_value_options", "'PARTIAL_JSON'"),
        global_variable(mysql, "binlog_row_image", image),
    ):
        findings = check(_options(mysql, rf"{database}\..*"))
    assert {f.check: f.severity for f in findings}["binlog_row_value_options"] == severity


def test_every_missing_privilege_is_named_with_its_grant_and_the_grants_fix_it(
    mysql: MySqlServer, database: str, user: str
) -> None:
    # A table that a user has any privilege for is in its catalog, readable or not.
    mysql.execute(
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)", f"GRANT INSERT ON `{database}`.t TO {user}"
    )
    options = _options(mysql, rf"{database}\.t", user=user)
    failed = errors(check(options))
    assert [f.remedy for f in failed] == [
        f"GRANT REPLICATION CLIENT ON *.* TO '{user}'@'%';",
        f"GRANT REPLICATION SLAVE ON *.* TO '{user}'@'%';",
        f"GRANT SELECT ON `{database}`.`t` TO '{user}'@'%';",
    ]
    with pytest.raises(PreflightError, match="3 preconditions are not met") as caught:
        require(options)
    for finding in failed:
        assert finding.remedy in str(caught.value)
        mysql.execute(finding.remedy.rstrip(";"))
    require(options)


def test_privileges_that_come_through_a_role_count(mysql: MySqlServer, database: str, user: str) -> None:
    mysql.execute(
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)",
        f"CREATE ROLE r_{user}",
        f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO r_{user}",
        f"GRANT r_{user} TO {user}",
        f"SET DEFAULT ROLE ALL TO {user}",
    )
    try:
        require(_options(mysql, rf"{database}\.t", user=user))
    finally:
        mysql.execute(f"DROP ROLE r_{user}")


def test_every_table_that_cannot_be_captured_is_named(mysql: MySqlServer, database: str) -> None:
    d = f"`{database}`"
    mysql.execute(
        f"CREATE TABLE {d}.size (s ENUM('s', 'm', 'l') PRIMARY KEY)",
        f"CREATE TABLE {d}.share (x DOUBLE PRIMARY KEY)",
        f"CREATE TABLE {d}.keyless (x INT)",
        f"CREATE TABLE {d}.nullkey (x INT UNIQUE)",
        f"CREATE TABLE {d}.fine (x INT NOT NULL UNIQUE)",
        f"CREATE TABLE {d}.old (id INT PRIMARY KEY) ENGINE = MyISAM",
        f"CREATE TABLE {d}.both (x INT) ENGINE = MyISAM",
    )
    findings = check(_options(mysql, rf"{database}\..*"))
    assert "key column `s` of type enum" in _finding(findings, f"table {database}.size").found
    assert "key column `x` of type double" in _finding(findings, f"table {database}.share").found
    for name in ("keyless", "nullkey"):
        finding = _finding(findings, f"table {database}.{name}")
        assert (finding.found, finding.severity) == ("no key", Severity.WARNING)
        mysql.execute(finding.remedy.rstrip(";"))
    both = next(f for f in findings if f.check == f"table {database}.both" and f.code == "TR-5001")
    assert (both.found, both.severity) == ("no key, and storage engine MyISAM", Severity.ERROR)
    mysql.execute(both.remedy.rstrip(";"))
    old = _finding(findings, f"table {database}.old")
    assert (old.found, old.severity) == ("storage engine MyISAM", Severity.WARNING)
    assert [f.severity for f in findings if f.check == f"table {database}.fine"] == [Severity.OK]
    still = check(_options(mysql, rf"{database}\..*"))
    assert {f.check for f in errors(still)} == {f"table {database}.size", f"table {database}.share"}


def test_table_without_a_key_may_be_captured_where_no_snapshot_is_taken(
    mysql: MySqlServer, database: str
) -> None:
    mysql.execute(f"CREATE TABLE `{database}`.t (x INT)")
    options = _options(mysql, rf"{database}\.t", startingPosition="latest")
    assert _finding(check(options), f"table {database}.t").severity is Severity.WARNING
    require(options)


def test_tables_that_match_nothing_are_refused(mysql: MySqlServer, database: str) -> None:
    finding = _finding(check(_options(mysql, rf"{database}\.nothing")), rf"tables `{database}\.nothing`")
    assert finding.severity is Severity.ERROR
    escaped = database.replace("_", r"\_")
    assert finding.remedy == f"GRANT SELECT ON `{escaped}`.* TO 'root'@'localhost';"


def test_grant_that_a_hint_names_is_for_that_database_only(
    mysql: MySqlServer, database: str, user: str
) -> None:
    other = database.replace("_", "x")
    assert other != database
    finding = _finding(check(_options(mysql, rf"{database}\.t", user=user)), rf"tables `{database}\.t`")
    mysql.execute(f"CREATE DATABASE `{other}`", finding.remedy.rstrip(";"))
    try:
        with mysql.connect(user=user) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW DATABASES")
            visible = {name for (name,) in cursor.fetchall()}
    finally:
        mysql.execute(f"DROP DATABASE `{other}`")
    assert database in visible
    assert other not in visible


def test_one_pattern_of_several_that_matches_nothing_is_a_warning(mysql: MySqlServer, database: str) -> None:
    mysql.execute(f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
    options = _options(mysql, rf"{database}\.t,{database}\.later_\d+")
    assert _finding(check(options), rf"tables `{database}\.later_\d+`").severity is Severity.WARNING
    require(options)


def test_server_id_of_the_server_itself_is_refused(mysql: MySqlServer, database: str) -> None:
    ((own,),) = mysql.execute("SELECT @@server_id")
    finding = _finding(check(_options(mysql, rf"{database}\..*", serverId=str(own))), "option serverId")
    assert finding.severity is Severity.ERROR


def test_wrong_password_is_a_finding_and_shows_no_password(mysql: MySqlServer) -> None:
    findings = check(_options(mysql, r"d\.t", password="hunter2"))
    assert len(errors(findings)) == len(findings) == 1
    assert "refuses the user or the password" in findings[0].found
    assert "hunter2" not in render(findings)


def test_foreign_key_cascades_are_logged_by_this_server(mysql: MySqlServer, database: str) -> None:
    mysql.execute(
        f"CREATE TABLE `{database}`.p (id INT PRIMARY KEY)",
        f"CREATE TABLE `{database}`.c (id INT PRIMARY KEY, p INT,"
        f" FOREIGN KEY (p) REFERENCES `{database}`.p (id) ON DELETE CASCADE)",
        f"INSERT INTO `{database}`.p VALUES (1)",
        f"INSERT INTO `{database}`.c VALUES (1, 1)",
    )
    assert errors(check(_options(mysql, rf"{database}\..*"))) == []
    # What the check takes for granted: the rows deleted by the cascade are in the log.
    assert _row_events_of(mysql, f"DELETE FROM `{database}`.p") == 2


def test_server_without_gtids_log_and_cascades_is_found_out() -> None:
    bad = {
        "gtid_mode": "OFF",
        "enforce_gtid_consistency": "OFF",
        "binlog_ignore_db": "hidden",
        "innodb_native_foreign_keys": "ON",
    }
    with start_mysql(options=bad) as server:
        server.execute(
            "CREATE DATABASE d",
            "CREATE TABLE d.p (id INT PRIMARY KEY)",
            "CREATE TABLE d.c (id INT PRIMARY KEY, p INT,"
            " FOREIGN KEY (p) REFERENCES d.p (id) ON DELETE CASCADE)",
            "INSERT INTO d.p VALUES (1)",
            "INSERT INTO d.c VALUES (1, 1)",
            f"CREATE USER u@'%' IDENTIFIED BY '{server.password}'",
            "GRANT SELECT ON d.* TO u@'%'",
            "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO u@'%'",
        )
        findings = check(_options(server, r"d\..*"))
        assert errors(findings) == []  # root may read log_status
        assert "log_status may be read" in render(findings)
        assert "binlog-ignore-db" in _finding(findings, "databases in the log").found
        assert "CASCADE" in _finding(findings, "table d.c").found
        assert _row_events_of(server, "DELETE FROM d.p") == 1
        # Another user may not: each of the three remedies will do.
        gtids = _finding(check(_options(server, r"d\..*", user="u")), "exactly-once snapshots")
        assert gtids.severity is Severity.ERROR
        enable, _, grants = gtids.remedy.partition("-- or\n")
        at_least_once = _options(server, r"d\..*", user="u", delivery="at-least-once")
        assert errors(check(at_least_once)) == []
        with_heartbeat = _options(server, r"d\..*", user="u", heartbeatTable="d.beat")
        beat = _finding(check(with_heartbeat), "exactly-once snapshots")
        assert beat.found == "gtid_mode is OFF, heartbeat table: access to the table is denied"
        _run_all(server, beat.remedy)
        assert errors(check(with_heartbeat)) == []
        with global_variable(server, "binlog_order_commits", "0"):
            disordered = _finding(check(with_heartbeat), "exactly-once snapshots")
            assert "binlog_order_commits is OFF" in disordered.found
            _run_all(server, disordered.remedy)
            assert errors(check(with_heartbeat)) == []
        _run_all(server, grants)
        assert errors(check(_options(server, r"d\..*", user="u"))) == []
        _run_all(server, enable)
        assert "gtid_mode is ON" in render(check(_options(server, r"d\..*", user="u")))


def test_server_without_a_log_is_refused_and_a_lost_server_is_transient() -> None:
    with start_mysql(options={"disable_log_bin": "1", "gtid_mode": "OFF"}) as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        options = _options(server, r"d\.t")
        finding = _finding(check(options), "log_bin")
        assert (finding.found, finding.needed) == ("OFF", "ON")
        server.stop()
        assert "no connection" in check(options)[0].found
        with pytest.raises(TransientSourceError):
            require(options)


def _run_all(server: MySqlServer, statements: str) -> None:
    server.execute(*(s for s in statements.split(";") if s.strip()))


def _row_events_of(server: MySqlServer, statement: str) -> int:
    """How many row events a statement writes to the log."""
    server.execute("FLUSH BINARY LOGS")
    file = server.execute("SHOW BINARY LOG STATUS")[0][0]
    server.execute(statement)
    return sum("rows" in str(event[2]).lower() for event in server.execute(f"SHOW BINLOG EVENTS IN '{file}'"))
