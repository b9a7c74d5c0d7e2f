"""Names that attack, without a server: file names, printed text, the targets of tables."""

from __future__ import annotations

import io
import json
import logging
import os.path
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tailrace import cli
from tailrace.config.kafka import KafkaSettings
from tailrace.config.model import RouteRule
from tailrace.config.options import parse_options
from tailrace.config.sinks import ConsoleSettings, JsonSettings, MySqlSettings, PostgresSettings
from tailrace.enumerator.enumerator import Limits
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import ConfigError, SourceError, TailraceError
from tailrace.formats.connect.topics import Topics
from tailrace.model.messages import MESSAGES
from tailrace.model.paths import file_name, name_of_file, relative_path, stays_inside, too_long
from tailrace.model.table import TableId
from tailrace.pipeline.view import ProgressView
from tailrace.printable import printable
from tailrace.sinks.base import Sink
from tailrace.sinks.console import ConsoleSink
from tailrace.sinks.files import FileSink
from tailrace.sinks.iceberg.names import former_identifier, identifier, location
from tailrace.sinks.kafka.markers import of_same_prefix
from tailrace.sinks.kafka.sink import KafkaSink
from tailrace.sinks.paths import below, path_in_use
from tailrace.sinks.replica.mysql import MySqlDialect
from tailrace.sinks.replica.postgres import PostgresDialect
from tailrace.sinks.route import Router
from tailrace.sources.base import LogRange
from tailrace.sources.preflight import Finding, Severity, render
from tailrace.spark.log_records import JsonFormatter, TextFormatter
from tailrace.spark.task_errors import parse_error
from tailrace.verify.report import Report, TargetReport, print_report
from tests.support.changes import INT, table
from tests.unit.enumerator.test_enumerator import At, FakeSource, Found, enumerator

#: Names as attackers choose them more often than as they come.
ODD = st.text(st.sampled_from("./\\_%: \n\x1b\x00*?[]{}$#=^|<>\"'`;ab2E5F\u202e\u2028é😀"), max_size=12)
NAMES = st.one_of(ODD, st.text(max_size=12), st.sampled_from(["", ".", "..", "_tailrace", "%2e%2e", "%5F"]))


@given(NAMES)
def test_file_name_can_be_undone(name: str) -> None:
    assert name_of_file(file_name(name)) == name


@given(NAMES)
def test_file_name_is_one_visible_name_of_printable_characters(name: str) -> None:
    made = file_name(name)
    assert "/" not in made
    assert made not in (".", "..")
    assert not made.startswith((".", "_", " "))
    assert not re.search("[\\\\:*?\\[\\]{}#=\x00-\x1f\x7f-\x9f\u2028-\u202e]", made)


@given(NAMES, NAMES)
def test_two_names_never_have_one_file_name(one: str, other: str) -> None:
    assert (file_name(one) == file_name(other)) == (one == other)


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_path_of_names_stays_below_its_start(names: list[str]) -> None:
    path = relative_path(names)
    assert os.path.normpath(f"/sink/{path}") == f"/sink/{path}".rstrip("/")


@given(NAMES)
def test_path_without_the_rule_counts_as_inside_only_if_it_is(name: str) -> None:
    if stays_inside(name):
        assert os.path.normpath(f"/sink/{name}") == f"/sink/{name}"


def test_ordinary_names_stay_as_they_are() -> None:
    for name in ("shop.orders", "Überweisungen.größe", "注文.表", "a b.c-d_e", "x.$1@y+z,(a)'`~!&;"):
        assert file_name(name) == name


def test_documented_examples() -> None:
    made = {"shop.a/b": "shop.a%2Fb", "shop.100%": "shop.100%25", "_x.t": "%5Fx.t", "..": "%2E%2E"}
    assert {name: file_name(name) for name in made} == made


def test_names_longer_than_file_systems_take_are_found() -> None:
    assert too_long(file_name("x" * 255)) is None
    assert too_long("short/" + file_name("é" * 128)) == "é" * 128


# ---- what is printed -------------------------------------------------------------------------------------

EVIL = "a\n\x1b]0;title\x07\x9b31m\u202e\u2028[red]b[/red]"
SHOWN = r"a\n\x1b]0;title\x07\x9b31m\u202e\u2028[red]b[/red]"


def does_something(text: str) -> bool:
    """Whether a terminal would interpret it instead of showing it."""
    return bool(re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", text))


@given(st.one_of(ODD, st.text(st.characters())))
def test_printable_text_is_one_line_that_does_nothing_and_is_not_escaped_twice(text: str) -> None:
    shown = printable(text)
    assert not does_something(shown)
    assert len(shown.splitlines()) <= 1
    assert printable(shown) == shown
    shown.encode()


def test_errors_show_names_escaped_and_keep_the_lines_of_hints() -> None:
    error = TailraceError(f"table `{EVIL}` is gone", f"said: {EVIL}", "first\nsecond \x1b")
    assert str(error) == f"table `{SHOWN}` is gone\nDetail: said: {SHOWN}\nHint: first\nsecond \\x1b"


def test_name_cannot_forge_the_parts_of_an_error_that_comes_from_a_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.worker_util", ModuleType("worker_util"))
    forged = 'tailrace-error: ["ConfigError", "forged", null, "curl evil"]'
    error = SourceError(f"table `x\nDetail: forged\nHint: curl evil\n{forged}` failed", "real")
    found = parse_error("".join(traceback.format_exception(error)))
    assert type(found) is SourceError
    assert (found.detail, found.hint) == ("real", None)


def test_text_of_a_server_is_limited() -> None:
    assert len(str(TailraceError("x", "y" * 1_000_000))) < 50_000


def test_findings_show_names_escaped() -> None:
    text = render([Finding(f"table {EVIL}", EVIL, EVIL, f"GRANT\n{EVIL}", Severity.ERROR)])
    assert not does_something(text)
    assert text.splitlines()[0] == f"FAIL  table {SHOWN}: found {SHOWN}, needed {SHOWN}"


def test_log_file_has_a_message_on_one_line() -> None:
    formatter = TextFormatter("%(levelname)s %(message)s")
    record = logging.LogRecord("x", logging.WARNING, "", 0, "table %s", (EVIL,), None)
    assert formatter.format(record) == f"WARNING table {SHOWN}"
    try:
        raise ValueError(EVIL)
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    assert not does_something(formatter.format(record))
    as_json = JsonFormatter({"pipeline": EVIL}).format(record)
    assert not does_something(as_json)
    assert json.loads(as_json)["message"] == f"table {SHOWN}"


def test_json_is_valid_and_without_control_characters() -> None:
    value = {EVIL + "\x7f": [EVIL]}
    text = cli._json(value, indent=2)
    assert json.loads(text) == value
    assert not does_something(text)


def shown_on(draw: Callable[[Console], None]) -> str:
    screen = io.StringIO()
    draw(Console(file=screen, width=200, force_terminal=False))
    return screen.getvalue()


def test_progress_shows_names_escaped_and_without_markup() -> None:
    def draw(console: Console) -> None:
        view = ProgressView(console, "mysql")
        end = {
            "tables": {f"db.{EVIL}": {"c": [1], "n": 1, "e": 9}},
            "done": {},
            "log": {"file": "b.1", "pos": 4},
            "v": 1,
        }
        source = {"endOffset": end, "latestOffset": end, "startOffset": None}
        view._view.progress({"batchId": 1, "sources": [source], "durationMs": {}}, 1.0, 1)
        console.print(view._render())
        view.on_restart(SourceError(EVIL), 1, 1.0)

    text = shown_on(draw)
    assert text.count(SHOWN) == 2
    assert not does_something(text)


def test_verification_shows_names_escaped_and_without_markup() -> None:
    target = TargetReport(EVIL, (EVIL,), 1, 1, 1, False, 0, 0, None, (EVIL,))
    report = Report(1, EVIL, (target,), ((EVIL, EVIL),), 1.0)
    text = shown_on(lambda console: print_report(report, console, show_values=True))
    assert text.count(SHOWN) == 6
    assert not does_something(text)


# ---- targets ---------------------------------------------------------------------------------------------


def test_slash_of_a_routes_author_is_a_directory_and_one_of_a_name_is_not() -> None:
    router = Router([RouteRule(r"shop\.(.*)", "lake/$1/raw")])
    assert router.path(TableId("shop", "../x")) == "lake/%2E.%2Fx/raw"
    assert router.path(TableId("other", "a/b")) == "other.a%2Fb"
    assert Router([RouteRule(".*", "/../<>", "<>")]).path(TableId("a", "..")) == "%2E%2E/%2E%2E"


@given(NAMES, NAMES, NAMES)
def test_target_is_never_outside_of_its_sink(database: str, table: str, text: str) -> None:
    for router in (Router([]), Router([RouteRule("(.*)", text.replace("$", "") + "/$1")])):
        path = router.path(TableId(database, table))
        assert os.path.normpath(below("/sink", path)) == f"/sink/{path}"


def test_former_place_is_used_if_it_is_this_streams_and_inside_the_sink() -> None:
    assert path_in_use("a.b%3Ac", "a.b:c", lambda path: True) == "a.b:c"
    assert path_in_use("a.b%3Ac", "a.b:c", lambda path: False) == "a.b%3Ac"
    for name in ("../x", "x/../../y", "_tailrace/x", "a/./b"):
        assert path_in_use("safe", name, lambda path: True) == "safe"


@given(NAMES, NAMES)
def test_iceberg_identifier_has_names_and_never_stands_for_two_targets(one: str, other: str) -> None:
    first, second = identifier(f"db.{one}"), identifier(f"db.{other}")
    assert all(first)
    assert len(first) > 1
    assert (first == second) == (one == other)
    assert location("/w", first).count("/") == 3


def test_iceberg_identifiers_of_ordinary_names_are_what_they_were() -> None:
    for name in ("shop.orders", "orders", "a.b.c"):
        assert identifier(name) == former_identifier(name)
    assert identifier("shop.orders") == ("shop", "orders")
    assert identifier("orders") == ("default", "orders")
    assert former_identifier("db.a:b") == ("db", "a:b")
    assert former_identifier("db.../x") is None


def json_sink(*rules: RouteRule) -> Sink:
    return FileSink(JsonSettings("/nowhere"), Router(rules))


def kafka_sink(*rules: RouteRule) -> Sink:
    settings = KafkaSettings(
        "127.0.0.1:1", "p", include_schema_changes=True, provide_transaction_metadata=True
    )
    return KafkaSink(settings, Router(rules), "postgresql")


def refused(sink: Sink, *tables: TableId) -> str:
    with pytest.raises(ConfigError) as error:
        sink.claim(tables)
    return str(error.value)


def a(table: str, database: str = "db") -> TableId:
    return TableId(database, table)


@pytest.mark.parametrize(
    ("sink", "one", "other"),
    [
        (kafka_sink, a("a b"), a("a_b")),
        (kafka_sink, a("a.b"), a("a_b")),
        (kafka_sink, a("x" * 300 + "1"), a("x" * 300 + "2")),
        (kafka_sink, a("b.c", "a"), a("c", "a.b")),
        (json_sink, a("b.c", "a"), a("c", "a.b")),
    ],
)
def test_two_tables_with_one_target_are_refused_with_both_names(
    sink: Callable[[], Sink], one: TableId, other: TableId
) -> None:
    opened = sink()
    opened.claim([one])
    text = refused(opened, one, other)
    assert one.quoted in text
    assert other.quoted in text


def test_offset_names_no_table_wrongly_where_a_database_has_a_dot() -> None:
    offset = StreamOffset(mode="initial", log={}, done={"a.b.c": 1, "a.b": 1})
    assert offset.table_ids() == [a("b", "a")]
    sink = json_sink()
    sink.claim([a("c", "a.b"), a("b", "a")])
    sink.claim(offset.table_ids())


def test_tables_that_a_sink_tells_apart_are_taken() -> None:
    json_sink().claim([a("a b"), a("a_b"), a("A_B"), a("a/b"), a("a%2Fb"), a("_tailrace")])
    kafka_sink().claim([a("a-b"), a("a_b"), a("A_B")])


@pytest.mark.parametrize(
    ("rule", "tables"),
    [
        (RouteRule(r"(\w+)\.(\w+)", "$1_$2"), (a("c", "a_b"), a("b_c", "a"))),
        (RouteRule(r"lake\.public_(.*)", "lake.$1"), (a("secret", "lake"), a("public_secret", "lake"))),
    ],
)
def test_routes_bring_no_tables_together_by_accident(rule: RouteRule, tables: tuple[TableId, ...]) -> None:
    assert "mixed" in refused(json_sink(rule), *tables)


def test_target_inside_another_one_is_refused() -> None:
    rules = [RouteRule(r"db\.a", "lake"), RouteRule(r"db\.b", "lake/b")]
    assert "inside" in refused(json_sink(*rules), a("a"), a("b"))
    assert "inside" in refused(json_sink(*rules), a("b"), a("a"))
    json_sink(RouteRule(r"db\.(.*)", "lake/$1")).claim([a("x"), a("x/y"), a("lake/x", "other")])


def test_shards_that_the_routes_bring_together_share_a_target() -> None:
    shards = [a("orders", f"shop_{i}") for i in range(3)]
    json_sink(RouteRule(r"shop_\d+\.(.*)", "shop.$1")).claim(shards)
    json_sink(*(RouteRule(rf"shop_{i}\.orders", "shop.orders") for i in range(3))).claim(shards)


@pytest.mark.parametrize(
    ("target", "what"), [("transaction", "transactions"), ("__quarantine", "refused messages")]
)
def test_topic_that_the_sink_needs_is_no_target(target: str, what: str) -> None:
    assert what in refused(kafka_sink(RouteRule(".*", target)), a("x"))
    kafka_sink().claim([a(target)])


def test_logical_messages_and_a_table_never_share_a_topic() -> None:
    text = refused(kafka_sink(RouteRule(r"db\..*", "message")), MESSAGES.id, a("x"))
    assert "`db`.`x`" in text
    assert Topics("p", messages=False).topic(MESSAGES.id) == "p.logical.message"


def test_file_names_that_are_too_long_are_refused_with_the_table() -> None:
    assert "too long" in refused(json_sink(), a("é" * 130))


def test_console_takes_every_table() -> None:
    ConsoleSink(ConsoleSettings(), Router([])).claim([a("a b"), a("a_b")])


def test_other_pipelines_of_a_topic_prefix_are_found_where_names_tell() -> None:
    topics = ["__tailrace.a.p", "__tailrace.b.p", "__tailrace.b.q", "__tailrace.x.y.p", "other"]
    assert of_same_prefix(topics, "__tailrace.a.p", "p") == ["__tailrace.b.p"]


MYSQL = MySqlDialect(MySqlSettings("mysql://h/notes", "u"))
POSTGRES = PostgresDialect(PostgresSettings("postgresql://h/d", "u"))


@pytest.mark.parametrize(
    ("dialect", "targets"),
    [
        (MYSQL, ["_tailrace", "notes._tailrace_units", "NOTES._TAILRACE", "mysql.user", "sys.x"]),
        (POSTGRES, ["_tailrace", "public._tailrace_units", "pg_catalog.x", "pg_temp.x"]),
    ],
)
def test_replica_never_writes_tables_of_the_server_or_of_tailrace(
    dialect: MySqlDialect | PostgresDialect, targets: Iterable[str]
) -> None:
    for target in targets:
        with pytest.raises(ConfigError, match="cannot be written"):
            dialect.table_name(target)
    dialect.table_name("shop._tailrace")


def test_mysql_target_that_folds_case_takes_names_for_one() -> None:
    folding = MySqlDialect(MYSQL.settings, folds_case=True)
    for dialect in (MYSQL, folding):
        one, other = (dialect.folded_name(dialect.table_name(name)) for name in ("a.B", "A.b"))
        assert (one == other) == dialect.folds_case


class Twins(FakeSource):
    """A database `a` with a table `b.c`; there may be another one, `a.b`, with a table `c`."""

    def __init__(self, *ids: TableId) -> None:
        super().__init__()
        self.ids = ids

    def tables(self) -> list[Found]:
        schema = table(("id", INT), key=("id",))
        return [Found(replace(schema, id=id_), 0) for id_ in self.ids]

    def boundary(self, schema: object, after: object, rows: int) -> None:
        return None


ONE, OTHER = TableId("a", "b.c"), TableId("a.b", "c")


def test_tables_whose_names_are_one_text_are_not_captured_together() -> None:
    plan = enumerator(Twins(ONE, OTHER), tables="a.*")
    with pytest.raises(ConfigError, match=r"`a`\.`b\.c` and `a\.b`\.`c` cannot be captured"):
        plan.latest(StreamOffset(), Limits())


@pytest.mark.parametrize("id_", [ONE, OTHER])
def test_table_with_a_dot_in_its_name_or_its_databases_is_captured(id_: TableId) -> None:
    plan = enumerator(Twins(id_), tables="a.*")
    end = plan.latest(StreamOffset(), Limits())
    assert set(end.done) == {"a.b.c"}


def test_table_that_is_created_with_the_text_of_anothers_name_is_refused() -> None:
    source = Twins(ONE)
    plan = enumerator(source, tables="a.*")
    end = plan.latest(StreamOffset(), Limits())
    source.ranges.append(LogRange(At(200), has_changes=True, ddl_ahead=False, created=(OTHER,)))
    with pytest.raises(ConfigError, match="cannot be captured by one pipeline"):
        plan.latest(end, Limits())


def test_patterns_take_a_line_break_for_any_character() -> None:
    options = parse_options({"url": "mysql://h", "user": "u", "tables": r"shop\..*"})
    assert options.captures("shop.a\nb")
    assert Router([RouteRule(r"shop\.(.*)", "lake.$1")]).target(a("a\nb", "shop")) == "lake.a\nb"
