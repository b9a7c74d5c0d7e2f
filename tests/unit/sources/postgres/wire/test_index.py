"""Streams of pgoutput written by hand: which TRUNCATEs have committed, and where they stand."""

from __future__ import annotations

import struct

import numpy as np

from tailrace.kernels.memory import SLACK
from tailrace.model.table import TableId
from tailrace.sources.postgres.replication.follower import _truncations
from tailrace.sources.postgres.wire.index import Indexed, LogIndex
from tests.unit.sources.postgres.wire.test_pgoutput import _OID, _framed, _relation

TOAST = TableId("public", "toast")


def truncate(lsn: int, xid: int | None = None) -> bytes:
    streamed = b"" if xid is None else struct.pack(">I", xid)
    return _framed(b"T" + streamed + struct.pack(">IBI", 1, 0, _OID), lsn)


def transaction(commit: int, xid: int, *messages: bytes) -> bytes:
    begin = _framed(b"B" + struct.pack(">QqI", commit, 0, xid))
    return begin + b"".join(messages) + _framed(b"C\0" + struct.pack(">QQq", commit, commit + 8, 0))


def block(xid: int, *messages: bytes) -> bytes:
    return _framed(b"S" + struct.pack(">IB", xid, 1)) + b"".join(messages) + _framed(b"E")


def indexed(stream: bytes) -> Indexed:
    buffer = np.frombuffer(stream + bytes(SLACK), np.uint8)
    return LogIndex(lambda _: True).feed(buffer, 0, len(stream), 0)


def found_in(stream: bytes) -> list[tuple[int, int, int, tuple[TableId, ...]]]:
    found = indexed(stream)
    made = _truncations(found.transactions, found.truncated)
    return [(t.commit_lsn, t.lsn, t.xid, t.tables) for t in made]


def test_truncates_belong_to_their_transactions_in_the_order_of_commits() -> None:
    streamed = (
        block(7, truncate(110, 7)),
        transaction(300, 8, truncate(210), truncate(220)),
        block(7, truncate(310, 7)),
        _framed(b"c" + struct.pack(">IBQQq", 7, 0, 400, 408, 0)),
    )
    assert found_in(transaction(50, 6, _relation()) + b"".join(streamed)) == [
        (300, 210, 8, (TOAST,)),
        (300, 220, 8, (TOAST,)),
        (400, 110, 7, (TOAST,)),
        (400, 310, 7, (TOAST,)),
    ]


def test_truncate_that_is_rolled_back_while_its_transaction_runs_is_none() -> None:
    stream = (
        transaction(50, 6, _relation()),
        block(7, truncate(110, 7), truncate(120, 70)),
        block(9, truncate(130, 9)),
        _framed(b"A" + struct.pack(">II", 7, 70)),
        _framed(b"A" + struct.pack(">II", 9, 9)),
        _framed(b"c" + struct.pack(">IBQQq", 7, 0, 400, 408, 0)),
    )
    assert found_in(b"".join(stream)) == [(400, 110, 7, (TOAST,))]


def test_truncate_of_a_prepared_transaction_is_one_when_it_commits() -> None:
    def prepared(xid: int, lsn: int) -> bytes:
        name = b"p%d\0" % xid
        begin = _framed(b"b" + struct.pack(">QQqI", 200, 208, 0, xid) + name)
        return begin + truncate(lsn) + _framed(b"P" + struct.pack(">BQQqI", 0, 200, 208, 0, xid) + name)

    stream = (
        transaction(50, 6, _relation()),
        prepared(7, 110),
        prepared(8, 120),
        _framed(b"r" + struct.pack(">BQQqqI", 0, 200, 208, 0, 0, 8) + b"p8\0"),
        _framed(b"K" + struct.pack(">BQQqI", 0, 500, 508, 0, 7) + b"p7\0"),
    )
    assert found_in(b"".join(stream)) == [(500, 110, 7, (TOAST,))]
