"""Which tables of a new target are read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.errors import StateError
from tailrace.model.table import TableId
from tailrace.sinks.base import CellBatch, StreamId
from tailrace.sinks.written_tables import WrittenTables
from tailrace.spark.requests import RequestDirectory

A, B = TableId("shop", "a"), TableId("shop", "b")


class _Stream:
    def __init__(self, path: Path) -> None:
        self.notices: list[str] = []
        self.file = path / "_tailrace" / "written.json"
        self._path = path

    def open(self) -> WrittenTables:
        """As a new process does."""
        return WrittenTables(str(self._path), str(self._path / "requests"), self.notices.append)

    def requests(self) -> list[tuple[str, ...]]:
        return [request.tables for request in RequestDirectory(str(self._path / "requests")).pending()]


@pytest.fixture
def stream(tmp_path: Path) -> _Stream:
    return _Stream(tmp_path)


def test_target_of_tables_that_no_batch_has_brought_is_new(stream: _Stream) -> None:
    stream.open().note(0, [A], ["shop.a", "shop.b"])
    assert not stream.open().read_again(1, "x", [B])
    assert stream.requests() == []


def test_target_whose_tables_came_in_earlier_batches_is_filled_again(stream: _Stream) -> None:
    stream.open().note(0, [A, B], ["shop.a", "shop.b"])
    for _ in range(2):  # a batch that comes again requests the same
        assert stream.open().read_again(3, "x", [A, B])
        assert sorted(stream.requests()) == [("shop.a",), ("shop.b",)]
    assert stream.notices[0] == "target `x` of table `shop.a` is new, or was dropped: the table is read again"


def test_first_batch_of_a_table_that_comes_again_is_not_taken_for_a_later_one(stream: _Stream) -> None:
    stream.open().note(2, [A], ["shop.a"])
    assert not stream.open().read_again(2, "x", [A])
    stream.open().note(5, [A], ["shop.a"])
    assert stream.open().read_again(3, "x", [A]), "the first batch counts"


def test_table_that_the_stream_has_forgotten_is_new_when_it_comes_again(stream: _Stream) -> None:
    stream.open().note(0, [A, B], ["shop.a", "shop.b"])
    stream.open().note(1, [B], ["shop.b"])
    assert json.loads(stream.file.read_text()) == {"v": 1, "tables": {"shop.b": 0}}
    assert not stream.open().read_again(2, "x", [A])


def test_file_of_another_version_is_an_error_that_names_it(stream: _Stream) -> None:
    stream.open().note(0, [A], ["shop.a"])
    stream.file.write_text('{"v": 2}')
    with pytest.raises(StateError, match=r"written\.json` cannot be read") as error:
        stream.open().read_again(1, "x", [A])
    assert error.value.code == "TR-6055"


def test_target_that_keeps_columns_has_its_tables_read_again_unless_they_are(stream: _Stream) -> None:
    written = stream.open()
    written.note(0, [A, B], ["shop.a", "shop.b"])
    reading = {"id": "x", "c": None, "n": 0, "e": 0, "done": False}
    end = {"v": 2, "done": {"shop.b": 1}, "again": {"shop.b": reading}}
    batch = CellBatch(StreamId("p", "q"), 3, None, end, written_tables=written)  # type: ignore[arg-type]
    for _ in range(2):
        batch.lacks_columns("x", [A, B])
        assert stream.requests() == [("shop.a",)]
    wanted = (
        "target `x` of table `shop.a` keeps columns that were renamed or dropped: the table is read again"
    )
    assert stream.notices[0] == wanted


def test_new_target_of_a_table_that_is_followed_without_earlier_rows_is_not_filled(stream: _Stream) -> None:
    written = stream.open()
    written.note(0, [A, B], ["shop.a", "shop.b"])
    end = {"v": 1, "mode": "initial", "done": {"shop.a": None, "shop.b": 1}, "partial": ["shop.a"]}
    batch = CellBatch(StreamId("p", "q"), 3, None, end, written_tables=written)  # type: ignore[arg-type]
    assert not batch.creates("x", [A])
    assert batch.creates("y", [A, B])
    assert stream.requests() == [("shop.b",)]
