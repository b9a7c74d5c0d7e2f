"""What the console sink prints."""

from __future__ import annotations

import io

from rich.console import Console

from tailrace.sinks.console import shown_rows

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
    console.print(shown_rows("batch 0", [row], own, width))
    found = console.file
    assert isinstance(found, io.StringIO)
    return found.getvalue()


def test_value_of_a_column_is_shown_whole_in_a_terminal_of_80_columns() -> None:
    text = printed(ROW, {"id", "name"}, 80)
    assert "thirteen char" in text
    assert "…" not in text


def test_values_that_fit_in_no_table_are_shown_with_their_names() -> None:
    row = {f"c{i}": "abcdefghij" for i in range(12)}
    lines = printed(row, set(row), 80).splitlines()
    assert lines[0] == "batch 0"
    assert lines[1].startswith("c0=abcdefghij  c1=abcdefghij")
    assert "".join(lines[1:]).split() == [f"{name}={text}" for name, text in row.items()]
    assert all(line.startswith("  c") for line in lines[2:])
    assert max(map(len, lines)) <= 80


def test_value_longer_than_a_line_is_folded_and_not_cut() -> None:
    text = printed({"a": "x" * 200}, {"a"}, 80)
    assert text.count("x") == 200
    assert "…" not in text
