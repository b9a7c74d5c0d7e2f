"""Patterns of the signal `set-tables`: what is refused before anything is captured by it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tailrace.config.option_values import table_patterns
from tailrace.enumerator.table_setting import patterns_of
from tailrace.model.signal import Signal
from tailrace.model.table_setting import TableSetting, in_force


def of(tables: Any) -> tuple[str, ...]:
    return patterns_of(Signal("s", "set-tables", {"tables": tables}))


@pytest.mark.parametrize(
    ("given", "patterns"),
    [
        ("shop[.](orders|items)", ("shop[.](orders|items)",)),
        ("shop[.]a, shop[.]b", ("shop[.]a", "shop[.]b")),
        ([" shop[.]a ", "shop[.]a{1,2}"], ("shop[.]a", "shop[.]a{1,2}")),
        (["shop[.](?:a|b[*+)]|c\\+)"], ("shop[.](?:a|b[*+)]|c\\+)",)),
        ("shop[.].*_.*", ("shop[.].*_.*",)),
    ],
)
def test_patterns_are_those_of_the_option(given: Any, patterns: tuple[str, ...]) -> None:
    assert of(given) == patterns
    assert of(",".join(patterns)) == table_patterns(",".join(patterns))


@pytest.mark.parametrize(
    "given",
    [
        None,
        7,
        "",
        [],
        ["shop[.]a", ""],
        ["shop"],
        "shop",
        ["shop.("],
        ["shop.(?=a)"],
        ["(shop.)\\1"],
        ["shop.(a+)+"],
        ["shop.(a|a)*b"],
        ["shop.(a|a){9}b"],
        ["shop.(?:(a)*)"],
        [".*.*.*.*.*"],
        ["shop.a?a?a?a?a?"],
        ["s." * 6_000],
    ],
)
def test_patterns_that_no_stream_should_capture_by_are_refused(given: Any) -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"its data|`tables`"):
        of(given)
    assert time.monotonic() - began < 5


def test_tables_of_a_signal_hold_as_long_as_the_option_is_the_same() -> None:
    setting = TableSetting(("s[.]b",), ("s[.]a",))
    assert in_force(setting, ("s[.]a",)) == ("s[.]b",)
    assert in_force(setting, ("s[.]a", "s[.]c")) == ("s[.]a", "s[.]c")
    assert in_force(None, ("s[.]a",)) == ("s[.]a",)
