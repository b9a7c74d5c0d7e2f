"""What only MariaDB's log has: domain GTIDs, packed events and values, its own types."""

from __future__ import annotations

import struct
import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import DecodeError, SourceError
from tailrace.sources.mysql.gtid import GtidSet, domain_source
from tailrace.sources.mysql.wire import mariadb
from tailrace.sources.mysql.wire.schema import charsets, mariadbtypes, tablemap
from tailrace.sources.mysql.wire.schema.tablemap import MappedColumn


def pack_event(data: bytes) -> bytes:
    return b"\x82" + struct.pack(">H", len(data)) + zlib.compress(data)


def pack_value(data: bytes, *, raw: bool) -> bytes:
    squeeze = zlib.compressobj(wbits=-15 if raw else 15)
    return (
        bytes([0x8A if raw else 0x82])
        + struct.pack(">H", len(data))
        + squeeze.compress(data)
        + squeeze.flush()
    )


def test_the_last_gtid_of_a_domain_stands_for_all_before_it() -> None:
    older, newer = GtidSet.parse("0-1-100,1-2-33"), GtidSet.parse("0-2-101,1-2-33")
    assert older.is_subset(newer)
    assert not newer.is_subset(older)
    assert newer.contains(domain_source(0, 7), 5)
    assert not newer.contains(domain_source(0, 7), 102)
    assert str(older.union(newer)) == str(newer.union(older)) == "0-2-101,1-2-33"
    assert str(newer.subtract(older)) == "0-2-101"


def test_histories_that_part_at_the_last_gtid_are_not_equal() -> None:
    assert GtidSet.parse("0-1-100") != GtidSet.parse("0-2-100")
    assert GtidSet.parse("0-1-100") == GtidSet.parse(" 0-1-100 ")


def test_domains_are_written_by_number_and_read_back() -> None:
    text = "0-1-5,3-4294967295-1,10-2-7,300-1-1"
    assert str(GtidSet.parse(",".join(reversed(text.split(","))))) == text


@pytest.mark.parametrize("text", ["0-1", "0-1-x", "0-1-1-1", "0--1"])
def test_what_is_no_gtid_is_refused(text: str) -> None:
    with pytest.raises(SourceError, match="not a set of GTIDs"):
        GtidSet.parse(text)


def test_the_list_at_a_files_head_gives_the_last_of_each_domain() -> None:
    entries = [(0, 1, 40), (5, 3, 2), (0, 2, 41)]
    body = struct.pack("<I", len(entries) | 1 << 28) + b"".join(struct.pack("<IIQ", *e) for e in entries)
    found = GtidSet((domain_source(d, s), 1, n + 1) for d, s, n in mariadb.gtid_list(body))
    assert str(found) == "0-2-41,5-3-2"
    with pytest.raises(DecodeError):
        mariadb.gtid_list(body[:-1])


@given(st.binary(max_size=2000), st.sampled_from([166, 167, 169, 170, 171]), st.integers(1, 600))
def test_packed_row_events_become_plain_ones(rows: bytes, kind: int, columns: int) -> None:
    extra = struct.pack("<H", 2) if kind >= 169 else b""
    count = bytes([columns]) if columns < 251 else b"\xfc" + struct.pack("<H", columns)
    images = 2 if kind in (167, 170) else 1
    head = bytes(8) + extra + count + b"\xff" * ((columns + 7) // 8 * images)
    packed = head + pack_event(rows)
    event = struct.pack("<IBIIIH", 1, kind, 2, 19 + len(packed), 0, 0) + packed
    plain = mariadb.plain_rows(event, "here")
    assert plain[19:] == head + rows
    assert plain[4] == {166: 23, 167: 24, 169: 30, 170: 31, 171: 32}[kind]
    assert struct.unpack_from("<I", plain, 9)[0] == len(plain)


@given(st.binary(max_size=3000), st.booleans())
def test_packed_values_are_unpacked(data: bytes, raw: bool) -> None:
    assert mariadb.plain_value(pack_value(data, raw=raw), "here") == data
    assert mariadb.plain_value(b"\0" + data, "here") == data
    assert mariadb.plain_value(b"", "here") == b""


@given(st.binary(max_size=60))
def test_bytes_that_are_nothing_packed_are_an_error_of_ours(data: bytes) -> None:
    for read in (
        lambda: mariadb.plain_value(data, "here"),
        lambda: mariadb.plain_query(data, "here"),
        lambda: mariadb.plain_rows(bytes(4) + b"\xa6" + bytes(14) + data, "here"),
        lambda: mariadb.plain_rows(bytes(4) + b"\xab" + bytes(14) + data, "here"),
    ):
        try:
            read()
        except DecodeError:
            continue


def test_a_length_that_is_not_the_streams_is_an_error() -> None:
    packed = bytearray(pack_value(b"x" * 300, raw=True))
    for length in (299, 301, 0xFFFF):
        packed[1:3] = struct.pack(">H", length)
        with pytest.raises(DecodeError):
            mariadb.plain_value(bytes(packed), "here")


def test_a_length_beyond_any_packet_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(DecodeError, match="too large"):
        mariadb.plain_value(b"\x84\xff\xff\xff\xff" + zlib.compress(b"x"), "here")


def finished(type_: int, values: list[bytes | None], collation: int | None = None) -> list[object]:
    finish = mariadbtypes.finish_of(MappedColumn(type_, (), True, "c", False, collation, ()), "d.t.c")
    assert finish is not None
    result: list[object] = finish(pa.array(values, pa.binary())).to_pylist()
    return result


def test_own_types_become_the_servers_text_and_null_stays_null() -> None:
    assert finished(tablemap.UUID, [bytes(range(16)), None]) == ["00010203-0405-0607-0809-0a0b0c0d0e0f", None]
    assert finished(tablemap.UUID, []) == []
    assert finished(tablemap.INET4, [None, b"\x0a\0\0\x01"]) == [None, "10.0.0.1"]
    assert finished(tablemap.INET6, [bytes(16), bytes(15) + b"\1"]) == ["::", "::1"]
    assert finished(tablemap.BLOB_COMPRESSED, [b"\0\xe9", None], 8) == ["é", None]
    assert finished(tablemap.VARCHAR_COMPRESSED, [b"\0\xff"], 63) == [b"\xff"]
    with pytest.raises(DecodeError, match="not valid in its character set"):
        finished(tablemap.VARCHAR_COMPRESSED, [b"\0\xff"], 45)


@pytest.mark.parametrize(
    ("collation", "charset"),
    [
        (2304, "utf8mb4"),
        (2048, "utf8mb3"),
        (1069, "utf8mb4"),
        (1032, "latin1"),
        (608, "utf8mb4"),
        (45, "utf8mb4"),
    ],
)
def test_mariadbs_collations_are_of_known_character_sets(collation: int, charset: str) -> None:
    assert charsets.charset_of(collation) == charset
