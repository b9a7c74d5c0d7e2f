"""Streams of pgoutput and a COPY that were recorded from PostgreSQL 18 (tests.golden.postgres.record)."""

from __future__ import annotations

import json
import random
import struct
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from tailrace.errors import DecodeError
from tailrace.kernels.memory import SLACK
from tailrace.model.messages import MESSAGES
from tailrace.model.table import TableId
from tailrace.sources.postgres.wire.index import Indexed, LogIndex
from tailrace.sources.postgres.wire.kernels import boundaries as bd
from tailrace.sources.postgres.wire.kernels.copy import CopyReader
from tests.golden.postgres.recorded import HERE, SCHEMAS, captures, changes, decoder, stream
from tests.support.plain import plain

EXPECTED = json.loads((HERE / "changes.json").read_text())
STREAMS = ("binary", "text", "streamed", "prepared")
_BORN = [change for change in EXPECTED if change["table"] == "t" and change["op"] == "c"]


def _cuts(data: bytes) -> list[int]:
    """Offsets between messages."""
    cuts, at = [0], 0
    while at < len(data):
        at += 1 + struct.unpack_from(">I", data, at + 1)[0]
        cuts.append(at)
    return cuts


@pytest.mark.parametrize("name", STREAMS)
def test_each_way_of_asking_gives_the_same_changes(name: str) -> None:
    assert changes(decoder().feed(stream(name))) == EXPECTED


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_may_be_cut_between_any_messages(name: str) -> None:
    data, whole = stream(name), decoder(batch_rows=3)
    found = [batch for a, b in pairwise(_cuts(data)) for batch in whole.feed(data[a:b])]
    assert changes(found) == EXPECTED


@pytest.mark.parametrize("name", STREAMS)
def test_transactions_that_committed_before_a_position_are_passed_over(name: str) -> None:
    seqs = sorted({change["origin"]["seq"][4:20] for change in EXPECTED})
    after = int(seqs[len(seqs) // 2], 16)
    expected = [c for c in EXPECTED if int(c["origin"]["seq"][4:20], 16) >= after]
    assert changes(decoder(after=after).feed(stream(name))) == expected


def test_messages_and_truncates_are_told_beside_the_changes() -> None:
    whole = decoder(wants_message=lambda prefix: prefix == "pre")
    found = [b for b in whole.feed(stream("prepared")) if b.table == MESSAGES]
    assert [t.tables for t in whole.truncates] == [(TableId("public", "nokey"),)]
    inside, outside = (row for b in found for row in b.after.to_pylist())
    assert (inside["transactional"], inside["prefix"], inside["content"]) == (True, "pre", b"inside")
    assert (outside["transactional"], outside["prefix"], outside["content"]) == (False, "pre", b"outside")
    assert [b.table for b in decoder().feed(stream("prepared"))].count(MESSAGES) == 0
    at = outside["lsn"]
    for after, end, there in ((at - 1, at, True), (at, at + 1, False), (at - 2, at - 1, False)):
        part = decoder(wants_message=lambda _: True, after=after, end=end).feed(stream("prepared"))
        assert (outside in [row for b in part if b.table == MESSAGES for row in b.after.to_pylist()]) is there


def test_the_shape_in_the_log_is_the_catalogs() -> None:
    known = decoder(schema_of=lambda table: SCHEMAS.get(table.table))
    schemas = {batch.table.id.table: batch.table for batch in known.feed(stream("binary"))}
    assert schemas["t"] == SCHEMAS["t"]
    assert [c.name for c in schemas["nokey"].columns] == ["v", "w"]  # as it was altered to


def test_a_stream_that_ends_within_a_message_is_refused() -> None:
    with pytest.raises(DecodeError, match="ends within a message"):
        list(decoder().feed(stream("binary")[:-1]))


def _indexed(data: bytes, cuts: list[int]) -> tuple[list[Indexed], LogIndex]:
    buffer = np.frombuffer(data + bytes(SLACK), np.uint8)
    index, at, out = LogIndex(captures), 0, []
    for cut in [*cuts, len(data)]:
        if cut < at:
            continue
        found = index.feed(buffer, at, cut, at)
        at += found.used
        out.append(found)
    assert at == len(data)
    return out, index


@pytest.mark.parametrize("name", STREAMS)
def test_the_index_finds_the_transactions_that_are_decoded(name: str) -> None:
    data = stream(name)
    r = random.Random(name)
    pieces, index = _indexed(data, sorted(r.randrange(len(data)) for _ in range(50)))
    found = np.concatenate([piece.transactions for piece in pieces])
    assert (found == _indexed(data, [])[0][0].transactions).all()
    changed = found[found[:, bd.FLAGS] & bd.HAS_WANTED != 0]
    lsns = {int(c["origin"]["seq"][4:20], 16) for c in EXPECTED}
    truncated = found[found[:, bd.FLAGS] & bd.HAS_TRUNCATE != 0]
    assert {*changed[:, bd.COMMIT_LSN].tolist()} == lsns | {*truncated[:, bd.COMMIT_LSN].tolist()}
    assert changed[:, bd.ROWS].sum() >= len(EXPECTED)  # of blocks it counts what was undone, too
    assert (changed[:, bd.END_LSN] > changed[:, bd.COMMIT_LSN]).all()
    assert {*changed[:, bd.TS_US].tolist()} >= {c["origin"]["ts_us"] for c in EXPECTED}
    described = [d for piece in pieces for d in piece.relations]
    assert [d.relation.id.table for d in described if d.changed][:1] == ["nokey"]
    (truncation,) = [t for piece in pieces for t in piece.truncated]
    (row,) = [row for row in found if truncation.is_of(row)]
    whole = decoder()
    list(whole.feed(data))
    (decoded,) = whole.truncates
    assert (truncation.tables, truncation.lsn) == (decoded.tables, decoded.lsn)
    assert row[bd.COMMIT_LSN] == decoded.commit_lsn
    assert index.preamble(0) == b""


@pytest.mark.parametrize("name", ["binary", "text"])
def test_slices_with_their_preamble_give_what_the_whole_gives(name: str) -> None:
    data = stream(name)
    (piece,), index = _indexed(data, [])
    found = []
    for row in piece.transactions:
        start, end = int(row[bd.FROM]), int(row[bd.TO])
        found += list(decoder().feed(index.preamble(start) + data[start:end]))
    assert changes(found) == EXPECTED


@pytest.mark.parametrize("step", [1, 2, 7, 100, 10_000])
def test_a_copy_may_be_cut_anywhere(step: int) -> None:
    data = (HERE / "t.copy").read_bytes()
    reader, at, batches = CopyReader(SCHEMAS["t"], batch_rows=1, receive_bytes=64), 0, []
    while not reader.ended:
        room = reader.room()
        n = min(step, len(room), len(data) - at)
        assert n
        room[:n] = data[at : at + n]
        at += n
        batches += reader.received(n)
    last = reader.flush()
    assert last is not None
    assert [len(batch) for batch in [*batches, last]] == [1, 1]
    rows = plain(pa.concat_arrays([*batches, last]))
    expected = [change["after"] for change in _BORN[2:]] + [{**_BORN[0]["after"], "id": 10, "x": "new"}]
    assert rows == expected
    assert (reader.rest() + data[at:])[:1] == b"c"
