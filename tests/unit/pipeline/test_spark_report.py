"""What is read from Spark's reports."""

from __future__ import annotations

import pytest

from tailrace.pipeline.spark_report import latest


@pytest.mark.parametrize(
    "sources", [[{"latestOffset": '{"a": 1}'}], [{"latestOffset": {"a": 1}}, {"latestOffset": None}]]
)
def test_latest_offset_is_read_as_text_and_as_values(sources: list[object]) -> None:
    assert latest({"sources": sources}) == {"a": 1}


@pytest.mark.parametrize(
    "progress", [{}, {"sources": []}, {"sources": [{}]}, {"sources": [{"latestOffset": None}]}]
)
def test_report_without_one_is_empty(progress: dict[str, object]) -> None:
    assert latest(progress) == {}
