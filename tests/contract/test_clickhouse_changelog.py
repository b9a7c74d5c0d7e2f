"""ClickHouse with `mode: changelog`: each change once, whatever comes again, and as the log has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.config.model import RouteRule
from tailrace.config.sink_settings import RefusedRow
from tailrace.config.sinks import ClickHouseSettings, WriteMode
from tailrace.errors import SinkError, StateError, TransientSinkError
from tailrace.failpoints import VARIABLE, InjectedError
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.base import CellBatch
from tailrace.sinks.clickhouse import division, log_tasks
from tailrace.sinks.clickhouse.log_sink import ClickHouseLogSink
from tailrace.sinks.clickhouse.quarantine import ClickHouseQuarantine
from tailrace.sinks.clickhouse.sink import ClickHouseSink
from tailrace.sinks.route import Router
from tests.support.cells import STREAM, cell_batch
from tests.support.changes import BIGINT, INT, TEXT, changes, table
from tests.support.sinks.clickhouse import Target, target_of

SCHEMA = table(("id", INT), ("name", TEXT), key=("id",))
DAY = ColumnType(Kind.DATE, "date")


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Target:
    return target_of(request)


@pytest.fixture
def settings(target: Target) -> ClickHouseSettings:
    return replace(target.settings, mode=WriteMode.CHANGELOG)


@pytest.fixture
def sink(settings: ClickHouseSettings) -> Iterator[ClickHouseLogSink]:
    yield (opened := ClickHouseLogSink(settings, Router([])))
    opened.close()


def created(ids: range, name: str = "x") -> list[tuple[str, Any, Any]]:
    return [("c", None, {"id": i, "name": name}) for i in ids]


def one_cell(spark: SparkSession, number: int, ids: range) -> CellBatch:
    return cell_batch(spark, number, [("log", changes(SCHEMA, created(ids), first=1000 * number))])


def ids(target: Target, name: str = "shop.t") -> list[int]:
    return [row["id"] for row in target.select(f"SELECT id FROM {target.name(name)} ORDER BY _seq")]


def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten changes a bucket, and parts of a few: what many changes have."""
    monkeypatch.setattr(division, "_CHANGES", 10)
    monkeypatch.setattr(division, "_BYTES", 60)


def test_batch_that_broke_off_is_completed_whatever_its_cells_tasks_and_order_are(
    spark: SparkSession,
    target: Target,
    settings: ClickHouseSettings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    small_parts(monkeypatch)
    batch = one_cell(spark, 3, range(100))
    monkeypatch.setenv(VARIABLE, f"sink.task=raise@{tmp_path / 'token'}")
    sink = ClickHouseLogSink(replace(settings, parallelism=1), Router([]))
    attempt_of(sink, batch, fails=True)
    monkeypatch.delenv(VARIABLE)
    part = ids(target)
    assert 0 < len(part) < 100
    cells = [
        ("log", changes(SCHEMA, created(range(start, start + 25)), first=3000 + start))
        for start in (75, 0, 50, 25)
    ]
    again = ClickHouseLogSink(replace(settings, parallelism=3), Router([]))
    attempt_of(again, cell_batch(spark, 3, cells), fails=False)
    assert ids(target) == list(range(100))
    # a task of the attempt before outlives it: it does not know what is there by now
    attempt_of(sink, batch, fails=False, knows=False)
    assert ids(target) == list(range(100))


def test_rows_of_a_snapshot_which_have_one_seq_are_divided_the_same_way(
    spark: SparkSession, target: Target, settings: ClickHouseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch)
    numbers = list(range(60))

    def batch(order: list[int]) -> CellBatch:
        cells = []
        for part in (order[:20], order[20:]):
            found = changes(SCHEMA, [("r", None, {"id": i, "name": "x"}) for i in part])
            seq = pa.repeat(f"{7:032x}", len(part))
            origin = found.origin.set_column(0, found.origin.schema.field(0), seq)
            cells.append(("snapshot", replace(found, before=None, origin=origin)))
        return cell_batch(spark, 0, cells)

    first, second = (ClickHouseLogSink(settings, Router([])) for _ in range(2))
    attempt_of(first, batch(numbers), fails=False)
    attempt_of(second, batch(numbers[::-1]), fails=False, knows=False)
    attempt_of(first, batch(numbers[30:] + numbers[:30]), fails=False)
    assert sorted(ids(target)) == numbers


def attempt_of(sink: ClickHouseLogSink, batch: CellBatch, *, fails: bool, knows: bool = True) -> None:
    """An attempt to write a batch, with the tasks in this process."""
    sink._open()
    parts = batch.table_batches
    sink.claim([part.table for part in parts])
    sink._prepare(batch, "shop.t", parts, ())
    attempt = sink._attempt(batch, ["shop.t"])
    if not knows:
        attempt = replace(attempt, present={})
    counts = {(str(p.table), p.kind): division.bucket_count(p.changes) for p in parts}
    task_input = log_tasks._TaskInput(attempt, {"shop.t": "shop.t"}, counts, 1)
    cells = batch.frame.select("table", "kind", "cell").toArrow().to_batches()
    run = log_tasks.insert_buckets(task_input)(log_tasks.bucket_cells(task_input)(iter(cells)))
    if fails:
        with pytest.raises(InjectedError):
            list(run)
    else:
        assert [rows.num_rows for rows in run] == [0]


def test_rows_of_a_batch_are_counted_and_both_faults_have_a_remedy_that_works(
    spark: SparkSession, target: Target, sink: ClickHouseLogSink
) -> None:
    sink.write(one_cell(spark, 0, range(5)))
    second = one_cell(spark, 1, range(5, 10))
    sink.write(second)
    client = target.server.connect()
    client.command("INSERT INTO shop.t SELECT * FROM shop.t WHERE id = 7")
    client.command("TRUNCATE TABLE _tailrace_state")  # it does not know that the batch is done
    sink.close()
    with pytest.raises(StateError, match="has changes twice") as raised:
        sink.write(second)
    assert raised.value.code == "TR-7708"
    assert "has 5 changes of `shop.t`, the table 6 rows" in (raised.value.detail or "")
    statements = (raised.value.hint or "").partition("run ")[2].partition("; then")[0].split("; ")
    assert len(statements) == 3
    client.command(statements[0])
    assert ids(target) == list(range(5))
    with pytest.raises(TransientSinkError, match="lacks changes") as missing:
        sink.write(second)  # the server remembers the blocks
    assert missing.value.code == "TR-7707"
    for statement in statements[1:]:
        client.command(statement)
    sink.write(second)
    assert ids(target) == list(range(10))


def test_window_that_is_too_small_for_a_batch_is_an_error(
    spark: SparkSession, target: Target, sink: ClickHouseLogSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.write(one_cell(spark, 0, range(5)))
    client = target.server.connect()
    client.command("ALTER TABLE shop.t MODIFY SETTING non_replicated_deduplication_window = 5")
    monkeypatch.setattr("tailrace.sinks.clickhouse.log_sink.bucket_count", lambda _: 3)
    with pytest.raises(SinkError, match="remembers too few blocks") as raised:
        sink.write(one_cell(spark, 1, range(5, 10)))
    assert raised.value.code == "TR-7710"
    client.command(raised.value.hint)
    sink.write(one_cell(spark, 1, range(5, 10)))
    assert ids(target) == list(range(10))


TYPES: dict[str, tuple[ColumnType, str, Any, Any]] = {
    "big": (BIGINT, "Nullable(Int64)", -(1 << 63), 7),
    "d": (
        ColumnType(Kind.DECIMAL, "decimal", precision=38, scale=4),
        "Nullable(Decimal(38, 4))",
        Decimal("-1234567890123456789012345678901234.5600"),
        Decimal("0.0001"),
    ),
    "day": (DAY, "Nullable(Date32)", date(1000, 1, 1), date(9999, 12, 31)),
    "span": (ColumnType(Kind.TIME, "time", fraction=6), "Nullable(Int64)", -3_020_399_000_005, 1),
    "data": (ColumnType(Kind.BYTES, "blob"), "Nullable(String)", b"\x00\xff", b""),
    "e": (ColumnType(Kind.ENUM, "enum", labels=("a", "b")), "LowCardinality(Nullable(String))", "a", "b"),
    "many": (ColumnType(Kind.LIST, "_text", element=TEXT), "Nullable(String)", '["a",null]', "[]"),
    "odd `'.\\\n%s": (TEXT, "Nullable(String)", "ü🐟\\'", ""),
}


def test_both_rows_of_an_update_arrive_whole_and_what_the_log_left_out_is_named(
    spark: SparkSession, target: Target, sink: ClickHouseLogSink
) -> None:
    schema = table(("id", INT), *((name, t[0]) for name, t in TYPES.items()), key=("id",))
    given = [
        {"id": 1, **{name: t[n] for name, t in TYPES.items()}}
        | {"span": timedelta(microseconds=TYPES["span"][n]), "many": [["a", None], []][n - 2]}
        for n in (2, 3)
    ]
    null = {"id": 1, **dict.fromkeys(TYPES)}
    found = [("c", None, given[0]), ("u", *given), ("u", given[1], null), ("d", null, None)]
    lacking = replace(
        changes(schema, [("u", given[0], given[1])], first=50),
        absent_after=("d", "e"),
        absent_before=("day",),
    )
    sink.write(cell_batch(spark, 0, [("log", changes(schema, found)), ("log", lacking)]))
    rows = [{"id": 1, **{name: t[n] for name, t in TYPES.items()}} for n in (2, 3)]
    expected = [("c", None, rows[0]), ("u", *rows), ("u", rows[1], null), ("d", null, None), ("u", *rows)]
    assert target.changes("shop.t")[:4] == expected[:4]
    types = {
        row["name"]: row["type"]
        for row in target.select(
            "SELECT name, type FROM system.columns WHERE table = 't' AND database = 'shop'"
        )
    }
    for name, (_, type_, _, _) in TYPES.items():
        assert types[name] == types[f"_before.{name}"] == type_
    (last,) = target.select(
        "SELECT _absent, _absent_before, _op, _ts_ms, _position, _seq FROM shop.t ORDER BY _seq DESC LIMIT 1"
    )
    assert last == {
        "_absent": [b"d", b"e"],
        "_absent_before": [b"day"],
        "_op": "u",
        "_ts_ms": 1_700_000_000_000,
        "_position": "binlog.000001:5000",
        "_seq": f"{100:032x}",
    }
    (old,) = target.select(f"SELECT _before.big AS b, _before.e AS e FROM shop.t WHERE _seq = '{2:032x}'")
    assert old == {"b": TYPES["big"][2], "e": "a"}


def test_row_that_a_column_cannot_hold_goes_into_quarantine_once(
    spark: SparkSession, target: Target, settings: ClickHouseSettings
) -> None:
    """In both modes; the rows of a batch that comes again are put there once."""
    schema = table(("id", INT), ("day", DAY), key=("id",))
    far = {"id": 2, "day": None}
    batch = changes(schema, [("c", None, {"id": i, "day": date(2024, 1, i)}) for i in (1, 2, 3)])
    days = [19_000, 5_000_000, 19_001]  # the second is of the year 15660
    assert batch.after is not None
    after = pa.StructArray.from_arrays(
        [batch.after.field(0), pa.array(days, pa.int32()).cast(pa.date32())], fields=list(schema.arrow)
    )
    batch = replace(batch, after=after)
    for mode, kind in ((WriteMode.CHANGELOG, ClickHouseLogSink), (WriteMode.UPSERT, ClickHouseSink)):
        target.clear()
        chosen = replace(settings, mode=mode, on_refused_row=RefusedRow.QUARANTINE, max_quarantined=1)
        for _ in range(2):
            cells = cell_batch(spark, 0, [("log", batch)])
            opened = kind(chosen, Router([]))
            opened.write(cells)
            opened.close()
            assert cells.quarantined in ({("", "shop.t"): 1}, {})
            target.server.connect().command("TRUNCATE TABLE _tailrace_state")
        assert [r["id"] for r in target.select(f"SELECT id FROM shop.t {'FINAL' * (mode == 'upsert')}")] == [
            1,
            3,
        ]
        held = ClickHouseQuarantine(chosen, STREAM.query)
        (row,) = held.rows()
        op = "u" if mode is WriteMode.UPSERT else "c"
        assert (row.table, row.column, row.op) == ("shop.t", "day", op)
        assert row.position == "binlog.000001:100"
        assert "the years 1 to 9999" in row.reason
        assert row.row is not None
        assert row.row["id"] == far["id"]
        opened = kind(replace(chosen, on_refused_row=RefusedRow.FAIL), Router([]))
        with pytest.raises(SinkError, match="column `day` of target") as raised:
            opened.write(cell_batch(spark, 1, [("log", replace(batch, after=after))]))
        assert raised.value.code == "TR-7006"
        more = changes(schema, [("c", None, {"id": 9, "day": None})], first=30)
        more = replace(more, after=after.slice(1, 1))
        opened = kind(chosen, Router([]))
        with pytest.raises(SinkError, match="more refused rows than") as many:
            opened.write(cell_batch(spark, 1, [("log", more)]))
        assert many.value.code == "TR-7040"
        assert held.clear("shop.t") == 1
        assert held.rows() == []


def test_row_that_the_server_refuses_goes_into_quarantine_by_itself(
    spark: SparkSession, target: Target, settings: ClickHouseSettings
) -> None:
    chosen = replace(settings, mode=WriteMode.UPSERT, on_refused_row=RefusedRow.QUARANTINE)
    sink = ClickHouseSink(chosen, Router([]))
    sink.write(one_cell(spark, 0, range(3)))
    target.server.connect().command("ALTER TABLE shop.t ADD CONSTRAINT c CHECK name != 'secret'")
    rows = created(range(3, 20))
    rows[5] = ("c", None, {"id": 8, "name": "secret"})
    batch = cell_batch(spark, 1, [("log", changes(SCHEMA, rows, first=100))])
    sink.write(batch)
    assert batch.quarantined == {("", "shop.t"): 1}
    assert sorted(row["id"] for row in target.rows("shop.t")) == [i for i in range(20) if i != 8]
    (row,) = ClickHouseQuarantine(chosen, STREAM.query).rows()
    assert (row.key, row.reason) == ({"id": 8}, "the server refuses it: error 469 (VIOLATED_CONSTRAINT)")
    sink.close()


def test_tables_are_laid_out_as_the_settings_say_where_rows_stay_exact(
    spark: SparkSession, target: Target, settings: ClickHouseSettings
) -> None:
    two = table(("id", INT), ("region", TEXT), ("name", TEXT), key=("id", "region"))
    rows = [("c", None, {"id": i, "region": r, "name": r}) for i in (1, 2) for r in "ab"]

    def batch(number: int, name: str) -> CellBatch:
        shape = replace(two, id=replace(two.id, table=name.partition(".")[2]))
        return cell_batch(spark, number, [("log", changes(shape, rows, first=number * 50))])

    chosen = replace(
        settings,
        mode=WriteMode.UPSERT,
        order_by={"shop.a": "region, ID", "shop.b": "name"},
        partition_by={"shop.a": "id % 2", "shop.c": "assumeNotNull(name)"},
        table_settings={"index_granularity": "1024", "merge_with_ttl_timeout": "100"},
        connection_settings={"max_threads": "1"},
    )
    sink = ClickHouseSink(chosen, Router([]))
    sink.write(batch(0, "shop.a"))
    (made,) = target.select(
        "SELECT sorting_key, partition_key, engine_full FROM system.tables WHERE database = 'shop'"
    )
    assert (made["sorting_key"], made["partition_key"]) == ("region, id", "id % 2")
    assert "index_granularity = 1024" in made["engine_full"]
    changed = [("u", r[2], {**r[2], "name": "new"}) for r in rows]
    shape = replace(two, id=replace(two.id, table="a"))
    sink.write(cell_batch(spark, 1, [("log", changes(shape, changed, first=500))]))
    assert [r["name"] for r in target.rows("shop.a")] == ["new"] * 4
    for name, what in (
        ("shop.b", r"cannot be sorted by \(name\)"),
        ("shop.c", "cannot be partitioned by column"),
    ):
        with pytest.raises(SinkError, match=what) as raised:
            sink.write(batch(2, name))
        assert raised.value.code == "TR-7709"
    assert target.rows("shop.c") == []
    sink.close()
    log = ClickHouseLogSink(
        replace(
            chosen,
            mode=WriteMode.CHANGELOG,
            order_by={"shop.d": "region,_seq"},
            partition_by={"shop.d": "id"},
        ),
        Router([]),
    )
    log.write(batch(0, "shop.d"))
    target.server.connect().command("TRUNCATE TABLE _tailrace_state")
    log.write(batch(0, "shop.d"))
    assert len(ids(target, "shop.d")) == 4
    with pytest.raises(StateError, match="it was made with `mode: upsert`") as other:
        log.write(batch(3, "shop.a"))
    assert other.value.code == "TR-6101"
    log.close()


def test_change_log_takes_tables_without_a_key_and_shares_a_target(
    spark: SparkSession, target: Target, settings: ClickHouseSettings
) -> None:
    sink = ClickHouseLogSink(settings, Router([RouteRule(r"shop\..*", "all.rows")]))
    cells = []
    for n, name in enumerate(("shop.t", "shop.u")):
        shape = table(("id", INT), ("name", TEXT), key=(), name=name)
        cells.append(("log", changes(shape, created(range(3), name), first=100 * n)))
    both, one = cell_batch(spark, 0, cells), cell_batch(spark, 0, cells[:1])
    sink.write(both)
    target.server.connect().command("TRUNCATE TABLE _tailrace_state")
    sink.write(one)  # the other table was parked meanwhile
    assert [c[2]["name"] for c in target.changes("all.rows") if c[2]] == ["shop.t"] * 3 + ["shop.u"] * 3
    sink.close()
