"""What the terminal shows before the first batch, and of notices."""

from __future__ import annotations

import io

from rich.console import Console

from tailrace.errors import TransientSourceError
from tailrace.pipeline.view import ProgressView


def shown(*, report):
    out = io.StringIO()
    with ProgressView(Console(file=out, width=200), "mysql", interval_s=60) as view:
        report(view)
    return out.getvalue()


def test_step_is_shown_until_a_batch_is_known():
    assert "writing batch 0" in shown(report=lambda view: view.on_step("writing batch 0"))

    def written(view):
        view.on_step("writing batch 0")
        view.on_written(0, [])

    printed = shown(report=written)
    assert " · batch 0" in printed
    assert "writing" not in printed


def test_idle_stream_prints_no_line_after_the_other(monkeypatch):
    out = io.StringIO()
    with ProgressView(Console(file=out, width=200), "mysql", interval_s=60) as view:
        view.on_written(0, [])
        for ts_ms in range(5):
            view._view.complete_ts_ms = ts_ms
            view._line()
        assert out.getvalue().count("\n") == 1
        monkeypatch.setattr("tailrace.pipeline.view.IDLE_INTERVAL_S", 0.0)
        for _ in range(2):  # the same line is never printed twice
            view._line()
            assert out.getvalue().count("\n") == 2


def test_notice_is_printed_without_control_characters():
    assert "lost `a\\x1b[2J`" in shown(report=lambda view: view.on_notice("lost `a\x1b[2J`"))


def test_source_that_does_not_answer_is_told_until_it_does():
    def trouble(view):
        view.on_trouble(TransientSourceError("no connection", code="TR-3003"))
        view.on_trouble(None)

    printed = shown(report=trouble)
    assert "no answer from the source, tried again: no connection [TR-3003]" in printed
    assert "the source answers again" in printed
