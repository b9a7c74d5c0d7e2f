from __future__ import annotations

import datetime as dt
import random
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import DecodeError, SchemaMismatchError
from tailrace.kernels.memory import SLACK
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType
from tailrace.sources.mysql.wire.kernels.resultset import END, ERROR, FULL, MORE, SPLIT_ROW, RowDecoder
from tailrace.sources.mysql.wire.schema.definition import (
    ColumnDefinition,
    column_definition,
    require_unchanged,
)
from tailrace.sources.mysql.wire.schema.native import column_type

EOF_PACKET = b"\xfe\x00\x00\x02\x00"


def table(*types: Any) -> TableSchema:
    return TableSchema(TableId("d", "t"), tuple(Column(f"c{i}", t) for i, t in enumerate(types)))


def data(value: bytes) -> bytes:
    if len(value) < 251:
        return bytes([len(value)]) + value
    if len(value) < 1 << 16:
        return b"\xfc" + struct.pack("<H", len(value)) + value
    return b"\xfd" + struct.pack("<I", len(value))[:3] + value


def row(*values: bytes | None) -> bytes:
    bitmap = bytearray((len(values) + 9) // 8)
    for i, value in enumerate(values):
        if value is None:
            bitmap[(i + 2) // 8] |= 1 << ((i + 2) % 8)
    return b"\x00" + bytes(bitmap) + b"".join(v for v in values if v is not None)


def framed(payloads: list[bytes], first: int = 0) -> bytes:
    return b"".join(struct.pack("<I", len(p) | (first + i) % 256 << 24) + p for i, p in enumerate(payloads))


def decode(
    schema: TableSchema, stream: bytes, rows: int = 100, data_bytes: int = 1 << 16, limit: int = 1 << 40
) -> tuple[int, list[list[Any]], int]:
    """(why it stopped, the rows by column, bytes taken)."""
    decoder = RowDecoder(schema)
    buffers = decoder.buffers(rows, data_bytes)
    memory = np.frombuffer(stream + bytes(SLACK), np.uint8)
    start = memory.ctypes.data
    span = (start, start + len(stream))
    why, at, count, _ = decoder.packets(span, start + limit, buffers, 0, 0)
    arrays = buffers.arrays(count)
    for array in arrays:
        array.validate(full=True)
    return why, [a.to_pylist() for a in arrays], at - start


INT = column_type("int")
TEXT = column_type("varchar", length=9)


def test_rows_up_to_the_end_are_decoded() -> None:
    stream = framed([row(struct.pack("<i", -1), data(b"ab")), row(None, data(b"")), EOF_PACKET])
    why, columns, taken = decode(table(INT, TEXT), stream)
    assert why == END
    assert columns == [[-1, None], ["ab", ""]]
    assert taken == len(stream) - 4 - len(EOF_PACKET)


def test_null_is_found_in_every_byte_of_the_bitmap() -> None:
    schema = table(*[INT] * 20)
    for null in range(20):
        values = [None if i == null else struct.pack("<i", i) for i in range(20)]
        _, columns, _ = decode(schema, framed([row(*values)]))
        assert [c[0] for c in columns] == [None if i == null else i for i in range(20)]


@pytest.mark.parametrize("cut", range(1, 40))
def test_stream_cut_anywhere_waits_for_more_bytes(cut: int) -> None:
    stream = framed([row(struct.pack("<i", i), data(b"x" * i)) for i in range(4)])
    why, columns, taken = decode(table(INT, TEXT), stream[:cut])
    assert why == MORE
    assert columns[0] == list(range(len(columns[0])))
    assert taken <= cut


def test_full_rows_data_or_bytes_stop_before_the_row_that_does_not_fit() -> None:
    stream = framed([row(struct.pack("<i", i), data(b"x" * 10)) for i in range(9)])
    one = len(stream) // 9
    assert decode(table(INT, TEXT), stream, rows=4)[::2] == (FULL, 4 * one)
    assert decode(table(INT, TEXT), stream, data_bytes=35)[::2] == (FULL, 3 * one)
    assert decode(table(INT, TEXT), stream, limit=4 * one + 1)[::2] == (FULL, 4 * one)
    assert decode(table(INT, TEXT), stream, limit=1)[::2] == (FULL, one)


def test_row_that_continues_in_another_packet_is_left_to_the_caller() -> None:
    assert decode(table(TEXT), b"\xff\xff\xff\x00")[0] == SPLIT_ROW
    decoder = RowDecoder(table(TEXT))
    payload = row(data(b"y" * 70_000))
    buffers = decoder.buffers(1, len(payload))
    decoder.payload(np.frombuffer(payload + bytes(SLACK), np.uint8), len(payload), buffers)
    assert buffers.arrays(1)[0].to_pylist() == ["y" * 70_000]


def test_error_packet_in_the_middle_stops() -> None:
    stream = framed([row(struct.pack("<i", 7)), b"\xff\x25\x05#70100killed"])
    why, columns, _ = decode(table(INT), stream)
    assert why == ERROR
    assert columns == [[7]]


@pytest.mark.parametrize(
    "stream",
    [
        framed([b""]),
        framed([b"\x01\x00"]),
        framed([b"\x00"]),
        framed([row(b"\x01\x02\x03")]),
        framed([row(struct.pack("<i", 1) + b"\x00")]),
        framed([row(struct.pack("<i", 1))], first=1),
    ],
)
def test_packet_that_is_no_row_is_refused(stream: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(table(INT), stream)


@pytest.mark.parametrize(
    "value", [b"\x05abc", b"\xfb", b"\xff", b"\xfc\x05", b"\xfe" + b"\xff" * 8, b"\xfd\xff\xff\xff"]
)
def test_length_beyond_the_packet_is_refused(value: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(table(TEXT), framed([row(value)]))


@pytest.mark.parametrize("text", ["", "-", "1.2.3", "1e5", "123456", "1.2345", " 1", "12345.6"])
def test_text_that_is_no_such_decimal_is_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        decode(table(column_type("decimal", precision=6, scale=2)), framed([row(data(text.encode()))]))


@given(st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p))), st.data())
def test_decimal_text_is_read_exactly(declared: tuple[int, int], draw: st.DataObject) -> None:
    precision, scale = declared
    unscaled = draw.draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    exact = Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))
    text = format(exact, "f")
    digits = draw.draw(st.sampled_from([text, text.rstrip("0") if "." in text else text]))
    if digits in ("", "-"):
        digits = "0"
    schema = table(column_type("decimal", precision=precision, scale=scale))
    _, columns, _ = decode(schema, framed([row(data(digits.rstrip(".").encode()))]))
    assert columns == [[exact]]


def test_dates_that_are_none_are_null() -> None:
    dates = [(2024, 2, 29), (2023, 2, 29), (2024, 0, 1), (2024, 1, 0), (9999, 12, 31), (1, 1, 1)]
    packed = [b"\x04" + struct.pack("<HBB", *d) for d in dates] + [b"\x00"]
    schema = table(column_type("date"), column_type("datetime"))
    _, columns, _ = decode(schema, framed([row(p, p) for p in packed]))
    real = [dt.date(2024, 2, 29), None, None, None, dt.date(9999, 12, 31), dt.date(1, 1, 1), None]
    assert columns[0] == real
    assert columns[1] == [d and dt.datetime(d.year, d.month, d.day) for d in real]  # noqa: DTZ001


@given(st.data())
def test_hostile_bytes_are_decoded_or_refused(draw: st.DataObject) -> None:
    schema = table(
        INT,
        TEXT,
        column_type("bigint", unsigned=True),
        column_type("decimal", precision=20, scale=5),
        column_type("datetime", fraction=6),
        column_type("time"),
        column_type("bit", bits=1),
        column_type("date"),
        column_type("longblob"),
    )
    good = row(
        struct.pack("<i", 5),
        data(b"text"),
        struct.pack("<Q", 2**64 - 1),
        data(b"-12.50000"),
        b"\x0b" + struct.pack("<HBBBBBI", 2024, 1, 31, 1, 2, 3, 4),
        b"\x08" + struct.pack("<BIBBB", 1, 3, 4, 5, 6),
        data(b"\x01"),
        b"\x04" + struct.pack("<HBB", 2024, 1, 31),
        data(bytes(300)),
    )
    stream = bytearray(framed([good, good, EOF_PACKET]))
    rng = random.Random(draw.draw(st.integers(0, 2**32)))
    for _ in range(rng.randrange(12)):
        stream[rng.randrange(len(stream))] = rng.randrange(256)
    try:
        # text may not be UTF-8 any more, which is not the kernel's to check
        decoder = RowDecoder(schema)
        buffers = decoder.buffers(3, 700)
        memory = np.frombuffer(bytes(stream) + bytes(SLACK), np.uint8)
        start = memory.ctypes.data
        why, at, rows, _ = decoder.packets((start, start + len(stream)), start + 10_000, buffers, 0, 0)
    except DecodeError:
        return
    assert why in (MORE, FULL, END, ERROR, SPLIT_ROW)
    assert start <= at <= start + len(stream)
    for array in buffers.arrays(rows):
        array.validate()


def definition(**changed: int) -> ColumnDefinition:
    as_int = {"type": 3, "charset": 63, "length": 11, "flags": 0, "decimals": 0}
    return ColumnDefinition("c0", **{**as_int, **changed})


def test_column_definition_is_read() -> None:
    names = b"".join(data(n) for n in (b"def", b"d", b"t", b"t", "naïve".encode(), b"c"))
    packet = names + b"\x0c" + struct.pack("<HIBHB", 255, 80, 253, 0x1001, 0) + b"\x00\x00"
    assert column_definition(packet) == ColumnDefinition("naïve", 253, 255, 80, 0x1001, 0)
    for cut in range(len(packet) - 2):
        with pytest.raises(DecodeError):
            column_definition(packet[:cut])


@pytest.mark.parametrize(
    "found",
    [
        definition(type=8),
        definition(flags=0x20),
        definition(type=253, charset=255),
    ],
)
def test_column_of_another_type_is_a_mismatch(found: ColumnDefinition) -> None:
    require_unchanged(table(INT), [definition()])
    with pytest.raises(SchemaMismatchError, match=r"column `d\.t\.c0` is no longer of the type int"):
        require_unchanged(table(INT), [found])


DECIMAL = column_type("decimal", precision=10, scale=2)


@pytest.mark.parametrize(
    ("type_", "good", "changed"),
    [
        (DECIMAL, {"type": 246, "length": 12, "decimals": 2}, {"decimals": 3}),
        (DECIMAL, {"type": 246, "length": 12, "decimals": 2}, {"length": 13}),
        (column_type("datetime", fraction=3), {"type": 12, "decimals": 3}, {"decimals": 6}),
        (TEXT, {"type": 253, "charset": 255}, {"charset": 63}),
        (
            column_type("enum", labels=("a",)),
            {"type": 254, "charset": 255, "flags": 0x100},
            {"flags": 0x800},
        ),
        (column_type("json"), {"type": 245}, {"type": 252}),
    ],
)
def test_other_precision_scale_fraction_or_charset_is_a_mismatch(
    type_: ColumnType, good: dict[str, int], changed: dict[str, int]
) -> None:
    require_unchanged(table(type_), [definition(**good)])
    with pytest.raises(SchemaMismatchError):
        require_unchanged(table(type_), [definition(**{**good, **changed})])


def test_other_column_names_are_a_mismatch() -> None:
    with pytest.raises(SchemaMismatchError, match="other columns"):
        require_unchanged(table(INT, INT), [definition()])
