"""A stream's checkpoint, as Spark writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.spark.checkpoint import Checkpoint, PlannedBatch


@pytest.mark.parametrize(
    ("planned", "committed", "expected"),
    [([], [], None), ([0], [], None), ([0], [0], 0), ([0, 1], [0], 0), ([8, 9, 10], [8, 9], 9)],
)
def test_last_committed_batch_is_the_newest_that_the_sink_has(
    tmp_path: Path, planned: list[int], committed: list[int], expected: int | None
) -> None:
    for name, numbers, text in (("offsets", planned, '{{"n":{}}}'), ("commits", committed, "{{}}")):
        (tmp_path / name).mkdir()
        for number in numbers:
            (tmp_path / name / str(number)).write_text(
                f'v1\n{{"batchTimestampMs":{number + 70}}}\n{text.format(number)}'
            )
    found = Checkpoint(str(tmp_path)).last_committed()
    batch = None if expected is None else PlannedBatch(expected, {"n": expected}, True, expected + 70)
    assert found == batch
