"""Reports come as soon as they are there, and the JVM is not asked while there can be none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.pipeline import reports as module
from tailrace.pipeline.reports import QueryReports


class Query:
    """A query with reports, which counts how often it is asked."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.asked = 0
        self.now_s = 0.0

    def report(self, batch: int) -> None:
        self.texts.append(json.dumps({"batchId": batch, "timestamp": self.now_s}))

    def after(self, seen: str) -> list[str]:
        self.asked += 1
        return self.texts[self.texts.index(seen) + 1 :] if seen else list(self.texts)


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch) -> Query:
    monkeypatch.setattr(module, "reports_after", lambda query, seen: query.after(seen))
    monkeypatch.setattr(module, "idle_report_s", lambda _: 10.0)
    return Query()


def look(reports: QueryReports, query: Query, at_s: float, begun: int | None) -> list[int]:
    query.now_s = at_s
    found: Any = reports.new(begun)
    return [report["batchId"] for report in found]


def test_idle_stream_is_asked_only_when_its_next_report_may_be_there(query: Query) -> None:
    reports = QueryReports(query, lambda: query.now_s)  # type: ignore[arg-type]
    assert look(reports, query, 0, None) == []
    query.report(0)
    assert look(reports, query, 1, 0) == [0]
    assert not reports.is_idle(0)
    query.report(1)  # between 1 and 2: nothing to write
    assert look(reports, query, 2, 0) == [1]
    assert reports.is_idle(0)
    asked = query.asked
    for at_s in (3, 5, 10.9):
        assert look(reports, query, at_s, 0) == []
    assert query.asked == asked
    query.report(1)  # ten seconds after the one before, at the earliest
    assert look(reports, query, 11, 0) == [1]
    assert query.asked == asked + 1


def test_report_of_a_batch_is_found_at_once(query: Query) -> None:
    reports = QueryReports(query, lambda: query.now_s)  # type: ignore[arg-type]
    query.report(7)  # a start with nothing to write
    assert look(reports, query, 1, None) == [7]
    assert reports.is_idle(None)
    assert look(reports, query, 2, None) == []
    # a batch begins: whoever asks asks the JVM, until the stream is idle again
    assert look(reports, query, 3, 7) == []
    query.report(7)
    query.report(8)
    assert look(reports, query, 3.25, 7) == [7, 8]
    assert reports.is_idle(7)
    query.report(8)
    assert look(reports, query, 4, 7) == []
    assert [report["batchId"] for report in reports.rest()] == [8]
