"""What targets hold, as one answer for their sink."""

from __future__ import annotations

import pytest

from tailrace.sinks.standing import SinkStanding, TargetStanding


@pytest.mark.parametrize(
    ("targets", "received", "visible", "begun"),
    [
        ([], None, None, None),
        ([], 4, 4, None),
        ([TargetStanding(4), TargetStanding(2)], 4, 4, None),
        ([TargetStanding(5), TargetStanding(2)], 4, 4, 5),
        ([TargetStanding(None)], 4, 4, None),
        ([TargetStanding(0)], None, None, 0),
        ([TargetStanding(4, (3, 4), 7), TargetStanding(4, (2,), 1)], 4, 1, None),
        ([TargetStanding(0, (0,), 7)], 0, None, None),
        ([TargetStanding(5, (5,), 7)], 4, 4, 5),
    ],
)
def test_batch_is_visible_once_no_target_keeps_it_waiting(
    targets: list[TargetStanding], received: int | None, visible: int | None, begun: int | None
) -> None:
    found = SinkStanding({str(number): target for number, target in enumerate(targets)})
    assert found.visible(received) == visible
    assert found.begun(received) == begun
