"""Items are made ahead, in order, and nothing goes on behind the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tailrace.reader.ahead import reading_ahead


def test_items_come_in_order() -> None:
    with reading_ahead(iter(range(1000)), 3) as items:
        assert list(items) == list(range(1000))


def test_the_next_item_is_made_while_the_last_one_is_used() -> None:
    made = [threading.Event() for _ in range(5)]

    def numbers() -> Iterator[int]:
        for n, event in enumerate(made):
            event.set()
            yield n

    with reading_ahead(numbers(), 2) as items:
        assert next(items) == 0
        assert made[2].wait(10), "two more are made without being asked for"
        assert not made[4].wait(0.05), "but not all"
        assert list(items) == [1, 2, 3, 4]


def test_an_error_comes_behind_the_items_before_it() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("the third")

    with reading_ahead(numbers()) as items:
        assert [next(items), next(items)] == [1, 2]
        with pytest.raises(ValueError, match="the third"):
            next(items)


def test_a_consumer_that_leaves_ends_the_making() -> None:
    made = []

    def numbers() -> Iterator[int]:
        n = 0
        while True:
            made.append(n)
            yield n
            n += 1

    before = threading.active_count()
    with reading_ahead(numbers()) as items:
        assert next(items) == 0
    count = len(made)
    assert threading.active_count() == before
    assert len(made) == count <= 4
