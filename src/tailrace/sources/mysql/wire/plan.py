"""The plan to decode a table's rows: a TABLE_MAP converted to a schema and column descriptors."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from tailrace.errors import DecodeError, SchemaMismatchError
from tailrace.kernels.columns import DATA, KIND, P1, P2, WORDS
from tailrace.kernels.memory import SLACK
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import MAX_DECIMAL_DIGITS, ColumnType, Kind
from tailrace.sources.mysql.wire.kernels import rows
from tailrace.sources.mysql.wire.kernels.decimal import MAX_PRECISION, MAX_SCALE
from tailrace.sources.mysql.wire.kernels.rows import EXTRA
from tailrace.sources.mysql.wire.kernels.temporal import DATE_TEXT, DATETIME_TEXT, TIMESTAMP_TEXT
from tailrace.sources.mysql.wire.schema import charsets, codepages, tablemap
from tailrace.sources.mysql.wire.schema.mariadbtypes import BYTES, Finish, finish_of
from tailrace.sources.mysql.wire.schema.native import CHARSETS, GEOMETRIES, column_type
from tailrace.sources.mysql.wire.schema.tablemap import MappedColumn, TableMap

_NATIVE = {
    tablemap.TINY: "tinyint",
    tablemap.SHORT: "smallint",
    tablemap.INT24: "mediumint",
    tablemap.LONG: "int",
    tablemap.LONGLONG: "bigint",
    tablemap.FLOAT: "float",
    tablemap.DOUBLE: "double",
    tablemap.NEWDECIMAL: "decimal",
    tablemap.DATE: "date",
    tablemap.YEAR: "year",
    tablemap.TIMESTAMP2: "timestamp",
    tablemap.DATETIME2: "datetime",
    tablemap.TIME2: "time",
    tablemap.BIT: "bit",
    tablemap.JSON: "json",
    tablemap.ENUM: "enum",
    tablemap.SET: "set",
    tablemap.OLD_TIMESTAMP: "timestamp from before MySQL 5.6",
    tablemap.OLD_TIME: "time from before MySQL 5.6",
    tablemap.OLD_DATETIME: "datetime from before MySQL 5.6",
    tablemap.VECTOR: "vector",
    tablemap.UUID: "uuid",
    tablemap.INET4: "inet4",
    tablemap.INET6: "inet6",
}
_SIZES = ("tiny", "", "medium", "long")
_BINARY_COLLATION = 63
_BEYOND_UTF8MB3 = re.compile("[\U00010000-\U0010ffff]")
_INTEGER_KINDS = {
    "tinyint": (rows.K_RAW1, rows.K_UINT1, 1),
    "smallint": (rows.K_RAW2, rows.K_UINT2, 2),
    "mediumint": (rows.K_INT3, rows.K_UINT3, 3),
    "int": (rows.K_RAW4, rows.K_UINT4, 4),
    "bigint": (rows.K_RAW8, rows.K_UINT8, 8),
}
#: Kinds of a temporal type, and bytes of the part before the fraction.
_TEMPORAL_KINDS = {
    Kind.DATETIME: (rows.K_DATETIME, 5),
    Kind.INSTANT: (rows.K_TIMESTAMP, 4),
    Kind.TIME: (rows.K_TIME, 3),
}
#: Text forms of temporal types, and their bytes before the fraction.
_MOMENT_TEXTS = {
    Kind.DATE: (DATE_TEXT, 3),
    Kind.DATETIME: (DATETIME_TEXT, 5),
    Kind.INSTANT: (TIMESTAMP_TEXT, 4),
}
#: Microseconds of one unit of a fraction, by its bytes.
_FRACTION_UNIT_US = (0, 10000, 100, 1)
#: Types whose first metadata byte is the number of bytes of the length in front of a value.
_LENGTH_IN_METADATA = (
    *(tablemap.BLOB, tablemap.JSON, tablemap.GEOMETRY, tablemap.VECTOR),
    tablemap.BLOB_COMPRESSED,
)
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


class RowPlan:
    """A table's schema and how its row events are decoded.

    Attributes:
        schema: the schema.
        descriptors: int64 array (2 x columns, WORDS): the before image's columns, then the after image's,
            with everything but the addresses.
        variable: indices of the columns with offsets, int64.
        longest_label: bytes of the longest text that an ENUM or SET value or a padded one can become.
    """

    def __init__(
        self,
        map_: TableMap,
        key: Sequence[str] = (),
        zero_dates: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        """The plan of a table map.

        Args:
            map_: the table map.
            key: key columns, used as long as the table has them; else the table map's key is used (without a
                primary key, that is the first unique key that cannot hold NULL).
            zero_dates: how zero and partial dates of a column are read, by its full name.

        Raises:
            SchemaMismatchError: names are missing, or a type is not supported.
            DecodeError: the table map contradicts itself.
        """
        columns = [_column(map_.id, c, zero_dates) for c in map_.columns]
        names = {c.name for c in columns}
        chosen = tuple(key) if key and names.issuperset(key) else tuple(columns[i].name for i in map_.key)
        self.schema = TableSchema(map_.id, tuple(columns), chosen)
        self.descriptors = np.zeros((2 * len(columns), WORDS), np.int64)
        self.longest_label = 255
        self._kept: list[np.ndarray] = []
        #: Columns whose bytes are converted to values afterwards.
        self.finish: dict[int, Finish] = {}
        for i, (mapped, column) in enumerate(zip(map_.columns, columns, strict=True)):
            self.descriptors[i] = self._descriptor(mapped, column.type)
            if finish := finish_of(mapped, f"{map_.id}.{column.name}"):
                self.finish[i] = finish
        self.descriptors[len(columns) :] = self.descriptors[: len(columns)]
        kinds = self.descriptors[: len(columns), KIND]
        self.variable = np.flatnonzero(kinds >= rows.K_VARIABLE).astype(np.int64)

    def _descriptor(self, mapped: MappedColumn, type_: ColumnType) -> np.ndarray:
        d = np.zeros(WORDS, np.int64)
        meta = mapped.metadata
        match type_.kind:
            case Kind.INTEGER:
                signed, unsigned, size = _INTEGER_KINDS[type_.native]
                d[KIND], d[EXTRA] = unsigned if type_.unsigned else signed, size
            case Kind.FLOAT:
                d[KIND], d[EXTRA] = rows.K_RAW4, 4
            case Kind.DOUBLE:
                d[KIND], d[EXTRA] = rows.K_RAW8, 8
            case Kind.YEAR:
                d[KIND], d[EXTRA] = rows.K_YEAR, 1
            case Kind.DATE | Kind.DATETIME | Kind.INSTANT if type_.zero_dates == "text":
                what, size = _MOMENT_TEXTS[type_.kind]
                d[KIND], d[P2] = rows.K_MOMENT_TEXT, type_.fraction or 0
                d[P1] = (d[P2] + 1) // 2
                d[EXTRA] = size + d[P1] | what << 8
            case Kind.DATE:
                d[KIND], d[EXTRA] = rows.K_DATE, 3
                d[DATA] = type_.zero_dates == "error"
            case Kind.BOOLEAN:
                d[KIND], d[EXTRA] = rows.K_BOOL, 1
            case Kind.DATETIME | Kind.INSTANT | Kind.TIME:
                d[KIND], size = _TEMPORAL_KINDS[type_.kind]
                d[P1] = (meta[0] + 1) // 2
                d[P2] = _FRACTION_UNIT_US[d[P1]]
                d[EXTRA] = size + d[P1]
                d[DATA] = type_.zero_dates == "error"
            case Kind.DECIMAL:
                precision, scale = meta
                size = _decimal_bytes(precision, scale)
                if precision > MAX_DECIMAL_DIGITS:
                    d[KIND], d[P1], d[P2] = rows.K_DECIMAL_TEXT, precision, scale | size << 8
                else:
                    d[KIND], d[P1], d[P2], d[EXTRA] = rows.K_DECIMAL, precision, scale, size
            case Kind.BITS:
                d[KIND], d[P1] = rows.K_BITS, ((type_.bits or 0) + 7) // 8
            case Kind.ENUM | Kind.SET:
                d[KIND] = rows.K_ENUM if type_.kind is Kind.ENUM else rows.K_SET
                d[P1] = meta[0]
                # an ENUM's number 0 is the empty text of an invalid value
                labels = [label.encode() for label in _labels("", mapped)]
                d[EXTRA] = self._labels([b"", *labels] if type_.kind is Kind.ENUM else labels)
            case _ if mapped.type in BYTES:
                d[KIND], d[P1], d[P2] = rows.K_BINARY, 1, BYTES[mapped.type]
            case _ if type_.native == "binary":
                d[KIND], d[P1], d[P2] = rows.K_BINARY, 1, type_.length or 0
            case _:
                d[KIND], d[EXTRA] = self._text_kind(mapped, type_)
                d[P1] = _length_bytes(mapped)
                d[P2] = (1 << 8 * int(d[P1])) - 1
        return d

    def _text_kind(self, mapped: MappedColumn, type_: ColumnType) -> tuple[int, int]:
        """The kind of text, JSON or bytes, and the address of the character set's table if it has one."""
        if type_.kind is Kind.JSON:
            return rows.K_JSON, 0
        if mapped.type in (tablemap.BLOB_COMPRESSED, tablemap.VARCHAR_COMPRESSED):
            return rows.K_BYTES, 0
        charset = charsets.charset_of(mapped.collation or 0)
        if type_.kind is Kind.STRING and charset in codepages.TABLED:
            table = codepages.table(charset)
            self._kept.append(table)
            return rows.K_CHARSET, int(table.ctypes.data)
        return (rows.K_UTF8 if type_.kind is Kind.STRING else rows.K_BYTES), 0

    def _labels(self, labels: list[bytes]) -> int:
        """Address of a label block: their number, then the address and length of each."""
        text = np.frombuffer(b"".join(labels) + bytes(SLACK), np.uint8)
        block = np.zeros(1 + 2 * len(labels) + 2, np.int64)
        block[0] = len(labels)
        at = text.ctypes.data
        for i, label in enumerate(labels):
            block[1 + 2 * i : 3 + 2 * i] = at, len(label)
            at += len(label)
        self._kept += [text, block]
        self.longest_label = max(self.longest_label, len(text) + len(labels))
        return int(block.ctypes.data)


def _column(table: TableId, mapped: MappedColumn, zero_dates: Callable[[str], str | None]) -> Column:
    if mapped.name is None:
        raise SchemaMismatchError(
            f"the log does not name the columns of table `{table}`",
            "binlog_row_metadata was MINIMAL when the change was logged; needed: FULL",
            "SET PERSIST binlog_row_metadata = FULL, then take a new snapshot of what was logged before",
            code="TR-4407",
        )
    name = f"{table}.{mapped.name}"
    return Column(mapped.name, _type(name, mapped, zero_dates(name)), mapped.nullable)


def _type(column: str, mapped: MappedColumn, zero_dates: str | None) -> ColumnType:
    meta = mapped.metadata
    charset = None if mapped.collation is None else charsets.charset_of(mapped.collation)
    native = _native(mapped)
    # the catalog, which has labels in utf8mb3, shows a question mark for each character beyond it
    labels = tuple(_BEYOND_UTF8MB3.sub("?", label) for label in _labels(column, mapped))
    precision, scale, fraction, bits, length = None, None, None, None, None
    match mapped.type:
        case tablemap.NEWDECIMAL:
            precision, scale = meta
            if not 0 < precision <= MAX_PRECISION or scale > min(MAX_SCALE, precision):
                raise DecodeError(f"column `{column}` is a DECIMAL({precision}, {scale})", code="TR-5201")
        case tablemap.DATETIME2 | tablemap.TIMESTAMP2 | tablemap.TIME2:
            (fraction,) = meta
            if fraction > 6:
                raise DecodeError(f"column `{column}` has {fraction} digits of a second", code="TR-5201")
        case tablemap.BIT:
            bits = meta[0] + 8 * meta[1]
            if not 0 < bits <= 64:
                raise DecodeError(f"column `{column}` has {bits} bits", code="TR-5201")
        case tablemap.ENUM | tablemap.SET:
            if meta[0] not in ((1, 2) if mapped.type == tablemap.ENUM else (1, 2, 3, 4, 8)):
                raise DecodeError(f"column `{column}` takes {meta[0]} bytes", code="TR-5201")
        case (
            tablemap.VARCHAR
            | tablemap.VAR_STRING
            | tablemap.STRING
            | tablemap.BLOB
            | tablemap.BLOB_COMPRESSED
            | tablemap.VARCHAR_COMPRESSED
        ) if charset is None:
            raise DecodeError(f"column `{column}` has no character set", code="TR-5201")
        case tablemap.VARCHAR | tablemap.VAR_STRING | tablemap.STRING:
            length = (meta[0] | meta[1] << 8) // CHARSETS.get(charset or "binary", 1)
            if native == "binary" and length > 255:
                raise DecodeError(f"column `{column}` is a BINARY({length})", code="TR-5201")
        case tablemap.VARCHAR_COMPRESSED:  # a byte says how it is packed
            length = ((meta[0] | meta[1] << 8) - 1) // CHARSETS.get(charset or "binary", 1)
        case tablemap.VECTOR if meta[0] == 4:
            length = mapped.detail
        case (
            tablemap.JSON | tablemap.BLOB | tablemap.GEOMETRY | tablemap.VECTOR | tablemap.BLOB_COMPRESSED
        ) if not 1 <= meta[0] <= 4:
            raise DecodeError(f"column `{column}` has lengths of {meta[0]} bytes", code="TR-5201")
    return column_type(
        native,
        unsigned=mapped.unsigned,
        length=length,
        precision=precision,
        scale=scale,
        fraction=fraction,
        bits=bits,
        labels=labels,
        charset=charset,
        zero_dates=zero_dates,
        column=column,
    )


def _labels(column: str, mapped: MappedColumn) -> list[str]:
    """The labels of an ENUM or SET as text."""
    charset = "utf8mb4" if mapped.collation is None else charsets.charset_of(mapped.collation)
    if charset not in CHARSETS:
        return []  # rejected with the column
    try:
        return [charsets.decode(label, charset) for label in mapped.labels]
    except UnicodeDecodeError:
        raise DecodeError(f"a label of column `{column}` is not {charset}", code="TR-5201") from None


def _native(mapped: MappedColumn) -> str:
    if mapped.type == tablemap.GEOMETRY:
        return GEOMETRIES[mapped.detail] if mapped.detail < len(GEOMETRIES) else f"spatial {mapped.detail}"
    binary = mapped.collation == _BINARY_COLLATION
    match mapped.type:
        case tablemap.VARCHAR | tablemap.VAR_STRING | tablemap.VARCHAR_COMPRESSED:
            return "varbinary" if binary else "varchar"
        case tablemap.STRING:
            return "binary" if binary else "char"
        case tablemap.BLOB | tablemap.BLOB_COMPRESSED if 1 <= mapped.metadata[0] <= 4:
            return _SIZES[mapped.metadata[0] - 1] + ("blob" if binary else "text")
    return _NATIVE.get(mapped.type, f"number {mapped.type}")


def _length_bytes(mapped: MappedColumn) -> int:
    """Bytes of the length in front of a value."""
    if mapped.type in _LENGTH_IN_METADATA:
        return mapped.metadata[0]
    return 1 if mapped.metadata[1] == 0 else 2


def _decimal_bytes(precision: int, scale: int) -> int:
    whole = precision - scale
    return 4 * (whole // 9 + scale // 9) + _DIGIT_BYTES[whole % 9] + _DIGIT_BYTES[scale % 9]
