"""What the terminal shows before the first batch, and of notices."""

from __future__ import annotations

import io

from rich.console import Console

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


def test_notice_is_printed_without_control_characters():
    assert "lost `a\\x1b[2J`" in shown(report=lambda view: view.on_notice("lost `a\x1b[2J`"))
