"""Database replicas with real Spark and servers, fed with batches made by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.sink_settings import RefusedRow
from tailrace.config.sinks import ExistingTables, ReplicaTransaction
from tailrace.errors import SinkError, StateError, TransientSinkError
from tailrace.failpoints import VARIABLE, InjectedError
from tailrace.model.change import ChangeBatch
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.base import CellBatch
from tailrace.sinks.replica import plan
from tailrace.sinks.replica.ledger import Ledger
from tailrace.sinks.replica.mysql import MySqlDialect
from tailrace.sinks.replica.sink import ReplicaSink
from tailrace.sinks.replica.standing import ReplicaQuarantine
from tailrace.sinks.route import Router
from tests.support.cells import STREAM, cell_batch
from tests.support.changes import DECIMAL, INT, TEXT, changes, table
from tests.support.databases import global_variable
from tests.support.sinks.replica import Target, replica_target

SCHEMA = table(("id", INT), ("name", TEXT), ("price", DECIMAL), key=("id",))
OTHER = table(("id", INT), ("name", TEXT), ("price", DECIMAL), key=("id",), name="shop.u")
PARTS, WHOLE = ReplicaTransaction
CASES = [
    ("mysql", PARTS),
    ("postgres", WHOLE),
    pytest.param(("mysql", WHOLE), marks=pytest.mark.slow),
    pytest.param(("postgres", PARTS), marks=pytest.mark.slow),
    pytest.param(("mariadb", WHOLE), marks=pytest.mark.slow),
]


def row(id_: int, name: str = "x", price: str = "1.50") -> dict[str, Any]:
    return {"id": id_, "name": name, "price": Decimal(price)}


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Target:
    return replica_target(request, *getattr(request, "param", ("mysql", PARTS)))


def write(target: Target, *batches: CellBatch, **settings: Any) -> None:
    sink = ReplicaSink(replace(target.settings, **settings), Router([]))
    try:
        for batch in batches:
            sink.write(batch)
    finally:
        sink.close()


def ids(target: Target, name: str = "shop.t") -> list[int]:
    return sorted(r["id"] for r in target.rows(name))


def snapshot(spark: SparkSession) -> CellBatch:
    cells = [
        ("snapshot", changes(schema, [("r", None, row(1)), ("r", None, row(2))]))
        for schema in (SCHEMA, OTHER)
    ]
    return cell_batch(spark, 0, cells)


def with_bad_row(spark: SparkSession) -> CellBatch:
    """Fifty rows, of which number 33 is refused; some in the other table; a delete."""
    rows = [("c", None, row(i, "y", "77.00" if i == 33 else "1.00")) for i in range(10, 60)]
    log = changes(SCHEMA, [*rows, ("d", row(1), None)], first=100)
    return cell_batch(spark, 1, [("log", log), ("log", changes(OTHER, [("c", None, row(3))], first=200))])


def updates(ids: Iterable[int], name: str, lacking: tuple[str, ...], first: int) -> ChangeBatch:
    """Updates that lack columns; the row of id 33 is refused if it has its price."""
    rows = [row(i, name, "77.00" if i == 33 else "2.00") for i in ids]
    logged = [{n: None if n in lacking else v for n, v in after.items()} for after in rows]
    listed = [("u", row(after["id"]), after) for after in logged]
    return replace(changes(SCHEMA, listed, first=first), absent_after=lacking)


def constrain(target: Target) -> None:
    target.execute("ALTER TABLE shop.t ADD CONSTRAINT cheap CHECK (price < 50)")


@pytest.mark.parametrize("target", CASES, indirect=True, ids=str)
def test_refused_row_ends_the_stream_by_its_position_and_without_its_values(
    spark: SparkSession, target: Target
) -> None:
    write(target, snapshot(spark))
    constrain(target)
    with pytest.raises(SinkError) as refused:
        write(target, with_bad_row(spark))
    error = refused.value
    assert "refused by target `shop.t`: a CHECK constraint" in error.message
    assert error.code == "TR-7006"
    assert error.detail == "the row is of table `shop.t` at binlog.000001:12300"
    assert "77" not in str(error)
    assert ids(target) == [1, 2]


@pytest.mark.parametrize("target", CASES, indirect=True, ids=str)
def test_refused_row_is_set_aside_and_all_others_flow(spark: SparkSession, target: Target) -> None:
    write(target, snapshot(spark))
    constrain(target)
    batch = with_bad_row(spark)
    write(target, batch, on_refused_row=RefusedRow.QUARANTINE)
    write(target, batch, on_refused_row=RefusedRow.QUARANTINE)
    assert ids(target) == [2, *(i for i in range(10, 60) if i != 33)]
    assert ids(target, "shop.u") == [1, 2, 3]
    (found,) = target.rows("_tailrace_quarantine")
    assert (found["target"], found["source"], found["batch"], found["op"]) == ("shop.t", "shop.t", 1, "u")
    assert (found["position"], json.loads(found["row_key"])) == ("binlog.000001:12300", {"id": 33})
    assert json.loads(found["change_row"]) == {"id": 33, "name": "y", "price": "77.00"}
    assert target.staged() == []


@pytest.mark.parametrize("target", CASES, indirect=True, ids=str)
def test_refused_update_that_lacks_columns_is_set_aside_with_those_it_has(
    spark: SparkSession, target: Target
) -> None:
    rows = [("r", None, row(i)) for i in range(30, 50)]
    write(target, cell_batch(spark, 0, [("snapshot", changes(SCHEMA, rows))]))
    constrain(target)
    cells = [("log", updates(range(25, 45), "y", ("name",), 100))]
    cells.append(("log", updates(range(40, 55), "z", ("price",), 200)))
    write(target, cell_batch(spark, 1, cells), on_refused_row=RefusedRow.QUARANTINE)
    held = {r["id"]: (r["name"], str(r["price"])) for r in target.rows("shop.t")}
    assert held == {
        **{i: ("x", "1.50" if i == 33 else "2.00") for i in range(30, 40)},
        **{i: ("z", "2.00" if i < 45 else "1.50") for i in range(40, 50)},
    }
    (found,) = target.rows("_tailrace_quarantine")
    assert (found["op"], found["position"]) == ("u", "binlog.000001:10800")
    assert json.loads(found["change_row"]) == {"id": 33, "price": "77.00"}
    assert target.staged() == []


@pytest.mark.parametrize("target", CASES, indirect=True, ids=str)
def test_more_refused_rows_than_may_be_put_aside_are_an_error_of_their_table(
    spark: SparkSession, target: Target
) -> None:
    def batch(number: int, *bad: int) -> CellBatch:
        rows = [("c", None, row(100 * number + i, "y", "77.00" if i in bad else "1.00")) for i in range(9)]
        return cell_batch(spark, number, [("log", changes(SCHEMA, rows, first=100 * number))])

    settings = {"on_refused_row": RefusedRow.QUARANTINE, "max_quarantined": 2}
    write(target, snapshot(spark))
    constrain(target)
    write(target, batch(1, 4, 7), **settings)
    for _ in range(2):
        with pytest.raises(SinkError, match="more refused rows than `max-quarantined`") as full:
            write(target, batch(2, 5), **settings)
        assert (full.value.code, full.value.table) == ("TR-7040", "shop.t")
    quarantine = ReplicaQuarantine(target.settings, "mysql", STREAM.query)
    found = list(quarantine.rows())
    assert [(r.table, r.target, r.batch, r.code, r.key) for r in found] == [
        ("shop.t", "shop.t", 1, "TR-7006", {"id": 104}),
        ("shop.t", "shop.t", 1, "TR-7006", {"id": 107}),
    ]
    assert all("price" in (r.row or {}) and r.remedy and r.reason for r in found)
    other = replace(quarantine, stream="another")
    assert (list(other.rows()), other.clear("shop.t"), quarantine.clear("shop.t")) == ([], 0, 2)
    write(target, batch(2, 5), **settings)
    assert [r.key for r in quarantine.rows()] == [{"id": 205}]
    assert {i for i in ids(target) if i > 200} == {200 + i for i in range(9) if i != 5} - {200}
    assert target.staged() == []


@pytest.mark.parametrize("target", CASES, indirect=True, ids=str)
def test_updates_that_lack_columns_find_what_other_tasks_have_read(
    spark: SparkSession, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "_LEAST_BUCKET", 10)
    rows = [("r", None, row(i)) for i in range(100, 150)]
    write(target, cell_batch(spark, 0, [("snapshot", changes(SCHEMA, rows))]))
    cells = [
        ("log", changes(SCHEMA, [("c", None, row(i, "new", "3.00")) for i in range(200, 250)], first=500)),
        ("log", updates(range(120, 240), "y", ("price",), 1000)),
        ("log", updates(range(140, 220), "", ("name",), 2000)),
    ]
    batch = cell_batch(spark, 1, cells)
    write(target, CellBatch(batch.stream, 1, batch.frame.repartition(3), batch.end), parallelism=4)
    held = {r["id"]: (r["name"], str(r["price"])) for r in target.rows("shop.t")}
    assert held == {
        **dict.fromkeys(range(150, 200), ("y", "2.00")),  # were not there, and two updates know them whole
        **{i: ("x" if i < 120 else "y", "1.50" if i < 140 else "2.00") for i in range(100, 150)},
        **{i: ("y" if i < 240 else "new", "2.00" if i < 220 else "3.00") for i in range(200, 250)},
    }


@pytest.mark.parametrize(
    "target",
    [("mysql", PARTS), pytest.param(("mariadb", PARTS), marks=pytest.mark.slow)],
    indirect=True,
    ids=str,
)
def test_column_that_sets_itself_stays_as_it_is_if_the_update_lacks_it(
    spark: SparkSession, target: Target
) -> None:
    instant = ColumnType(Kind.INSTANT, "timestamp", fraction=0)
    schema = table(("id", INT), ("v", INT), ("At", instant), key=("id",))
    old = {"id": 1, "v": 1, "At": datetime(2020, 2, 3, 4, 5, 6, tzinfo=UTC)}
    write(target, cell_batch(spark, 0, [("snapshot", changes(schema, [("r", None, old)]))]))
    target.execute("ALTER TABLE shop.t MODIFY At timestamp NULL ON UPDATE CURRENT_TIMESTAMP")
    (before,) = target.rows("shop.t")
    updated = changes(schema, [("u", old, {"id": 1, "v": 2, "At": None})], first=100)
    write(target, cell_batch(spark, 1, [("log", replace(updated, absent_after=("At",)))]))
    assert target.rows("shop.t") == [{**before, "v": 2}]


def test_overlong_snapshot_row_is_set_aside(spark: SparkSession, target: Target) -> None:
    write(target, snapshot(spark))
    target.execute("ALTER TABLE shop.t MODIFY name varchar(3)")
    rows = [("r", None, row(i, "wxyz" if i == 14 else "x")) for i in range(10, 20)]
    cells = [("snapshot", changes(SCHEMA, rows, first=50))]
    write(target, cell_batch(spark, 1, cells), on_refused_row=RefusedRow.QUARANTINE)
    assert ids(target) == [1, 2, *(i for i in range(10, 20) if i != 14)]
    (found,) = target.rows("_tailrace_quarantine")
    assert found["refused_column"] == "name"
    assert found["reason"].startswith("too long for the target")


def test_table_that_is_there_is_taken_only_if_asked_for(spark: SparkSession, target: Target) -> None:
    target.execute(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.t (id int PRIMARY KEY, name varchar(9), price decimal(20,4))",
    )
    target.execute("INSERT INTO shop.t VALUES (1, 'old', 0), (7, 'kept', 0)")
    with pytest.raises(StateError, match="a table that Tailrace did not make"):
        write(target, snapshot(spark))
    write(target, snapshot(spark), existing_tables=ExistingTables.ADOPT)
    assert [(r["id"], r["name"]) for r in target.rows("shop.t")] == [(1, "x"), (2, "x"), (7, "kept")]


def test_table_of_another_shape_is_not_adopted(spark: SparkSession, target: Target) -> None:
    target.execute(
        "CREATE DATABASE shop", "CREATE TABLE shop.t (id int, name varchar(9) PRIMARY KEY, price float)"
    )
    with pytest.raises(StateError, match="cannot be adopted"):
        write(target, snapshot(spark), existing_tables=ExistingTables.ADOPT)


EVENTS = table(
    ("id", INT),
    ("price", ColumnType(Kind.DECIMAL, "decimal", precision=10, scale=4)),
    ("at", ColumnType(Kind.DATETIME, "datetime", fraction=6)),
    ("size", ColumnType(Kind.DOUBLE, "double")),
    key=("id",),
)


def events(spark: SparkSession, number: int = 0) -> CellBatch:
    at = datetime(2020, 2, 3, 4, 5, 6, 789_000)  # noqa: DTZ001 - a DATETIME
    made = {"id": number, "price": Decimal("2.3456"), "at": at, "size": 0.1}
    return cell_batch(spark, number, [("snapshot", changes(EVENTS, [("r", None, made)]))])


SERVERS = pytest.mark.parametrize("target", [("mysql", PARTS), ("postgres", PARTS)], indirect=True, ids=str)


NARROW = (
    ("price decimal(10,1), at timestamp(6), size double precision", "`price` is .*rounds"),
    ("price decimal(10,4), at timestamp(0), size double precision", "`at` is .*rounds"),
    ("price decimal(10,4), at date, size double precision", "`at` is .*cuts"),
    ("price decimal(10,4), at timestamp(6), size real", "`size` is .*rounds"),
)


@pytest.mark.parametrize(
    ("target", "narrow", "named"),
    [
        pytest.param(
            (server, PARTS),
            *columns,
            marks=[] if number % 2 == is_due else [pytest.mark.slow],
            id=f"{server}-{number}",
        )
        for number, columns in enumerate(NARROW)
        for is_due, server in enumerate(("mysql", "postgres"))
    ],
    indirect=["target"],
)
def test_table_that_would_round_values_is_not_adopted(
    spark: SparkSession, target: Target, narrow: str, named: str
) -> None:
    is_postgres = target.notes == "public"
    narrow = narrow if is_postgres else narrow.replace("size real", "size float")
    target.execute(
        "CREATE SCHEMA shop" if is_postgres else "CREATE DATABASE shop",
        f"CREATE TABLE shop.t (id int PRIMARY KEY, {narrow})",
    )
    with pytest.raises(SinkError) as refused:
        write(target, events(spark), existing_tables=ExistingTables.ADOPT)
    assert refused.value.code == "TR-7061"
    assert re.search(named, refused.value.detail)
    target.execute(refused.value.hint.partition(";")[0])
    write(target, events(spark), existing_tables=ExistingTables.ADOPT)
    (found,) = target.rows("shop.t")
    assert (found["price"], found["at"].microsecond, found["size"]) == (Decimal("2.3456"), 789_000, 0.1)


@SERVERS
def test_table_that_was_altered_by_hand_is_noticed_at_the_next_start(
    spark: SparkSession, target: Target
) -> None:
    is_postgres = target.notes == "public"
    write(target, events(spark))
    target.execute(
        "ALTER TABLE shop.t ALTER COLUMN price TYPE numeric(10,1)"
        if is_postgres
        else "ALTER TABLE shop.t MODIFY price decimal(10,1)"
    )
    with pytest.raises(SinkError, match="would not keep the source's values"):
        write(target, events(spark, 1))
    target.execute(
        "ALTER TABLE shop.t ALTER COLUMN price TYPE numeric(10,4)"
        if is_postgres
        else "ALTER TABLE shop.t MODIFY price decimal(10,4)",
        "ALTER TABLE shop.t DROP CONSTRAINT t_pkey" if is_postgres else "ALTER TABLE shop.t DROP PRIMARY KEY",
    )
    if is_postgres:  # no index for ON CONFLICT
        target.execute("CREATE UNIQUE INDEX part ON shop.t (id) WHERE id > 0")
    with pytest.raises(SinkError, match="has no key") as refused:
        write(target, events(spark, 1))
    target.execute(refused.value.hint)
    write(target, events(spark, 1))
    assert ids(target) == [0, 1]


@SERVERS
def test_column_that_the_server_computes_is_named(spark: SparkSession, target: Target) -> None:
    is_postgres = target.notes == "public"
    target.execute(
        "CREATE SCHEMA shop" if is_postgres else "CREATE DATABASE shop",
        "CREATE TABLE shop.t (id int PRIMARY KEY, price decimal(10,4), at timestamp(6),"
        " size double precision GENERATED ALWAYS AS (id * 2) STORED)",
    )
    with pytest.raises(SinkError, match="would not keep") as refused:
        write(target, events(spark), existing_tables=ExistingTables.ADOPT)
    assert "`size` is computed by the server" in refused.value.detail


def test_server_that_is_away_is_a_failure_that_passes(spark: SparkSession, target: Target) -> None:
    with pytest.raises(TransientSinkError, match="no connection"):
        write(target, snapshot(spark), url="mysql://127.0.0.1:9")


@pytest.mark.parametrize("target", CASES, indirect=True, ids=str)
def test_replay_that_falls_into_other_units_writes_everything_again(
    spark: SparkSession, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "_LEAST_BUCKET", 10)
    rows = [("c", None, row(i)) for i in range(100)]
    cells = [
        ("snapshot", changes(SCHEMA, [("r", None, row(i)) for i in range(k, k + 50)])) for k in (100, 150)
    ]
    batch = cell_batch(spark, 0, [*cells, ("log", changes(SCHEMA, rows, first=500))])
    monkeypatch.setenv(VARIABLE, f"sink.table=raise@{tmp_path / 'token'}")
    with pytest.raises(InjectedError):
        write(target, batch, parallelism=4)
    monkeypatch.delenv(VARIABLE)
    target.execute("UPDATE _tailrace SET done = -1")  # as if it had died before
    again = CellBatch(batch.stream, 0, batch.frame.repartition(3), batch.end)
    write(target, again, parallelism=2)
    assert ids(target) == list(range(200))


def test_task_of_an_earlier_run_can_write_no_more(target: Target, spark: SparkSession) -> None:
    write(target, snapshot(spark))
    dialect = MySqlDialect.open(target.settings)
    ledger = Ledger(dialect)
    with closing(dialect.connect()) as session:
        ledger.begin(session, 1, "an earlier run", {"shop.t": "layout"}, {"shop.t": ["b0"]})
        ledger.begin(session, 1, "this run", {"shop.t": "layout"}, {"shop.t": ["b0"]})
        session.run("BEGIN")
        ledger.lock_epoch(session, "shop.t", "this run")
        with pytest.raises(TransientSinkError, match="another run"):
            ledger.lock_epoch(session, "shop.t", "an earlier run")


def test_servers_that_read_no_files_are_written_by_inserts(
    mysql, spark: SparkSession, target: Target
) -> None:
    with global_variable(mysql, "local_infile", "OFF"):
        write(target, snapshot(spark), with_bad_row(spark))
        write(target, cell_batch(spark, 2, [("log", updates([2, 61], "", ("name",), 300))]))
    assert ids(target) == [2, *range(10, 60)]
    assert target.rows("shop.t")[0] == row(2, "x", "2.00")


def test_target_that_was_dropped_is_not_made_anew_without_its_rows(
    spark: SparkSession, target: Target
) -> None:
    write(target, snapshot(spark))
    target.execute("DROP TABLE shop.t")
    with pytest.raises(StateError, match=r"target `shop\.t` is gone"):
        write(target, with_bad_row(spark))


def test_target_says_which_batch_and_position_it_holds(spark: SparkSession, target: Target) -> None:
    write(target, snapshot(spark), with_bad_row(spark))
    found = {
        r["target"]: (r["stream"], r["done"], json.loads(r["position"])["log"]["pos"])
        for r in target.rows("_tailrace")
    }
    assert found == dict.fromkeys(("shop.t", "shop.u"), (STREAM.query, 1, 1))


def created(number: int, ids: Iterable[int], schema: Any = SCHEMA) -> tuple[str, ChangeBatch]:
    return "log", changes(schema, [("c", None, row(i)) for i in ids], first=1_000_000 * number)


@pytest.mark.parametrize("target", CASES, indirect=True, ids=str)
def test_small_batch_like_those_before_it_is_read_once(spark: SparkSession, target: Target) -> None:
    wider = table(*((c.name, c.type) for c in SCHEMA.columns), ("more", INT), key=("id",))
    more = changes(wider, [("c", None, row(40) | {"more": 7})], first=8_000_000)
    deleted = changes(SCHEMA, [("d", row(1), None), ("u", row(10), row(10, "new"))], first=3_000_000)
    batches = [
        ([("snapshot", changes(SCHEMA, [("r", None, row(1))])), created(0, [1], OTHER)], False),
        ([created(1, [10]), created(1, [10], OTHER)], False),
        ([created(2, [20, 21]), created(2, [20], OTHER), created(2, [22])], True),
        ([("log", deleted)], True),
        ([], True),
        ([created(5, range(1000, 11_100))], False),
        ([created(6, [30])], False),
        ([created(7, [31]), created(7, [31], OTHER)], True),
        ([("log", more)], False),
        ([("snapshot", changes(OTHER, [("r", None, row(50))])), created(9, [50])], False),
    ]
    with closing(ReplicaSink(target.settings, Router([]))) as sink:
        for number, (cells, expected) in enumerate(batches):
            batch = cell_batch(spark, number, cells)
            written = sink.write(batch)
            assert sum(w.changes + w.snapshot_rows for w in written) == sum(len(c) for _, c in cells)
            assert batch.once.is_cached is not expected, number
            batch.close()
    assert ids(target) == [10, 20, 21, 22, 30, 31, 40, 50, *range(1000, 11_100)]
    assert ids(target, "shop.u") == [1, 10, 20, 31, 50]
    assert {r["id"]: r["name"] for r in target.rows("shop.t")}[10] == "new"
    done = {r["target"]: (r["begun"], r["done"]) for r in target.rows("_tailrace")}
    assert done == {"shop.t": (9, 9), "shop.u": (9, 9)}


@pytest.mark.parametrize("target", CASES, indirect=True, ids=str)
def test_pass_that_ended_before_its_batch_was_done_is_not_repeated(
    spark: SparkSession, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(target.settings, on_refused_row=RefusedRow.QUARANTINE)
    rows = [("c", None, row(i, "y", "77.00" if i == 33 else "1.00")) for i in range(30, 40)]
    batch = cell_batch(spark, 1, [("log", changes(SCHEMA, rows, first=100))])
    with closing(ReplicaSink(settings, Router([]))) as sink:
        sink.write(cell_batch(spark, 0, [created(0, [1])]))
        constrain(target)
        monkeypatch.setenv(VARIABLE, f"sink.table=raise@{tmp_path / 'token'}")
        with pytest.raises(InjectedError):
            sink.write(batch)
        monkeypatch.delenv(VARIABLE)
    if target.settings.transaction is PARTS:
        assert not batch.once.is_cached
        target.execute("UPDATE _tailrace SET done = 0")  # as if the driver had died before the end
    with closing(ReplicaSink(settings, Router([]))) as sink:
        sink.write(batch)
    assert ids(target) == [1, *(i for i in range(30, 40) if i != 33)]
    assert len(target.rows("_tailrace_quarantine")) == 1


def test_task_left_behind_cannot_begin_a_batch(spark: SparkSession, target: Target) -> None:
    write(target, snapshot(spark))
    dialect = MySqlDialect.open(target.settings)
    ledger = Ledger(dialect)
    begun = (1, "an earlier run", {"shop.t": "layout"}, {"shop.t": ["b0"]})
    with closing(dialect.connect()) as session:
        ledger.set_epoch(session, ["shop.t"], "an earlier run")
        ledger.set_epoch(session, ["shop.t"], "this run")
        with pytest.raises(TransientSinkError, match="another run"):
            ledger.begin(session, *begun, is_fenced=True)
    with closing(dialect.connect()) as session:
        assert ledger.entries(session, ["shop.t"])["shop.t"].begun == 0


def add_unique_names(target: Target) -> None:
    collation = ""
    if target.server.scheme == "mysql":
        collation = "MODIFY name VARCHAR(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, "
    target.execute(f"ALTER TABLE shop.t {collation}ADD CONSTRAINT names UNIQUE (name)")


@pytest.mark.parametrize("target", CASES, indirect=True, ids=str)
def test_row_whose_unique_value_another_row_has_is_refused_and_deletes_nothing(
    spark: SparkSession, target: Target
) -> None:
    rows = [("r", None, row(1, "a")), ("r", None, row(2, "b"))]
    write(target, cell_batch(spark, 0, [("snapshot", changes(SCHEMA, rows))]))
    add_unique_names(target)
    taken = "B" if target.server.scheme == "mysql" else "b"  # equal to `b` by the index
    log = changes(SCHEMA, [("u", row(1, "a"), row(1, taken)), ("c", None, row(3, "c"))], first=100)
    batch = cell_batch(spark, 1, [("log", log)])
    with pytest.raises(SinkError, match="another unique value") as refused:
        write(target, batch)
    assert refused.value.code == "TR-7006"
    write(target, batch, on_refused_row=RefusedRow.QUARANTINE)
    assert [(r["id"], r["name"]) for r in target.rows("shop.t")] == [(1, "a"), (2, "b"), (3, "c")]
    assert len(target.rows("_tailrace_quarantine")) == 1


@pytest.mark.parametrize(
    "target",
    [
        ("mysql", PARTS),
        ("postgres", PARTS),
        pytest.param(("postgres", WHOLE), marks=pytest.mark.slow),
        pytest.param(("mariadb", WHOLE), marks=pytest.mark.slow),
    ],
    indirect=True,
    ids=str,
)
def test_rows_of_a_batch_may_exchange_their_unique_values(
    spark: SparkSession, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "_LEAST_BUCKET", 1)  # else so few changes are not divided
    rows = [("r", None, row(i, f"n{i}")) for i in range(8)]
    write(target, cell_batch(spark, 0, [("snapshot", changes(SCHEMA, rows))]))
    add_unique_names(target)
    turned = [("u", row(i, f"n{i}"), row(i, f"n{(i + 1) % 8}")) for i in range(8)]
    write(target, cell_batch(spark, 1, [("log", changes(SCHEMA, turned, first=100))]), parallelism=4)
    assert [r["name"] for r in target.rows("shop.t")] == [f"n{(i + 1) % 8}" for i in range(8)]


@pytest.mark.parametrize(
    ("target", "is_unique"),
    [
        (("mysql", PARTS), True),
        (("mariadb", PARTS), False),
        pytest.param(("mysql", WHOLE), False, marks=pytest.mark.slow),
        pytest.param(("mariadb", WHOLE), True, marks=pytest.mark.slow),
        pytest.param(("postgres", PARTS), True, marks=pytest.mark.slow),
    ],
    indirect=["target"],
    ids=str,
)
def test_rows_that_refer_to_a_changed_row_stay(spark: SparkSession, target: Target, is_unique: bool) -> None:
    rows = [("r", None, row(i, f"n{i}")) for i in range(4)]
    write(target, cell_batch(spark, 0, [("snapshot", changes(SCHEMA, rows))]))
    if is_unique:
        add_unique_names(target)
    target.execute(
        "CREATE TABLE shop.notes (id INT PRIMARY KEY, of_t INT NOT NULL,"
        " FOREIGN KEY (of_t) REFERENCES shop.t (id) ON DELETE CASCADE)",
        "INSERT INTO shop.notes VALUES (1, 1), (2, 2), (3, 3)",
    )
    log = [
        ("u", row(1, "n1"), row(1, "new")),
        ("d", row(2, "n2"), None),
        ("c", None, row(4, "n4")),
        ("d", row(3, "n3"), None),
        ("c", None, row(3, "n3", "2.00")),
    ]
    write(target, cell_batch(spark, 1, [("log", changes(SCHEMA, log, first=100))]))
    held = {r["id"]: (r["name"], str(r["price"])) for r in target.rows("shop.t")}
    assert held == {0: ("n0", "1.50"), 1: ("new", "1.50"), 3: ("n3", "2.00"), 4: ("n4", "1.50")}
    assert ids(target, "shop.notes") == [1, 3], "only the row of a deleted one goes"
