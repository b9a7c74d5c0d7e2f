"""Text in every character set is the same from a SELECT, where the server converts it, and from the log."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa
import pytest

from tailrace.errors import DecodeError
from tailrace.sources.mysql.connection import connect
from tailrace.sources.mysql.snapshot.keys import within
from tailrace.sources.mysql.snapshot.select import select_pages
from tailrace.sources.mysql.wire.schema import charsets, codepages
from tailrace.sources.mysql.wire.schema.native import CHARSETS
from tailrace_dev.servers import MySqlServer
from tests.support.logged import both_ways, captured, changes_during, options_for, selected

_UTF8 = ("utf8mb3", "utf8mb4")
_SINGLE = sorted(c for c, size in CHARSETS.items() if size == 1 and c != "binary")
_MULTI = sorted(codepages.TABLED - set(_SINGLE))
#: First bytes of sequences, and how many low bytes are tried behind each.
_SEQUENCES = {
    **{charset: [(b"", 2)] for charset in _MULTI},
    "eucjpms": [(b"", 2), (b"\x8f", 2)],
    "ujis": [(b"", 2), (b"\x8f", 2)],
    "utf16": [(b"", 2), (b"\xd8\x3d", 2), (b"\xdb\xff\xdf", 1), (b"\xd8\x00\xdc", 1)],
    "utf16le": [(b"", 2), (b"\x3d\xd8", 2)],
    "utf32": [(b"\x00\x00", 2), (b"\x00\x01", 2), (b"\x00\x10", 2), (b"\x00\x11", 2)],
}


def test_every_character_set_of_the_server_is_known_with_its_longest_character(mysql: MySqlServer) -> None:
    rows = mysql.execute("SELECT CHARACTER_SET_NAME, MAXLEN FROM information_schema.CHARACTER_SETS")
    assert dict(rows).items() <= CHARSETS.items()
    assert {name for name, _ in rows} == codepages.TABLED | {"binary", *_UTF8}
    collations = mysql.execute("SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS")
    assert {id_: charsets.charset_of(id_) for id_, _ in collations} == dict(collations)


def test_all_bytes_of_single_byte_character_sets_read_as_the_server_reads_them(
    mysql: MySqlServer, database: str
) -> None:
    columns = ", ".join(f"{c} varchar(9) character set {c}, {c}_t text character set {c}" for c in _SINGLE)
    values = ", ".join(f"({b}" + f", x'{b:02x}', x'61{b:02x}62'" * len(_SINGLE) + ")" for b in range(256))
    mysql.execute(f"CREATE TABLE {database}.t (id int primary key, {columns})")
    rows = both_ways(mysql, database, f"INSERT IGNORE INTO {database}.t VALUES {values}")
    for charset in _SINGLE:
        found = rows.field(charset).to_pylist()
        last = 128 if charset == "ascii" else 256
        assert found[:last] == [charsets.decode(bytes([b]), charset) for b in range(last)], charset
        assert found[last:] == [""] * (256 - last)


@pytest.mark.parametrize("charset", _MULTI)
def test_all_sequences_of_multi_byte_character_sets_read_as_the_server_reads_them(
    mysql: MySqlServer, database: str, charset: str
) -> None:
    numbers = "WITH RECURSIVE r(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM r WHERE n < 65535)"
    statements = [
        f"INSERT IGNORE INTO {database}.t (v, c) {numbers} SELECT u, u FROM (SELECT"
        f" concat(x'{first.hex()}', unhex(lpad(hex(n), {2 * size}, '0'))) AS u FROM r"
        f" WHERE n < {256**size}{_no_surrogates(charset)}) AS x"
        for first, size in _SEQUENCES[charset]
    ]
    if charset == "gb18030":
        statements.append(
            f"INSERT IGNORE INTO {database}.t (v, c) WITH RECURSIVE r(n) AS (SELECT 0 UNION ALL SELECT n +"
            " if(n between 39400 and 40000 or n between 188900 and 189100 or n between 1237500 and 1237600"
            " or n between 19000 and 20000, 1, 29) FROM r WHERE n < 1587570) SELECT u, u FROM (SELECT"
            " unhex(concat(hex(129 + n div 12600), hex(48 + n div 1260 % 10), hex(129 + n div 10 % 126),"
            " hex(48 + n % 10))) AS u FROM r) AS x"
        )
    mysql.execute(
        f"CREATE TABLE {database}.t (id int primary key auto_increment,"
        f" v varchar(9) character set {charset}, c char(9) character set {charset})"
    )
    rows = both_ways(mysql, database, "SET cte_max_recursion_depth = 1000000", *statements)
    texts = rows.field("v").to_pylist()
    assert len({t for t in texts if t is not None}) > 4000
    with closing(mysql.connect(database=database)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT CAST(v AS BINARY) FROM t ORDER BY id")
        stored = [r[0] for r in cursor.fetchall()]
    assert [charsets.decode(b, charset) for b in stored] == texts


def _no_surrogates(charset: str) -> str:
    return " AND n NOT BETWEEN 0xD800 AND 0xDFFF" if charset == "ucs2" else ""


@pytest.mark.parametrize("charset", sorted(codepages.TABLED | set(_UTF8)))
def test_labels_and_long_texts_of_every_character_set_read_as_the_server_reads_them(
    mysql: MySqlServer, database: str, charset: str
) -> None:
    letters = _letters(charset)
    plain = ["ab", letters[:6], "x" + letters[-3:]]
    quoted = ", ".join(f"'{label}'" for label in plain)
    mysql.execute(
        f"CREATE TABLE {database}.t (id int primary key, e enum({quoted}) character set {charset},"
        f" s set({quoted}) character set {charset}, c char(200) character set {charset},"
        f" v varchar(9000) character set {charset}, m mediumtext character set {charset})"
    )
    text = (letters * 400)[:9000]
    encoded = f"_utf8mb4 x'{text.encode().hex()}'"
    rows = both_ways(
        mysql,
        database,
        f"INSERT INTO {database}.t VALUES (1, 1, 1, '', '', ''), (2, 2, 6, 'a  ', 'a  ', 'a  '),"
        f" (3, 3, 7, left({encoded}, 200), {encoded}, repeat({encoded}, 30))",
    )
    assert rows.field("e").to_pylist() == plain
    assert rows.field("s").to_pylist() == ["ab", f"{plain[1]},{plain[2]}", ",".join(plain)]
    assert rows.field("m").to_pylist()[2] == text * 30
    assert rows.field("c").to_pylist()[1:] == ["a", text[:200].rstrip(" ")]


def _letters(charset: str) -> str:
    """Characters that the character set has."""
    wanted = {
        "armscii8": "ԱՖ", "geostd8": "აჰ", "greek": "Ωπά", "hebrew": "אבת", "tis620": "กขฮ", "swe7": "ÅÄÖ",
        "ascii": "~%$", "cp1251": "Жя", "cp866": "Жя", "koi8r": "Жя", "koi8u": "Їґ", "cp1256": "غپ",
        "cp1250": "Ťż", "cp852": "Ťż", "latin2": "Ťż", "keybcs2": "Ťž", "macce": "Ťż", "cp1257": "Žų",
        "latin7": "Žų", "latin5": "ğŞ", "big5": "漢字", "euckr": "한갂", "gb2312": "汉字", "gbk": "漢汉",
        "gb18030": "漢汉😀ἀ", "cp932": "漢ｱ①", "sjis": "漢ｱあ", "ujis": "漢ｱ丂", "eucjpms": "漢ｱ①丂",
        "ucs2": "é漢", "utf8mb3": "é漢", "utf16": "é漢😀", "utf16le": "é漢😀", "utf32": "é漢😀",
        "utf8mb4": "é漢😀",
    }  # fmt: skip
    return wanted.get(charset, "éü") + " Az9" + wanted.get(charset, "öß")


def test_surrogates_in_ucs2_are_an_errorboth_ways(mysql: MySqlServer, database: str) -> None:
    mysql.execute(f"CREATE TABLE {database}.t (id int primary key, v varchar(9) character set ucs2)")
    insert = f"INSERT INTO {database}.t VALUES (1, x'D83D')"
    with pytest.raises(DecodeError, match="not valid in its character set"):
        changes_during(mysql, database, lambda: mysql.execute(insert))
    with pytest.raises(DecodeError, match="not valid in its character set"):
        selected(mysql, captured(mysql, database)["t"], "id")


@pytest.mark.parametrize("charset", sorted(codepages.TABLED | set(_UTF8)))
def test_keys_of_every_character_set_are_cut_and_compared_as_the_server_sorts_them(
    mysql: MySqlServer, database: str, charset: str
) -> None:
    letters = sorted(set(_letters(charset)) - {" "})
    keys = [*letters, *(f"{a}{b}" for a in letters for b in letters)]
    values = ", ".join(f"(CONVERT(x'{k.encode().hex()}' USING utf8mb4))" for k in keys)
    mysql.execute(
        f"CREATE TABLE {database}.t (k varchar(9) character set {charset} primary key)",
        f"INSERT IGNORE INTO {database}.t VALUES {values}",
    )
    in_order = [k for (k,) in mysql.execute(f"SELECT k FROM {database}.t ORDER BY k")]
    table = captured(mysql, database)["t"]
    with closing(connect(options_for(mysql, database), purpose="test")) as connection:
        rows = pa.concat_arrays([p.rows for p in select_pages(connection, table, None, None, 7)])
        assert rows.field("k").to_pylist() == in_order
        after, upto = (in_order[3],), (in_order[-4],)
        inside = within(connection, table, rows, after, upto).to_pylist()
    assert [k for k, taken in zip(in_order, inside, strict=True) if taken] == in_order[4:-3]
