"""Retries, and who is told of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.config.options import SourceOptions, parse_options
from tailrace.errors import SourceError, TailraceError, TransientSourceError
from tailrace.sources import network
from tailrace.sources.network import Retrying, tell_retries

OPTIONS = parse_options(
    {
        "url": "mysql://127.0.0.1:1/shop",
        "user": "u",
        "password": "p",
        "tables": "shop[.]t",
        "retryTimeoutMs": "60000",
    }
)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """Names of operations, and the error or None."""
    found: list[tuple[str, str | None]] = []

    def tell(options: SourceOptions, operation: str, error: TailraceError | None) -> None:
        assert options is OPTIONS
        found.append((operation, None if error is None else error.message))

    monkeypatch.setattr(network, "_listeners", [])
    tell_retries(tell)
    return found


def run(failures: int, error: TailraceError, *, attempt_s: float = 0.0) -> str:
    """The result of an operation that fails so often; a clock that only the pauses and attempts move."""
    now, left = [0.0], [failures]

    def operation() -> str:
        now[0] += attempt_s
        if left[0]:
            left[0] -= 1
            raise error
        return "done"

    def sleep(seconds: float) -> None:
        now[0] += seconds

    as_it_is: Callable[[Exception, str], TailraceError] = lambda error, _: error  # type: ignore[assignment,return-value]  # noqa: E731
    return Retrying(as_it_is, ())(OPTIONS, operation, "reading", sleep=sleep, clock=lambda: now[0])


def test_what_succeeds_within_a_second_is_not_told(told: list[tuple[str, str | None]]) -> None:
    assert run(2, TransientSourceError("no answer")) == "done"
    assert told == []


def test_what_is_tried_again_for_longer_is_told_until_it_succeeds(told: list[tuple[str, str | None]]) -> None:
    assert run(8, TransientSourceError("no answer")) == "done"
    operations, errors = zip(*told, strict=True)
    assert len(set(operations)) == 1
    assert errors[-1] is None
    assert set(errors[:-1]) == {"no answer"}
    assert len(errors) > 2


def test_first_attempt_that_takes_long_is_told(told: list[tuple[str, str | None]]) -> None:
    run(1, TransientSourceError("no answer in time"), attempt_s=30)
    assert [error for _, error in told] == ["no answer in time", None]


def test_what_ends_with_an_error_is_no_longer_tried_again(told: list[tuple[str, str | None]]) -> None:
    with pytest.raises(TransientSourceError):
        run(10**6, TransientSourceError("no answer"))
    assert told[-1][1] is None
    told.clear()
    with pytest.raises(SourceError):
        run(1, SourceError("refused"), attempt_s=30)
    assert told == []
