"""Errors that a task meets name their table, as far as they are of one."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.config.options import parse_options
from tailrace.errors import DecodeError, PositionLostError, SourceError, TailraceError
from tailrace.model.split import LogSplit, SnapshotSplit
from tailrace.sources import registry
from tailrace.spark.partition import read_split
from tailrace.spark.row_layouts import CellLayout
from tests.support.changes import INT, table

T = table(("id", INT), key=("id",), name="s.t")
OPTIONS = parse_options({"url": "mysql://h", "user": "u", "tables": "s.*"})
SNAPSHOT = SnapshotSplit(T, None, None, {}, 10)


class Failing:
    keys_only = False

    def __init__(self, error: Exception) -> None:
        self._error = error

    def located(self, split: Any) -> Any:
        return split

    def wait_visible(self, position: Any) -> None:
        raise self._error

    def changes(self, split: Any) -> Any:
        raise self._error

    def rewritten_since(self, split: Any, *, keys: bool) -> bool:
        return False

    def close(self) -> None: ...


def failure(monkeypatch: pytest.MonkeyPatch, split: Any, error: Exception) -> TailraceError:
    monkeypatch.setattr(registry, "session", lambda options: Failing(error))
    with pytest.raises(TailraceError) as raised:
        list(read_split(split, OPTIONS, CellLayout(), follows=True))
    return raised.value


def test_error_of_a_table_read_by_a_snapshot_names_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert failure(monkeypatch, SNAPSHOT, DecodeError("x", code="TR-5203")).table == "s.t"
    found = failure(monkeypatch, SNAPSHOT, KeyError("a value of a row"))
    assert (found.table, found.code) == ("s.t", "TR-8040")
    assert "a value" not in str(found)


def test_error_of_the_server_names_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert failure(monkeypatch, SNAPSHOT, SourceError("refused", code="TR-3101")).table is None
    assert failure(monkeypatch, LogSplit({}, {}), PositionLostError("x", code="TR-4101")).table is None


def test_parked_table_whose_changes_are_gone_cannot_be_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = PositionLostError("the log is purged", code="TR-4101")
    found = failure(monkeypatch, LogSplit({}, {}, parked=T.id), lost)
    assert (found.table, found.code) == ("s.t", "TR-4140")
    assert not isinstance(found, PositionLostError)
