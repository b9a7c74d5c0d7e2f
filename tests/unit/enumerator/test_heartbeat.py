"""A statement that is run at an interval."""

from __future__ import annotations

import pytest

from tailrace.enumerator.heartbeat import Heartbeat
from tailrace.errors import SourceError, TransientSourceError


def test_statement_is_run_once_in_each_interval() -> None:
    now_s, runs = [0.0], []
    heartbeat = Heartbeat(lambda: runs.append(now_s[0]), 2.0, lambda: now_s[0])
    for _ in range(20):
        heartbeat.beat()
        now_s[0] += 0.5
    assert runs == [0.0, 2.0, 4.0, 6.0, 8.0]


@pytest.mark.parametrize(("error", "is_said"), [(TransientSourceError, False), (SourceError, True)])
def test_statement_that_fails_does_not_stop_the_stream(
    error: type[SourceError], is_said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error("`beat` does not exist", code="TR-2001")

    Heartbeat(fail, 2.0, lambda: 0.0).beat()
    assert ("TR-2001" in caplog.text) is is_said
