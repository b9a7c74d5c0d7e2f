"""The kernel for text of other character sets against the plain decoder of the same tables, on any bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.kernels.memory import SLACK
from tailrace.sources.mysql.wire.kernels.text import BAD_TEXT, NO_ROOM, write_charset
from tailrace.sources.mysql.wire.schema import codepages

CHARSETS = sorted(codepages.TABLED)
#: Bytes that lead or follow in many character sets, among any others.
BYTES = st.binary(max_size=24) | st.lists(
    st.sampled_from(
        [0x00, 0x30, 0x39, 0x41, 0x5C, 0x81, 0x8E, 0x8F, 0xA0, 0xA1, 0xD8, 0xDC, 0xE3, 0xF9, 0xFE]
    ),
    max_size=24,
).map(bytes)


def written(text: bytes, charset: str, room: int) -> tuple[int, bytes]:
    """The kernel's result, as bytes written or what is below zero, and what was written."""
    source = np.frombuffer(text + bytes(SLACK), np.uint8)
    target = np.full(room + 2 * SLACK, 0xEE, np.uint8)
    o = target.ctypes.data
    end = write_charset(o, o + room, source.ctypes.data, len(text), codepages.table(charset).ctypes.data)
    assert (target[room + SLACK :] == 0xEE).all()
    return (end, b"") if end < 0 else (end - o, target[: end - o].tobytes())


@given(text=BYTES, charset=st.sampled_from(CHARSETS))
def test_text_is_decoded_or_refused_as_by_the_plain_decoder(text: bytes, charset: str) -> None:
    try:
        expected = codepages.decode(text, charset).encode()
    except UnicodeDecodeError:
        assert written(text, charset, 4 * len(text) + 8)[0] == BAD_TEXT
    else:
        assert written(text, charset, 4 * len(text) + 8) == (len(expected), expected)


@given(text=BYTES, charset=st.sampled_from(CHARSETS), room=st.integers(0, 60))
def test_what_does_not_fit_is_not_written(text: bytes, charset: str, room: int) -> None:
    size, _ = written(text, charset, room)
    assert size in (NO_ROOM, BAD_TEXT) or size <= room


@pytest.mark.parametrize(
    ("text", "charset", "expected"),
    [
        (b"\x80\x81", "latin1", "€\x81"),
        (b"\xfd", "cp866", "²"),
        (b"\xa4", "greek", "?"),
        (b"@[", "swe7", "ÉÄ"),
        (b"\x81\x5f\x5c", "sjis", "\\\\"),
        (b"\x87\x40\xfa\x40", "cp932", "①ⅰ"),
        (b"\x8f\xf3\xf3\xf5\xa1", "eucjpms", "ⅰ\ue000"),
        (b"\x8e\xa0", "ujis", "??"),
        (b"\x90\x30\x81\x30\xfe\x39\xfe\x39", "gb18030", "\U00010000?"),
        (b"\xd8\x3d\xde\x00", "utf16", "😀"),
        (b"\x3d\xd8\x00\xde", "utf16le", "😀"),
        (b"\x00\x01\xf6\x00", "utf32", "😀"),
    ],
)
def test_mysql_has_its_own_ways(text: bytes, charset: str, expected: str) -> None:
    assert written(text, charset, 60) == (len(expected.encode()), expected.encode())
