"""MySQL's types as Tailrace's: one pure mapping for the catalog and for the log's TABLE_MAP.

Both describe a column by its type's name and attributes, and both go through `column_type`, so a schema read
from the catalog equals the one read from the log. Attributes that only one of them knows (the display width
of an integer, the byte length of a TEXT) are left out.
"""

from __future__ import annotations

from tailrace.errors import SchemaMismatchError
from tailrace.model.types import ColumnType, Kind

#: Spatial types, by their number in the log.
GEOMETRIES = (
    *("geometry", "point", "linestring", "polygon"),
    *("multipoint", "multilinestring", "multipolygon", "geomcollection"),
)
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_KINDS = {
    **dict.fromkeys(_INTEGER_BITS, Kind.INTEGER),
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "decimal": Kind.DECIMAL,
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), Kind.STRING),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), Kind.BYTES),
    "bit": Kind.BITS,
    "date": Kind.DATE,
    "datetime": Kind.DATETIME,
    "timestamp": Kind.INSTANT,
    "time": Kind.TIME,
    "year": Kind.YEAR,
    "json": Kind.JSON,
    **dict.fromkeys(("uuid", "inet4", "inet6"), Kind.STRING),  # MariaDB's
    "enum": Kind.ENUM,
    "set": Kind.SET,
    "vector": Kind.VECTOR,
    **dict.fromkeys(GEOMETRIES, Kind.GEOMETRY),
}
_CHARACTER = (Kind.STRING, Kind.ENUM, Kind.SET)
_SIGNED_OR_NOT = (Kind.INTEGER, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL)
_OF_DECLARED_LENGTH = ("char", "varchar", "binary", "varbinary", "vector")
_DATES = (Kind.DATE, Kind.DATETIME, Kind.INSTANT)

#: Character sets, with the most bytes one character takes: all that MySQL 9.7 has.
CHARSETS = {
    **dict.fromkeys(
        (
            *(
                "armscii8",
                "ascii",
                "binary",
                "cp1250",
                "cp1251",
                "cp1256",
                "cp1257",
                "cp850",
                "cp852",
                "cp866",
            ),
            *("dec8", "geostd8", "greek", "hebrew", "hp8", "keybcs2", "koi8r", "koi8u", "latin1", "latin2"),
            *("latin5", "latin7", "macce", "macroman", "swe7", "tis620"),
        ),
        1,
    ),
    **dict.fromkeys(("big5", "cp932", "euckr", "gb2312", "gbk", "sjis", "ucs2"), 2),
    **dict.fromkeys(("eucjpms", "ujis", "utf8mb3", "utf8"), 3),
    **dict.fromkeys(("gb18030", "utf16", "utf16le", "utf32", "utf8mb4"), 4),
}


def column_type(
    native: str,
    *,
    unsigned: bool = False,
    length: int | None = None,
    precision: int | None = None,
    scale: int | None = None,
    fraction: int | None = None,
    bits: int | None = None,
    labels: tuple[str, ...] = (),
    charset: str | None = None,
    collation: str | None = None,
    zero_dates: str | None = None,
    column: str = "",
) -> ColumnType:
    """The type of a column. An argument that does not apply to the type is ignored.

    Args:
        native: name as `information_schema.COLUMNS.DATA_TYPE` gives it, e.g. `mediumint`, `tinytext`.
        unsigned: whether it is UNSIGNED (ZEROFILL implies it).
        length: declared length of CHAR and VARCHAR in characters, of BINARY and VARBINARY in bytes, of
            VECTOR in numbers.
        precision: DECIMAL: digits in all.
        scale: DECIMAL: digits after the point.
        fraction: TIME, DATETIME, TIMESTAMP: digits of the fraction of a second; None is 0.
        bits: BIT: declared length.
        labels: ENUM and SET: the labels in order.
        charset: character set of character types; None is not checked.
        collation: collation of character types, if known.
        zero_dates: how zero and partial dates are read, see `ColumnType`.
        column: full name of the column, for the error.

    Raises:
        SchemaMismatchError: the type or its character set is not supported yet.
    """
    native = "geomcollection" if native == "geometrycollection" else native  # MariaDB and MySQL before 8.0
    kind = _KINDS.get(native)
    name = f"column `{column}`" if column else "a column"
    if kind is None:
        raise SchemaMismatchError(
            f"{name} has the type `{native}`, which is not supported yet",
            f"supported: {', '.join(_KINDS)}",
            "leave the table out of the captured tables, or change the column's type",
            code="TR-5005",
        )
    character = kind in _CHARACTER
    if character and charset is not None and charset not in CHARSETS:
        raise SchemaMismatchError(
            f"{name} has the character set `{charset}`, which is not supported yet",
            f"type {native}; supported character sets: {', '.join(CHARSETS)}",
            "leave the table out of the captured tables, or convert it: "
            "ALTER TABLE ... CONVERT TO CHARACTER SET utf8mb4",
            code="TR-5006",
        )
    if kind is Kind.BITS and bits == 1:
        kind, bits = Kind.BOOLEAN, None
    return ColumnType(
        kind,
        native,
        bits=bits if kind is Kind.BITS else _INTEGER_BITS.get(native),
        unsigned=unsigned and kind in _SIGNED_OR_NOT,
        precision=precision if kind is Kind.DECIMAL else None,
        scale=scale if kind is Kind.DECIMAL else None,
        fraction=(fraction or 0) if kind in (Kind.DATETIME, Kind.INSTANT, Kind.TIME) else None,
        length=length if native in _OF_DECLARED_LENGTH else None,
        labels=tuple(labels) if kind in (Kind.ENUM, Kind.SET) else (),
        zero_dates=zero_dates if kind in _DATES else None,
        collation=collation if character else None,
    )
