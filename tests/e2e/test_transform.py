"""Transforms by Spark SQL: what sinks are given."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.model import Converter, RouteRule, TransformRule
from tailrace.config.secret import Secret
from tailrace.errors import ConfigError
from tailrace.model.cell import decode_cell
from tailrace.model.change import OP_LETTERS, ChangeBatch
from tailrace.model.soft_delete import SoftDelete
from tailrace.model.types import Kind
from tailrace.pipeline.transform import Transformer
from tailrace.spark.cells import table_batches
from tests.support.cells import cell_batch
from tests.support.changes import DECIMAL, INT, TEXT, Change, changes, table

SCHEMA = table(("id", INT), ("name", TEXT), ("price", DECIMAL), key=("id",))
WIDER = table(("id", INT), ("name", TEXT), ("price", DECIMAL), ("note", TEXT), key=("id",))


def row(id_: int, name: str | None = "a", price: Any = None, **more: Any) -> dict[str, Any]:
    return {"id": id_, "name": name, "price": price, **more}


CELLS = [
    ("snapshot", changes(SCHEMA, [("r", None, row(1)), ("r", None, row(2, None))])),
    (
        "log",
        changes(
            SCHEMA,
            [("u", row(1), row(1, "b")), ("c", None, row(3, "c")), ("d", row(3, "c"), None)],
            first=10,
        ),
    ),
    ("log", changes(WIDER, [("c", None, row(4, "d", note="n"))], first=20)),
    ("log", changes(table(("id", INT), key=("id",), name="shop.other"), [("c", None, {"id": 1})], first=30)),
]


def transformed(
    spark: SparkSession, *rules: TransformRule, routes: tuple[RouteRule, ...] = ()
) -> dict[tuple[str, str, str], ChangeBatch]:
    """The cells by table, kind and first change's seq."""
    frame = Transformer(rules, routes)(cell_batch(spark, 0, CELLS).frame)
    assert {str(p.table) for p in table_batches(frame)} <= {"shop.t", "shop.other"}
    found = {}
    for line in frame.collect():
        batch = decode_cell(bytes(line["cell"]))
        assert line["fingerprint"] == batch.table.fingerprint
        assert line["changes"] == len(batch)
        found[line["table"], line["kind"], line["min_seq"]] = batch
    return found


def in_order(cells: dict[tuple[str, str, str], ChangeBatch], name: str = "shop.t") -> list[Change]:
    out = []
    for (table_, _kind, _seq), batch in sorted(
        cells.items(), key=lambda item: (item[0][1] == "log", item[0][2])
    ):
        if table_ == name:
            ops = [OP_LETTERS[o] for o in batch.op.to_pylist()]
            images = (batch.image(side).to_pylist() for side in ("before", "after"))
            out.extend(zip(ops, *images, strict=True))
    return out


def test_projection_computes_columns_of_both_images_and_keeps_types_and_key(spark: SparkSession) -> None:
    rule = TransformRule(
        r"shop\.t", projection=r"id AS nr, \*, upper(name) AS up, __table_name__ AS of, price * 2 AS twice"
    )
    cells = transformed(spark, rule)
    schemas = {c.table.fingerprint: c.table for (t, _, _), c in cells.items() if t == "shop.t"}
    assert len(schemas) == 2
    narrow = min(schemas.values(), key=lambda s: len(s.columns))
    assert [c.name for c in narrow.columns] == ["nr", "id", "name", "price", "up", "of", "twice"]
    assert narrow.column("name").type.native == "varchar"
    assert narrow.column("nr").type.kind is Kind.INTEGER
    assert narrow.key == ("id",)
    assert in_order(cells)[2] == (
        "u",
        {"nr": 1, **row(1), "up": "A", "of": "t", "twice": None},
        {"nr": 1, **row(1, "b"), "up": "B", "of": "t", "twice": None},
    )
    assert in_order(cells)[-1][2]["note"] == "n"
    assert in_order(cells, "shop.other") == [("c", None, {"id": 1})]


def test_filter_masks_truncation_and_skipped_operations_work_together(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SALT", "pepper")
    rule = TransformRule(
        r"shop\..*",
        projection="id, name, 'long text' AS text",
        filter="name IS NOT NULL -- no comment ends it",
        mask_hash=("name",),
        mask_salt=Secret("${env:SALT}"),
        truncate={"text": "4"},
        skipped_operations=("d",),
    )
    with pytest.raises(ConfigError, match=r"Spark rejects the transform of `shop\.other`") as raised:
        transformed(spark, rule)
    assert raised.value.table == "shop.other"
    rule = TransformRule(**{**vars(rule), "source_table": r"shop\.t"})
    hashed = {name: hashlib.sha256(f"pepper{name}".encode()).hexdigest() for name in "abcd"}
    assert in_order(transformed(spark, rule)) == [
        ("r", None, {"id": 1, "name": hashed["a"], "text": "long"}),
        (
            "u",
            {"id": 1, "name": hashed["a"], "text": "long"},
            {"id": 1, "name": hashed["b"], "text": "long"},
        ),
        ("c", None, {"id": 3, "name": hashed["c"], "text": "long"}),
        ("c", None, {"id": 4, "name": hashed["d"], "text": "long"}),
    ]


def test_soft_delete_marks_the_row_and_a_shard_column_joins_the_key(spark: SparkSession) -> None:
    rule = TransformRule(
        r"shop\.t",
        projection="id, __data_event_type__ = '-D' AS deleted",
        converter_after_transform=Converter.SOFT_DELETE,
    )
    cells = transformed(spark, rule, routes=(RouteRule("shop.*", "all", shard_column="_shard"),))
    schemas = {c.table.key for c in cells.values()}
    assert schemas == {("id", "_shard")}
    assert in_order(cells)[4] == (
        "u",
        {"id": 3, "deleted": True, "_shard": "shop.t"},
        {"id": 3, "deleted": True, "_shard": "shop.t"},
    )
    assert in_order(cells, "shop.other")[0][2] == {"id": 1, "_shard": "shop.other"}


@pytest.mark.parametrize("projection", ["count(*) AS n", "id, rand() AS r", "id, uuid() AS u"])
def test_expression_that_a_replay_would_not_repeat_is_refused(spark: SparkSession, projection: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be used in a stream|MISSING_GROUP_BY"):
        transformed(spark, TransformRule(r"shop\.t", projection=projection))


def marking(projection: str | None, **rule: Any) -> TransformRule:
    return TransformRule(r"shop\.t", projection, converter_after_transform=Converter.SOFT_DELETE, **rule)


def test_marks_of_rows_that_are_gone_are_those_of_deletes(spark: SparkSession) -> None:
    projection = (
        "*, upper(name) AS `a b`, __data_event_type__ = '-D' AS deleted,"
        " concat(__table_name__, __data_event_type__) AS what,"
        " CASE WHEN __data_event_type__ = '-D' THEN current_timestamp() END AS `at`,"
        " if(__data_event_type__ = '-D', NULL, name) AS mixed"
    )
    transformer = Transformer([marking(projection)], [])
    (marks,) = transformer.soft_deletes(spark, ["shop.t", "shop.other"]).values()
    assert {name: value for name, value in marks.gone.items() if name != "at"} == {
        "deleted": True,
        "what": "t-D",
    }
    assert marks.gone["at"] is not None
    assert marks.of_existing == {"deleted": (False, False), "what": ("t+I", "t+U"), "at": (None, None)}


def test_targets_keep_rows_whose_deletes_are_left_out(spark: SparkSession) -> None:
    for rule in (TransformRule(r"shop\.t", skipped_operations=("d",)), marking(None), marking("id, name")):
        assert Transformer([rule], []).soft_deletes(spark, ["shop.t"]) == {"shop.t": SoftDelete()}
    kept = TransformRule(r"shop\.t", projection="*, __data_event_type__ = '-D' AS deleted")
    assert Transformer([kept], []).soft_deletes(spark, ["shop.t"]) == {}


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (TransformRule("other"), "no transform matches it"),
        (TransformRule(r"shop\.t", "*"), "its transform has no soft delete"),
        (marking("*"), "no column of its transform tells deleted rows from others"),
        (
            marking(
                "*, __data_event_type__ = '-D' AS deleted, if(__data_event_type__ = '-D', NULL, name) AS n"
            ),
            "`n` is made of `__data_event_type__` and of columns that only the source has",
        ),
        (
            marking("*, __data_event_type__ AS op", mask_hash=("op",), mask_salt=Secret("x")),
            "no column of its transform tells deleted rows from others",
        ),
    ],
)
def test_table_whose_rows_cannot_be_marked_is_refused(
    spark: SparkSession, rule: TransformRule, found: str
) -> None:
    with pytest.raises(ConfigError, match="cannot be marked as deleted") as raised:
        Transformer([rule], [], marks_all=True).check(spark, SCHEMA)
    assert (raised.value.code, raised.value.table, raised.value.detail) == ("TR-1032", "shop.t", found)
    assert Transformer([marking("*, __data_event_type__ = '-D' AS x")], [], marks_all=True).check(
        spark, SCHEMA
    )
