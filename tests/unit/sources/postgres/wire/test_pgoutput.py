"""Streams of pgoutput written by hand: unchanged values, values larger than their room, rejected messages."""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import DecodeError, SchemaMismatchError
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableId
from tailrace.sources.postgres.position import seq_of
from tailrace.sources.postgres.wire.pgoutput import LogDecoder
from tailrace.sources.postgres.wire.types import PostgresTypes
from tests.support.plain import plain

_INT, _TEXT, _NUMERIC = 23, 25, 1700
_OID = 5000
_COMMIT = 9000


def _framed(body: bytes, lsn: int = 8000) -> bytes:
    message = b"w" + struct.pack(">QQq", lsn, 0, 0) + body
    return b"d" + struct.pack(">I", len(message) + 4) + message


def _relation(identity: str = "d", *, key: str = "id", big: int = _TEXT) -> bytes:
    body = struct.pack(">I", _OID) + b"public\0toast\0" + identity.encode() + struct.pack(">H", 3)
    for name, oid in (("id", _INT), ("n", _INT), ("big", big)):
        flagged = identity == "f" or name == key
        body += bytes([flagged]) + name.encode() + b"\0" + struct.pack(">Ii", oid, -1)
    return _framed(b"R" + body)


#: What stands for a value that is unchanged and not sent.
UNCHANGED = object()


def _tuple(*values: Any) -> bytes:
    out = struct.pack(">H", len(values))
    for value in values:
        if value is None:
            out += b"n"
        elif value is UNCHANGED:
            out += b"u"
        else:
            text = str(value).encode()
            out += b"t" + struct.pack(">I", len(text)) + text
    return out


def _change(letter: str, *tuples: tuple[str, bytes]) -> bytes:
    body = letter.encode() + struct.pack(">I", _OID)
    return _framed(body + b"".join(mark.encode() + data for mark, data in tuples))


def _transaction(*messages: bytes) -> bytes:
    begin = _framed(b"B" + struct.pack(">QqI", _COMMIT, 0, 77))
    return begin + b"".join(messages) + _framed(b"C\0" + struct.pack(">QQq", _COMMIT, _COMMIT + 8, 0))


def _decoder(**options: Any) -> LogDecoder:
    return LogDecoder(**{"captures": lambda _: True, "types": PostgresTypes(), **options})


def _decoded(stream: bytes, **options: Any) -> list[ChangeBatch]:
    return list(_decoder(**options).feed(stream))


_CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["insert", "update", "lacking", "move", "delete"]),
        st.integers(0, 12),
        st.integers(0, 12),
    ),
    max_size=80,
)


def _message(kind: str, id_: int, other: int, number: int) -> bytes:
    old = ("K", _tuple(id_, None, None))
    match kind:
        case "insert":
            return _change("I", ("N", _tuple(id_, number, "whole")))
        case "update":
            return _change("U", ("N", _tuple(id_, number, "whole")))
        case "lacking":
            return _change("U", ("N", _tuple(id_, number, UNCHANGED)))
        case "move":
            return _change("U", old, ("N", _tuple(other, number, UNCHANGED)))
    return _change("D", old)


def _rows(batches: list[ChangeBatch]) -> list[tuple[Any, ...]]:
    out = []
    for batch in batches:
        images = zip(plain(batch.image("before")), plain(batch.image("after")), strict=True)
        for seq, (before, after) in zip(batch.origin.column("seq").to_pylist(), images, strict=True):
            out.append((seq, before, after, batch.absent_after if after else ()))
    return out


@given(_CHANGES)
@settings(deadline=None)
def test_changes_that_are_brought_together_stay_in_order_row_by_row(
    changes: list[tuple[str, int, int]],
) -> None:
    messages = [_message(*change, number) for number, change in enumerate(changes)]
    stream = _relation() + _transaction(*messages)
    together = _decoded(stream)
    alone = [batch for m in _pieces(messages) for batch in m]
    found = _rows(together)
    assert sorted(found, key=lambda row: row[0]) == [
        (seq_of(_COMMIT, number + 1), *row[1:]) for number, row in enumerate(_rows(alone))
    ]
    last: dict[int, str] = defaultdict(str)
    for seq, before, after, _ in found:
        for id_ in {image["id"] for image in (before, after) if image}:
            assert last[id_] < seq
            last[id_] = seq
    for batch in together:
        seqs = batch.origin.column("seq").to_pylist()
        assert seqs == sorted(seqs)


def _pieces(messages: list[bytes]) -> list[list[ChangeBatch]]:
    """Each change decoded by itself."""
    decoder = _decoder()
    list(decoder.feed(_relation()))
    return [list(decoder.feed(_transaction(message))) for message in messages]


def test_updates_that_lack_a_column_and_others_take_few_batches() -> None:
    messages = [_message("lacking" if i % 2 else "update", i, 0, i) for i in range(1000)]
    assert len(_decoded(_relation() + _transaction(*messages))) == 2


def test_what_is_not_sent_of_a_new_row_is_taken_from_a_whole_old_one() -> None:
    update = _change("U", ("O", _tuple(1, 2, "old")), ("N", _tuple(1, 3, UNCHANGED)))
    (batch,) = _decoded(_relation("f") + _transaction(update))
    assert plain(batch.image("after")) == [{"id": 1, "n": 3, "big": "old"}]
    assert (batch.absent_before, batch.absent_after) == ((), ())


def test_a_value_larger_than_all_room_is_decoded() -> None:
    large = "x" * 9_000_000
    messages = [_change("I", ("N", _tuple(i, i, value))) for i, value in enumerate(["a", large, "b"])]
    batches = _decoded(_relation() + _transaction(*messages), batch_bytes=1000)
    assert [row["big"] for batch in batches for row in plain(batch.image("after"))] == ["a", large, "b"]


def test_a_key_that_the_replica_identity_lacks_is_refused_with_the_remedy() -> None:
    stream = _relation("i", key="n") + _transaction(_change("D", ("K", _tuple(None, 5, None))))
    with pytest.raises(SchemaMismatchError, match="REPLICA IDENTITY FULL"):
        _decoded(stream, keys={TableId("public", "toast"): ("id",)})


@pytest.mark.parametrize("key", [("n",), ("id", "n")])
def test_a_change_from_before_the_table_got_another_primary_key_has_the_key_of_its_time(key: Any) -> None:
    stream = _relation() + _transaction(_change("D", ("K", _tuple(5, None, None))))
    (batch,) = _decoded(stream, keys={TableId("public", "toast"): key})
    assert batch.table.key == ("id",)
    assert plain(batch.image("before")) == [{"id": 5, "n": None, "big": None}]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (_change("I", ("N", _tuple(1, 2))), "malformed"),
        (_change("I", ("N", _tuple("x", 2, ""))), "column `public.toast.id`"),
        (_change("I", ("N", _tuple(2**31, 2, ""))), "column `public.toast.id`"),
        (_change("D", ("N", _tuple(1, 2, ""))), "malformed"),
        (_change("I", ("N", _tuple(1, 2, "a") + b"!")), "malformed"),
    ],
)
def test_a_broken_change_is_refused_with_its_place(message: bytes, expected: str) -> None:
    with pytest.raises(DecodeError, match="0/1F40") as caught:
        _decoded(_relation() + _transaction(message))
    assert expected in str(caught.value)


def test_a_change_before_its_relation_is_refused() -> None:
    with pytest.raises(DecodeError, match="before its relation is described"):
        _decoded(_transaction(_change("I", ("N", _tuple(1, 2, "")))))


def test_a_prepared_transaction_whose_changes_were_sent_before_is_refused() -> None:
    commit = b"K\0" + struct.pack(">QQqI", _COMMIT, _COMMIT + 8, 0, 77) + b"name\0"
    with pytest.raises(DecodeError, match="prepared transaction"):
        _decoded(_framed(commit))
