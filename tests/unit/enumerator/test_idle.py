"""Waits of an idle stream."""

from __future__ import annotations

from tailrace.enumerator.idle import Idle


def test_waits_double_up_to_a_second() -> None:
    idle = Idle()
    waits = [idle.next_s() for _ in range(10)]
    assert waits[:3] == [0.01, 0.02, 0.04]
    assert waits[-2:] == [1.0, 1.0]
