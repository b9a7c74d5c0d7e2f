"""A recorded log of MySQL 9.7 with every kind of transaction, indexed.

It holds, in order: CREATE DATABASE and TABLE, a tagged GTID, an insert, CREATE ... SELECT, XA PREPARE and
XA COMMIT, DDL and insert on MyISAM, a savepoint rolled back to, an insert as a statement, a compressed one.
"""

from pathlib import Path

import numpy as np
import pytest

from tailrace.errors import DecodeError, SourceError
from tailrace.kernels.memory import SLACK
from tailrace.model.table import TableId
from tailrace.sources.mysql.binlog.held import HeldEvents, pack_blocks, unpack_blocks
from tailrace.sources.mysql.wire import transactions as tx
from tailrace.sources.mysql.wire.block import EventBlock
from tailrace.sources.mysql.wire.kernels import boundaries as rows

LOG = Path(__file__).with_name("mysql") / "transactions-9.7.binlog"
FILE = "binlog.000001"
SERVER = bytes.fromhex("bd8d07c2e53d11f19bce02fc00000001")


def not_t(table: TableId) -> bool:
    return table.database == "p" and table.table != "t"


def log_bytes() -> np.ndarray:
    raw = LOG.read_bytes()
    return np.concatenate([np.frombuffer(raw, np.uint8), np.zeros(SLACK, np.uint8)])


def event_ends() -> list[int]:
    raw, at, ends = LOG.read_bytes(), 4, []
    while at < len(raw):
        at += int.from_bytes(raw[at + 9 : at + 13], "little")
        ends.append(at)
    return ends


def block(buffer: np.ndarray, start: int, end: int) -> EventBlock:
    return EventBlock(buffer, start, end, FILE, start, True)


def test_every_kind_of_transaction_is_indexed():
    buffer = log_bytes()
    index = tx.TransactionIndex(not_t, count_rows=True)
    done = index.feed(block(buffer, 4, event_ends()[-1]))
    assert done.rows[
        :, [rows.START, rows.END, rows.SOURCE, rows.GNO, rows.WANTED, rows.ROWS, rows.FLAGS]
    ].tolist() == [
        [127, 158, -1, 0, 0, 0, rows.FILE_START],
        [158, 348, 0, 1, 0, 0, 0],
        [348, 571, 0, 2, 0, 0, 0],
        [571, 866, 1, 1, 0, 0, 0],
        [866, 1154, 0, 3, 0, 0, 0],
        [1154, 1610, 0, 4, 49, 2, rows.HAS_WANTED | rows.HAS_DDL],
        [1610, 2003, 0, 5, 0, 0, rows.PREPARED],
        [2003, 2167, 0, 6, 0, 0, rows.XA_END],
        [2167, 2365, 0, 7, 0, 0, rows.HAS_DDL],
        [2365, 2681, 0, 8, 40, 1, rows.HAS_WANTED],
        [2681, 3048, 0, 9, 0, 0, 0],
        [3048, 3334, 0, 10, 0, 0, 0],
        [3334, 3583, 0, 11, 172, 1, rows.HAS_WANTED | rows.COMPRESSED],
    ]
    assert index.sources == [(SERVER, ""), (SERVER, "hello_tag")]
    assert [(c.start, c.end, [str(t) for t in c.tables]) for c in done.ddl] == [
        (1154, 1467, ["p.t2"]),
        (2167, 2365, ["p.m"]),
    ]
    times = done.rows[1:, rows.TS_US]
    assert (np.diff(times) > 0).all()
    assert times[2] == 1795219100175747  # of the tagged one
    assert index.open_since is None


def test_index_is_the_same_wherever_blocks_end():
    buffer, ends = log_bytes(), event_ends()
    whole = tx.TransactionIndex(not_t, count_rows=True).feed(block(buffer, 4, ends[-1])).rows
    for cut in ends[:-1]:
        index = tx.TransactionIndex(not_t, count_rows=True)
        parts = [index.feed(block(buffer, a, b)).rows for a, b in ((4, cut), (cut, ends[-1]))]
        assert np.array_equal(np.concatenate(parts), whole)


def test_held_events_are_the_captured_transactions_bytes_wherever_blocks_end():
    buffer, ends = log_bytes(), event_ends()
    raw = LOG.read_bytes()
    for cut in ends[:-1]:
        index, held = tx.TransactionIndex(lambda t: t.table == "m"), HeldEvents(1 << 20, (1, 4))
        for a, b in ((4, cut), (cut, ends[-1])):
            part = block(buffer, a, b)
            held.add(part, index.feed(part), index.open_since)
        assert held.between((1, 3), (1, 9999)) is None
        found = held.between((1, 2365), (1, 2681))
        assert found is not None
        assert [(p.pos, p.data) for p in found] == [(2365, raw[2365:2681])]
        everything = held.between((1, 4), (1, ends[-1]))
        again = unpack_blocks(pack_blocks(everything))
        assert [(b.file, b.pos, b.buffer[b.start : b.end].tobytes(), b.checksum) for b in again] == [
            (p.file, p.pos, p.data, p.checksum) for p in everything
        ]


def test_events_behind_skipped_ones_are_held_and_others_are_not_claimed_to_be():
    buffer, ends = log_bytes(), event_ends()
    raw = LOG.read_bytes()
    done = tx.TransactionIndex(lambda t: t.table == "m").feed(block(buffer, 4, ends[-1])).rows
    boundaries = done[:, rows.END].tolist()
    captured = done[done[:, rows.FLAGS] & (rows.HAS_WANTED | rows.XA_END) != 0][:, [rows.START, rows.END]]
    for cut in ends[:-1]:
        index, held = tx.TransactionIndex(lambda t: t.table == "m"), HeldEvents(1 << 20, (1, 4))
        index.feed(skipped := block(buffer, 4, cut))
        held.skip(skipped)
        kept = block(buffer, cut, ends[-1])
        held.add(kept, index.feed(kept), index.open_since)
        assert held.between((1, 4), (1, ends[-1])) is None
        for start in boundaries:
            pieces = held.between((1, start), (1, ends[-1]))
            if pieces is None:
                assert start < cut or cut not in boundaries
                continue
            assert all(piece.data == raw[piece.pos : piece.end] for piece in pieces)
            for low, high in captured[captured[:, 0] >= start].tolist():
                assert any(piece.pos <= low and high <= piece.end for piece in pieces)


def test_held_events_beyond_the_limit_are_not_claimed_to_be_held():
    buffer, ends = log_bytes(), event_ends()
    index, held = tx.TransactionIndex(not_t), HeldEvents(300, (1, 4))
    part = block(buffer, 4, ends[-1])
    held.add(part, index.feed(part), index.open_since)
    assert held.between((1, 4), (1, ends[-1])) is None


def test_statement_instead_of_rows_of_a_captured_table_is_an_error():
    index = tx.TransactionIndex(lambda t: t.table == "t")
    with pytest.raises(SourceError, match=r"statement instead of rows for `p\.t`") as refused:
        index.feed(block(log_bytes(), 4, event_ends()[-1]))
    assert "INSERT at `binlog.000001:" in str(refused.value)


def test_unknown_event_type_is_an_error_and_an_ignorable_one_is_not():
    buffer = log_bytes()
    buffer[127 + 4] = 99  # PREVIOUS_GTIDS, which carries the flag "ignorable"
    tx.TransactionIndex(not_t).feed(block(buffer, 4, 158))
    buffer[127 + 17] = 0
    with pytest.raises(DecodeError, match="unknown type 99"):
        tx.TransactionIndex(not_t).feed(block(buffer, 4, 158))


def test_spoilt_bytes_raise_errors_of_ours_only():
    random = np.random.default_rng(7)
    ends = event_ends()
    for _ in range(300):
        buffer = log_bytes()
        spots = random.integers(4, ends[-1], 6)
        buffer[spots] = random.integers(0, 256, 6)
        try:
            tx.TransactionIndex(not_t, count_rows=True).feed(block(buffer, 4, ends[-1]))
        except SourceError:
            continue


def test_places_beyond_32_bits_are_kept():
    buffer, far = log_bytes(), 5 << 40
    ends = event_ends()
    near = tx.TransactionIndex(not_t, count_rows=True).feed(block(buffer, 4, ends[-1])).rows
    moved = EventBlock(buffer, 4, ends[-1], FILE, far + 4, True)
    found = tx.TransactionIndex(not_t, count_rows=True).feed(moved)
    assert (found.rows[:, [rows.START, rows.END]] - far).tolist() == near[:, [rows.START, rows.END]].tolist()
    assert all(change.start > far for change in found.ddl)


def test_rows_of_partial_updates_are_counted_like_others():
    raw = (Path(__file__).parent.parent / "fuzz" / "logs" / "rare-9.7.binlog").read_bytes()
    buffer = np.concatenate([np.frombuffer(raw, np.uint8), np.zeros(SLACK, np.uint8)])
    done = tx.TransactionIndex(lambda table: table.table == "j", count_rows=True).feed(
        block(buffer, 4, len(raw))
    )
    wanted = done.rows[(done.rows[:, rows.FLAGS] & (rows.HAS_WANTED | rows.COMPRESSED)) == rows.HAS_WANTED]
    assert wanted[:, rows.ROWS].tolist() == [1, 1, 1]
