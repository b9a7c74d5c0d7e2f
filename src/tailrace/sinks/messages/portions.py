"""Messages that may be on their way at once: none can overtake another one of its key."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

#: What goes with a value, such as its headers.
_H = TypeVar("_H")
_Key = Hashable


def portions(
    messages: Iterable[tuple[_Key, _H, bytes]], most_messages: int, most_bytes: int
) -> Iterator[list[tuple[_Key, _H, bytes]]]:
    """Consecutive messages, no two of which have one key: the next ones wait for the answers to them.

    Args:
        messages: key, what goes with the value, and value.
        most_messages: most messages of a portion.
        most_bytes: most bytes of values of a portion, unless one message has more.
    """
    portion: list[tuple[_Key, _H, bytes]] = []
    keys: set[_Key] = set()
    size = 0
    for message in messages:
        key, _, value = message
        if portion and (key in keys or len(portion) == most_messages or size + len(value) > most_bytes):
            yield portion
            portion, keys, size = [], set(), 0
        portion.append(message)
        keys.add(key)
        size += len(value)
    if portion:
        yield portion
