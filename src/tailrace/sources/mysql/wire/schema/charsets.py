"""MySQL's character sets: by the number of a collation, and text in them."""

from __future__ import annotations

from tailrace.sources.mysql.wire.schema import codepages

#: Collation numbers of each character set: single numbers and ranges, as `information_schema.COLLATIONS` of
#: MySQL 9.7 lists them, and from 576 on those of MariaDB 11.8.
_COLLATIONS = """
armscii8 32 64, ascii 11 65, big5 1 84, binary 63, cp1250 26 34 44 66 99, cp1251 14 23 50-52, cp1256 57 67,
cp1257 29 58-59, cp850 4 80, cp852 40 81, cp866 36 68, cp932 95-96, dec8 3 69, eucjpms 97-98, euckr 19 85,
gb18030 248-250, gb2312 24 86, gbk 28 87, geostd8 92-93, greek 25 70, hebrew 16 71, hp8 6 72, keybcs2 37 73,
koi8r 7 74, koi8u 22 75, latin1 5 8 15 31 47-49 94, latin2 2 9 21 27 77, latin5 30 78, latin7 20 41-42 79,
macce 38 43, macroman 39 53, sjis 13 88, swe7 10 82, tis620 18 89, ucs2 35 90 128-151 159 640-642 2560-2815,
ujis 12 91, utf16 54-55 101-124 672-674 2816-3071, utf16le 56 62, utf32 60-61 160-183 736-738 3072-3327,
utf8mb3 33 76 83 192-215 223 576-579 2048-2303, utf8mb4 45-46 224-247 255-323 608-611 2304-2559
"""

#: MariaDB's distance between the number of a collation and that of its variant that compares trailing blanks.
_NOPAD = 1024


def _by_collation() -> dict[int, str]:
    charsets = {}
    for entry in _COLLATIONS.split(","):
        charset, *numbers = entry.split()
        for number in numbers:
            first, _, last = number.partition("-")
            charsets.update(dict.fromkeys(range(int(first), int(last or first) + 1), charset))
    return charsets


_CHARSET_BY_COLLATION = _by_collation()


def charset_of(collation: int) -> str:
    """The character set of a collation number; a name made from the number if it is unknown."""
    if _NOPAD <= collation < 2 * _NOPAD:
        collation -= _NOPAD
    return _CHARSET_BY_COLLATION.get(collation, f"of collation {collation}")


def decode(text: bytes, charset: str) -> str:
    """`text` in one of the character sets of columns. Raises UnicodeDecodeError."""
    return codepages.decode(text, charset) if charset in codepages.TABLED else text.decode()
