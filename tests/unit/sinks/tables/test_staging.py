"""Files that one task fills side by side: all rows are in them, few files are open, few rows are held."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tailrace.model.change import LOG
from tailrace.sinks.tables import rolling, staging
from tailrace.sinks.tables.rolling import RollingFiles
from tailrace.sinks.tables.rows import log_rows
from tailrace.sinks.tables.staging import Recipe, _write
from tests.support.changes import INT, TEXT, changes, table


class Files:
    """What would be files: the numbers of rows in their row groups."""

    def __init__(self):
        self.open, self.most_open, self.groups = 0, 0, []

    def begin(self):
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        return _File(self)


class _File:
    def __init__(self, files):
        self._files, self._groups = files, []

    def write(self, rows):
        self._groups.append(rows.num_rows)

    def end(self):
        self._files.open -= 1
        return self._groups


def schema(name):
    return table(("id", INT), ("name", TEXT), key=("id",), name=f"shop.{name}")


def created(schema_, first, count):
    return changes(
        schema_, [("c", None, {"id": i, "name": "x" * 50}) for i in range(first, first + count)], first=first
    )


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(rolling, "ROW_GROUP_BYTES", 20_000)
    monkeypatch.setattr(staging, "ROW_GROUP_BYTES", 20_000)
    monkeypatch.setattr(staging, "_MOST_OPEN", 5)


def test_many_tables_hold_no_more_than_one_and_keep_few_files_open(small):
    files, schemas = Files(), [schema(f"t{n}") for n in range(30)]
    columns = pa.schema([("id", pa.int32()), ("name", pa.string())])
    held = []

    def begin():
        held.append(RollingFiles(files.begin, 100_000))
        return held[-1]

    recipes = {(str(s.id), LOG): Recipe(s, log_rows(columns), begin) for s in schemas}
    draw, most = random.Random(1), 0

    def cells():
        nonlocal most
        for n in range(600):
            yield created(draw.choice(schemas), 10 * n, 10)
            most = max(most, sum(f.held_bytes for f in held))

    report = _write(cells(), recipes)
    assert report.is_complete
    found = report.written
    assert sum(written.changes for written in found.values()) == 6000
    assert sum(written.cells for written in found.values()) == 600
    for written in found.values():
        assert sum(sum(groups) for groups in written.files) == written.changes
    assert files.open == 0
    assert files.most_open <= 6
    assert most <= 20_000 + 5_000


def test_one_table_has_row_groups_and_files_of_the_configured_size(small):
    files, only = Files(), schema("t")
    columns = pa.schema([("id", pa.int32()), ("name", pa.string())])
    recipe = Recipe(only, log_rows(columns), lambda: RollingFiles(files.begin, 100_000))
    cells = (created(only, 10 * n, 10) for n in range(500))
    (written,) = _write(cells, {(str(only.id), LOG): recipe}).written.values()
    assert sum(sum(groups) for groups in written.files) == 5000
    assert all(len(groups) in (5, 6) for groups in written.files[:-1])
    assert files.most_open == 1


def test_cell_without_a_recipe_is_noticed(small):
    known = schema("t")
    columns = pa.schema([("id", pa.int32()), ("name", pa.string())])
    recipes = {(str(known.id), LOG): Recipe(known, log_rows(columns), lambda: RollingFiles(Files().begin, 1))}
    wider = table(("id", INT), ("name", TEXT), ("more", INT), key=("id",), name="shop.t")
    row = {"id": 1, "name": "", "more": 1}
    for batch in (
        created(schema("u"), 0, 1),
        changes(wider, [("c", None, row)]),
        changes(known, [("r", None, {"id": 1, "name": ""})]),
    ):
        report = _write([created(known, 0, 1), batch], recipes)
        assert not report.is_complete
        assert [written.files for written in report.written.values()] == [[[1]]]
