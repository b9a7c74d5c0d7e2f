"""TABLE_MAP events: the schema of a table in the log.

Parsed once per schema, so in plain Python. The fixed part names the table and gives each column a type byte
with its metadata; the optional part (`binlog_row_metadata=FULL`) has names, signs, character sets, labels and
key, each as a list over only those columns that the property applies to.

Source: mysql libs/mysql/binlog/event/rows_event.h, class Table_map_event.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tailrace.errors import DecodeError
from tailrace.model.table import TableId

#: Type bytes.
TINY, SHORT, LONG, FLOAT, DOUBLE = 1, 2, 3, 4, 5
LONGLONG, INT24, DATE, YEAR, VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 8, 9, 10, 13, 15, 16, 17, 18, 19
VECTOR, JSON, NEWDECIMAL, ENUM, SET = 242, 245, 246, 247, 248
TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB, VAR_STRING, STRING, GEOMETRY = 249, 250, 251, 252, 253, 254, 255
OLD_TIMESTAMP, OLD_TIME, OLD_DATETIME = 7, 11, 12
#: MariaDB's; the log writes the last three as STRING, and the catalog has their types (`mariadbtypes`).
BLOB_COMPRESSED, VARCHAR_COMPRESSED, UUID, INET4, INET6 = 140, 141, 0x100, 0x101, 0x102

_NUMERIC = (TINY, SHORT, INT24, LONG, LONGLONG, FLOAT, DOUBLE, NEWDECIMAL, YEAR)
# a VECTOR counts among those that have a character set
_CHARACTER = (
    *(VARCHAR, VAR_STRING, STRING, TINY_BLOB, BLOB, MEDIUM_BLOB, LONG_BLOB, VECTOR),
    *(BLOB_COMPRESSED, VARCHAR_COMPRESSED),
)
_METADATA_BYTES = {
    **dict.fromkeys((FLOAT, DOUBLE, TINY_BLOB, BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB_COMPRESSED), 1),
    **dict.fromkeys((JSON, GEOMETRY, VECTOR, TIMESTAMP2, DATETIME2, TIME2), 1),
    **dict.fromkeys((VARCHAR, BIT, NEWDECIMAL, STRING, VAR_STRING, ENUM, SET, VARCHAR_COMPRESSED), 2),
}
#: Most columns a table can have.
_MAX_COLUMNS = 4096
#: Fields of the optional part.
_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _NAMES, _SET_LABELS, _ENUM_LABELS = 1, 2, 3, 4, 5, 6
_GEOMETRIES, _KEY, _KEY_WITH_PREFIX, _ENUM_DEFAULT_CHARSET, _ENUM_CHARSET, _DIMENSIONS = 7, 8, 9, 10, 11, 13


@dataclass(frozen=True)
class MappedColumn:
    """One column as a TABLE_MAP has it.

    Args:
        type: type byte; ENUM and SET, which the log writes as STRING, are resolved.
        metadata: the type's metadata, one or two bytes.
        nullable: whether it may hold NULL.
        name: None without `binlog_row_metadata=FULL`.
        unsigned: whether it is UNSIGNED, numeric types only.
        collation: number of the collation, None for types that have none.
        labels: ENUM and SET: the labels in the column's character set.
        detail: GEOMETRY: number of the spatial type; VECTOR: most numbers it holds.
    """

    type: int
    metadata: tuple[int, ...]
    nullable: bool
    name: str | None
    unsigned: bool
    collation: int | None
    labels: tuple[bytes, ...]
    detail: int = 0


@dataclass(frozen=True)
class TableMap:
    """A TABLE_MAP event's content; `key` holds the indices of the primary key's columns."""

    id: TableId
    columns: tuple[MappedColumn, ...]
    key: tuple[int, ...]


class _Reader:
    """Reads bytes forward; raises DecodeError beyond the end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, n: int) -> bytes:
        if n > self.left:
            raise DecodeError(
                "malformed table map event", f"{n} bytes expected, {self.left} left", code="TR-5201"
            )
        self.at += n
        return self.data[self.at - n : self.at]

    def byte(self) -> int:
        return self.take(1)[0]

    def packed(self) -> int:
        """A length-encoded integer."""
        first = self.byte()
        if first < 251:
            return first
        size = {252: 2, 253: 3, 254: 8}.get(first)
        if size is None:
            raise DecodeError("malformed table map event", f"length byte {first}", code="TR-5201")
        return int.from_bytes(self.take(size), "little")

    def integers(self) -> Iterator[int]:
        while self.left:
            yield self.packed()

    def texts(self) -> Iterator[bytes]:
        while self.left:
            yield self.take(self.packed())


class _Charsets:
    """Collations by index in the list: one each, or a default with exceptions."""

    def __init__(self) -> None:
        self.default: int | None = None
        self.each: dict[int, int] = {}

    def read(self, reader: _Reader, with_default: bool) -> None:
        if with_default:
            self.default = reader.packed()
            numbers = list(reader.integers())
            self.each = dict(zip(numbers[::2], numbers[1::2], strict=False))
        else:
            self.each = dict(enumerate(reader.integers()))

    def of(self, index: int) -> int | None:
        return self.each.get(index, self.default)


@dataclass
class _Optional:
    """The optional part: lists, each over the columns it applies to."""

    signs: bytes = b""
    charsets: _Charsets = field(default_factory=_Charsets)
    enum_charsets: _Charsets = field(default_factory=_Charsets)
    names: list[bytes] | None = None
    enum_labels: list[tuple[bytes, ...]] = field(default_factory=list)
    set_labels: list[tuple[bytes, ...]] = field(default_factory=list)
    geometries: list[int] = field(default_factory=list)
    dimensions: list[int] = field(default_factory=list)
    key: tuple[int, ...] = ()


def table_of(body: bytes) -> TableId:
    """Only the table's name. `body` is as for `parse_table_map`."""
    return _table_id(_Reader(body))


def parse_table_map(body: bytes) -> TableMap:
    """Read a TABLE_MAP event.

    Args:
        body: the event without its header and checksum.

    Raises:
        DecodeError: it is malformed.
    """
    reader = _Reader(body)
    table = _table_id(reader)
    count = reader.packed()
    if count > _MAX_COLUMNS:
        raise DecodeError(f"malformed table map event of table `{table}`", f"{count} columns", code="TR-5201")
    types = reader.take(count)
    metadata = _Reader(reader.take(reader.packed()))
    resolved = [_resolve(t, metadata.take(_METADATA_BYTES.get(t, 0))) for t in types]
    nullable = reader.take((count + 7) // 8)
    optional = _optional(reader)
    columns = []
    numeric = character = enums = sets = labelled = spatial = vectors = 0
    for i, (type_, meta) in enumerate(resolved):
        unsigned, collation, detail = False, None, 0
        labels: tuple[bytes, ...] = ()
        if type_ in _NUMERIC:
            unsigned = _bit(optional.signs, numeric)
            numeric += 1
        elif type_ in _CHARACTER:
            collation = optional.charsets.of(character)
            character += 1
        elif type_ in (ENUM, SET):
            collation = optional.enum_charsets.of(labelled)
            labelled += 1
            if type_ == ENUM:
                labels = _at(optional.enum_labels, enums)
                enums += 1
            else:
                labels = _at(optional.set_labels, sets)
                sets += 1
        if type_ == GEOMETRY:
            detail = optional.geometries[spatial] if spatial < len(optional.geometries) else 0
            spatial += 1
        elif type_ == VECTOR:
            detail = optional.dimensions[vectors] if vectors < len(optional.dimensions) else 0
            vectors += 1
        columns.append(
            MappedColumn(
                type_,
                meta,
                bool(nullable[i >> 3] >> (i & 7) & 1),
                _name(optional.names, i),
                unsigned,
                collation,
                labels,
                detail,
            )
        )
    if any(i >= count for i in optional.key):
        raise DecodeError(
            f"malformed table map event of table `{table}`",
            "a key column that does not exist",
            code="TR-5201",
        )
    return TableMap(table, tuple(columns), optional.key)


def _table_id(reader: _Reader) -> TableId:
    reader.take(8)  # table id and flags
    names = []
    for _ in range(2):
        names.append(_text(reader.take(reader.byte())))
        reader.take(1)  # a zero byte
    return TableId(*names)


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise DecodeError("malformed table map event", "a name that is not UTF-8", code="TR-5201") from error


def _resolve(type_: int, meta: bytes) -> tuple[int, tuple[int, ...]]:
    """STRING stands for CHAR, BINARY, ENUM and SET: the first metadata byte says which."""
    if type_ != STRING:
        return type_, tuple(meta)
    real, low = meta
    if real in (ENUM, SET):
        return real, (low,)
    length = low | ((real & 0x30) ^ 0x30) << 4
    return real | 0x30, (length & 255, length >> 8)


def _optional(reader: _Reader) -> _Optional:
    out = _Optional()
    while reader.left:
        kind = reader.byte()
        value = _Reader(reader.take(reader.packed()))
        if kind == _SIGNEDNESS:
            out.signs = value.data
        elif kind in (_DEFAULT_CHARSET, _COLUMN_CHARSET):
            out.charsets.read(value, kind == _DEFAULT_CHARSET)
        elif kind in (_ENUM_DEFAULT_CHARSET, _ENUM_CHARSET):
            out.enum_charsets.read(value, kind == _ENUM_DEFAULT_CHARSET)
        elif kind == _NAMES:
            out.names = list(value.texts())
        elif kind in (_SET_LABELS, _ENUM_LABELS):
            lists = out.set_labels if kind == _SET_LABELS else out.enum_labels
            while value.left:
                lists.append(tuple(value.take(value.packed()) for _ in range(_count(value))))
        elif kind == _GEOMETRIES:
            out.geometries = list(value.integers())
        elif kind == _DIMENSIONS:
            out.dimensions = list(value.integers())
        elif kind == _KEY:
            out.key = tuple(value.integers())
        elif kind == _KEY_WITH_PREFIX:
            out.key = tuple(value.integers())[::2]
    return out


def _count(reader: _Reader) -> int:
    count = reader.packed()
    if count > reader.left:
        raise DecodeError(
            "malformed table map event", f"{count} labels in {reader.left} bytes", code="TR-5201"
        )
    return count


def _bit(bits: bytes, index: int) -> bool:
    return index >> 3 < len(bits) and bool(bits[index >> 3] >> (7 - (index & 7)) & 1)


def _at(lists: list[tuple[bytes, ...]], index: int) -> tuple[bytes, ...]:
    return lists[index] if index < len(lists) else ()


def _name(names: list[bytes] | None, index: int) -> str | None:
    return _text(names[index]) if names is not None and index < len(names) else None
