"""XA transactions in a recorded log: indexed, set aside, and decoded as of their commit."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import DecodeError, PositionLostError
from tailrace.kernels.memory import SLACK
from tailrace.sources.mysql.position import MySqlPosition, Prepared
from tailrace.sources.mysql.wire.block import EventBlock
from tailrace.sources.mysql.wire.decoder import EventDecoder
from tailrace.sources.mysql.wire.kernels import boundaries
from tailrace.sources.mysql.wire.rare import asides as asides_module
from tailrace.sources.mysql.wire.rare.xa import OpenTransactions, XaMark, XaStep, end_of, prepare_of, xid_of
from tailrace.sources.mysql.wire.transactions import TransactionIndex

#: It holds, among others: XA START, an insert into p.t, XA PREPARE; XA COMMIT, each with a GTID of its own.
LOG = (Path(__file__).parents[5] / "golden" / "mysql" / "transactions-9.7.binlog").read_bytes()
FILE = "binlog.000001"
PREPARE, COMMIT = (1610, 2003), (2003, 2167)


def block(start: int, end: int, data: bytes = LOG, file: str = FILE) -> EventBlock:
    return EventBlock(np.frombuffer(data + bytes(SLACK), np.uint8).copy(), start, end, file, start, True)


def decoder(**options: object) -> EventDecoder:
    return EventDecoder(captures=lambda table: table.table == "t", **options)  # type: ignore[arg-type]


def changes(found: EventDecoder, *blocks: EventBlock) -> list[tuple[object, ...]]:
    return [
        (row["seq"], row["txn"], row["pos"], row["row"], after)
        for piece in blocks
        for batch in found.feed(piece)
        for row, after in zip(batch.origin.to_pylist(), batch.image("after").to_pylist(), strict=True)
    ]


def prepared() -> Prepared:
    return Prepared(xid(), FILE, *PREPARE)


def xid() -> str:
    index = TransactionIndex(lambda _: True)
    (mark,) = index.feed(block(*PREPARE)).xa
    return mark.xid


def test_prepare_and_commit_are_marked_and_the_rows_are_not_counted_at_the_prepare() -> None:
    index = TransactionIndex(lambda table: table.table == "t", count_rows=True, past=True)
    done = index.feed(block(4, len(LOG)))
    first, last = done.xa
    assert first == XaMark(XaStep.PREPARES, xid(), *PREPARE, True, 1)
    assert last == XaMark(XaStep.COMMITS, xid(), *COMMIT)
    row = done.rows[done.rows[:, boundaries.START] == PREPARE[0]][0]
    assert row[[boundaries.WANTED, boundaries.ROWS]].tolist() == [0, 0]
    assert row[boundaries.FLAGS] == boundaries.HAS_WANTED | boundaries.PREPARED


def test_marks_are_the_same_wherever_blocks_end() -> None:
    whole = TransactionIndex(lambda _: True, past=True).feed(block(4, len(LOG))).xa
    for cut in ends():
        index = TransactionIndex(lambda _: True, past=True)
        assert index.feed(block(4, cut)).xa + index.feed(block(cut, len(LOG))).xa == whole


def ends() -> list[int]:
    found, at = [], 4
    while (at := at + int.from_bytes(LOG[at + 9 : at + 13], "little")) < len(LOG):
        found.append(at)
    return found


def test_rows_are_decoded_at_the_commit_with_its_place_and_gtid() -> None:
    found = decoder()
    assert changes(found, block(*PREPARE)) == []
    assert found.open == (Prepared(xid(), FILE, found.open[0].start, PREPARE[1]),)
    ((seq, txn, pos, number, after),) = changes(found, block(*COMMIT))
    assert found.open == ()
    event = COMMIT[0] + int.from_bytes(LOG[COMMIT[0] + 9 : COMMIT[0] + 13], "little")
    assert (txn[-2:], pos) == (":6", event)
    assert seq == f"{0:04x}{1:08x}{event:012x}{2 * number:08x}"
    assert after is not None


def test_rows_are_the_same_whether_held_read_again_or_cut_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = changes(decoder(), block(PREPARE[0], COMMIT[1]))
    assert len(expected) == 1
    for cut in [end for end in ends() if PREPARE[0] < end < COMMIT[1]]:
        assert changes(decoder(), block(PREPARE[0], cut), block(cut, COMMIT[1])) == expected

    def recall(place: Prepared) -> list[EventBlock]:
        asked.append(place)
        middle = next(end for end in ends() if end > place.start)
        pieces = [(place.start, middle), (middle, place.end)]
        return [block(*piece) for piece in pieces]

    asked: list[Prepared] = []
    before = decoder(prepared=[prepared()], recall=recall)
    assert changes(before, block(*COMMIT)) == expected
    monkeypatch.setattr(asides_module, "LIMIT", 10)
    assert changes(decoder(recall=recall), block(PREPARE[0], COMMIT[1])) == expected
    assert [place.xid for place in asked] == [xid(), xid()]


def test_commit_in_another_file_sorts_by_that_file() -> None:
    found = decoder()
    changes(found, block(*PREPARE))
    ((seq, *_),) = changes(found, block(*COMMIT, file="binlog.000009"))
    assert seq[4:12] == f"{9:08x}"


def test_prepare_without_wanted_rows_replaces_what_was_known_of_its_xid() -> None:
    found = EventDecoder(captures=lambda _: False, prepared=[prepared()])
    assert changes(found, block(*PREPARE)) == []
    assert found.open == ()


def test_commit_of_what_is_not_known_to_be_prepared_brings_nothing() -> None:
    assert changes(decoder(), block(*COMMIT)) == []


def test_what_no_longer_can_be_read_is_the_readers_error() -> None:
    def lost(place: Prepared) -> list[EventBlock]:
        raise PositionLostError(f"{place.xid} is gone")

    with pytest.raises(PositionLostError, match="X'"):
        changes(decoder(prepared=[prepared()], recall=lost), block(*COMMIT))


def test_transaction_that_never_ends_is_an_error_and_not_a_gap() -> None:
    start = ends()[ends().index(PREPARE[0]) + 1]  # behind its GTID
    last = max(end for end in ends() if end < PREPARE[1])
    cut = LOG[PREPARE[0] : last] + LOG[COMMIT[0] : COMMIT[1]]
    with pytest.raises(DecodeError, match="has no end"):
        changes(decoder(), EventBlock(block(0, 0, cut).buffer, 0, len(cut), FILE, start, True))


def test_prepare_without_a_start_is_an_error() -> None:
    last = max(end for end in ends() if end < PREPARE[1])
    with pytest.raises(DecodeError, match="XA_PREPARE"):
        changes(decoder(), block(last, PREPARE[1]))


@given(st.binary(max_size=64), st.binary(max_size=64), st.integers(0, (1 << 32) - 1), st.booleans())
def test_an_xid_is_the_same_in_events_and_statements(
    gtrid: bytes, bqual: bytes, number: int, one_phase: bool
) -> None:
    name = xid_of(number, gtrid, bqual)
    body = struct.pack("<BIII", one_phase, number, len(gtrid), len(bqual)) + gtrid + bqual
    assert prepare_of(body, "here") == (name, one_phase)
    assert end_of(f"XA COMMIT {name}", "here") == (XaStep.COMMITS, name)
    assert end_of(f"xa  rollback  {name.upper()} ", "here") == (XaStep.ROLLS_BACK, name)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_prepare_are_an_error_of_ours(body: bytes) -> None:
    try:
        prepare_of(body, "here")
    except DecodeError:
        return


@pytest.mark.parametrize("text", ["XA COMMIT 'a'", "XA COMMIT X'6',X'',1", "XA FORGET X'61',X'',1", "XA"])
def test_statements_no_server_writes_are_an_error(text: str) -> None:
    with pytest.raises(DecodeError, match="cannot be read"):
        end_of(text, "here")


def test_open_transactions_are_moved_by_marks() -> None:
    open_ = OpenTransactions([Prepared("a", "f.1", 1, 2)])
    marks = [
        XaMark(XaStep.PREPARES, "b", 10, 20, True, 3),
        XaMark(XaStep.PREPARES, "unwanted", 20, 30),
        XaMark(XaStep.COMMITS, "a", 30, 40),
        XaMark(XaStep.COMMITS, "unwanted", 40, 50),
        XaMark(XaStep.PREPARES, "c", 50, 60, True),
        XaMark(XaStep.ROLLS_BACK, "c", 60, 70),
    ]
    assert open_.move("f.2", marks) == [(marks[2], Prepared("a", "f.1", 1, 2))]
    assert list(open_) == [Prepared("b", "f.2", 10, 20, 3)]


def test_position_keeps_what_is_prepared_and_is_as_before_where_nothing_is() -> None:
    old = {"file": "f.1", "pos": 5, "gtids": "", "server": "s", "epoch": 0, "ts_ms": 7}
    assert json.dumps(MySqlPosition.from_json(old).to_json()) == json.dumps(old)
    here = (Prepared("X'61',X'',1", "f.1", 1, 2), Prepared("X'62',X'',1", "f.1", 3, 4, 9))
    position = MySqlPosition("f.2", 5, prepared=here)
    text = json.dumps(position.to_json())
    assert text.endswith("""{"X'61',X'',1": ["f.1", 1, 2], "X'62',X'',1": ["f.1", 3, 4, 9]}}""")
    assert MySqlPosition.from_json(json.loads(text)) == position
