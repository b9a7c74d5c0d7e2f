"""One collection in each idle time."""

from __future__ import annotations

from tailrace.pipeline.idle_heap import IDLE_S, IdleHeap


def test_garbage_is_collected_once_after_the_last_batch() -> None:
    now_s, collected = [0.0], []
    heap = IdleHeap(lambda: collected.append(now_s[0]), lambda: now_s[0])

    def look(newest: int | None, *, after_s: float) -> int:
        now_s[0] += after_s
        heap.look(newest)
        return len(collected)

    assert look(None, after_s=10 * IDLE_S) == 0  # the first batch may take long
    assert look(0, after_s=1) == 0
    assert look(0, after_s=IDLE_S - 1) == 0
    assert look(1, after_s=0.5) == 0
    assert look(1, after_s=IDLE_S - 1) == 0
    assert look(1, after_s=1) == 1
    assert look(1, after_s=10 * IDLE_S) == 1
    assert look(2, after_s=1) == 1
    assert look(2, after_s=IDLE_S) == 2
