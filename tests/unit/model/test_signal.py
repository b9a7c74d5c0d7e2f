"""Whatever somebody sends as a signal is read, and what is wrong with it is noted."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.model.signal import Answer, Signal, read_signal


@pytest.mark.parametrize("data", ['{"data-collections": ["s.a"]}', {"data-collections": ["s.a"]}])
def test_signal_has_its_data_whether_it_comes_as_text_or_parsed(data: Any) -> None:
    assert read_signal("ad-hoc", "execute-snapshot", data) == Signal(
        "ad-hoc", "execute-snapshot", {"data-collections": ["s.a"]}
    )


@pytest.mark.parametrize("data", [None, "", "  ", "{}"])
def test_signal_without_data_has_no_arguments(data: Any) -> None:
    assert read_signal("1", "pause-snapshot", data) == Signal("1", "pause-snapshot")


@pytest.mark.parametrize(
    ("id_", "type_", "data", "problem"),
    [
        ("1", None, None, "no type"),
        ("1", "", None, "no type"),
        ("1", 7, None, "no type"),
        ("1", "log", "{", "not JSON"),
        ("1", "log", "[" * 60_000, "not JSON"),
        ("1", "log", "[1]", "not a JSON object"),
        ("1", "log", 7, "not a JSON object"),
        ("1", "log", '{"message": NaN}', "no JSON"),
        ("1", "log", {"message": float("inf")}, "no JSON"),
        ("1", "log", r'{"message": "\ud800"}', "no JSON"),
        ("1", "log", '{"a":' * 500 + "1" + "}" * 500, "too much"),
        ("1", "log", {"message": "x" * 300_000}, "too much"),
        ("1", "log", '"' + "x" * 70_000 + '"', "more than"),
    ],
)
def test_wrong_signal_says_what_is_wrong_with_it(id_: Any, type_: Any, data: Any, problem: str) -> None:
    found = read_signal(id_, type_, data)
    assert problem in str(found.problem)
    assert found.data == {}


def test_names_are_text() -> None:
    found = read_signal("a\ud800", "log\udfff", None)
    assert (found.id, found.type) == ("a?", "log?")


def test_long_names_are_cut() -> None:
    found = read_signal("i" * 1000, "t" * 1000, None)
    assert (len(found.id), len(found.type)) == (255, 255)


def test_signals_and_answers_survive_json() -> None:
    signal = Signal("1", "log", {"message": "m"}, "a problem")
    assert Signal.from_json(signal.to_json()) == signal
    answer = Answer("1", "log", "COMPLETED", "done", ("s.a",))
    assert Answer.from_json(answer.to_json()) == answer
