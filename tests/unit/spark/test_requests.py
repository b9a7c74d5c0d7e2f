"""Requests in a directory: read in order, once each; what is none is answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.model.signal import Signal
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
    "text", ["{", "[]", '{"v": 2, "type": "resync", "tables": []}', '{"v": 1, "type": "x"}', "[" * 100_000]
)
def test_file_that_is_no_request_is_a_signal_that_cannot_be_obeyed(tmp_path: Path, text: str) -> None:
    (tmp_path / "0001.json").write_text(text)
    (request,) = RequestDirectory(str(tmp_path)).pending()
    assert request.id == "0001"
    assert request.kind == "signal"
    assert request.signal is not None
    assert "is not a request" in str(request.signal.problem)


def test_file_that_is_not_text_is_a_signal_that_cannot_be_obeyed(tmp_path: Path) -> None:
    (tmp_path / "0001.json").write_bytes(b"\xff\xfe{")
    (request,) = RequestDirectory(str(tmp_path)).pending()
    assert request.signal is not None
    assert request.signal.problem is not None


def test_signal_is_read_as_it_was_sent(tmp_path: Path) -> None:
    directory = RequestDirectory(str(tmp_path))
    first = directory.add_signal({"id": "ad-hoc", "type": "log", "data": {"message": "at {}"}})
    second = directory.add_signal({"type": "pause-snapshot"})
    found = RequestDirectory(str(tmp_path)).pending()
    assert [(r.id, r.signal) for r in found] == [
        (first, Signal("ad-hoc", "log", {"message": "at {}"})),
        (second, Signal(second, "pause-snapshot")),
    ]
