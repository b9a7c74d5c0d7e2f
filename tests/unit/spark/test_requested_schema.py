"""A schema given for a read is compared with that of the rows."""

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from tailrace.errors import ConfigError
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind
from tailrace.spark.requested_schema import as_requested, schema_of
from tailrace.spark.row_layouts import EnvelopeLayout, TableRowLayout
from tests.support.changes import changes

INT = ColumnType(Kind.INTEGER, "int", bits=32)
TEXT = ColumnType(Kind.STRING, "varchar", length=10)
TABLE = TableSchema(
    TableId("shop", "orders"), (Column("id", INT, nullable=False), Column("item", TEXT)), ("id",)
)
LAYOUT = TableRowLayout(TABLE)


def nullable(schema: StructType) -> StructType:
    return StructType([StructField(f.name, f.dataType, nullable=True) for f in schema])


def refusal(schema: StructType) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        as_requested(LAYOUT, schema)
    return raised.value


def test_own_schema_is_the_layout_itself():
    assert as_requested(LAYOUT, schema_of(LAYOUT)) is LAYOUT


@pytest.mark.parametrize("layout", [LAYOUT, EnvelopeLayout(TABLE, "x", "mysql")])
def test_schema_without_not_null_is_given_to_the_rows(layout):
    wanted = nullable(schema_of(layout))
    got = as_requested(layout, wanted)
    assert all(field.nullable for field in got.schema)
    (rows,) = got.rows(iter([changes(TABLE, [("r", None, {"id": 1, "item": "a"})])]))
    assert rows.schema.equals(got.schema)
    assert rows.num_rows == 1


def test_subset_is_refused_with_the_missing_columns():
    error = refusal(StructType(schema_of(LAYOUT).fields[1:]))
    assert error.detail == "it lacks `id` int"
    assert ".select(" in str(error.hint)


def test_renamed_column_is_refused():
    fields = schema_of(LAYOUT).fields
    error = refusal(StructType([fields[0], StructField("thing", StringType()), *fields[2:]]))
    assert error.detail == "it lacks `item` string; it has `thing` string, which the rows do not"


def test_other_order_is_refused():
    fields = schema_of(LAYOUT).fields
    error = refusal(StructType([fields[1], fields[0], *fields[2:]]))
    assert str(error.detail).startswith("its columns are in another order; needed: `id`, `item`, `_op`")


def test_not_null_that_rows_do_not_have_is_refused():
    fields = schema_of(LAYOUT).fields
    error = refusal(StructType([fields[0], StructField("item", StringType(), nullable=False), *fields[2:]]))
    assert "`item`" in str(error.detail)
