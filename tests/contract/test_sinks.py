"""What every sink must do (`tailrace.sinks.base`), each of them with its real target."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.config.load import parse_pipeline
from tailrace.config.model import RouteRule
from tailrace.errors import LeaseLostError, SinkError, StateError
from tailrace.failpoints import VARIABLE, InjectedError
from tailrace.model.change import OP_REREAD, ChangeBatch
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.base import CellBatch, Delivery, Order, StreamId
from tailrace.sinks.registry import standing
from tailrace.sinks.route import Router
from tailrace.sinks.standing import SinkStanding
from tests.support.cells import cell_batch
from tests.support.changes import BIGINT, DECIMAL, INT, TEXT, changes, table
from tests.support.sinks import CASES
from tests.support.sinks.case import Change, Row, SinkCase

DATETIME = ColumnType(Kind.DATETIME, "datetime", fraction=6)
BYTES = ColumnType(Kind.BYTES, "varbinary", length=100)
COLUMNS = (("id", BIGINT), ("name", TEXT), ("price", DECIMAL), ("at", DATETIME), ("data", BYTES))
SCHEMA = table(*COLUMNS, key=("id",))
OTHER = table(*COLUMNS, key=("id",), name="shop.u")
EVERYTHING = Router([])
PIPELINE = parse_pipeline(
    "source: {url: 'mysql://source.invalid', user: u, password: p, tables: '.*'}\n"
    "sink: {type: console}\n"
    "pipeline: {checkpoint: /nowhere}\n"
)


#: Sinks that share most of their code: a test has one of them, in turn, and the others as slow tests.
TWINS = (
    ("delta-upsert-waiting", "delta-upsert", "delta-scd2"),  # the first test is of changes that wait
    ("delta-changelog", "iceberg-changelog"),
    ("parquet", "json"),
    ("mysql", "mariadb-whole-batch"),
    ("postgresql", "postgresql-whole-batch"),
)
#: A broker of RocketMQ takes a third of a core while nobody uses it, and two JVMs at the start. The
#: sink of Iceberg writes the same to each catalog.
SLOW = {"rabbitmq", "rocketmq", "iceberg-rest", "iceberg-hive", "iceberg-glue"}
#: Where the reading of a table again breaks off: at one of them with each sink, at the others as slow tests.
POINTS = ("sink.table", "sink.seen", "sink.reread")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    turn = [name for name in vars(metafunc.module) if name.startswith("test_")].index(
        metafunc.function.__name__
    )
    due = {twins[(turn + number) % len(twins)] for number, twins in enumerate(TWINS)}
    others = ({name for twins in TWINS for name in twins} - due) | SLOW
    if "point" not in metafunc.fixturenames:
        params = [pytest.param(name, marks=[pytest.mark.slow] if name in others else []) for name in CASES]
        metafunc.parametrize("case", params, indirect=True)
        return
    pairs = [
        pytest.param(
            name,
            point,
            marks=[] if number % len(POINTS) == turn_of_point and name not in others else [pytest.mark.slow],
        )
        for number, name in enumerate(CASES)
        for turn_of_point, point in enumerate(POINTS)
    ]
    metafunc.parametrize(("case", "point"), pairs, indirect=["case"])


@pytest.fixture
def case(request: pytest.FixtureRequest) -> SinkCase:
    return CASES[request.param](request)


@pytest.fixture
def open_sink(case: SinkCase) -> Iterator[Any]:
    opened = []

    def open_(router: Router = EVERYTHING) -> Any:
        opened.append(case.open(router))
        return opened[-1]

    yield open_
    for sink in opened:
        sink.close()


def row(id_: int, name: str | None, price: str | None = "1.50") -> dict[str, Any]:
    return {
        "id": id_,
        "name": name,
        "price": None if price is None else Decimal(price),
        "at": datetime(2024, 2, 29, 23, 59, 59, 999_999) if name else None,  # noqa: DTZ001 - wall clock
        "data": None if name is None else name.encode() + b"\x00\xff",
    }


#: The changes of two batches: snapshot rows, then updates, deletes, a key update, a key that comes and goes.
SNAPSHOT: list[Change] = [("r", None, row(i, f"s{i}")) for i in (1, 2, 3)]
MORE: list[Change] = [("r", None, row(4, "s4"))]
LOG: list[Change] = [
    ("u", row(1, "s1"), row(1, "once")),
    ("u", row(1, "once"), row(1, "two\n\t\\ 'x' \"y\" ü€🐟", None)),
    ("d", row(2, "s2"), None),
    ("c", None, row(7, "")),
    ("c", None, row(8, "short lived")),
    ("d", row(8, "short lived"), None),
    ("d", row(3, "s3"), None),
    ("c", None, row(-(1 << 62), "moved")),
    ("c", None, row(9, None, None)),
]
LATER: list[Change] = [("d", row(7, ""), None), ("c", None, row(7, "again", "-99999999.99"))]


def batches(spark: SparkSession) -> list[CellBatch]:
    return [
        cell_batch(spark, 0, [("snapshot", changes(SCHEMA, SNAPSHOT))]),
        cell_batch(
            spark,
            1,
            [
                ("log", changes(SCHEMA, LATER, first=200)),
                ("log", changes(SCHEMA, LOG, first=100)),
                ("snapshot", changes(SCHEMA, MORE, first=300)),
            ],
        ),
        cell_batch(spark, 2, [("log", changes(SCHEMA, [("d", row(4, "s4"), None)], first=400))]),
    ]


def everything() -> list[Change]:
    return [*SNAPSHOT, *LOG, *LATER, *MORE, ("d", row(4, "s4"), None)]


def state(of: list[Change]) -> list[Row]:
    held = {}
    for op, before, after in of:
        if op == "d":
            assert before is not None
            held.pop(before["id"])
        else:
            assert after is not None
            held[after["id"]] = after
    return [held[k] for k in sorted(held)]


def check(case: SinkCase, sink: Any, wanted: list[Change], name: str = "shop.t") -> None:
    """The target holds what `wanted` adds up to."""
    if sink.capabilities.holds_rows:
        assert case.rows is not None
        assert sorted(case.rows(name), key=lambda r: r["id"]) == state(wanted)
        return
    assert case.changes is not None
    found = case.changes(name)
    if sink.capabilities.order is Order.BY_SEQ:
        assert found == wanted
    else:
        assert by_key(found) == by_key(wanted)


def by_key(of: list[Change]) -> dict[int, list[Change]]:
    keys: dict[int, list[Change]] = {}
    for change in of:
        keys.setdefault((change[2] or change[1] or {})["id"], []).append(change)
    return keys


def asked(sink: Any, batch: CellBatch) -> SinkStanding:
    """What the targets say from outside."""
    settings = sink._settings
    stream = replace(batch.stream, pipeline=getattr(settings, "topic_prefix", batch.stream.pipeline))
    return standing(settings, PIPELINE, stream, [SCHEMA.id])


def test_target_holds_what_the_batches_say_and_tells_which_it_has(
    spark: SparkSession, request: pytest.FixtureRequest, case: SinkCase, open_sink: Any
) -> None:
    sink = open_sink()
    first, *more = batches(spark)
    assert not [target for target in asked(sink, first).targets.values() if target.batch is not None]
    written = [w for batch in (first, *more) for w in sink.write(batch)]
    assert (sum(w.snapshot_rows for w in written), sum(w.changes for w in written)) == (4, 12)
    check(case, sink, everything())
    found = asked(sink, first)
    if sink.capabilities.delivery is Delivery.AT_LEAST_ONCE:
        assert found == SinkStanding()  # it keeps no account
        return
    assert [target.batch for target in found.targets.values()] == [2]
    assert found.begun(1) == 2
    assert found.begun(2) is None
    waits = "waiting" in request.node.callspec.id
    assert found.visible(2) == (1 if waits else 2)
    if waits:
        assert [target.waiting_rows for target in found.targets.values()] == [1]
        sink.close()  # it merges what waits
        assert asked(sink, first).visible(2) == 2


def test_batch_that_comes_again_does_what_the_capabilities_say(
    spark: SparkSession, case: SinkCase, open_sink: Any
) -> None:
    first, second, third = batches(spark)
    open_sink().write(first)
    open_sink().write(first)
    sink = open_sink()
    for batch in (second, second, third):
        sink.write(batch)
    open_sink().write(third)
    if sink.capabilities.delivery is Delivery.EXACTLY_ONCE or case.narrows_repeats:
        check(case, sink, everything())
    else:
        assert case.changes is not None
        assert len(case.changes("shop.t")) == 2 * len(everything())


def test_batch_that_broke_off_half_way_is_completed_by_its_replay(
    spark: SparkSession, case: SinkCase, open_sink: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = cell_batch(spark, 0, [("snapshot", changes(schema, SNAPSHOT)) for schema in (SCHEMA, OTHER)])
    monkeypatch.setenv(VARIABLE, f"sink.table=raise@{tmp_path / 'token'}")
    with pytest.raises(InjectedError):
        open_sink().write(batch)
    monkeypatch.delenv(VARIABLE)
    sink = open_sink()
    if sink.capabilities.delivery is not Delivery.EXACTLY_ONCE and not case.narrows_repeats:
        pytest.skip("the sink is at-least-once: a replay may repeat what was written")
    sink.write(batch)
    for name in ("shop.t", "shop.u"):
        check(case, sink, SNAPSHOT, name)


def test_column_with_a_name_that_the_target_needs_is_refused_or_kept(
    spark: SparkSession, case: SinkCase, open_sink: Any
) -> None:
    for number, name in enumerate(("_op", "_SEQ", "_batch")):
        odd = table(("id", INT), (name, TEXT), key=("id",), name=f"shop.t{number}")
        cells = [("snapshot", changes(odd, [("r", None, {"id": 1, name: "x"})]))]
        refused: list[SinkError] = []
        try:
            open_sink().write(cell_batch(spark, number, cells))
        except SinkError as error:
            refused.append(error)
        if refused:
            assert refused[0].code == "TR-7005"
            assert f"column `{name}` of table `shop.t{number}`" in refused[0].message
        else:
            found = case.rows(f"shop.t{number}") if case.rows else [c[2] for c in case.changes(str(odd.id))]
            assert [row[name] for row in found] == ["x"]


def test_target_follows_added_dropped_and_widened_columns(
    spark: SparkSession, case: SinkCase, open_sink: Any
) -> None:
    narrow = table(("id", INT), ("name", TEXT), key=("id",))
    wide = table(("id", BIGINT), ("note", TEXT), key=("id",))
    old = changes(narrow, [("c", None, {"id": 2, "name": "old"})], first=5)
    new = changes(wide, [("c", None, {"id": 1 << 40, "note": "hi"})], first=6)
    sink = open_sink()
    sink.write(cell_batch(spark, 0, [("snapshot", changes(narrow, [("r", None, {"id": 1, "name": "s1"})]))]))
    sink.write(cell_batch(spark, 1, [("log", new), ("log", old)]))
    if case.rows is not None:
        found = case.rows("shop.t")
    else:
        assert case.changes is not None
        found = [after for _, _, after in case.changes("shop.t") if after is not None]
    listed = sorted((r["id"], r.get("name"), r.get("note")) for r in found)
    assert listed == [(1, "s1", None), (2, "old", None), (1 << 40, None, "hi")]


def test_column_renamed_in_case_only_keeps_its_values(
    spark: SparkSession, case: SinkCase, open_sink: Any
) -> None:
    sink = open_sink()
    if not (sink.capabilities.holds_rows and sink.capabilities.follows_schema):
        pytest.skip("the target holds no rows, or does not follow its source's schema")
    upper = table(("id", INT), ("NAME", TEXT), key=("id",))
    lower = table(("id", INT), ("name", TEXT), key=("id",))
    rows = [("r", None, {"id": i, "name": f"a{i}"}) for i in (1, 2)]
    sink.write(cell_batch(spark, 0, [("snapshot", changes(lower, rows))]))
    renamed = [
        ("u", {"id": 1, "NAME": "a1"}, {"id": 1, "NAME": "b1"}),
        ("c", None, {"id": 3, "NAME": "b3"}),
    ]
    sink.write(cell_batch(spark, 1, [("log", changes(upper, renamed, first=50))]))
    assert case.rows is not None
    found = [
        {k.lower(): v for k, v in found.items() if not k.startswith("_")} for found in case.rows("shop.t")
    ]
    assert sorted((r["id"], r["name"]) for r in found if r.get("_is_current", True)) == [
        (1, "b1"),
        (2, "a2"),
        (3, "b3"),
    ]


def test_column_that_cannot_follow_is_refused_by_name(
    spark: SparkSession, case: SinkCase, open_sink: Any
) -> None:
    sink = open_sink()
    if not sink.capabilities.follows_schema:
        pytest.skip("the target does not follow its source's schema")
    sink.write(cell_batch(spark, 0, [("snapshot", changes(SCHEMA, SNAPSHOT))]))
    other = table(("id", BIGINT), ("name", BIGINT), key=("id",))
    one = changes(other, [("c", None, {"id": 9, "name": 9})], first=50)
    two = changes(SCHEMA, [("c", None, row(10, "x"))], first=60)
    batch = cell_batch(spark, 1, [("log", one), ("log", two)])
    with pytest.raises(SinkError, match="column `name` of target"):
        sink.write(batch)


def test_target_of_another_stream_is_not_touched(spark: SparkSession, case: SinkCase, open_sink: Any) -> None:
    sink = open_sink()
    if sink.capabilities.delivery is not Delivery.EXACTLY_ONCE:
        pytest.skip("an at-least-once sink marks no target as its own")
    sink.write(cell_batch(spark, 0, [("snapshot", changes(SCHEMA, SNAPSHOT))]))
    stranger = cell_batch(spark, 0, [("snapshot", changes(SCHEMA, MORE))], StreamId("test", "another"))
    with pytest.raises(StateError, match="is not this stream's"):
        open_sink().write(stranger)
    check(case, sink, SNAPSHOT)


def test_tables_routed_to_one_target_share_it(spark: SparkSession, case: SinkCase, open_sink: Any) -> None:
    sink = open_sink(Router([RouteRule(r"shop\.t\d", "shop.t")]))
    cells = []
    for shard in (1, 2):
        schema = table(*COLUMNS, key=("id",), name=f"shop.t{shard}")
        cells.append(("snapshot", changes(schema, [("r", None, row(shard, "x"))], first=shard)))
    written = sink.write(cell_batch(spark, 0, cells))
    check(case, sink, [("r", None, row(1, "x")), ("r", None, row(2, "x"))])
    assert sorted((str(w.table), w.target) for w in written) == [
        ("shop.t1", "shop.t"),
        ("shop.t2", "shop.t"),
    ]


def test_odd_names_and_a_key_of_several_columns_are_kept(
    spark: SparkSession, case: SinkCase, open_sink: Any
) -> None:
    schema = table(("id", INT), ("b c", TEXT), ("name", TEXT), key=("id", "b c"))
    rows = [{"id": 1, "b c": k, "name": k} for k in ("", "a", "A", "ß'`\"")]
    sink = open_sink()
    sink.write(cell_batch(spark, 0, [("snapshot", changes(schema, [("r", None, r) for r in rows]))]))
    gone = changes(schema, [("d", rows[1], None), ("u", rows[2], {**rows[2], "name": "new"})], first=50)
    sink.write(cell_batch(spark, 1, [("log", gone)]))
    if case.rows is not None:
        found = {(r["id"], r["b c"]): r["name"] for r in case.rows("shop.t")}
        assert found == {(1, ""): "", (1, "A"): "new", (1, "ß'`\""): "ß'`\""}
    else:
        assert case.changes is not None
        assert [op for op, _, _ in case.changes("shop.t")].count("r") == 4
        (update,) = [c for c in case.changes("shop.t") if c[0] == "u"]
        assert update == ("u", rows[2], {**rows[2], "name": "new"})


NOTES = table(("id", INT), ("name", TEXT), ("data", BYTES), ("note", TEXT), key=("id",))


def note(id_: int, name: str | None = None, text: str | None = None) -> dict[str, Any]:
    return {"id": id_, "name": name, "data": None if name is None else name.encode(), "note": text}


def lacking(columns: tuple[str, ...], rows: list[Row], first: int) -> ChangeBatch:
    updates = [("u", note(row["id"]), row) for row in rows]
    return replace(changes(NOTES, updates, first=first), absent_after=columns)


def test_columns_that_the_log_left_out_of_updates_stay_as_they_are(
    spark: SparkSession, case: SinkCase, open_sink: Any
) -> None:
    """Alone, after changes that have them or lack other ones, before a delete, without a row."""
    if not case.takes_parts:
        pytest.skip("the target takes no updates that lack columns")
    rows = [("r", None, note(i, n, n.upper())) for i, n in enumerate("abcdef", 1)]
    before = [("u", note(1, "a", "A"), note(1, "a", "A1")), ("c", None, note(7, "g", "G"))]
    whole = [
        ("u", note(2, "b", "B"), note(2, "b", "B2")),
        ("c", None, note(10, "j", None)),
        ("u", note(3, "c", "C"), note(3, "c3", "C3")),
    ]
    log = [
        changes(NOTES, whole, first=100),
        lacking(("note",), [note(i, f"n{i}") for i in (1, 2, 4, 10, 99)], 200),
        lacking(("name", "data"), [note(i, None, f"N{i}") for i in (2, 6, 98)], 300),
        lacking(("name", "data", "note"), [note(i) for i in (1, 5, 6, 97)], 400),
        changes(NOTES, [("d", note(4), None), ("d", note(7), None), ("d", note(98), None)], first=500),
        changes(NOTES, [("c", None, note(4, "new", "NEW")), ("c", None, note(98, "new", "NEW8"))], first=600),
        lacking(("note",), [note(98, "8")], 700),
    ]
    batches = [
        cell_batch(spark, 0, [("snapshot", changes(NOTES, rows))]),
        cell_batch(spark, 1, [("log", changes(NOTES, before, first=50))]),
        cell_batch(spark, 2, [("log", batch) for batch in log]),
        cell_batch(
            spark, 3, [("log", lacking(("data", "note"), [note(i, "last") for i in (3, 97, 98)], 800))]
        ),
    ]
    expected = [
        note(1, "n1", "A1"),
        note(2, "n2", "N2"),
        note(3, "last", "C3") | {"data": b"c3"},
        note(4, "new", "NEW"),
        note(5, "e", "E"),
        note(6, "f", "N6"),
        note(10, "n10", None),
        note(98, "last", "NEW8") | {"data": b"8"},
    ]
    assert case.rows is not None
    sink = open_sink()
    for batch in (*batches, batches[-1]):
        sink.write(batch)
    assert sorted(case.rows("shop.t"), key=lambda r: r["id"]) == expected
    sink.close()
    assert sorted(case.rows("shop.t"), key=lambda r: r["id"]) == expected


def test_new_row_of_which_the_log_left_columns_out_is_refused(
    spark: SparkSession, case: SinkCase, open_sink: Any
) -> None:
    if case.rows is None:
        pytest.skip("the target holds changes, not rows")
    moved = replace(
        changes(NOTES, [("d", note(1), None), ("c", None, note(7, "a"))], first=10), absent_after=("note",)
    )
    sink = open_sink()
    sink.write(cell_batch(spark, 0, [("snapshot", changes(NOTES, [("r", None, note(1, "a", "A"))]))]))
    parts = [moved] if case.takes_parts else [moved, lacking(("note",), [note(1, "b")], 20)]
    for number, part in enumerate(parts, 1):
        with pytest.raises(Exception, match="REPLICA IDENTITY FULL"):
            sink.write(cell_batch(spark, number, [("log", part)]))
    assert [r["note"] for r in case.rows("shop.t")] == ["A"]


# ---- tables that are read again ----


def reread(batch: ChangeBatch) -> ChangeBatch:
    return replace(batch, op=pa.repeat(pa.scalar(OP_REREAD, pa.int8()), len(batch)))


def again(batch: CellBatch, id_: str, *, done: bool) -> CellBatch:
    """`batch` as one in which `shop.t` is read again."""
    end = {"v": 2, "log": {"ts_ms": 1_700_000_000_000}, "done": {"shop.t": 5, "shop.u": 1}}
    entry = {"id": id_, "c": None, "n": 0, "e": 0, "done": done}
    return replace(batch, end={**end, "again": {"shop.t": entry}})


GONE = [("r", None, row(i, f"s{i}")) for i in (3, 5)]
FIRST_LOG: list[Change] = [("u", row(1, "s1"), row(1, "logged"))]
FIRST_ROWS: list[Change] = [("r", None, row(1, "logged")), ("r", None, row(2, "rewritten"))]
SECOND_LOG: list[Change] = [("d", row(2, "rewritten"), None), ("c", None, row(9, "created"))]
LAST_ROWS: list[Change] = [("r", None, row(4, "s4"))]


def rereading(spark: SparkSession) -> list[CellBatch]:
    """Rows 1 to 5, then the table is read again: 2 was rewritten, 3 and 5 are gone, all without a log."""
    first = [("r", None, row(i, f"s{i}")) for i in (1, 2, 4)]
    return [
        cell_batch(
            spark,
            0,
            [
                ("snapshot", changes(SCHEMA, [*first, *GONE])),
                ("snapshot", changes(OTHER, [("r", None, row(77, "other"))])),
            ],
        ),
        again(
            cell_batch(
                spark,
                1,
                [
                    ("reread", reread(changes(SCHEMA, FIRST_ROWS, first=200))),
                    ("log", changes(SCHEMA, FIRST_LOG, first=100)),
                ],
            ),
            "one",
            done=False,
        ),
        again(
            cell_batch(
                spark,
                2,
                [
                    ("log", changes(SCHEMA, SECOND_LOG, first=300)),
                    ("reread", reread(changes(SCHEMA, LAST_ROWS, first=400))),
                ],
            ),
            "one",
            done=True,
        ),
    ]


def check_reread(case: SinkCase, sink: Any) -> None:
    """The target equals the table, or holds the rows as further changes."""
    if sink.capabilities.holds_rows:
        assert case.rows is not None
        found = sorted(case.rows("shop.t"), key=lambda r: r["id"])
        assert found == [row(1, "logged"), row(4, "s4"), row(9, "created")]
        assert [r["id"] for r in case.rows("shop.u")] == [77]
        return
    assert case.changes is not None
    first = [("r", None, row(i, f"s{i}")) for i in (1, 2, 4)]
    later = [*FIRST_LOG, *FIRST_ROWS, *SECOND_LOG, *LAST_ROWS]
    gone: list[Change] = [("d", row(i, f"s{i}"), None) for i in (3, 5)]
    if case.compares:
        later = [*FIRST_LOG, *SECOND_LOG, *gone]
    elif case.tells_gone:
        later += gone
    assert by_key(case.changes("shop.t")) == by_key([*first, *GONE, *later])


def test_target_of_a_table_that_was_read_again_equals_it(
    spark: SparkSession, case: SinkCase, open_sink: Any
) -> None:
    sink = open_sink()
    for batch in rereading(spark):
        sink.write(batch)
    check_reread(case, sink)


def test_batch_of_a_table_read_again_may_come_again(
    spark: SparkSession, case: SinkCase, open_sink: Any
) -> None:
    sink = open_sink()
    if sink.capabilities.delivery is not Delivery.EXACTLY_ONCE:
        pytest.skip("the sink delivers at least once")
    for batch in rereading(spark):
        sink.write(batch)
        sink.close()
        sink = open_sink()
        sink.write(batch)
    check_reread(case, sink)


def test_reading_again_that_broke_off_is_completed_by_its_replay(  # noqa: PLR0917 - fixtures
    spark: SparkSession,
    case: SinkCase,
    open_sink: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    point: str,
) -> None:
    sink = open_sink()
    if not (sink.capabilities.holds_rows or case.compares or case.tells_gone):
        pytest.skip("the sink deletes nothing")
    for batch in rereading(spark):
        token = tmp_path / f"{point}-{batch.id}"
        monkeypatch.setenv(VARIABLE, f"{point}=raise@{token}")
        with contextlib.suppress(InjectedError):
            sink.write(batch)
        sink.close()
        monkeypatch.delenv(VARIABLE)
        sink = open_sink()
        sink.write(batch)
    check_reread(case, sink)


def test_table_that_is_empty_when_it_is_read_again_empties_its_target(
    spark: SparkSession, case: SinkCase, open_sink: Any
) -> None:
    sink = open_sink()
    if not sink.capabilities.holds_rows:
        pytest.skip("the sink deletes nothing")
    sink.write(rereading(spark)[0])
    rows = reread(changes(SCHEMA, FIRST_ROWS, first=9))
    sink.write(again(cell_batch(spark, 1, [("reread", rows)]), "x", done=False))
    sink.write(again(cell_batch(spark, 2, []), "another", done=True))
    assert case.rows is not None
    assert case.rows("shop.t") == []
    assert [r["id"] for r in case.rows("shop.u")] == [77]


def test_rows_of_another_shard_stay_when_one_is_read_again(
    spark: SparkSession, case: SinkCase, open_sink: Any
) -> None:
    if case.rows is None:
        pytest.skip("the sink deletes nothing")
    sink = open_sink(Router([RouteRule("shop[.].", "all.rows", shard_column="name")]))
    key = ("id", "name")
    mine, theirs = table(*COLUMNS, key=key), table(*COLUMNS, key=key, name="shop.u")
    rows = [("r", None, row(i, "shop.t")) for i in (1, 2)]
    sink.write(
        cell_batch(
            spark,
            0,
            [
                ("snapshot", changes(mine, rows)),
                ("snapshot", changes(theirs, [("r", None, row(1, "shop.u"))])),
            ],
        )
    )
    left = reread(changes(mine, rows[:1], first=9))
    sink.write(again(cell_batch(spark, 1, [("reread", left)]), "x", done=True))
    assert sorted((r["id"], r["name"]) for r in case.rows("all.rows")) == [(1, "shop.t"), (1, "shop.u")]


def test_key_renamed_in_case_only_is_one_key_when_its_table_is_read_again(
    spark: SparkSession, case: SinkCase, open_sink: Any
) -> None:
    sink = open_sink()
    if not (sink.capabilities.holds_rows and sink.capabilities.follows_schema):
        pytest.skip("the target holds no rows, or does not follow its source's schema")
    lower = table(("id", INT), ("name", TEXT), key=("id",))
    upper = table(("ID", INT), ("name", TEXT), key=("ID",))
    rows = [("r", None, {"id": i, "name": f"a{i}"}) for i in (1, 2, 3)]
    sink.write(cell_batch(spark, 0, [("snapshot", changes(lower, rows))]))
    log = changes(upper, [("u", {"ID": 1, "name": "a1"}, {"ID": 1, "name": "b1"})], first=20)
    left = reread(changes(upper, [("r", None, {"ID": 2, "name": "a2"})], first=30))
    sink.write(again(cell_batch(spark, 1, [("log", log), ("reread", left)]), "x", done=True))
    assert case.rows is not None
    found = [{name.lower(): value for name, value in row.items()} for row in case.rows("shop.t")]
    current = [(row["id"], row["name"]) for row in found if row.get("_is_current", True)]
    assert sorted(current) == [(1, "b1"), (2, "a2")]


# ---- leases ----


#: Sinks whose targets note leases.
LEASED = ("delta", "iceberg", "parquet", "json", "mysql", "mariadb", "postgresql")


def under(batch: CellBatch, lease: int) -> CellBatch:
    """`batch` as the owner with a lease writes it."""
    return replace(batch, stream=replace(batch.stream, lease=lease))


def test_owner_that_has_lost_its_lease_writes_nothing(
    spark: SparkSession, request: pytest.FixtureRequest, case: SinkCase, open_sink: Any
) -> None:
    former, present = open_sink(), open_sink()
    if not request.node.callspec.id.startswith(LEASED):
        pytest.skip("the target notes no leases")
    first, second, third = batches(spark)
    former.write(under(first, 1))
    present.write(under(first, 2))
    present.write(under(second, 2))
    for sink, batch in ((former, second), (open_sink(), third)):
        with pytest.raises(LeaseLostError, match="is written by another server") as lost:
            sink.write(under(batch, 1))
        assert lost.value.code == "TR-8470"
    present.write(under(third, 2))
    open_sink().write(third)  # without a server: nothing is refused, nothing comes twice
    check(case, present, everything())
