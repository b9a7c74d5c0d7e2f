from dataclasses import replace

import pyarrow as pa
import pytest

from tailrace.errors import ConfigError
from tailrace.formats.row import row_schema, to_rows
from tailrace.model.cell import decode_cell, encode_cell
from tailrace.model.change import ChangeBatch
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind
from tailrace.reader.schema_projection import fit_batch
from tailrace.sinks.tables.rows import log_fields, log_rows
from tests.unit.formats.changes import ID, NAME, ORDERS, batch, change

A, B, C = ({"id": i, "name": n} for i, n in ((1, "a"), (2, "b"), (3, None)))

#: One column of every kind that has an Arrow type of its own.
EVERY_TYPE = TableSchema(
    TableId("shop", "types"),
    (
        Column("i8", ColumnType(Kind.INTEGER, "tinyint", bits=8)),
        Column("u64", ColumnType(Kind.INTEGER, "bigint", bits=64, unsigned=True)),
        Column("dec", ColumnType(Kind.DECIMAL, "decimal", precision=10, scale=2)),
        Column("flt", ColumnType(Kind.FLOAT, "float")),
        Column("bin", ColumnType(Kind.BYTES, "blob")),
        Column("bool", ColumnType(Kind.BOOLEAN, "bit", bits=1)),
        Column("day", ColumnType(Kind.DATE, "date")),
        Column("wall", ColumnType(Kind.DATETIME, "datetime", fraction=6)),
        Column("at", ColumnType(Kind.INSTANT, "timestamp", fraction=6)),
        Column("took", ColumnType(Kind.TIME, "time", fraction=6)),
    ),
)


def test_row_shows_the_image_after_and_for_a_delete_the_image_before():
    changes = batch(
        ORDERS,
        [change("c", None, A), change("u", A, B), change("d", B), change("r", None, C), change("d", C)],
    )
    rows = to_rows(changes)
    assert rows.schema == row_schema(ORDERS)
    assert rows.column("_op").to_pylist() == ["c", "u", "d", "r", "d"]
    assert rows.column("id").to_pylist() == [1, 2, 2, 3, 3]
    assert rows.column("name").to_pylist() == ["a", "b", "b", None, None]


def test_row_tells_where_the_change_comes_from():
    changes = batch(
        ORDERS,
        [
            change("c", None, A),
            change("r", None, B, ts_us=0, txn=None, file="binlog.000002", pos=1 << 40),
        ],
    )
    rows = to_rows(changes).select(["_seq", "_ts_ms", "_txn", "_position"]).to_pylist()
    assert rows == [
        {
            "_seq": "0000000000010000000000c800000000",
            "_ts_ms": 1_700_000_000_123,
            "_txn": "3e11fa47-71ca-11e1-9e33-c80aa9429562:23",
            "_position": "binlog.000001:200",
        },
        {
            "_seq": "0000000000010000000000c800000000",
            "_ts_ms": None,
            "_txn": None,
            "_position": "binlog.000002:1099511627776",
        },
    ]


@pytest.mark.parametrize("op", ["c", "u", "d"])
def test_columns_are_not_copied_when_all_changes_show_one_side(op):
    changes = batch(ORDERS, [change(op, None if op == "c" else A, None if op == "d" else B)] * 3)
    shown = changes.before if op == "d" else changes.after
    assert shown is not None
    for name in ("id", "name"):
        ours = to_rows(changes).column(name).buffers()[-1]
        assert ours.address == shown.field(name).buffers()[-1].address


def test_slices_and_cells_give_the_same_rows():
    changes = batch(
        ORDERS,
        [change("c", None, A), change("d", B), change("u", A, C), change("d", A), change("c", None, B)],
    )
    expected = to_rows(changes)
    for offset in range(5):
        assert to_rows(changes.slice(offset, 3)).equals(expected.slice(offset, 3))
    assert to_rows(decode_cell(encode_cell(changes.slice(1)))).equals(expected.slice(1))


def test_values_below_a_null_image_are_not_shown():
    changes = batch(ORDERS, [change("c", None, A), change("d", B)])
    garbage = pa.StructArray.from_arrays(
        [pa.array([9, 2]), pa.array(["garbage", "b"])],
        fields=list(ORDERS.arrow),
        mask=pa.array([True, False]),
    )
    rows = to_rows(ChangeBatch(ORDERS, changes.op, garbage, changes.after, changes.origin))
    assert rows.column("name").to_pylist() == ["a", "b"]


def test_every_type_survives_the_choice_between_the_sides():
    row = {
        name: pa.scalar(1, pa.int64()).cast(EVERY_TYPE.column(name).type.arrow).as_py()
        for name in ("i8", "u64", "flt", "bool", "wall", "at", "took")
    }
    row |= {
        "dec": pa.scalar("1.23").cast(pa.decimal128(10, 2)).as_py(),
        "bin": b"\x00",
        "day": row["wall"].date(),
    }
    rows = to_rows(batch(EVERY_TYPE, [change("d", row), change("c", None, row), change("c", None, {})]))
    assert rows.schema == row_schema(EVERY_TYPE)
    empty = dict.fromkeys(row)
    assert rows.select(list(row)).to_pylist() == [row, row, empty]


PARTS = replace(
    batch(ORDERS, [change("c", None, A), change("u", A, B), change("d", B)]),
    absent_before=("name", "id"),
    absent_after=("name",),
)


def test_row_names_the_columns_that_the_log_left_out_of_the_image_it_shows():
    assert to_rows(PARTS).column("_absent").to_pylist() == [["name"], ["name"], ["name", "id"]]
    whole_after = replace(PARTS, absent_after=())
    assert to_rows(whole_after).column("_absent").to_pylist() == [None, None, ["name", "id"]]
    again = decode_cell(encode_cell(PARTS.slice(1)))
    assert to_rows(again).column("_absent").to_pylist() == [["name"], ["name", "id"]]


def test_rows_of_whole_images_name_no_absent_columns():
    rows = to_rows(batch(ORDERS, [change("u", A, {"id": 1, "name": None})]))
    assert rows.column("_absent").to_pylist() == [None]


def test_absent_columns_that_the_stream_does_not_know_are_not_named():
    narrow = TableSchema(ORDERS.id, (ID,), ("id",))
    assert to_rows(fit_batch(PARTS, narrow)).column("_absent").to_pylist() == [None, None, ["id"]]


def test_change_log_names_the_columns_that_old_rows_lack():
    columns = pa.schema(list(ORDERS.arrow))
    rows = log_rows(columns)(PARTS)
    assert rows.schema == log_fields(columns)
    assert rows.column("_absent").to_pylist() == [["name"], ["name"], ["name", "id"]]
    assert rows.column("_absent_before").to_pylist() == [None, ["name", "id"], None]
    assert rows.column("_before").is_null().to_pylist() == [True, False, True]


@pytest.mark.parametrize("name", ["_op", "_SEQ", "_Absent"])
def test_a_column_with_a_name_the_shape_needs_is_refused_by_name(name):
    table = TableSchema(TableId("shop", "orders"), (ID, Column(name, NAME.type)), ("id",))
    with pytest.raises(ConfigError, match=f"column `{name}` of table `shop.orders`"):
        row_schema(table)


def test_an_empty_batch_gives_no_rows():
    assert to_rows(batch(ORDERS, [])).num_rows == 0
