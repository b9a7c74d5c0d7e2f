"""Tables that turn text of MySQL's character sets into UTF-8, built at first use.

They are based on Python's codecs, corrected where the server converts differently: a value must be the same
text from the log, where it is decoded here, and from a SELECT, where the server converts it. The corrections
come from MySQL 9.7's conversion of every sequence of bytes; `tests/roundtrip/test_charsets.py` checks them.

Consequences:

* bytes that are well-formed but stand for no character are decoded as `?`, as the server prints them;
* bytes that are ill-formed cannot be stored in such a column: they are an error.

A table is one block of memory: the number of its form, then arrays of uint32. See `text.write_charset`,
which reads it.

    SINGLE   by byte: up to three bytes of UTF-8, their number in the top byte; then 1 if ASCII is as in ASCII
    MULTI    by byte, by two bytes, by two bytes after 8F or by index of four bytes: a code point or TWICE...
    wide     nothing: code points are computed
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from tailrace.kernels.memory import SLACK
from tailrace.sources.mysql.wire.kernels.text import (
    BAD,
    BY_MORE,
    BY_TWO,
    FIRST_SUPPLEMENTARY,
    FOUR,
    HEADER,
    MULTI,
    PLACES,
    SINGLE,
    THREE,
    TWICE,
    TWO,
    UCS2,
    UTF16,
    UTF16LE,
    UTF32,
)

_WIDE = {"ucs2": UCS2, "utf16": UTF16, "utf16le": UTF16LE, "utf32": UTF32}
_WIDE_CODECS = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}
_C1 = "".join(map(chr, range(0x80, 0xA0)))

#: Single-byte character sets: Python's codec, and the bytes that the server reads differently.
_SINGLE: dict[str, tuple[str, dict[int, str]]] = {
    "ascii": ("ascii", {}),
    "cp1250": ("cp1250", {}),
    "cp1251": ("cp1251", {}),
    "cp1256": ("cp1256", dict.fromkeys((0x8A, 0x8F, 0x98, 0x9A, 0x9F, 0xAA, 0xC0, 0xFF), "?")),
    "cp1257": ("cp1257", {}),
    "cp850": ("cp850", {}),
    "cp852": ("cp852", {}),
    "cp866": ("cp866", {0xFC: "ⁿ", 0xFD: "²"}),
    "greek": ("iso8859_7", {0xA1: "ʽ", 0xA2: "ʼ", 0xA4: "?", 0xA5: "?", 0xAA: "?"}),
    "hebrew": ("iso8859_8", {0xAF: "‾"}),
    "hp8": ("hp_roman8", {}),
    "koi8r": ("koi8_r", {}),
    "koi8u": ("koi8_u", {0x95: "•"}),
    "latin1": ("cp1252", {b: chr(b) for b in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}),
    "latin2": ("iso8859_2", {}),
    "latin5": ("iso8859_9", {}),
    "latin7": ("iso8859_13", {}),
    "macce": ("mac_latin2", {}),
    "macroman": ("mac_roman", {}),
    "swe7": ("ascii", dict(zip(b"@[\\]^`{|}~\x7f", "ÉÄÖÅÜéäöåü?", strict=True))),
    "tis620": ("tis_620", dict.fromkeys((0xA0, *range(0xDB, 0xDF), *range(0xFC, 0x100)), "\ufffd")),
}
#: Character sets without a codec in Python: their characters from 80 on.
_UPPER_HALVES = {
    "armscii8": _C1
    + "\xa0❁§։)(»«—.՝,-՟…՜՛՞ԱաԲբԳգԴդԵեԶզԷէԸըԹթԺժԻիԼլԽխԾծԿկՀհՁձՂղՃճՄմՅյՆնՇշՈոՉչՊպՋջՌռՍսՎվՏտՐրՑցՒւՓփՔքՕօՖֆ’'",
    "dec8": _C1
    + "\xa0¡¢£?¥?§¤©ª«????°±²³?µ¶·?¹º»¼½?¿ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏ?ÑÒÓÔÕÖŒØÙÚÛÜŸ?ßàáâãäåæçèéêëìíîï?ñòóôõöœøùúûüÿ??",
    "geostd8": "€?‚?„…†‡?‰?‹?????‘’“”•–—???›????\xa0¡¢£¤¥¦§¨©ª«¬\xad®¯°±²³´µ¶·¸¹º»¼½¾¿"
    "აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ???????????????????????№??",
    "keybcs2": "ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘťáíóúňŇŮÔšřŕŔ¼¡«»"
    "░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀"
    "αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\xa0",
}

_SJIS_BYTES = "81-9f e0-fc", "40-7e 80-fc"
_EUC_BYTES = "a1-fe", "a1-fe"
#: Multi-byte character sets: Python's codec, first and second bytes of two, and what the server reads
#: differently: characters from a sequence on, ? for none.
_DOUBLE: dict[str, tuple[str, tuple[str, str], dict[str, str]]] = {
    "big5": (
        "big5",
        ("a1-f9", "40-7e a1-fe"),
        {
            **dict.fromkeys(("a15a", "a1c3", "a1c5", "a1fe", "a240", "a2cc", "a2ce"), "\ufffd"),
            "f9d6": "碁銹裏墻恒粧嫺",
        },
    ),
    "cp932": ("cp932", _SJIS_BYTES, {}),
    "euckr": ("cp949", ("81-fe", "41-5a 61-7a 81-fe"), {}),
    "eucjpms": (
        "euc_jp",
        _EUC_BYTES,
        {
            "a1c1": "～∥",
            "a1dd": "－",
            "a1f1": "￠￡",
            "a2cc": "￢",
            "ada1": "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳ⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ?㍉㌔㌢㍍㌘㌧㌃㌶㍑㍗㌍㌦㌣㌫㍊㌻㎜㎝㎞㎎㎏㏄㎡????????"
            "㍻〝〟№㏍℡㊤㊥㊦㊧㊨㈱㈲㈹㍾㍽㍼≒≡∫∮∑√⊥∠∟⊿∵∩∪",
            "8fa2b7": "～",
            "8fa2c3": "￤",
            "8ff3f3": "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡ",
            "8ff4a1": "ⅢⅣⅤⅥⅦⅧⅨⅩ＇＂㈱№℡炻仼僴凬匇匤﨎咊坙﨏\ufa10增寬峵嵓﨑德悅愠敎昻晥"
            "\ufa12\uf929栁﨓﨔橫櫢淸淲瀨\ufa15\ufa16"
            "甁皂皞\ufa17礰\ufa18\ufa19\ufa1a\ufa1b竧\ufa1c\ufa1d綠緖\ufa1e荢﨟薰\ufa20﨡蠇\ufa22譿"
            "賴赶﨣﨤\ufa25郞\ufa26鄕﨧﨨閒\uf9dc﨩霻靍靑\ufa2a\ufa2b\ufa2c馞髙魲\ufa2d黑",
        },
    ),
    "gb18030": ("gb18030", ("81-fe", "40-7e 80-fe"), {"a8bc": "ḿ", "8135f437": "\ue7c7"}),
    "gb2312": ("gb2312", ("a1-f7", "a1-fe"), {}),
    "gbk": ("gbk", ("81-fe", "40-7e 80-fe"), {}),
    "sjis": ("shift_jis", _SJIS_BYTES, {"815f": "\\"}),
    "ujis": ("euc_jp", _EUC_BYTES, {"a1c0": "\\"}),
}

#: All character sets that have a table.
TABLED = frozenset((*_SINGLE, *_UPPER_HALVES, *_DOUBLE, *_WIDE))


@cache
def table(charset: str) -> np.ndarray:
    """The table of one of TABLED: uint32, for its address."""
    if charset in _WIDE:
        return _block(_WIDE[charset], [])
    if charset in _DOUBLE:
        return _block(MULTI, list(_multi(charset)))
    chars = _characters(charset)
    own = all(chars[b] == chr(b) for b in range(128))
    packed = [_packed(c) for c in chars]
    return _block(SINGLE, [np.array([*packed, own], np.uint32)])


def decode(text: bytes, charset: str) -> str:
    """`text` in one of TABLED, character by character. Raises UnicodeDecodeError."""
    if charset in _WIDE:
        decoded = text.decode(_WIDE_CODECS[charset])
        if charset == "ucs2" and not decoded.isascii() and max(decoded) > "\uffff":
            raise UnicodeDecodeError("ucs2", text, 0, len(text), "surrogates")
        return decoded
    if charset not in _DOUBLE:
        chars = _characters(charset)
        return "".join(chars[b] for b in text)
    block = table(charset)
    by_one, by_two, by_more = (block[o // 4 :] for o in (HEADER, BY_TWO, BY_MORE))
    out, at = [], 0
    while at < len(text):
        found, size = int(by_one[text[at]]), 1
        if found == TWO and at + 1 < len(text):
            found, size = int(by_two[int.from_bytes(text[at : at + 2])]), 2
        if found == THREE and at + 2 < len(text):
            found, size = int(by_more[int.from_bytes(text[at + 1 : at + 3])]), 3
        if found == FOUR and at + 3 < len(text):
            code, size = _code(text[at : at + 4]), 4
            found = code - FIRST_SUPPLEMENTARY + 0x10000
            if code < FIRST_SUPPLEMENTARY or found > 0x10FFFF:
                found = int(by_more[code]) if code < PLACES else ord("?")
        if found > TWICE:
            raise UnicodeDecodeError(charset, text, at, at + size, "ill-formed")
        out.append("??" if found == TWICE else chr(found))
        at += size
    return "".join(out)


def _block(form: int, arrays: list[np.ndarray]) -> np.ndarray:
    header = np.array([form, 0], np.uint32)
    return np.concatenate([header, *arrays, np.zeros(SLACK, np.uint32)])


def _characters(charset: str) -> str:
    """The 256 characters of a single-byte character set."""
    if charset in _UPPER_HALVES:
        return "".join(map(chr, range(128))) + _UPPER_HALVES[charset]
    codec, changes = _SINGLE[charset]
    return "".join(changes.get(b) or _decoded(bytes([b]), codec) for b in range(256))


def _decoded(text: bytes, codec: str) -> str:
    try:
        return text.decode(codec)
    except UnicodeDecodeError:
        return "?"


def _packed(character: str) -> int:
    utf8 = character.encode()
    return int.from_bytes(utf8, "little") | len(utf8) << 24


def _multi(charset: str) -> Iterator[np.ndarray]:
    codec, (leads, trails), changes = _DOUBLE[charset]
    by_one = np.full(256, BAD, np.uint32)
    by_one[:128] = range(128)
    by_two = np.full(65536, BAD, np.uint32)
    by_more = np.zeros(0, np.uint32)
    for lead in _bytes(leads):
        by_one[lead] = TWO
        for trail in _bytes(trails):
            by_two[lead << 8 | trail] = ord(_decoded(bytes((lead, trail)), codec))
        if charset == "gb18030":
            by_two[lead << 8 | 0x30 : lead << 8 | 0x3A] = FOUR
    if leads.startswith("81-9f"):
        for byte in range(0xA1, 0xE0):
            by_one[byte] = ord(_decoded(bytes([byte]), codec))
    if charset == "gb18030":
        by_more = np.array([ord(_decoded(_four(i), codec)) for i in range(PLACES)], np.uint32)
    elif codec == "euc_jp":
        by_more = _japanese(by_one, by_two)
    for start, text in changes.items():
        first = bytes.fromhex(start)
        code = int.from_bytes(first[-2:])
        if len(first) == 2:
            by_two[code : code + len(text)] = [ord(c) for c in text]
        elif len(first) == 3:
            by_more[code : code + len(text)] = [ord(c) for c in text]
        else:
            by_more[_code(first)] = ord(text)
    yield from (by_one, by_two, by_more)


def _japanese(by_one: np.ndarray, by_two: np.ndarray) -> np.ndarray:
    """EUC-JP's half-width letters, its user-defined area, and its plane of three bytes, which is returned."""
    by_one[0x8E], by_one[0x8F] = TWO, THREE
    by_two[0x8EA0] = TWICE
    by_two[0x8EA1:0x8EE0] = range(0xFF61, 0xFFA0)
    by_more = np.full(65536, BAD, np.uint32)
    for lead in range(0xA1, 0xFF):
        for trail in range(0xA1, 0xFF):
            by_more[lead << 8 | trail] = ord(_decoded(bytes((0x8F, lead, trail)), "euc_jp"))
        if lead >= 0xF5:
            own = 0xE000 + 94 * (lead - 0xF5)
            by_two[lead << 8 | 0xA1 : lead << 8 | 0xFF] = range(own, own + 94)
            by_more[lead << 8 | 0xA1 : lead << 8 | 0xFF] = range(own + 940, own + 1034)
    return by_more


def _bytes(ranges: str) -> Iterator[int]:
    for part in ranges.split():
        first, last = part.split("-")
        yield from range(int(first, 16), int(last, 16) + 1)


def _four(code: int) -> bytes:
    """Four bytes of gb18030 by their index."""
    return bytes((0x81 + code // 12600, 0x30 + code // 1260 % 10, 0x81 + code // 10 % 126, 0x30 + code % 10))


def _code(four: bytes) -> int:
    if not (0x81 <= four[2] <= 0xFE and 0x30 <= four[3] <= 0x39):
        raise UnicodeDecodeError("gb18030", four, 0, 4, "ill-formed")
    return ((four[0] - 0x81) * 10 + four[1] - 0x30) * 1260 + (four[2] - 0x81) * 10 + four[3] - 0x30
