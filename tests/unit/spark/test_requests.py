"""Requests in a directory: read in order, once each, and refused if they are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import StateError
from tailrace.spark.requests import RequestDirectory, requests_path


def test_requests_are_read_in_order_until_they_are_removed(tmp_path: Path) -> None:
    directory = RequestDirectory(requests_path(str(tmp_path)))
    assert directory.pending() == []
    first, second = directory.add(["s.a"]), directory.add(["s.b", "s.c"])
    other = RequestDirectory(requests_path(str(tmp_path)))
    assert [(r.id, r.tables) for r in other.pending()] == [(first, ("s.a",)), (second, ("s.b", "s.c"))]
    other.remove([first, "unknown"])
    assert [r.id for r in directory.pending()] == [second]


def test_file_that_is_being_written_is_no_request_yet(tmp_path: Path) -> None:
    (tmp_path / "0001").write_text("{")
    assert RequestDirectory(str(tmp_path)).pending() == []


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"v": 2, "type": "resync", "tables": []}', '{"v": 1, "type": "x"}']
)
def test_file_that_is_no_request_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "0001.json").write_text(text)
    with pytest.raises(StateError, match="is not a request"):
        RequestDirectory(str(tmp_path)).pending()
