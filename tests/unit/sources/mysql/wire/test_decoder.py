from __future__ import annotations

import itertools
import random

import pyarrow as pa
import pytest

from tailrace.errors import DecodeError, PositionLostError, SchemaMismatchError, SourceError
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableId
from tailrace.sources.mysql.wire.decoder import EventDecoder
from tailrace.sources.mysql.wire.rare.payload import unpack
from tests.golden.mysql.recording import (
    EXPECTED,
    FIRST,
    LOG,
    QUERY,
    TABLE_MAP,
    WRITE_ROWS,
    block,
    captured,
    decode,
    events,
    first,
    lines,
    patched,
)
from tests.support.logged import final_rows
from tests.support.printed import as_comparable, as_printed


def test_the_recorded_log_gives_the_rows_the_server_had_in_the_end() -> None:
    rows = final_rows([b for b in decode(block(LOG)) if b.table.id.table == "t"], "id")
    schema = decode(block(LOG))[0].table
    assert len(rows) == len(EXPECTED["t"])
    for row, expected in zip(rows, EXPECTED["t"], strict=True):
        for column in schema.columns:
            text = expected[column.name]
            if (text is not None and pa.types.is_binary(column.type.arrow)) or (column.name == "u" and text):
                assert as_printed(row[column.name], column.type) == bytes.fromhex(text)
            else:
                assert as_printed(row[column.name], column.type) == as_comparable(text, column.type)


def test_a_change_of_shape_ends_the_batch() -> None:
    of_u = [b for b in decode(block(LOG)) if b.table.id.table == "u"]
    assert [[c.name for c in b.table.columns] for b in of_u] == [["id", "name"], ["id", "name", "n"]]
    assert [line["op"] for line in lines(of_u)] == [1, 1, 2, 2, 1, 1, 1, 3]
    assert lines(of_u)[-1]["origin.txn"] == "ffffffff-80ab-11ee-9b01-0242ac110002:tag:7"


def test_blocks_may_be_cut_between_any_two_events() -> None:
    whole = lines(decode(block(LOG)))
    r = random.Random(5)
    for _ in range(20):
        cuts = [FIRST, *sorted(r.sample([at for at, _, _ in events()][1:], r.randint(1, 12))), len(LOG)]
        pieces = [block(LOG, a, b) for a, b in itertools.pairwise(cuts)]
        assert lines(decode(*pieces)) == whole


@pytest.mark.parametrize(
    ("limits", "most"),
    [({"batch_rows": 1}, 1), ({"batch_rows": 2}, 2), ({"batch_bytes": 1}, 1), ({"batch_bytes": 500}, 5)],
)
def test_batches_keep_their_limits_and_lose_nothing(limits: dict[str, int], most: int) -> None:
    batches = decode(block(LOG), **limits)
    assert max(map(len, batches)) <= most
    assert lines(batches) == lines(decode(block(LOG)))


def test_blocks_decoded_together_give_the_same_changes_in_fewer_batches() -> None:
    pieces = [block(LOG, at, at + size) for at, size, _ in events()]
    together = list(EventDecoder(captures=captured).feed_all(pieces))
    assert lines(together) == lines(decode(block(LOG)))
    assert len(together) == len(decode(block(LOG))) < len(decode(*pieces))


def test_blocks_of_two_files_decoded_together_keep_their_files() -> None:
    pieces = [block(LOG), block(LOG, file="binlog.000008")]
    together = list(EventDecoder(captures=captured).feed_all(pieces))
    assert lines(together) == lines(decode(*pieces))


def test_seq_is_unique_and_in_log_order() -> None:
    for table in "tu":
        batches = [b for b in decode(block(LOG), epoch=1) if b.table.id.table == table]
        seqs = [s for b in batches for s in b.origin.column("seq").to_pylist()]
        assert seqs == sorted(set(seqs))
        assert {s[:12] for s in seqs} == {"000100000007"}


def test_positions_beyond_32_bits_are_kept() -> None:
    far = block(LOG)
    (batch, *_) = decode(type(far)(far.buffer, far.start, far.end, far.file, 1 << 40, True))
    assert min(batch.origin.column("pos").to_pylist()) > 1 << 40


def test_batches_do_not_point_into_the_block() -> None:
    b = block(LOG)
    batches = decode(b)
    before = lines(batches)
    b.buffer[:] = 0xFF
    assert lines(batches) == before


def test_changes_of_unwanted_tables_are_left_out() -> None:
    asked: list[TableId] = []
    batches = decode(block(LOG), captures=lambda t: asked.append(t) or t.table == "u")
    assert {b.table.id.table for b in batches} == {"u"}
    assert set(asked) == {TableId("rec", "t"), TableId("rec", "u")}


def test_a_wrong_checksum_is_found_and_placed() -> None:
    at = first(WRITE_ROWS)
    with pytest.raises(DecodeError, match=f"binlog.000007:{at}"):
        decode(block(patched(at + 40, LOG[at + 40] ^ 1)))


def test_text_that_is_not_utf8_is_refused_with_its_column() -> None:
    at = LOG.index("漢".encode())
    with pytest.raises(DecodeError, match=r"text that is not valid.*`rec\.t`") as refused:
        decode(block(patched(at, 0xFF)), verify_checksums=False)
    assert "column `o`" in str(refused.value)


def test_a_broken_decimal_is_refused_with_its_column() -> None:
    at = LOG.index(bytes.fromhex("7ffffffe fffa"))  # -1.005, inverted
    with pytest.raises(DecodeError, match="malformed row event") as refused:
        decode(block(patched(at, 0, 0, 0, 0)), verify_checksums=False)
    assert "column `g`" in str(refused.value)


@pytest.mark.parametrize("type_", [20, 50, 172, 255])
def test_an_event_of_unknown_type_is_refused(type_: int) -> None:
    at = first(QUERY)
    with pytest.raises(DecodeError, match=f"unknown type {type_}"):
        decode(block(patched(at + 4, type_)), verify_checksums=False)


def test_an_event_of_unknown_type_that_says_it_may_be_ignored_is_skipped() -> None:
    at = first(29) if any(t == 29 for _, _, t in events()) else first(QUERY)
    data = bytearray(patched(at + 4, 50))
    data[at + 17] |= 0x80
    assert len(lines(decode(block(bytes(data)), verify_checksums=False))) == len(lines(decode(block(LOG))))


@pytest.mark.parametrize(
    ("type_", "error", "message"),
    [
        (26, PositionLostError, "lacks events"),
        (18, SourceError, "a statement instead of rows"),
        (39, DecodeError, "malformed row event"),
    ],
)
def test_events_that_mean_lost_or_uncapturable_changes_end_the_stream(
    type_: int, error: type[SourceError], message: str
) -> None:
    at = first(WRITE_ROWS)
    with pytest.raises(error, match=message):
        decode(block(patched(at + 4, type_)), verify_checksums=False)


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (b"INSER", False),
        (b"/**/DELETE FROM t", True),
        (b"  update t set a = 1", True),
        (b"ROLLBACK TO s", False),
        (b"SAVEPOINT a", False),
        (b"XA START X'00'", False),
        (b"/*!80000 INSERT*/", True),  # which the server executes
        (b"WITH x AS (SELECT 1) DELETE FROM t", True),
    ],
)
def test_statements_that_change_rows_are_refused(text: bytes, refused: bool) -> None:
    at = first(QUERY)
    body = LOG[at + 19 : at + 32 + int.from_bytes(LOG[at + 30 : at + 32], "little") + LOG[at + 27] + 1]
    size = 19 + len(body) + len(text)
    event = LOG[at : at + 9] + size.to_bytes(4, "little") + LOG[at + 13 : at + 19] + body + text
    given = block(event, 0, checksum=False)
    if refused:
        with pytest.raises(SourceError, match="a statement instead of rows"):
            decode(given)
    else:
        assert decode(given) == []


def test_rows_without_a_table_map_are_refused() -> None:
    at, size, _ = next(e for e in events() if e[2] == TABLE_MAP)
    with pytest.raises(DecodeError, match="without a table map"):
        decode(block(LOG, FIRST, at), block(LOG, at + size))


def test_rows_outside_a_transaction_are_refused() -> None:
    at = first(TABLE_MAP)
    with pytest.raises(DecodeError, match="outside a transaction"):
        decode(block(LOG, at))


def test_columns_without_names_are_refused_with_the_setting() -> None:
    at = first(TABLE_MAP)
    names = LOG.index(b"\x02id\x01a\x01b", at) - 2
    with pytest.raises(SchemaMismatchError, match="binlog_row_metadata = FULL"):
        decode(block(patched(names, 77)), verify_checksums=False)


def test_a_table_map_that_ends_early_is_refused_and_placed() -> None:
    at = first(TABLE_MAP)
    with pytest.raises(DecodeError, match=f"binlog.000007:{at}"):
        decode(block(patched(at + 19 + 8, 250)), verify_checksums=False)


def test_rows_wider_than_the_limits_come_one_by_one() -> None:
    # repeat the recorded transaction: room grows for its texts and is given back
    decoder = EventDecoder(captures=captured, batch_bytes=64)
    once = len(lines(decode(block(LOG))))
    for _ in range(3):
        assert sum(map(len, decoder.feed(block(LOG)))) == once


def test_row_events_of_version_1_give_the_same_rows() -> None:
    """They lack the extra data, whose length of two bytes is all that the recorded events have of it."""
    data = bytearray(LOG[:FIRST])
    for at, size, type_ in events():
        event = bytearray(LOG[at : at + size])
        if type_ in (30, 31, 32):
            assert event[27:29] == b"\2\0"
            del event[27:29]
            event[4] -= 7
            event[9:13] = len(event).to_bytes(4, "little")
        data += event

    def images(batches: list[ChangeBatch]) -> list[tuple[object, object, object]]:
        return [(line["op"], line["before"], line["after"]) for line in lines(batches)]

    assert images(decode(block(bytes(data)), verify_checksums=False)) == images(decode(block(LOG)))


def test_anonymous_transactions_have_no_txn() -> None:
    data = bytearray(LOG)
    for at, _, type_ in events():
        if type_ == 33:
            data[at + 4] = 34
    txns = [line["origin.txn"] for line in lines(decode(block(bytes(data)), verify_checksums=False))]
    assert txns == [None] * (len(txns) - 1) + ["ffffffff-80ab-11ee-9b01-0242ac110002:tag:7"]


def test_a_payload_cannot_claim_more_than_the_limit() -> None:
    at = first(40)
    size = LOG.index(b"\x03", at + 19)  # field 3: the size unpacked
    data = patched(size, 3, 9, 254, *([255] * 7), 127, 0)
    with pytest.raises(DecodeError, match="too large"):
        decode(block(data), verify_checksums=False)


def test_a_tagged_gtid_whose_tag_is_none_is_refused() -> None:
    at = LOG.index(b"\x06\x06tag")
    with pytest.raises(DecodeError, match="tagged GTID is malformed"):
        decode(block(patched(at + 2, 0xFF)), verify_checksums=False)


@pytest.mark.parametrize("body", [b"", b"\xfc", b"\xfc\x00", b"\x02\x01\xfd"])
def test_a_payload_whose_fields_end_within_a_number_is_malformed(body: bytes) -> None:
    with pytest.raises(DecodeError, match="a compressed transaction is malformed"):
        list(unpack(body, "binlog.000001:4"))
