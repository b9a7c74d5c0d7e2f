"""GTID sets: text, binary forms, arithmetic."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import DecodeError, SourceError
from tailrace.sources.mysql.gtid import GtidSet

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "bd8d07c2-e53d-11f1-9bce-02fc00000001"
A_SOURCE = (bytes.fromhex(A.replace("-", "")), "")

_numbers = st.sets(st.integers(1, 60))
_members = st.dictionaries(
    st.sampled_from([(bytes(16), ""), (bytes(16), "tag"), (b"\1" * 16, "")]), _numbers, max_size=3
)


def build(members):
    found = GtidSet()
    for source, numbers in members.items():
        found.add_numbers(source, np.array(sorted(numbers), np.int64))
    return found


def flat(members):
    return {(source, n) for source, numbers in members.items() for n in numbers}


def spread(found):
    return {(source, n) for source, start, end in found.intervals() for n in range(start, end)}


def test_text_of_the_server_survives_parsing():
    text = f"{A}:1-5:7:11-18,{B}:1-12:hello_tag:1"
    assert str(GtidSet.parse(text)) == text
    assert str(GtidSet.parse(f" {A.upper()}:1-5:7 : 11 - 18 ,\n{B}:1-12:Hello_Tag:1\n")) == text
    assert str(GtidSet.parse("")) == ""


@pytest.mark.parametrize("text", ["x", f"{A}", f"{A}:0", f"{A}:1-", f"{A}:1:9tag-", "a:1-2"])
def test_text_that_is_no_gtid_set_is_an_error_that_shows_it(text):
    with pytest.raises(SourceError, match="not a set of GTIDs"):
        GtidSet.parse(text)


def test_previous_gtids_event_of_a_9_7_server_with_a_tag_is_read():
    body = bytes.fromhex(
        "0102000000000001bd8d07c2e53d11f19bce02fc0000000100010000000000000001000000000000000c00000000000000"
        "bd8d07c2e53d11f19bce02fc000000011268656c6c6f5f746167010000000000000001000000000000000200000000000000"
    )
    assert str(GtidSet.decode(body)) == f"{B}:1-11:hello_tag:1"
    assert GtidSet.decode(body).encode() == body


def test_cut_off_previous_gtids_event_is_an_error():
    body = GtidSet.parse(f"{A}:1-5").encode()
    for length in range(len(body)):
        if length != 8 or body[:8] != bytes(8):
            with pytest.raises(DecodeError):
                GtidSet.decode(body[:length])


def test_consecutive_numbers_are_one_interval():
    found = GtidSet()
    for number in range(1, 1000):
        found.add(A_SOURCE, number, number + 1)
    assert list(found.intervals()) == [(A_SOURCE, 1, 1000)]


@given(_members, _members)
def test_arithmetic_is_that_of_sets(a, b):
    x, y = build(a), build(b)
    assert spread(x) == flat(a)
    assert spread(x.union(y)) == flat(a) | flat(b)
    assert spread(x.subtract(y)) == flat(a) - flat(b)
    assert x.is_subset(y) == (flat(a) <= flat(b))
    assert all(x.contains(source, n) for source, n in flat(a))
    assert not any(x.contains(source, n) for source, n in flat(b) - flat(a))
    assert GtidSet.decode(x.encode()) == x
    assert GtidSet.parse(str(x)) == x
    assert x.union(y) == y.union(x)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12))))
def test_intervals_added_in_any_order_stay_sorted_and_apart(intervals):
    found = GtidSet((A_SOURCE, start, start + length) for start, length in intervals)
    kept = [(start, end) for _, start, end in found.intervals()]
    assert all(a[1] < b[0] for a, b in pairwise(kept))
    assert spread(found) == {(A_SOURCE, n) for s, k in intervals for n in range(s, s + k)}
