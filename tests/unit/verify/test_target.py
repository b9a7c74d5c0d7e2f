"""Which version of a table is compared."""

from __future__ import annotations

import json

from tailrace.verify.target import version_of


def note(batch: int) -> str:
    return json.dumps({"batch": batch, "end": {}, "part": "log"})


def test_version_is_the_last_of_the_batch_or_an_earlier_one() -> None:
    history = [(9, note(5)), (8, None), (7, note(4)), (6, note(4)), (5, "by hand"), (4, "[1]"), (3, note(2))]
    assert version_of(history, 5) == 9
    assert version_of(history, 4) == 7
    assert version_of(history, 3) == 3
    assert version_of(history, 1) is None
