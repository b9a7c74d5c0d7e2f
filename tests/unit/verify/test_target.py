"""Which version of a table is compared."""

from __future__ import annotations

import json

from tailrace.verify.target import version_of


def note(batch: int) -> str:
    return json.dumps({"batch": batch, "end": {}, "part": "log"})


def test_version_is_the_one_before_the_first_commit_of_a_later_batch() -> None:
    history = [(9, note(5)), (8, None), (7, note(4)), (6, note(4)), (5, "by hand"), (4, "[1]"), (3, note(2))]
    assert version_of(history, 5) == 9
    assert version_of(history, 4) == 8
    assert version_of(history, 3) == 5
    assert version_of(history, 2) == 5


def test_what_others_did_after_the_last_batch_is_compared_too() -> None:
    assert version_of([(5, None), (4, note(2))], 2) == 5


def test_table_made_by_a_later_batch_is_empty() -> None:
    assert version_of([(1, note(7)), (0, None)], 6) == 0


def test_history_that_does_not_reach_back_tells_nothing() -> None:
    assert version_of([(9, note(5)), (8, note(5))], 4) is None
