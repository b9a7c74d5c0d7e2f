"""Masks of columns; `tests/contract/test_masks.py` compares them with Debezium's classes."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from tailrace.config.options import parse_options
from tailrace.errors import ConfigError, SchemaMismatchError
from tailrace.model.column_mask import column_mask
from tailrace.model.types import ColumnType, Kind
from tailrace.reader.masks import Masks
from tests.support.changes import INT, TEXT, changes, table

BLOB = ColumnType(Kind.BYTES, "blob")
TABLE = table(("id", INT), ("a", TEXT), ("b", TEXT), ("raw", BLOB), key=("id",), name="shop.people")
GIVEN = {"url": "mysql://h", "user": "u", "tables": "shop.people"}


def row(id_, a, b="b", raw=b"raw bytes"):
    return {"id": id_, "a": a, "b": b, "raw": raw}


def masked(batch, **masks):
    options = parse_options({**GIVEN, **masks})
    return Masks(options.column_masks, options.column_mask_salt.resolve().encode()).batch(batch)


def test_both_rows_of_a_change_are_masked_and_nothing_else():
    batch = changes(
        TABLE, [("c", None, row(1, None)), ("u", row(1, None), row(1, "secret")), ("d", row(1, "s"), None)]
    )
    made = masked(batch, **{"column.mask.with.3.chars": r"shop\.PEOPLE\.a"})
    assert made.before.to_pylist() == [None, row(1, "***"), row(1, "***")]
    assert made.after.to_pylist() == [row(1, "***"), row(1, "***"), None]
    assert (made.op, made.origin, made.table) == (batch.op, batch.origin, batch.table)
    made.after.validate(full=True)


def test_text_and_bytes_are_cut():
    batch = changes(TABLE, [("c", None, row(1, "wide \U0001f600 text", None))])
    made = masked(batch, **{"column.truncate.to.6.chars": r".*\.(a|b|raw)"})
    assert made.after.to_pylist() == [row(1, "wide ", None, b"raw by")]


def test_hash_is_that_of_salt_and_text_and_first_kind_counts():
    batch = changes(TABLE, [("c", None, row(1, "x")), ("c", None, row(2, None)), ("c", None, row(3, "x"))])
    masks = {
        "column.mask.hash.v2.SHA-256": ".*[.]a",
        "column.mask.with.0.chars": ".*[.]b",
        "column.mask.hash.MD5": ".*[.]b",
        "columnMaskSalt": "pepper",
    }
    expected = hashlib.sha256(b"pepperx").hexdigest()
    assert [r["a"] for r in masked(batch, **masks).after.to_pylist()] == [expected, None, expected]
    assert [r["b"] for r in masked(batch, **masks).after.to_pylist()] == ["", "", ""]
    a = ColumnType(Kind.STRING, "char", length=9)
    columns = ("id", INT), ("a", a), ("b", TEXT), ("raw", BLOB)
    short = replace(batch, table=table(*columns, key=("id",), name="shop.people"))
    assert masked(short, **masks).after.field(1).to_pylist() == [expected[:9], None, expected[:9]]


def test_column_that_the_log_lacks_stays_unknown():
    batch = replace(changes(TABLE, [("u", row(1, None), row(1, None))]), absent_after=("a",))
    made = masked(batch, **{"column.mask.with.1.chars": ".*[.]a"})
    assert (made.before.to_pylist(), made.after.to_pylist()) == ([row(1, "*")], [row(1, None)])


@pytest.mark.parametrize(
    ("option", "column"), [("column.mask.with.1.chars", "raw"), ("column.truncate.to.1.chars", "id")]
)
def test_column_that_cannot_be_masked_is_refused(option, column):
    masks = Masks([column_mask(option, [f".*[.]{column}"])], b"")
    with pytest.raises(SchemaMismatchError, match=f"column `{column}` of table") as refused:
        list(masks.changes(iter([changes(TABLE, [("c", None, row(1, "a"))])])))
    assert refused.value.code == "TR-1071"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"column.mask.hash.SHA-256": ".*"}, "`columnMaskSalt` is missing"),
        ({"columnMaskSalt": "x"}, "`columnMaskSalt` has no effect here"),
        ({"column.mask.hash.ROT13": ".*", "columnMaskSalt": "x"}, "`column.mask.hash.ROT13` is wrong"),
        ({"column.mask.with.1.chars": "("}, "`column.mask.with.1.chars` is wrong"),
        ({"column.mask.with.x.chars": ".*"}, "unknown option"),
    ],
)
def test_masks_that_cannot_be_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        parse_options({**GIVEN, **given})
