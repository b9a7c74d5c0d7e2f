"""Options are checked before anything is connected to, and documented from the table they are declared in."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from tailrace.config.options import OPTIONS, REQUIRED, parse_options
from tailrace.config.secret import Secret
from tailrace.errors import ConfigError

GIVEN = {"url": "mysql://h", "user": "u", "tables": "a.b"}
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "options.md"


def test_only_url_user_and_tables_are_needed():
    options = parse_options(GIVEN)
    assert (options.dialect, options.host, options.port, options.shape) == ("mysql", "h", 3306, "row")
    assert options.exactly_once


@pytest.mark.parametrize("missing", ["url", "user", "tables"])
def test_missing_option_is_named(missing):
    with pytest.raises(ConfigError, match=f"`{missing}` is missing"):
        parse_options({k: v for k, v in GIVEN.items() if k != missing})


def test_unknown_option_is_named_with_the_nearest_known_one():
    with pytest.raises(ConfigError, match="unknown option `maxRowPerTrigger`") as error:
        parse_options({**GIVEN, "maxRowPerTrigger": "1"})
    assert error.value.hint == "did you mean `maxRowsPerTrigger`?"


def test_option_names_are_read_in_any_case():
    assert parse_options({**GIVEN, "SHAPE": "debezium"}).shape == "debezium"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("url", "mysql://user:secret@h"),
        ("url", "h:3306"),
        ("url", "oracle2://h"),
        ("shape", "columns"),
        ("maxRowsPerTrigger", "0"),
        ("maxBytesPerTrigger", "12 parsecs"),
        ("startingPosition", "yesterday"),
        ("delivery", "at-most-once"),
        ("serverId", "4294967296"),
        ("tables", "orders"),
        ("tables", "shop.(orders"),
        ("tlsMode", "on"),
        ("schemasEnable", "yes"),
        ("snapshotChunkRows", "many"),
    ],
)
def test_wrong_value_is_named_with_what_is_allowed(name, value):
    with pytest.raises(ConfigError, match=f"`{name}` is wrong") as error:
        parse_options({**GIVEN, name: value})
    assert "allowed: " in str(error.value)
    assert (value in str(error.value)) == (name != "url")  # which may hold a password


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("64k", 65536), ("2 MiB", 2 << 20), ("1g", 1 << 30)])
def test_bytes_are_read_with_units(text, value):
    assert parse_options({**GIVEN, "maxBytesPerTrigger": text}).max_bytes_per_trigger == value


def test_tables_are_matched_whole_and_a_comma_within_braces_is_no_separator():
    options = parse_options({**GIVEN, "tables": r"shop\.t\d{1,2}, crm\..*"})
    assert options.captures("shop.t12")
    assert options.captures("crm.anything")
    assert not options.captures("shop.t123")
    assert not options.captures("myshop.t1")


def test_lists_leave_tables_out_in_any_case():
    options = parse_options({**GIVEN, "tables": ".*[.].*", "table.exclude.list": r"shop\.Audit_.*, .*\.tmp"})
    assert [options.captures(name) for name in ("shop.audit_1", "crm.TMP", "crm.audit_1")] == [
        False,
        False,
        True,
    ]
    assert options.choice == r"`.*[.].*` with `table.exclude.list` `shop\.Audit_.*`, `.*\.tmp`"


@pytest.mark.parametrize(
    ("url", "kind"), [("mysql://h", "database"), ("mariadb://h", "database"), ("postgresql://h/d", "schema")]
)
def test_databases_and_schemas_are_listed_by_their_whole_names(url, kind):
    given = {**GIVEN, "url": url, "tables": ".*[.].*"}
    only = parse_options({**given, f"{kind}.include.list": "shop, crm_.*"})
    assert [only.captures(name) for name in ("shop.t", "crm_1.t", "shops.t")] == [True, True, False]
    without = parse_options({**given, f"{kind}.exclude.list": "shop, a[.]b"})
    assert [without.captures(name) for name in ("shop.t", "a.b.c", "a.c", "shops.t")] == [
        False,
        False,
        True,
        True,
    ]


def test_table_of_signals_is_read_whatever_is_left_out():
    lists = {"table.exclude.list": "a[.]s", "database.exclude.list": "a", "column.include.list": "a[.]b[.]id"}
    options = parse_options({**GIVEN, **lists}).capturing_only("a.s")
    assert options.captures("a.s")
    assert not options.columns.has_lists


@pytest.mark.parametrize(
    ("url", "given", "message"),
    [
        ("mysql://h", ["database.include.list", "database.exclude.list"], "exclude each other"),
        ("postgresql://h/d", ["schema.include.list", "schema.exclude.list"], "exclude each other"),
        ("mysql://h", ["column.include.list", "column.exclude.list"], "exclude each other"),
        ("postgresql://h/d", ["database.exclude.list"], "no effect on postgresql"),
        ("mysql://h", ["schema.exclude.list"], "no effect on mysql"),
    ],
)
def test_lists_that_do_not_fit_are_refused(url, given, message):
    with pytest.raises(ConfigError, match=message):
        parse_options({**GIVEN, "url": url, **dict.fromkeys(given, "shop.t.c")})


OVERRIDES = "snapshot.select.statement.overrides"


def test_rows_of_a_condition_can_be_read_first():
    given = {
        OVERRIDES: "shop.t, shop.Other",
        f"{OVERRIDES}.shop.t": "select * from `shop`.`t` where a > 'x y' ;",
        f"{OVERRIDES}.Shop.Other": "SELECT *\nFROM shop.other\nWHERE b = 1 OR c = 2",
    }
    options = parse_options({**GIVEN, **given})
    assert options.first_rows_of("shop.t") == "a > 'x y'"
    assert options.first_rows_of("shop.OTHER") == "b = 1 OR c = 2"
    assert (options.first_rows_of("shop.x"), options.reads_rows_of("shop.t")) == (None, False)
    assert options.reads_rows_of("shop.x")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({OVERRIDES: "shop.t"}, "TR-1018"),
        ({f"{OVERRIDES}.shop.t": "SELECT * FROM shop.t WHERE secret = 1"}, "TR-1018"),
        ({OVERRIDES: "shop.t", f"{OVERRIDES}.shop.t": "SELECT secret FROM shop.t WHERE a = 1"}, "TR-1018"),
        ({OVERRIDES: "shop.t", f"{OVERRIDES}.shop.t": "SELECT * FROM shop.secret WHERE a = 1"}, "TR-1018"),
        ({OVERRIDES: "shop.t", f"{OVERRIDES}.shop.t": "SELECT * FROM shop.t secret"}, "TR-1018"),
        ({OVERRIDES: "SELECT secret"}, "TR-1010"),
        (
            {
                OVERRIDES: "shop.t",
                f"{OVERRIDES}.shop.t": "SELECT * FROM shop.t WHERE a = 1",
                "startingPosition": "latest",
            },
            "TR-1011",
        ),
    ],
)
def test_another_select_for_snapshots_is_refused_with_the_reason(given, code):
    with pytest.raises(ConfigError) as error:
        parse_options({**GIVEN, **given})
    assert error.value.code == code
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "text", "statements"),
    [
        ("mysql://h", "SET ROLE reader; set session optimizer_switch = 'mrr=on,bka=on';", 2),
        ("mysql://h", "SET RESOURCE GROUP `a;;b`", 1),
        ("mariadb://h", "SET @@session.join_cache_level=2", 1),
        ("postgresql://h/d", "SET ROLE reader; SET work_mem TO '64MB'; SET application_name = 'a;;b'", 3),
    ],
)
def test_sessions_may_begin_with_statements_that_do_not_change_what_is_read(url, text, statements):
    options = parse_options({**GIVEN, "url": url, "database.initial.statements": text})
    assert len(options.database_initial_statements) == statements
    assert ";;" not in "".join(options.database_initial_statements)


@pytest.mark.parametrize(
    ("url", "statement"),
    [
        ("mysql://h", "SET sql_select_limit = 1"),
        ("mysql://h", "SET optimizer_search_depth = 1, sql_select_limit = 1"),
        ("mysql://h", "SET GLOBAL sort_buffer_size = 1"),
        ("mysql://h", "SET NAMES latin1"),
        ("mysql://h", "DELETE FROM t"),
        ("mariadb://h", "SET RESOURCE GROUP g"),
        ("postgresql://h/d", "SET work_mem TO '1' 'x'"),
        ("postgresql://h/d", "SET DateStyle = 'German'"),
        ("postgresql://h/d", "SET ROLE a, b"),
    ],
)
def test_other_statements_are_refused(url, statement):
    with pytest.raises(ConfigError, match="has a statement that is not allowed") as error:
        parse_options({**GIVEN, "url": url, "database.initial.statements": statement})
    assert error.value.code == "TR-1019"


HELPERS = ["_t_gho", "_t_ghc", "_t_del", "_t_20261123120000_del", "_t_new", "__t_new", "_t_old"]


@pytest.mark.parametrize("helper", HELPERS)
def test_helper_tables_of_schema_tools_are_captured_only_if_asked_for(helper):
    given = {**GIVEN, "tables": r"shop\..*"}
    assert not parse_options(given).captures(f"shop.{helper}")
    assert parse_options({**given, "captureHelperTables": "true"}).captures(f"shop.{helper}")
    assert parse_options({**given, "tables": rf"shop\.{helper}"}).captures(f"shop.{helper}")


@pytest.mark.parametrize("table", ["t_new", "_new", "_t_older", "t"])
def test_other_tables_are_not_taken_for_helper_tables(table):
    assert parse_options({**GIVEN, "tables": r"shop\..*"}).captures(f"shop.{table}")


def test_postgres_has_no_helper_tables():
    given = {**GIVEN, "url": "postgresql://h/d", "tables": r"shop\..*"}
    assert parse_options(given).captures("shop._t_old")


def test_password_is_never_shown():
    options = parse_options({**GIVEN, "password": "hunter2"})
    assert "hunter2" not in repr(options)
    assert "hunter2" not in f"{options.password}"
    assert pickle.loads(pickle.dumps(options)).password.resolve() == "hunter2"


def test_secret_is_looked_up_where_it_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_OF_TEST", "from env")
    (tmp_path / "secret").write_text("from file\n")
    assert Secret("${env:SECRET_OF_TEST}").resolve() == "from env"
    assert Secret(f"${{file:{tmp_path}/secret}}").resolve() == "from file"


def test_secret_that_is_not_there_is_an_error_with_its_name(monkeypatch):
    monkeypatch.delenv("SECRET_OF_TEST", raising=False)
    with pytest.raises(ConfigError, match="`SECRET_OF_TEST` is not set"):
        Secret("${env:SECRET_OF_TEST}").resolve()
    with pytest.raises(ConfigError, match="`/no/such/file` cannot be read"):
        Secret("${file:/no/such/file}").resolve()


def test_documentation_lists_every_option_as_it_is_declared():
    """`UPDATE_DOCS=1 pytest tests/unit/config/test_options.py` writes the page anew."""
    lines = [
        '# Options of `format("tailrace")`',
        "",
        "Option names are case-insensitive. The section `source` of a [pipeline file](pipeline.md) has the",
        "same options, in kebab-case or camelCase.",
        "",
        "| option | allowed | default | |",
        "|---|---|---|---|",
    ]
    for option in OPTIONS:
        if option.default is REQUIRED:
            default = "needed"
        elif option.default is None or isinstance(option.default, Secret):
            default = ""
        else:
            default = (
                f"`{str(option.default).lower() if isinstance(option.default, bool) else option.default}`"
            )
        allowed = option.allowed.replace("|", "\\|")
        lines.append(f"| `{option.name}` | {allowed} | {default} | {option.doc} |")
    page = "\n".join(lines) + "\n"
    if os.environ.get("UPDATE_DOCS"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ("heartbeat.interval.ms", "heartbeat.action.query"),
        ("heartbeat.action.query", "heartbeat.interval.ms"),
    ],
)
def test_heartbeat_needs_both_a_statement_and_an_interval(given: str, missing: str) -> None:
    with pytest.raises(ConfigError, match=f"`{given}` has no effect without `{missing}`"):
        parse_options({**GIVEN, given: "1000"})
    assert parse_options({**GIVEN, given: "1000", missing: "1000"}).heartbeat_interval_ms == 1000


@pytest.mark.parametrize(
    ("behavior", "kind", "message"),
    [
        ("ignore", "add.column", "has no effect with `schema.change.behavior` `ignore`"),
        ("evolve", "alter.key", "cannot have `alter.key`"),
        ("lenient", "rewrite.rows", "cannot have `rewrite.rows`"),
    ],
)
@pytest.mark.parametrize("name", ["include.schema.changes", "exclude.schema.changes"])
def test_lists_of_schema_changes_name_what_targets_may_ignore(
    name: str, behavior: str, kind: str, message: str
) -> None:
    given = {**GIVEN, "schema.change.behavior": behavior}
    with pytest.raises(ConfigError, match=message) as raised:
        parse_options({**given, name: kind})
    assert raised.value.code == "TR-1030"
    assert parse_options({**given, "schema.change.behavior": "exception", name: kind})
    assert parse_options({**given, "schema.change.behavior": "lenient", name: "add.column,truncate.table"})


@pytest.mark.parametrize("name", ["onTruncate", "onDropTable"])
def test_soft_delete_is_refused_with_what_does_it(name: str) -> None:
    with pytest.raises(ConfigError, match=f"`{name}` cannot be `soft-delete`") as raised:
        parse_options({**GIVEN, name: "soft-delete"})
    assert (raised.value.code, "scd2" in (raised.value.hint or "")) == ("TR-1032", True)


@pytest.mark.parametrize(
    "text",
    [
        "latest",
        "timestamp:2026-01-31T12:00:00Z",
        "timestamp:1769860800000",
        "file:binlog.000003:157",
        "gtid:0006d383-e8d9-11f1-998c-02fc00000001:1-5",
        '{"file": "binlog.000003", "pos": 157}',
    ],
)
def test_end_of_a_stream_is_a_position_or_a_time(text: str) -> None:
    assert parse_options({**GIVEN, "endingPosition": text}).ending_position == text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"endingPosition": "tomorrow"}, "`endingPosition` is wrong"),
        ({"endingPosition": "timestamp:tomorrow"}, "`endingPosition` is wrong"),
        ({"endingPosition": '{"pos": 1}'}, "`endingPosition` is wrong"),
        ({"endingPosition": "lsn:0/1"}, "`endingPosition` is wrong"),
        ({"endingPosition": '{"lsn": "0/1"}'}, "`endingPosition` is wrong"),
        ({"endingPosition": "latest", "startingPosition": "snapshot"}, "has no effect"),
        ({"endingPosition": "latest", "onPositionLost": "refresh"}, "exclude each other"),
        ({"endingPosition": "latest", "delivery": "at-least-once"}, "exclude each other"),
    ],
)
def test_end_of_a_stream_that_cannot_be_kept_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_options({**GIVEN, **given})


def test_time_of_an_end_is_utc_if_it_names_no_zone() -> None:
    options = parse_options({**GIVEN, "endingPosition": "timestamp:1970-01-01T00:00:01"})
    assert options.ending_time_us == 1_000_000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingPosition": "latest"}, "has no effect here"),
        ({"onPositionLost": "refresh"}, "exclude each other"),
    ],
)
def test_list_of_tables_to_read_that_cannot_be_kept_is_refused(given: dict[str, str], message: str) -> None:
    given = {**GIVEN, "snapshot.include.collection.list": "shop.orders", **given}
    with pytest.raises(ConfigError, match=message):
        parse_options(given)


def test_secrets_are_literals_for_other_machines(monkeypatch):
    monkeypatch.setenv("ARCHIVE_KEY", "k" * 40)
    given = {"archive": "relative", "archiveKey": "${env:ARCHIVE_KEY}"}
    options = parse_options({**GIVEN, **given})
    assert Path(options.archive).is_absolute()
    monkeypatch.delenv("ARCHIVE_KEY")
    with pytest.raises(ConfigError, match="ARCHIVE_KEY"):
        options.for_tasks()
    monkeypatch.setenv("ARCHIVE_KEY", "k" * 40)
    literal = options.for_tasks()
    monkeypatch.delenv("ARCHIVE_KEY")
    assert literal.archive_key.resolve() == "k" * 40
    assert "k" * 40 not in repr(literal)


def test_address_of_an_archive_with_a_password_is_refused_without_showing_it():
    with pytest.raises(ConfigError) as caught:
        parse_options({**GIVEN, "archive": "s3://key:geheim@bucket/x"})
    assert "geheim" not in str(caught.value)


# ---- the way to the server, and how the user logs in ----


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("bastion", "bastion"),
        ("cdc@bastion.example:2222", "cdc@bastion.example:2222"),
        ("cdc@[fe80::1]:22", "cdc@[fe80::1]:22"),
        ("cdc@10.0.0.1", "cdc@10.0.0.1"),
    ],
)
def test_ssh_server_is_read_with_and_without_user_and_port(text, shown):
    options = parse_options({**GIVEN, "sshTunnel": text})
    assert str(options.route.ssh_tunnel) == shown
    assert options.address == f"`h:3306` through the SSH server `{shown}`"


@pytest.mark.parametrize(
    "text",
    [
        "cdc:hunter2@bastion",
        "-oProxyCommand=hunter2",
        "-oProxyCommand=hunter2@bastion",
        "cdc@-hunter2",
        "cdc@bastion hunter2",
        "cdc@bastion:0",
        "cdc@bastion:99999",
        "ssh://hunter2@bastion",
        "",
    ],
)
def test_ssh_server_that_is_none_is_refused_and_not_shown(text):
    with pytest.raises(ConfigError, match="`sshTunnel` is wrong") as error:
        parse_options({**GIVEN, "sshTunnel": text})
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("text", ["socks5://p", "SOCKS5://p:1080", "socks5://p:1080/"])
def test_proxy_is_read_with_and_without_a_port(text):
    assert str(parse_options({**GIVEN, "proxy": text}).route.proxy) == "socks5://p:1080"


@pytest.mark.parametrize(
    "text",
    ["socks5://u:hunter2@p", "https://hunter2", "socks4://hunter2", "p:1080", "http://p:0", "http://p:x"],
)
def test_proxy_that_is_none_is_refused_and_not_shown(text):
    with pytest.raises(ConfigError, match="`proxy` is wrong") as error:
        parse_options({**GIVEN, "proxy": text})
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sshTunnel": "b", "proxy": "http://p"}, "`sshTunnel` and `proxy` exclude each other"),
        ({"sshKeyFile": "/k"}, "`sshKeyFile` has no effect without `sshTunnel`"),
        ({"sshKnownHostsFile": "/k", "proxy": "http://p"}, "`sshKnownHostsFile` has no effect"),
        ({"proxyUser": "u"}, "`proxyUser` has no effect without `proxy`"),
        ({"proxy": "http://p", "proxyPassword": "x"}, "`proxyPassword` has no effect without `proxyUser`"),
        ({"url": "mysql://h%0d%0aX", "proxy": "http://p"}, "`url` is wrong"),
    ],
)
def test_settings_of_a_way_that_is_not_taken_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        parse_options({**GIVEN, **given})


def test_tasks_get_secrets_and_no_references(monkeypatch):
    monkeypatch.setenv("PW", "of-the-user")
    monkeypatch.setenv("PROXY", "of-the-proxy")
    given = {"password": "${env:PW}", "proxy": "http://p", "proxyUser": "u", "proxyPassword": "${env:PROXY}"}
    options = parse_options({**GIVEN, **given})
    for secret in ("of-the-user", "of-the-proxy"):
        assert secret not in repr(options.for_tasks())
        assert secret.encode() not in pickle.dumps(options)
        assert secret.encode() in pickle.dumps(options.for_tasks())
    monkeypatch.delenv("PROXY")
    with pytest.raises(ConfigError, match="`PROXY` is not set") as error:
        options.for_tasks()
    assert "the proxy's password refers to it" in str(error.value)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, "TR-1011"),
        ({"shape": "envelope"}, "TR-1011"),
        ({"shape": "debezium", "url": "postgresql://h/d"}, "TR-1011"),
        ({"shape": "debezium", "column.exclude.list": "a[.]b[.]c"}, "TR-1090"),
        ({"shape": "debezium", "column.include.list": "a[.]b[.]c"}, "TR-1090"),
        ({"shape": "debezium", "column.mask.with.3.chars": "a[.]b[.]c"}, "TR-1090"),
        ({"shape": "debezium", "column.truncate.to.3.chars": "a[.]b[.]c"}, "TR-1090"),
        ({"shape": "cells", "table.exclude.list": "a[.]c"}, "TR-1090"),
        ({"shape": "cells", "database.exclude.list": "c"}, "TR-1090"),
    ],
)
def test_statements_are_refused_where_they_show_nothing_or_what_is_hidden(given, code):
    with pytest.raises(ConfigError, match=r"include\.query") as error:
        parse_options({**GIVEN, "include.query": "true", **given})
    assert error.value.code == code
    assert parse_options({**GIVEN, "include.query": "false", **given, "url": "mysql://h"})


def test_statements_are_captured_on_request():
    assert parse_options({**GIVEN, "shape": "debezium", "include.query": "true"}).include_query


@pytest.mark.parametrize(
    "name", ["include.schema.comments", "column.propagate.source.type", "datatype.propagate.source.type"]
)
def test_what_schemas_say_of_columns_needs_schemas(name):
    value = "true" if name.startswith("include") else ".*[.].*[.].*"
    for given in ({}, {"shape": "debezium"}, {"shape": "envelope"}):
        with pytest.raises(ConfigError, match="has no effect here") as error:
            parse_options({**GIVEN, **given, name: value})
        assert name in error.value.message
    for given in ({"shape": "cells"}, {"shape": "debezium", "schemasEnable": "true"}):
        assert parse_options({**GIVEN, **given, name: value}).propagation
    of_postgres = {**GIVEN, "url": "postgresql://h/d", "shape": "cells", name: value}
    if name != "include.schema.comments":
        assert parse_options(of_postgres).propagation
        return
    with pytest.raises(ConfigError, match="no effect on postgresql"):
        parse_options(of_postgres)


@pytest.mark.parametrize("name", ["gtid.source.includes", "gtid.source.excludes"])
def test_servers_whose_transactions_are_given_need_a_stream_of_the_log_alone(name):
    given = {**GIVEN, name: "a.*,b"}
    for start in ({}, {"startingPosition": "snapshot"}):
        with pytest.raises(ConfigError, match="needs a stream that does not read tables first") as error:
            parse_options({**given, **start})
        assert error.value.code == "TR-1092"
    sources = parse_options({**given, "startingPosition": "latest"}).gtid_sources
    assert [sources.has(uuid) for uuid in ("ABC", "b", "bc")] == (
        [True, True, False] if "includes" in name else [False, False, True]
    )
    with pytest.raises(ConfigError, match="has no effect on mariadb"):
        parse_options({**given, "url": "mariadb://h", "startingPosition": "latest"})
