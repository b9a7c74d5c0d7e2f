"""Parquet files of Delta appends and their statistics."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.sinks.tables.parquet import write_rows
from tailrace.sinks.tables.rows import last_rows
from tests.support.changes import INT, TEXT, changes, table

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", pa.date32()), ("x", pa.float64())])


def rows(*values: tuple[Any, ...]) -> pa.RecordBatch:
    columns = [pa.array(list(c), f.type) for c, f in zip(zip(*values, strict=True), SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def test_file_holds_the_rows_and_its_bounds(tmp_path: Path) -> None:
    batches = [rows((3, "b", date(2020, 1, 2), 0.5)), rows((1, None, date(2019, 1, 1), None))]
    (file,) = write_rows(batches, SCHEMA, str(tmp_path))
    assert pq.read_table(tmp_path / file.name).column("id").to_pylist() == [3, 1]
    assert (file.rows, file.size) == (2, (tmp_path / file.name).stat().st_size)
    assert json.loads(file.stats) == {
        "numRecords": 2,
        "minValues": {"id": 1, "name": "b", "day": "2019-01-01"},
        "maxValues": {"id": 3, "name": "b", "day": "2020-01-02"},
        "nullCount": {"id": 0, "name": 1, "day": 0, "x": 1},
    }


def test_column_that_is_all_null_has_no_bounds(tmp_path: Path) -> None:
    (file,) = write_rows([rows((1, None, None, None))], SCHEMA, str(tmp_path))
    assert list(json.loads(file.stats)["minValues"]) == ["id"]


def test_long_text_is_no_bound(tmp_path: Path) -> None:
    (file,) = write_rows([rows((1, "x" * 33, None, None))], SCHEMA, str(tmp_path))
    assert "name" not in json.loads(file.stats)["maxValues"]


def test_no_file_where_there_is_no_row(tmp_path: Path) -> None:
    assert write_rows([rows((1, None, None, None)).slice(0, 0)], SCHEMA, str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


def test_last_change_of_each_key_is_kept() -> None:
    schema = table(("a", INT), ("b", TEXT), ("v", INT), key=("a", "b"))
    one, other = {"a": 1, "b": "x", "v": 1}, {"a": 1, "b": "X", "v": 2}
    listed = [("c", None, one), ("c", None, other), ("u", one, {**one, "v": 9}), ("d", other, None)]
    columns = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.int32()), ("w", pa.string())])
    kept = last_rows(columns, schema.key)(changes(schema, listed)).to_pylist()
    assert [(r["a"], r["b"], r["v"], r["w"], r["_op"]) for r in kept] == [
        (1, "x", 9, None, 2),
        (1, "X", 2, None, 3),
    ]
