"""What the console sink prints."""

from __future__ import annotations

import io

from rich.console import Console

from tailrace.sinks.console import table_of

ROW = {
    "id": "1",
    "name": "thirteen char",
    "_op": "r",
    "_seq": "0" * 32,
    "_ts_ms": "1763893412123",
    "_txn": "·",
    "_position": "binlog.000002:157",
    "_absent": "·",
}


def printed(row: dict[str, str], own: set[str], width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table_of("batch 0", [row], own, width))
    found = console.file
    assert isinstance(found, io.StringIO)
    return found.getvalue()


def test_value_of_a_column_is_shown_whole_in_a_terminal_of_80_columns() -> None:
    text = printed(ROW, {"id", "name"}, 80)
    assert "thirteen char" in text
    assert "…" not in text


def test_values_that_do_not_fit_are_folded_and_not_cut() -> None:
    row = {f"c{i}": "abcdefghij" for i in range(12)}
    text = printed(row, set(row), 80)
    assert "…" not in text
    assert text.count("j") == 12
