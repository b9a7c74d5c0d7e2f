"""A small workload of all common types, for comparing messages: tables, rows that are there, changes of them.

Every table has an ordinary row, one with extreme values and one of NULLs; then come an insert, an update, an
update of the key, a delete. The last change is one of the table `zz_end`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: The table whose first logged row ends the workload.
END = "zz_end"


@dataclass(frozen=True)
class Table:
    """A table of one key column `id` and columns of related types.

    Args:
        columns: definitions by name.
        rows: values of the columns, as SQL; the first is the ordinary row.
    """

    columns: Mapping[str, str]
    rows: tuple[tuple[str, ...], ...]


TABLES: Mapping[str, Table] = {
    "integers": Table(
        {
            "tiny": "TINYINT",
            "tiny_u": "TINYINT UNSIGNED",
            "flag": "BOOLEAN",
            "small": "SMALLINT",
            "small_u": "SMALLINT UNSIGNED",
            "medium": "MEDIUMINT",
            "medium_u": "MEDIUMINT UNSIGNED",
            "whole": "INT",
            "whole_u": "INT UNSIGNED",
            "big": "BIGINT",
            "big_u": "BIGINT UNSIGNED",
            "made_year": "YEAR",
        },
        (
            ("1", "2", "TRUE", "3", "4", "5", "6", "7", "8", "9", "10", "2024"),
            (
                *("-128", "255", "FALSE", "-32768", "65535", "-8388608", "16777215", "-2147483648"),
                *("4294967295", "-9223372036854775808", "18446744073709551615", "2155"),
            ),
            *(
                (
                    *("127", "0", "NULL", "32767", "0", "8388607", "0", "2147483647", "0"),
                    *("9223372036854775807", "9223372036854775808", year),
                )
                for year in ("1901", "0000")
            ),
            ("NULL",) * 12,
        ),
    ),
    "numbers": Table(
        {
            "price": "DECIMAL(10,2)",
            "large": "DECIMAL(65,30)",
            "whole": "DECIMAL(20,0)",
            "unsigned": "DECIMAL(6,3) UNSIGNED",
            "single": "FLOAT",
            "twice": "DOUBLE",
            "rounded": "FLOAT(7,3)",
            "rounded_twice": "DOUBLE(10,4)",
        },
        (
            ("12.34", "1.5", "42", "1.250", "1.5", "2.25", "1.125", "3.0625"),
            (
                *("-99999999.99", "-99999999999999999999999999999999999.999999999999999999999999999999"),
                *("-99999999999999999999", "0", "3.4e38", "1.7e308", "-9999.999", "-999999.9999"),
            ),
            ("0", "0.000000000000000000000000000001", "0", "999.999", "1e-38", "2.3e-308", "0.001", "-0.5"),
            ("-0.01", "-1", "128", "0.001", "0.1", "0.1", "0.1", "0.1"),
            ("1", "255", "-128", "1", "1e10", "1e22", "100", "12345.6789"),
            ("NULL",) * 8,
        ),
    ),
    "times": Table(
        {
            "day": "DATE",
            "span": "TIME",
            "span3": "TIME(3)",
            "span6": "TIME(6)",
            "moment": "DATETIME",
            "moment3": "DATETIME(3)",
            "moment6": "DATETIME(6)",
            "instant": "TIMESTAMP NULL",
            "instant3": "TIMESTAMP(3) NULL",
            "instant6": "TIMESTAMP(6) NULL",
        },
        (
            (
                *("'2024-02-29'", "'12:34:56'", "'12:34:56.789'", "'12:34:56.789012'"),
                *("'2024-02-29 12:34:56'", "'2024-02-29 12:34:56.789'", "'2024-02-29 12:34:56.789012'"),
                *("'2024-02-29 12:34:56'", "'2024-02-29 12:34:56.789'", "'2024-02-29 12:34:56.789012'"),
            ),
            (
                *("'1000-01-01'", "'00:00:00'", "'23:59:59.999'", "'-12:00:00.000001'"),
                *("'1000-01-01 00:00:00'", "'1969-12-31 23:59:59.999'", "'1900-01-01 00:00:00.000001'"),
                *("'1970-01-01 00:00:01'", "'1970-01-01 00:00:01.001'", "'1970-01-01 00:00:01.000001'"),
            ),
            (
                *("'9999-12-31'", "'838:59:59'", "'-838:59:59'", "'100:00:00.5'"),
                *("'9999-12-31 23:59:59'", "'9999-12-31 23:59:59.999'", "'9999-12-31 23:59:59.999999'"),
                *("'2038-01-19 03:14:07'", "'2038-01-19 03:14:07.100'", "'2038-01-19 03:14:07.120000'"),
            ),
            ("NULL",) * 10,
        ),
    ),
    "texts": Table(
        {
            "fixed": "CHAR(10)",
            "short": "VARCHAR(100)",
            "latin": "VARCHAR(100) CHARACTER SET latin1",
            "long_text": "LONGTEXT",
            "tiny_text": "TINYTEXT",
            "one": "ENUM('a','b c','d,e')",
            "some": "SET('x','y','z')",
            "document": "JSON",
        },
        (
            (
                "'ab'",
                "'hello'",
                "'caf\u00e9'",
                "'text'",
                "'t'",
                "'a'",
                "'x,z'",
                """'{"a": 1, "b": [true, null]}'""",
            ),
            (
                *("''", "'quote \" back \\\\ slash / tab \\t'", "''", "REPEAT('x', 70000)", "'\U0001f600'"),
                *("'d,e'", "''", """'[1.5, 1e100, -0.0, "\\\\u00e9", {"z": {}, "a": []}]'"""),
            ),
            ("'\u00e4\u00f6'", "'\\n\\r\\b\\f\\0'", "'x'", "'<&>'", "'\u2028'", "'b c'", "'x,y,z'", "'null'"),
            *(
                ("'a'", "'a'", "'a'", "'a'", "'a'", "'a'", "'y'", document)
                for document in (
                    "'\"text\"'",
                    "'18446744073709551615'",
                    "CAST(12.50 AS JSON)",
                    "JSON_OBJECT('t', TIMESTAMP'2024-02-29 12:34:56.789', 'd', DATE'2024-02-29')",
                    "JSON_OBJECT('t', TIME'12:34:56', 'n', CAST(1.10 AS DECIMAL(10,2)))",
                    "'[0.1, 1.0, 100000000000000000000, 1e-7, 123456789.125]'",
                )
            ),
            ("NULL",) * 8,
        ),
    ),
    "bytes": Table(
        {
            "fixed": "BINARY(4)",
            "short": "VARBINARY(100)",
            "long_bytes": "BLOB",
            "bit1": "BIT(1)",
            "bit8": "BIT(8)",
            "bit12": "BIT(12)",
            "bit64": "BIT(64)",
        },
        (
            (
                "x'01020304'",
                "x'00ff'",
                "x'cafe'",
                "b'1'",
                "b'10101010'",
                "b'100000000001'",
                "x'0102030405060708'",
            ),
            ("x'0100'", "x''", "REPEAT(x'ab', 300)", "b'0'", "b'0'", "b'0'", "b'0'"),
            (
                "x'00000000'",
                "x'00'",
                "x'00'",
                "b'1'",
                "b'11111111'",
                "b'111111111111'",
                "x'ffffffffffffffff'",
            ),
            ("NULL",) * 7,
        ),
    ),
    "shapes": Table(
        {"place": "GEOMETRY", "dot": "POINT", "earth": "POINT SRID 4326", "area": "POLYGON"},
        (
            (
                *("ST_GeomFromText('LINESTRING(0 0, 1 2)')", "POINT(1.5, -2)"),
                *(
                    "ST_GeomFromText('POINT(52.5 13.4)', 4326)",
                    "ST_GeomFromText('POLYGON((0 0,4 0,4 4,0 0))')",
                ),
            ),
            ("ST_GeomFromText('POINT(1 2)', 4326)", "POINT(0, 0)", "NULL", "NULL"),
            ("NULL",) * 4,
        ),
    ),
    "charsets": Table(
        {
            "gbk_text": "VARCHAR(20) CHARACTER SET gbk",
            "sjis_text": "VARCHAR(20) CHARACTER SET sjis",
            "utf16_text": "VARCHAR(20) CHARACTER SET utf16",
            "ucs2_text": "CHAR(5) CHARACTER SET ucs2",
            "cyrillic": "VARCHAR(20) CHARACTER SET cp1251",
            "koi8r_text": "TEXT CHARACTER SET koi8r",
            "thai": "VARCHAR(20) CHARACTER SET tis620",
            "latin2_text": "VARCHAR(20) CHARACTER SET latin2",
        },
        (
            ("'汉字'", "'日本'", "'é😀'", "'ж'", "'жук'", "'жук'", "'ไทย'", "'šč'"),
            ("NULL",) * 8,
        ),
    ),
    "zeros": Table(
        {"day": "DATE", "moment": "DATETIME(3)", "instant": "TIMESTAMP NULL"},
        (
            ("'0000-00-00'", "'0000-00-00'", "'0000-00-00'"),
            ("'2024-01-00'", "'2024-00-01'", "NULL"),
        ),
    ),
    "vectors": Table({"embedding": "VECTOR(3)"}, (("STRING_TO_VECTOR('[1,-2.5,0.1]')",), ("NULL",))),
    "defaults": Table(
        {
            "number": "INT NOT NULL DEFAULT 7",
            "name": "VARCHAR(10) NOT NULL DEFAULT 'x'",
            "price": "DECIMAL(5,2) NOT NULL DEFAULT 1.20",
            "created": "DATETIME(3) NOT NULL DEFAULT '2020-01-01 00:00:00.500'",
            "maybe": "INT DEFAULT 5",
            "twice": "INT GENERATED ALWAYS AS (number * 2) STORED",
            "thrice": "INT GENERATED ALWAYS AS (number * 3) VIRTUAL",
        },
        (
            ("1", "'a'", "2.50", "'2024-01-01 00:00:00'", "NULL", "DEFAULT", "DEFAULT"),
            ("DEFAULT", "DEFAULT", "DEFAULT", "DEFAULT", "DEFAULT", "DEFAULT", "DEFAULT"),
        ),
    ),
}

_OTHER_TABLES = (
    "CREATE TABLE pairs (b INT COMMENT 'a half', a VARCHAR(10), v INT COMMENT 'of it', PRIMARY KEY (a, b))",
    "CREATE TABLE uniques (a INT NOT NULL UNIQUE, v INT)",
    f"CREATE TABLE {END} (id INT PRIMARY KEY)",
)
_OTHER_ROWS = (
    "INSERT INTO pairs VALUES (1, 'x', 1), (2, 'y', 2)",
    "INSERT INTO uniques VALUES (1, 1), (2, 2)",
)
_OTHER_CHANGES = (
    "INSERT INTO pairs VALUES (3, 'z', 3)",
    "UPDATE pairs SET v = 10 WHERE b = 1",
    "UPDATE pairs SET a = 'q', v = 11 WHERE b = 1",
    "DELETE FROM pairs WHERE b = 2",
    "UPDATE uniques SET a = 5 WHERE a = 1",
    "UPDATE uniques SET v = 6 WHERE a = 2",
    f"INSERT INTO {END} VALUES (1)",
)


def definitions() -> list[str]:
    """The CREATE TABLE statements."""
    made = [
        f"CREATE TABLE {name} (id INT PRIMARY KEY, "
        + ", ".join(f"`{column}` {kind}" for column, kind in table.columns.items())
        + ")"
        for name, table in TABLES.items()
    ]
    return [*made, *_OTHER_TABLES]


def rows() -> list[str]:
    """The statements that insert what a snapshot finds."""
    return [*_inserts(1), *_OTHER_ROWS]


def changes() -> list[str]:
    """The statements that are read from the log."""
    made = _inserts(101)
    for name, table in TABLES.items():
        plain = [
            (column, value)
            for column, value in zip(table.columns, table.rows[0], strict=True)
            if value != "DEFAULT"
        ]
        values = ", ".join(f"`{column}` = {value}" for column, value in plain)
        made += [
            f"UPDATE {name} SET {values} WHERE id = 102",
            f"UPDATE {name} SET id = 201 WHERE id = 101",
            f"DELETE FROM {name} WHERE id = 102",
        ]
    return [*made, *_OTHER_CHANGES]


def _inserts(first: int) -> list[str]:
    return [
        f"INSERT INTO {name} VALUES ({', '.join([str(first + i), *row])})"
        for name, table in TABLES.items()
        for i, row in enumerate(table.rows)
    ]
