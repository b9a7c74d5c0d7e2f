"""A column's declared SQL type and its JDBC type code, for formats that describe tables."""

from __future__ import annotations

from tailrace.model.types import ColumnType, Kind

#: `java.sql.Types` by kind; integers and some text types have tables of their own.
_JDBC = {
    Kind.FLOAT: 7,
    Kind.DOUBLE: 8,
    Kind.DECIMAL: 3,
    Kind.STRING: 12,
    Kind.BYTES: 2004,
    Kind.BOOLEAN: -7,
    Kind.BITS: -7,
    Kind.DATE: 91,
    Kind.DATETIME: 93,
    Kind.INSTANT: 93,
    Kind.TIME: 92,
    Kind.YEAR: 12,
    Kind.JSON: 12,
    Kind.ENUM: 1,
    Kind.SET: 1,
    Kind.GEOMETRY: 2004,
    Kind.VECTOR: 2004,
    Kind.LIST: 2003,
}
#: Integers by bits; an unsigned type has the code of the next larger one.
_INTEGERS = {8: -6, 16: 5, 24: 4, 32: 4, 64: -5}
_UNSIGNED = {8: 5, 16: 4, 24: 4, 32: -5, 64: 3}
_TEXTS = {"char": 1, "tinytext": 2005, "text": 2005, "mediumtext": 2005, "longtext": 2005}
_WITH_LENGTH = {"char", "varchar", "binary", "varbinary", "vector"}


def declared_type(type_: ColumnType) -> str:
    """The type as in CREATE TABLE, without a character set."""
    text = type_.native
    if type_.kind is Kind.DECIMAL:
        text += f"({type_.precision},{type_.scale})"
    elif type_.kind in (Kind.ENUM, Kind.SET):
        labels = ",".join("'" + label.replace("'", "''") + "'" for label in type_.labels)
        text += f"({labels})"
    elif type_.kind in (Kind.BOOLEAN, Kind.BITS):
        text += f"({type_.bits or 1})"
    elif type_.native in _WITH_LENGTH and type_.length is not None:
        text += f"({type_.length})"
    elif type_.fraction:
        text += f"({type_.fraction})"
    return f"{text} unsigned" if type_.unsigned else text


def jdbc_code(type_: ColumnType) -> int:
    """The type's code in `java.sql.Types`."""
    if type_.kind is Kind.INTEGER:
        return (_UNSIGNED if type_.unsigned else _INTEGERS)[type_.bits or 64]
    return _TEXTS.get(type_.native, _JDBC[type_.kind]) if type_.kind is Kind.STRING else _JDBC[type_.kind]
