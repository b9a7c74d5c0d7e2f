"""What is ClickHouse's own: types, versions that outlive tasks, tables of others, dropped tables, ALTERs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.config.model import RouteRule
from tailrace.config.sinks import ClickHouseSettings
from tailrace.errors import ConfigError, SinkError, StateError, TransientSinkError
from tailrace.model.change import ChangeBatch
from tailrace.model.schema_change import ColumnDropped
from tailrace.model.schema_policy import SchemaPolicy
from tailrace.model.table import Column, TableSchema
from tailrace.model.types import ColumnType, Kind
from tailrace.reader.schema_projection import lacking
from tailrace.sinks.base import CellBatch, StreamId
from tailrace.sinks.clickhouse import standing, tables
from tailrace.sinks.clickhouse.client import ClickHouseClient
from tailrace.sinks.clickhouse.columns import ALL_YEARS, SOME_YEARS
from tailrace.sinks.clickhouse.sink import ClickHouseSink
from tailrace.sinks.clickhouse.sql import Place
from tailrace.sinks.clickhouse.target import Target as TargetTable
from tailrace.sinks.clickhouse.writer import InsertAttempt, InsertWriter
from tailrace.sinks.replica.changes import split_by_bucket
from tailrace.sinks.route import Router
from tailrace.sinks.standing import TargetStanding
from tailrace.sinks.written_tables import WrittenTables
from tailrace.spark.requests import RequestDirectory
from tests.contract.test_far_dates import ROWS as FAR_ROWS
from tests.contract.test_far_dates import SHAPE
from tests.contract.test_former_columns import CHANGED, SNAPSHOT, Batches
from tests.support.cells import STREAM, cell_batch
from tests.support.changes import BIGINT, INT, TEXT, changes, table
from tests.support.clickhouse import ClickHouse
from tests.support.sinks.clickhouse import Target, target_of

SCHEMA = table(("id", INT), ("name", TEXT), key=("id",))


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Target:
    return target_of(request)


@pytest.fixture
def sink(target: Target) -> Iterator[ClickHouseSink]:
    yield (opened := ClickHouseSink(target.settings, Router([])))
    opened.close()


def row(id_: int, name: str | None) -> dict[str, Any]:
    return {"id": id_, "name": name}


def log(*found: tuple[str, Any, Any], first: int = 0) -> ChangeBatch:
    return changes(SCHEMA, found, first)


def created(spark: SparkSession, *rows: dict[str, Any], batch: int = 0) -> CellBatch:
    return cell_batch(spark, batch, [("log", log(*(("c", None, r) for r in rows)))])


def by_id(target: Target, name: str = "shop.t") -> list[dict[str, Any]]:
    return sorted(target.rows(name), key=lambda r: r["id"])


def types_of(target: Target, name: str = "shop.t") -> dict[str, str]:
    found = target.select(
        f"SELECT name, type FROM system.columns WHERE database = 'shop' AND table = '{name[5:]}'"
    )
    return {column["name"]: column["type"] for column in found if not column["name"].startswith("_tailrace")}


def not_null(schema: TableSchema, *names: str) -> TableSchema:
    columns = (Column(c.name, c.type, nullable=c.name not in names) for c in schema.columns)
    return replace(schema, columns=tuple(columns))


# ---- types ----

LIST = ColumnType(Kind.LIST, "_text", element=TEXT)
DATES = ColumnType(Kind.LIST, "_date", element=ColumnType(Kind.DATE, "date"))
TYPES: dict[str, tuple[ColumnType, str, Any]] = {
    "tiny": (ColumnType(Kind.INTEGER, "tinyint", bits=8), "Nullable(Int8)", -128),
    "big": (BIGINT, "Nullable(Int64)", -(1 << 63)),
    "u": (
        ColumnType(Kind.INTEGER, "bigint", bits=64, unsigned=True),
        "Nullable(Decimal(20, 0))",
        Decimal((1 << 64) - 1),
    ),
    "d": (
        ColumnType(Kind.DECIMAL, "decimal", precision=38, scale=4),
        "Nullable(Decimal(38, 4))",
        Decimal("-1234567890123456789012345678901234.5600"),
    ),
    "huge": (ColumnType(Kind.DECIMAL, "decimal", precision=65, scale=1), "Nullable(String)", "9" * 64 + ".5"),
    "f": (ColumnType(Kind.FLOAT, "float"), "Nullable(Float32)", 0.5),
    "g": (ColumnType(Kind.DOUBLE, "double"), "Nullable(Float64)", 1e-300),
    "flag": (ColumnType(Kind.BOOLEAN, "bit", bits=1), "Nullable(Bool)", True),
    "data": (ColumnType(Kind.BYTES, "blob"), "Nullable(String)", b"\x00\xff\n'\\"),
    "bin": (ColumnType(Kind.BYTES, "binary", length=3), "Nullable(String)", b"a\x00\x00"),
    "day": (ColumnType(Kind.DATE, "date"), "Nullable(Date32)", date(1000, 1, 1)),
    "wall": (
        ColumnType(Kind.DATETIME, "datetime", fraction=6),
        "Nullable(DateTime64(6, 'UTC'))",
        datetime(9999, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001 - wall clock
    ),
    "at": (
        ColumnType(Kind.INSTANT, "timestamp", fraction=6),
        "Nullable(DateTime64(6, 'UTC'))",
        datetime(2024, 2, 29, 12, 0, 0, 250_000),  # noqa: DTZ001 - see `_value`
    ),
    "span": (ColumnType(Kind.TIME, "time", fraction=6), "Nullable(Int64)", -3_020_399_000_005),
    "e": (
        ColumnType(Kind.ENUM, "enum", labels=("a", "b c")),
        "LowCardinality(Nullable(String))",
        "b c",
    ),
    "js": (ColumnType(Kind.JSON, "json"), "Nullable(String)", '{"b": 1.0, "a": 1}'),
    "many": (LIST, "Nullable(String)", '["a,\\"\'\\\\",null,""]'),
    "dotted.name": (LIST, "Nullable(String)", "[]"),
    "odd `'\\\"\n%s": (TEXT, "Nullable(String)", "\0\u2028ü🐟\\'"),
}
GIVEN = {"span": timedelta(microseconds=-3_020_399_000_005), "many": ["a,\"'\\", None, ""], "dotted.name": []}


def test_values_of_each_type_arrive_whole_and_null_stays_null(
    spark: SparkSession, target: Target, sink: ClickHouseSink
) -> None:
    schema = table(("id", INT), *((name, type_) for name, (type_, _, _) in TYPES.items()), key=("id",))
    some = {name: GIVEN.get(name, value) for name, (_, _, value) in TYPES.items()}
    some["at"] = some["at"].replace(tzinfo=UTC)
    rows = [{"id": 1, **some}, {"id": 2, **dict.fromkeys(TYPES)}]
    sink.write(cell_batch(spark, 0, [("snapshot", changes(schema, [("r", None, r) for r in rows]))]))
    assert types_of(target) == {"id": "Int64", **{name: held for name, (_, held, _) in TYPES.items()}}
    wanted = {name: value for name, (_, _, value) in TYPES.items()}
    assert by_id(target) == [{"id": 1, **wanted}, {"id": 2, **dict.fromkeys(TYPES)}]
    # what is there is read for rows that lack columns, and written as it was
    partial = changes(schema, [("u", rows[0], {**rows[0], "tiny": 7})], first=50)
    partial = replace(partial, absent_after=tuple(name for name in TYPES if name != "tiny"))
    sink.write(cell_batch(spark, 1, [("log", partial)]))
    assert by_id(target)[0] == {"id": 1, **wanted, "tiny": 7}


def test_lists_that_cannot_be_null_are_arrays(
    spark: SparkSession, target: Target, sink: ClickHouseSink
) -> None:
    spans = ColumnType(Kind.LIST, "_time", element=ColumnType(Kind.TIME, "time", fraction=6))
    columns = {"l": LIST, "days": DATES, "v": ColumnType(Kind.VECTOR, "vector", length=3), "s": spans}
    schema = not_null(table(("id", INT), *columns.items(), key=("id",)), *columns)
    given = {"l": ["a", None, ""], "days": [date(2024, 2, 29)], "v": [0.5, -1.5], "s": [timedelta(hours=1)]}
    rows = [{"id": 1, **given}, {"id": 2, **{name: [] for name in columns}}]
    sink.write(cell_batch(spark, 0, [("snapshot", changes(schema, [("r", None, r) for r in rows]))]))
    assert types_of(target) == {
        "id": "Int64",
        "l": "Array(Nullable(String))",
        "days": "Array(Nullable(Date32))",
        "v": "Array(Nullable(Float32))",
        "s": "Array(Nullable(Int64))",
    }
    found = by_id(target)
    assert found[0] == {"id": 1, **given, "l": [b"a", None, b""], "s": [3_600_000_000]}
    assert found[1] == rows[1]
    partial = changes(schema, [("u", rows[0], {**rows[0], "v": [9.0]})], first=50)
    sink.write(cell_batch(spark, 1, [("log", replace(partial, absent_after=("l", "days", "s")))]))
    assert by_id(target)[0] == {**found[0], "v": [9.0]}
    # no array is NULL, so the column cannot follow
    loose = changes(
        replace(schema, columns=table(("id", INT), *columns.items(), key=("id",)).columns),
        [("c", None, rows[0])],
        first=60,
    )
    with pytest.raises(SinkError, match="no array is NULL") as raised:
        sink.write(cell_batch(spark, 2, [("log", loose)]))
    assert raised.value.code == "TR-7001"


def test_arrays_are_empty_in_rows_that_were_selected_without_them(
    spark: SparkSession, target: Target, sink: ClickHouseSink
) -> None:
    """The source dropped the column between the plan of a batch and the SELECT of its rows."""
    schema = not_null(table(("id", INT), ("l", LIST), ("n", INT), key=("id",)), "l", "n")
    rows = [{"id": i, "l": ["a"], "n": i} for i in range(4)]
    sink.write(cell_batch(spark, 0, [("snapshot", changes(schema, [("r", None, rows[0])]))]))
    some = [("r", None, rows[1]), ("r", None, {"id": 2, "l": None, "n": None})]  # one was rewound
    sink.write(cell_batch(spark, 1, [("snapshot", changes(lacking(schema, {"l", "n"}), some, first=10))]))
    after = table(("id", INT), key=("id",))
    sink.write(cell_batch(spark, 2, [("log", changes(after, [("c", None, {"id": 3})], first=20))]))
    arrays = [[b"a"], [b"a"], [], []]
    assert by_id(target) == [
        {"id": i, "l": listed, "n": n}
        for i, (listed, n) in enumerate(zip(arrays, [0, 1, None, None], strict=True))
    ]
    assert types_of(target) == {"id": "Int64", "l": "Array(Nullable(String))", "n": "Nullable(Int32)"}
    # a NULL that the source may hold is no empty list
    refused = changes(schema, [("c", None, {"id": 4, "l": None, "n": 4})], first=30)
    with pytest.raises(SinkError, match=r"column `l` .* it is NULL") as raised:
        sink.write(cell_batch(spark, 3, [("log", refused)]))
    assert raised.value.code == "TR-7006"
    mixed = [
        changes(lacking(schema, {"l"}), [("r", None, {"id": 5, "l": None, "n": 5})], first=40),
        changes(table(("id", INT), ("l", LIST), ("n", INT), key=("id",)), [("r", None, rows[1])], first=50),
    ]
    with pytest.raises(SinkError, match="no array is NULL"):
        sink.write(cell_batch(spark, 3, [("snapshot", part) for part in mixed]))


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_date_that_no_column_holds_is_refused_by_name_and_position(
    spark: SparkSession, target: Target, sink: ClickHouseSink, number: int
) -> None:
    """ClickHouse itself would write another date."""
    batch = changes(SHAPE, [("c", None, FAR_ROWS[4]), ("c", None, FAR_ROWS[number])])
    with pytest.raises(
        SinkError, match=r"column `day` of target `shop\.t`: the date is none of the years"
    ) as raised:
        sink.write(cell_batch(spark, 0, [("log", batch)]))
    assert raised.value.code == "TR-7006"
    assert "table `shop.t` at binlog.000001:100" in (raised.value.detail or "")
    assert target.rows("shop.t") == []


def test_dates_in_arrays_are_refused_too(spark: SparkSession, target: Target, sink: ClickHouseSink) -> None:
    schema = not_null(table(("id", INT), ("days", DATES), key=("id",)), "days")
    fine = {"id": 1, "days": [date(1, 1, 1), None, date(9999, 12, 31)]}
    far = pa.array([[0], [None, 2_932_897]], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))
    batch = changes(schema, [("c", None, fine), ("c", None, fine | {"id": 2})])
    sink.write(cell_batch(spark, 0, [("log", batch)]))
    assert by_id(target)[0] == fine
    assert batch.after is not None
    after = pa.StructArray.from_arrays([batch.after.field(0), far], fields=list(schema.arrow))
    with pytest.raises(SinkError, match="the years 1 to 9999") as raised:
        sink.write(cell_batch(spark, 1, [("log", replace(batch, after=after))]))
    assert "at binlog.000001:100" in (raised.value.detail or "")


def test_servers_say_which_dates_they_hold(target: Target, sink: ClickHouseSink) -> None:
    sink._open()
    assert sink._years == ALL_YEARS
    for years in (ALL_YEARS, SOME_YEARS):
        days = [years.first - 1, years.first, None, years.last, years.last + 1]
        array = pa.array(days, pa.int32()).cast(pa.date32())
        assert years.unfit(array).to_pylist() == [True, False, None, False, True]
        moments = pa.array([day and day * 86_400_000_000 for day in days], pa.int64()).cast(
            pa.timestamp("us")
        )
        assert years.unfit(moments).to_pylist() == [True, False, None, False, True]
    assert (date(1900, 1, 1) - date(1970, 1, 1)).days == SOME_YEARS.first
    assert (date(2299, 12, 31) - date(1970, 1, 1)).days == SOME_YEARS.last


def test_null_in_a_column_that_has_none_is_refused(
    spark: SparkSession, target: Target, sink: ClickHouseSink
) -> None:
    """ClickHouse itself would write an empty text."""
    schema = not_null(SCHEMA, "name")
    batch = changes(schema, [("c", None, row(1, "a")), ("c", None, row(2, None))])
    with pytest.raises(SinkError, match=r"column `name` .* it is NULL, and the column is NOT NULL"):
        sink.write(cell_batch(spark, 0, [("log", batch)]))
    assert target.rows("shop.t") == []


KEYS: dict[str, tuple[ColumnType, list[Any]]] = {
    "text": (TEXT, ["", "a", "A", "ß'`\"\\n\n\0", "1"]),
    "bytes": (ColumnType(Kind.BYTES, "binary", length=4), [b"", b"\x00\xff\n", b"'\\"]),
    "decimal": (
        ColumnType(Kind.DECIMAL, "decimal", precision=30, scale=3),
        [Decimal("1.500"), Decimal("-0.001")],
    ),
    "date": (ColumnType(Kind.DATE, "date"), [date(1, 1, 1), date(2024, 2, 29)]),
    "moment": (
        ColumnType(Kind.INSTANT, "timestamp", fraction=6),
        [datetime(1969, 12, 31, 23, 59, 59, 1, UTC), datetime(2024, 2, 29, tzinfo=UTC)],
    ),
    "time": (ColumnType(Kind.TIME, "time", fraction=6), [timedelta(microseconds=-5), timedelta(hours=99)]),
    "float": (ColumnType(Kind.FLOAT, "float"), [0.1, -1e30]),
    "double": (ColumnType(Kind.DOUBLE, "double"), [0.1, 1e-300]),
    "flag": (ColumnType(Kind.BOOLEAN, "bit", bits=1), [False, True]),
    "enum": (ColumnType(Kind.ENUM, "enum", labels=("a", "b")), ["a", "b"]),
}


def test_rows_of_each_type_of_key_are_changed_completed_and_deleted(
    spark: SparkSession, target: Target, sink: ClickHouseSink
) -> None:
    """One stream with a table for each type, beside a second column of the key."""
    shapes = {
        name: table(
            ("k0", type_), ("id", INT), ("a", TEXT), ("n", TEXT), key=("k0", "id"), name=f"shop.{name}"
        )
        for name, (type_, _) in KEYS.items()
    }
    rows = {
        name: [{"k0": k, "id": i, "a": "a", "n": f"n{i}"} for i, k in enumerate(values)]
        for name, (_, values) in KEYS.items()
    }

    def of_keys(name: str) -> list[dict[str, Any]]:
        return target.select(f"SELECT id, a, n FROM shop.`{name}` FINAL ORDER BY id")  # type: ignore[return-value]

    cells = [("snapshot", changes(shapes[n], [("r", None, r) for r in rows[n]])) for n in KEYS]
    sink.write(cell_batch(spark, 0, cells))
    changed = [
        changes(shapes[n], [("u", r, {**r, "a": "new", "n": None}) for r in rows[n]], first=100) for n in KEYS
    ]
    sink.write(cell_batch(spark, 1, [("log", replace(part, absent_after=("n",))) for part in changed]))
    for name, listed in rows.items():
        assert of_keys(name) == [{"id": r["id"], "a": "new", "n": r["n"]} for r in listed]
    gone = [changes(shapes[n], [("d", rows[n][0], None)], first=200) for n in KEYS]
    sink.write(cell_batch(spark, 2, [("log", part) for part in gone]))
    for name, listed in rows.items():
        assert [r["id"] for r in of_keys(name)] == list(range(1, len(listed)))


# ---- versions and streams ----


def stale(target: Target, batch: int) -> tuple[InsertWriter, TargetTable]:
    """A writer of an earlier batch, or attempt."""
    client = ClickHouseClient(target.settings)
    found = tables.find(client, Place("default"), "shop.t", STREAM)
    assert found is not None
    return InsertWriter(InsertAttempt(client, {"shop.t": found}, batch, ALL_YEARS), "shop.t"), found


def test_tasks_of_earlier_batches_and_attempts_change_nothing(
    spark: SparkSession, target: Target, sink: ClickHouseSink
) -> None:
    sink.write(created(spark, row(1, "a"), row(2, "a"), row(3, "a")))
    second = log(("u", row(1, "a"), row(1, "b")), ("d", row(2, "a"), None), first=50)
    sink.write(cell_batch(spark, 1, [("log", second)]))
    wanted = [row(1, "b"), row(3, "a")]
    writer, found = stale(target, 0)

    def bucket(batch: ChangeBatch) -> list[Any]:
        return [rows for _, rows in split_by_bucket(batch, found.schema, 1)]

    writer.write_changes(bucket(log(*(("c", None, row(i, "a")) for i in (1, 2, 3)))))  # the deleted key, too
    assert by_id(target) == wanted
    stale(target, 1)[0].write_changes(bucket(second))
    assert by_id(target) == wanted
    partial = replace(log(*(("u", row(i, ""), row(i, "")) for i in (1, 2)), first=60), absent_after=("name",))
    writer.write_changes(bucket(partial))
    assert by_id(target) == wanted
    # as merges leave it
    target.server.connect().command("OPTIMIZE TABLE shop.t FINAL")
    writer.write_changes(bucket(log(("c", None, row(2, "a")))))
    assert by_id(target) == wanted


def test_stream_with_a_new_checkpoint_does_not_lose_its_batches_in_an_old_table(
    spark: SparkSession, target: Target, sink: ClickHouseSink
) -> None:
    """Its batches begin at 0 again: all would be older than the rows that are there, in silence."""
    sink.write(created(spark, row(1, "a"), batch=7))
    new = StreamId("test", "22222222-2222-3333-4444-555555555555")
    batch = cell_batch(spark, 0, [("log", log(("c", None, row(1, "new"))))], new)
    for notes in (True, False):
        if not notes:  # what says whose a table is is in the table itself
            target.server.connect().command("DROP TABLE default._tailrace_state")
        with pytest.raises(StateError, match="is not this stream's") as raised:
            ClickHouseSink(target.settings, Router([])).write(batch)
        assert raised.value.code == "TR-6101"
        assert target.rows("shop.t") == [row(1, "a")]
    target.drop("shop.t")
    ClickHouseSink(target.settings, Router([])).write(batch)
    assert target.rows("shop.t") == [row(1, "new")]


def test_newest_batch_is_known_without_what_is_noted(
    spark: SparkSession, target: Target, sink: ClickHouseSink
) -> None:
    """By which a checkpoint is refused that is older than the target."""
    pipeline = (target.settings, Router([]), [SCHEMA.id])
    other = StreamId("test", "22222222-2222-3333-4444-555555555555")
    assert standing.targets(*pipeline, STREAM) == {}
    sink.write(created(spark, row(1, "a"), batch=7))
    sink.write(cell_batch(spark, 9, [("log", log(("d", row(1, "a"), None)))]))
    for _ in range(2):
        assert standing.targets(*pipeline, STREAM) == {"shop.t": TargetStanding(9)}
        assert standing.targets(*pipeline, other) == {}
        target.server.connect().command("DROP TABLE IF EXISTS default._tailrace_state")
    target.server.connect().command("TRUNCATE TABLE shop.t")
    assert standing.targets(*pipeline, STREAM) == {}


@pytest.mark.parametrize("comment", ["", " COMMENT 'Tailrace is what fills it'"])
def test_table_that_tailrace_did_not_make_is_not_touched(
    spark: SparkSession, target: Target, sink: ClickHouseSink, comment: str
) -> None:
    client = target.server.connect()
    client.command("CREATE DATABASE shop")
    client.command(f"CREATE TABLE shop.t (id Int64, name String) ENGINE = MergeTree ORDER BY id{comment}")
    with pytest.raises(StateError, match="which Tailrace did not make"):
        sink.write(created(spark, row(1, "a")))
    assert client.command("SELECT count() FROM shop.t") == 0


def test_table_of_another_engine_is_not_written(
    spark: SparkSession, target: Target, sink: ClickHouseSink
) -> None:
    """As a server makes it whose databases are replicated: replicas may not have what was just written."""
    sink.write(created(spark, row(1, "a")))
    client = target.server.connect()
    comment = client.query("SELECT comment FROM system.tables WHERE name = 't'").result_rows[0][0]
    client.command("DROP TABLE shop.t")
    columns = "id Int64, name Nullable(String), _tailrace_version UInt64, _tailrace_deleted UInt8"
    quoted = comment.replace("\\", "\\\\").replace("'", "\\'")
    client.command(f"CREATE TABLE shop.t ({columns}) ENGINE = MergeTree ORDER BY id COMMENT '{quoted}'")
    with pytest.raises(SinkError, match="is a table of engine MergeTree") as raised:
        ClickHouseSink(target.settings, Router([])).write(created(spark, row(2, "a"), batch=1))
    assert raised.value.code == "TR-7705"
    assert client.command("SELECT count() FROM shop.t") == 0


def test_column_that_somebody_has_altered_is_not_written(
    spark: SparkSession, target: Target, sink: ClickHouseSink
) -> None:
    """ClickHouse would convert values, and write NULL or others where it cannot."""
    sink.write(created(spark, row(1, "1")))
    client = target.server.connect()
    client.command(
        "ALTER TABLE shop.t ADD COLUMN theirs Int64, MODIFY COLUMN name LowCardinality(Nullable(String))"
    )
    sink.close()
    sink.write(created(spark, row(2, "b"), batch=1))
    assert [r["name"] for r in by_id(target)] == ["1", "b"]
    client.command("ALTER TABLE shop.t DROP COLUMN theirs, MODIFY COLUMN name Nullable(FixedString(1))")
    sink.close()
    with pytest.raises(SinkError, match=r"column `name` of target `shop\.t` was altered") as raised:
        sink.write(created(spark, row(3, "c"), batch=2))
    assert (raised.value.code, raised.value.table) == ("TR-7706", "shop.t")
    client.command("ALTER TABLE shop.t DROP COLUMN name")
    with pytest.raises(SinkError, match=r"column `name` of target `shop\.t` was altered"):
        sink.write(created(spark, row(3, "c"), batch=2))
    assert [r["id"] for r in by_id(target)] == [1, 2]


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("gone", ["TABLE shop.t", pytest.param("DATABASE shop", marks=pytest.mark.slow)])
def test_table_that_was_dropped_is_made_again_and_its_table_read_again(
    spark: SparkSession, target: Target, sink: ClickHouseSink, tmp_path: Any, *, is_known: bool, gone: str
) -> None:
    """By the sink that has written it, which finds out in a task, and by a new one."""
    tables_ = WrittenTables(str(tmp_path), str(tmp_path / "requests"), lambda _: None)
    tables_.note(0, [SCHEMA.id], [str(SCHEMA.id)])

    def given(batch: CellBatch) -> CellBatch:
        end = {"v": 2, "mode": "initial", "log": {}, "done": {"shop.t": 1}}
        return replace(batch, written_tables=tables_, end=end)

    sink.write(given(created(spark, row(1, "a"))))
    target.server.connect().command(f"DROP {gone}")
    opened = sink if is_known else ClickHouseSink(target.settings, Router([]))
    opened.write(given(created(spark, row(2, "b"), batch=1)))
    assert target.rows("shop.t") == [row(2, "b")]
    (request,) = RequestDirectory(str(tmp_path / "requests")).pending()
    assert list(request.tables) == ["shop.t"]


# ---- names ----


@pytest.mark.parametrize("name", ["db.", "x" * 201, "shop." + "ü" * 40])
def test_name_that_no_table_can_have_is_refused(name: str) -> None:
    sink = ClickHouseSink(ClickHouseSettings("http://127.0.0.1:1"), Router([RouteRule("shop.t", name)]))
    with pytest.raises(ConfigError, match="cannot be the name of a table") as raised:
        sink.claim([SCHEMA.id])
    assert raised.value.code == "TR-1507"


@pytest.mark.parametrize(
    "name", ["system.t", "INFORMATION_SCHEMA.t", "_tailrace_state", "default._tailrace_x"]
)
def test_tables_of_the_server_and_our_own_are_no_targets(name: str) -> None:
    sink = ClickHouseSink(ClickHouseSettings("http://127.0.0.1:1"), Router([RouteRule("shop.t", name)]))
    with pytest.raises(ConfigError, match="cannot be written") as raised:
        sink.claim([SCHEMA.id])
    assert raised.value.code == "TR-1509"


@pytest.mark.parametrize("name", ["plain", "shop.a.b c", "sh`o'p\\.t`'\\\n%(x)s{x:String}", "ß.ü"])
def test_targets_may_have_any_other_name(spark: SparkSession, target: Target, name: str) -> None:
    sink = ClickHouseSink(target.settings, Router([RouteRule("shop.t", name)]))
    for number in range(2):
        sink.write(created(spark, row(number, name), batch=number))
        sink.close()
    assert by_id(target, name) == [row(0, name), row(1, name)]


def test_names_that_differ_in_case_only_are_two_tables(
    spark: SparkSession, target: Target, sink: ClickHouseSink
) -> None:
    upper = replace(SCHEMA, id=replace(SCHEMA.id, table="T"))
    cells = [("log", log(("c", None, row(1, "a")))), ("log", changes(upper, [("c", None, row(1, "A"))]))]
    sink.write(cell_batch(spark, 0, cells))
    assert (target.rows("shop.t"), target.rows("shop.T")) == ([row(1, "a")], [row(1, "A")])


@pytest.mark.parametrize("name", ["_part", "_TAILRACE_VERSION", "_tailrace_deleted", "_row_exists"])
def test_column_with_a_name_that_clickhouse_or_tailrace_needs_is_refused(
    spark: SparkSession, sink: ClickHouseSink, name: str
) -> None:
    odd = table(("id", INT), (name, TEXT), key=("id",))
    with pytest.raises(SinkError, match=f"column `{name}` of table") as raised:
        sink.write(cell_batch(spark, 0, [("log", changes(odd, [("c", None, {"id": 1, name: "x"})]))]))
    assert raised.value.code == "TR-7005"


# ---- schema changes ----


@pytest.mark.parametrize("key", ["other", "type"])
def test_another_key_is_refused(spark: SparkSession, target: Target, sink: ClickHouseSink, key: str) -> None:
    sink.write(created(spark, row(1, "a")))
    unsigned = ColumnType(Kind.INTEGER, "bigint", bits=64, unsigned=True)
    type_, named, value = (INT, "name", 1) if key == "other" else (unsigned, "id", Decimal(1))
    other = table(("id", type_), ("name", TEXT), key=(named,))
    batch = cell_batch(spark, 1, [("log", changes(other, [("c", None, {"id": value, "name": "a"})]))])
    with pytest.raises(SinkError, match="the key has changed") as raised:
        sink.write(batch)
    assert (raised.value.code, raised.value.table) == ("TR-7002", "shop.t")
    assert target.rows("shop.t") == [row(1, "a")]


def test_columns_become_wider_with_the_values_that_they_have(
    spark: SparkSession, target: Target, sink: ClickHouseSink
) -> None:
    def decimal(precision: int, scale: int) -> ColumnType:
        return ColumnType(Kind.DECIMAL, "decimal", precision=precision, scale=scale)

    unsigned = ColumnType(Kind.INTEGER, "bigint", bits=64, unsigned=True)
    wall, day = ColumnType(Kind.DATETIME, "datetime", fraction=6), ColumnType(Kind.DATE, "date")
    enum = ColumnType(Kind.ENUM, "enum", labels=("a",))
    widened: dict[str, tuple[ColumnType, Any, ColumnType, Any, Any]] = {
        "i": (INT, -(1 << 31), BIGINT, -(1 << 31), 1 << 62),
        "u": (INT, -7, unsigned, Decimal(-7), Decimal((1 << 64) - 1)),
        "f": (ColumnType(Kind.FLOAT, "float"), 0.5, ColumnType(Kind.DOUBLE, "double"), 0.5, 1e-300),
        "d": (
            decimal(10, 2),
            Decimal("-1.25"),
            decimal(30, 5),
            Decimal("-1.25"),
            Decimal("1" * 25 + ".00001"),
        ),
        "day": (day, date(1, 1, 1), wall, datetime(1, 1, 1), datetime(2024, 2, 29, 1, 2, 3, 4)),  # noqa: DTZ001
        "e": (enum, "a", TEXT, "a", "any"),
        "n": (TEXT, "x", TEXT, "x", None),
    }
    before = table(("id", INT), *((name, w[0]) for name, w in widened.items()), key=("id",))
    after = table(("id", BIGINT), *((name, w[2]) for name, w in widened.items()), ("new", TEXT), key=("id",))
    old = {"id": 1, **{name: w[1] for name, w in widened.items()}}
    new = {"id": 1 << 40, **{name: w[4] for name, w in widened.items()}, "new": "x"}
    first = changes(
        not_null(before, "n"), [("r", None, old), ("r", None, dict.fromkeys(old) | {"id": 2, "n": ""})]
    )
    sink.write(cell_batch(spark, 0, [("snapshot", first)]))
    for number in (1, 1):  # it comes again, to another process
        sink.close()
        later = changes(after, [("c", None, new)], first=50)
        sink.write(cell_batch(spark, number, [("log", later)]))
        assert by_id(target) == [
            {"id": 1, **{name: w[3] for name, w in widened.items()}, "new": None},
            {**dict.fromkeys(new), "id": 2, "n": ""},
            new,
        ]
    assert list(types_of(target)) == [*old, "new"]
    text = table(("id", BIGINT), ("i", TEXT), key=("id",))
    with pytest.raises(SinkError, match="column `i` of target") as raised:
        sink.write(
            cell_batch(spark, 2, [("log", changes(text, [("c", None, {"id": 5, "i": "x"})], first=90))])
        )
    assert raised.value.code == "TR-7001"


def test_column_that_something_in_the_table_needs_is_an_error_or_stays(
    spark: SparkSession, target: Target, sink: ClickHouseSink
) -> None:
    Batches(spark, [sink], SchemaPolicy()).write(
        0, [("snapshot", changes(table(("id", INT), ("a", INT), ("b", INT), key=("id",)), SNAPSHOT))]
    )
    client = target.server.connect()
    client.command("ALTER TABLE shop.t ADD COLUMN g Nullable(Int64) MATERIALIZED b + 1")
    with pytest.raises(SinkError) as raised:
        Batches(spark, [sink], SchemaPolicy()).write(1, [], *CHANGED)
    assert (raised.value.code, raised.value.table) == ("TR-7038", "shop.t")
    Batches(spark, [sink], SchemaPolicy("try_evolve")).write(1, [], *CHANGED)
    assert by_id(target) == [{"id": 1, "n": 10, "b": 1}, {"id": 2, "n": 20, "b": 2}]
    client.command("ALTER TABLE shop.t DROP COLUMN g")
    Batches(spark, [sink], SchemaPolicy()).write(2, [], ColumnDropped("b"))
    assert by_id(target) == [{"id": 1, "n": 10}, {"id": 2, "n": 20}]


def test_table_of_very_many_columns_has_them_all(
    spark: SparkSession, target: Target, sink: ClickHouseSink
) -> None:
    """Its statements are longer than those that ClickHouse reads by default."""
    names = [f"column_{n:03}_{'x' * 40}" for n in range(900)]
    wide = table(("id", INT), *((name, TEXT) for name in names), key=("id",))
    rows = [{"id": 1, **dict.fromkeys(names, "v")}]
    sink.write(cell_batch(spark, 0, [("log", changes(SCHEMA, [("c", None, row(2, "a"))]))]))
    sink.write(cell_batch(spark, 1, [("log", changes(wide, [("c", None, r) for r in rows], first=50))]))
    assert by_id(target)[0] == {**rows[0], "name": None}


# ---- a server that refuses, or is away ----


def test_error_of_an_insert_shows_no_value(spark: SparkSession, target: Target, sink: ClickHouseSink) -> None:
    sink.write(created(spark, row(1, "a")))
    target.server.connect().command("ALTER TABLE shop.t ADD CONSTRAINT c CHECK name != 'secret'")
    with pytest.raises(SinkError, match="ClickHouse refuses a statement") as raised:
        sink.write(created(spark, row(2, "secret"), batch=1))
    assert raised.value.code == "TR-7703"
    assert "secret" not in str(raised.value)
    assert raised.value.detail == "error 469 (VIOLATED_CONSTRAINT)"
    assert target.rows("shop.t") == [row(1, "a")]


def test_server_that_is_away_is_an_error_that_passes(
    spark: SparkSession, target: Target, sink: ClickHouseSink
) -> None:
    settings = ClickHouseSettings("http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(TransientSinkError, match="ClickHouse does not answer") as raised:
        ClickHouseSink(settings, Router([])).write(created(spark, row(1, "a")))
    assert raised.value.code == "TR-7701"


@pytest.mark.slow
def test_rows_are_exact_though_the_server_is_killed_while_they_are_written(
    spark: SparkSession, tmp_path: Any
) -> None:
    rows = [row(i, "x" * 50) for i in range(50_000)]
    batch = cell_batch(spark, 0, [("log", log(*(("c", None, r) for r in rows)))])
    codes = []
    with ClickHouse(tmp_path) as server:
        target = Target(server)
        for delay in (0.5, 0.8, 1.2, 1.6, 2.2, 3, 0):
            sink = ClickHouseSink(target.settings, Router([]))
            timer = threading.Timer(delay, server.kill)
            if delay:
                timer.start()
            try:
                sink.write(batch)
            except TransientSinkError as error:
                codes.append(error.code)
            timer.cancel()
            if delay:
                timer.join()
                server.kill()
                server.start()
        assert len(codes) > 1
        assert set(codes) == {"TR-7701"}
        assert by_id(target) == rows
        found = target.select("SELECT engine_full FROM system.tables WHERE name = 't'")
        assert "fsync_after_insert = 1, fsync_part_directory = 1" in found[0]["engine_full"]


@pytest.mark.parametrize(
    ("code", "ours"), [(516, "TR-7702"), (497, "TR-7702"), (252, "TR-7701"), (60, "TR-7704"), (47, "TR-7703")]
)
def test_codes_of_the_server_are_conditions_of_ours(
    monkeypatch: pytest.MonkeyPatch, target: Target, code: int, ours: str
) -> None:
    client = ClickHouseClient(target.settings)
    with pytest.raises(SinkError) as raised:
        client.run(
            f"SELECT throwIf(1, 'no', toInt16({code})) SETTINGS allow_custom_error_code_in_throwif = 1"
        )
    assert raised.value.code == ours
    assert f"error {code}" in (raised.value.detail or "")


@pytest.mark.parametrize("url", ["tcp://h:9000", "http://u:p@h", "http://h/db", "h:8123", "http://h:x"])
def test_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"sink\.url") as raised:
        ClickHouseSettings(url)
    assert "p@" not in str(raised.value)
