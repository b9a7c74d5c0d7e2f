"""Which deletes and creates are the halves of a key update."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tailrace.formats.debezium.headers import key_updates
from tests.unit.formats.changes import ORDERS, batch, change

_ROW = {"id": 1, "name": "n"}
_SEQS = st.sampled_from(["", "10", "11", "1f", "1e", "2e", "2f", "00000010", "00000011", "100", "101", None])


@given(st.lists(st.tuples(st.sampled_from("cud"), _SEQS), min_size=1), st.integers(0, 5))
def test_halves_of_a_key_update_differ_in_the_last_digit_of_their_place(changes, first):
    images = {"c": (None, _ROW), "u": (_ROW, _ROW), "d": (_ROW, None)}
    made = batch(ORDERS, [change(op, *images[op], seq=seq) for op, seq in changes])
    made, changes = made.slice(min(first, len(changes) - 1)), changes[min(first, len(changes) - 1) :]
    expected = [
        i
        for i, ((op, seq), (next_op, next_seq)) in enumerate(pairwise(changes))
        if (op, next_op) == ("d", "c") and seq and next_seq and _is_half(seq, next_seq)
    ]
    assert key_updates(made).tolist() == expected


def _is_half(seq: str, next_seq: str) -> bool:
    even, odd = int(seq[-1], 16), int(next_seq[-1], 16)
    return (len(seq), seq[:-1]) == (len(next_seq), next_seq[:-1]) and even % 2 == 0 and odd == even + 1
