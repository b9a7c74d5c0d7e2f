"""Messages that may be on their way at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.sinks.messages.portions import portions

Message = tuple[int | None, int, bytes]


@given(st.lists(st.tuples(st.integers(0, 9) | st.none(), st.integers(), st.binary(max_size=9))))
def test_portions_keep_the_order_and_no_two_messages_of_one_have_a_key(messages: list[Message]) -> None:
    found = list(portions(messages, 4, 20))
    assert [message for portion in found for message in portion] == messages
    for portion in found:
        assert len({key for key, _, _ in portion}) == len(portion) <= 4
        assert sum(len(value) for _, _, value in portion) <= 20


def test_portions_are_as_large_as_allowed_and_one_message_may_be_larger() -> None:
    values = [b"1", b"2", b"3", b"4444", b"5"]
    found = portions([(i, None, value) for i, value in enumerate(values)], 2, 3)
    assert [[value for _, _, value in portion] for portion in found] == [
        [b"1", b"2"],
        [b"3"],
        [b"4444"],
        [b"5"],
    ]
