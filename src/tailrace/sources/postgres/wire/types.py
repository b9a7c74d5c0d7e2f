"""PostgreSQL's types as Tailrace's: one pure mapping for the catalog and for the log's Relation messages.

A value becomes the same bytes whether it comes from COPY, from the log in binary form or in text form:

    bool, bit(1)                     boolean
    int2, int4, int8; oid, xid, cid  int16, int32, int64; int64
    float4, float8                   float32, float64
    numeric(p, s), p <= 38           decimal128(p, s); with a scale below 0 or above p the digits that takes
    numeric, numeric(p > 38, s)      text, with NaN, Infinity and the digits as they were written
    money                            decimal128(19, 2)
    text, varchar, char, name ...    text; char(n) with its padding
    bytea                            binary
    date                             date32; -infinity and infinity are the least and the greatest int32
    timestamp, timestamptz           timestamp[us], timestamp[us, UTC]; the infinities are those of int64
    time                             duration[us], 0..24 hours
    json, jsonb                      text, as the server prints it
    enum                             text, its label
    domain                           as its base type
    array of any type above          list, of one dimension counted from 1
    vector (pgvector)                list of float32
    everything else                  text as the server prints it under SESSION_SETTINGS: uuid, inet, bit(n),
                                     intervals (ISO 8601), ranges, composites, hstore, tsvector, points ...

No value is changed to make it fit. A value that the column's Arrow type cannot hold is an error; it names the
column and the fix, which is to capture that column as text. Such values are a NaN in a numeric(p, s), an
array of more dimensions or other bounds, a timestamp after the year 294246.

Two forms. COPY and the log give values in binary form, which kernels read fastest, or as text. Types whose
binary form is not supported (`has_binary` is false) are requested as text: COPY selects them with `::text`,
and a log that has them is started with the option `binary` off. The text is that of the types' output
functions, so any type of any extension is captured, and the log's text equals COPY's.

Source: PostgreSQL manual, "Data Types", "pg_type", "Date/Time Output", "Client Connection Defaults".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tailrace.model.types import MAX_DECIMAL_DIGITS, ColumnType, Kind

#: Settings of every session that reads values, by COPY or by a walsender: else texts would differ.
SESSION_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "client_encoding": "UTF8",
        "DateStyle": "ISO, MDY",
        "IntervalStyle": "iso_8601",
        "TimeZone": "UTC",
        "extra_float_digits": "1",
        "bytea_output": "hex",
        "lc_monetary": "C",
    }
)

#: The types of the columns of the tables with oids $1, and the types these are made of: rows of
#: `PostgresType` in the order of its fields.
TYPES_QUERY = """\
WITH RECURSIVE used(oid) AS (
    SELECT DISTINCT a.atttypid FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = ANY ($1) AND a.attnum > 0 AND NOT a.attisdropped
  UNION
    SELECT unnest(ARRAY[t.typelem, t.typbasetype]) FROM pg_catalog.pg_type t JOIN used USING (oid)
)
SELECT t.oid::int8, n.nspname::text, t.typname::text, t.typtype::text,
       CASE WHEN e.typarray = t.oid THEN t.typelem ELSE 0 END::int8, t.typbasetype::int8, t.typtypmod,
       ARRAY(SELECT enumlabel::text FROM pg_catalog.pg_enum WHERE enumtypid = t.oid ORDER BY enumsortorder)
FROM used JOIN pg_catalog.pg_type t USING (oid)
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem
"""


@dataclass(frozen=True, slots=True)
class PostgresType:
    """A row of `pg_type`.

    Args:
        oid: its object id.
        schema: its schema.
        name: `typname`.
        form: `typtype`: b base, c composite, d domain, e enum, p pseudo, r range, m multirange.
        element: of an array the oid of its elements' type, else 0.
        base: of a domain the oid of the type it is over, else 0.
        modifier: of a domain that type's modifier, else -1.
        labels: of an enum its labels in order.
    """

    oid: int
    schema: str
    name: str
    form: str = "b"
    element: int = 0
    base: int = 0
    modifier: int = -1
    labels: tuple[str, ...] = ()


#: name:oid:oid of its array type
_BUILT_IN = """
bool:16:1000 bytea:17:1001 char:18:1002 name:19:1003 int8:20:1016 int2:21:1005 int2vector:22:1006
int4:23:1007 regproc:24:1008 text:25:1009 oid:26:1028 tid:27:1010 xid:28:1011 cid:29:1012 oidvector:30:1013
json:114:199 xml:142:143 point:600:1017 lseg:601:1018 path:602:1019 box:603:1020 polygon:604:1027
line:628:629 cidr:650:651 float4:700:1021 float8:701:1022 circle:718:719 macaddr8:774:775 money:790:791
macaddr:829:1040 inet:869:1041 aclitem:1033:1034 bpchar:1042:1014 varchar:1043:1015 date:1082:1182
time:1083:1183 timestamp:1114:1115 timestamptz:1184:1185 interval:1186:1187 timetz:1266:1270 bit:1560:1561
varbit:1562:1563 numeric:1700:1231 refcursor:1790:2201 uuid:2950:2951 pg_lsn:3220:3221 tsvector:3614:3643
tsquery:3615:3645 jsonb:3802:3807 int4range:3904:3905 numrange:3906:3907 tsrange:3908:3909
tstzrange:3910:3911 daterange:3912:3913 int8range:3926:3927 jsonpath:4072:4073 int4multirange:4451:6150
nummultirange:4532:6151 tsmultirange:4533:6152 tstzmultirange:4534:6153 datemultirange:4535:6155
int8multirange:4536:6157 xid8:5069:271
"""

_KINDS = {
    "bool": Kind.BOOLEAN,
    **dict.fromkeys(("int2", "int4", "int8", "oid", "xid", "cid"), Kind.INTEGER),
    "float4": Kind.FLOAT,
    "float8": Kind.DOUBLE,
    "money": Kind.DECIMAL,
    "bytea": Kind.BYTES,
    "date": Kind.DATE,
    "timestamp": Kind.DATETIME,
    "timestamptz": Kind.INSTANT,
    "time": Kind.TIME,
    "json": Kind.JSON,
    "jsonb": Kind.JSON,
    "vector": Kind.VECTOR,
}
_BITS = {"int2": 16, "int4": 32, "int8": 64, **dict.fromkeys(("oid", "xid", "cid"), 32)}
_UNSIGNED = ("oid", "xid", "cid")
#: Types of Kind.STRING whose binary form the kernels read.
BINARY_TEXTS = frozenset(
    (
        *("text", "varchar", "bpchar", "name", "citext", "xml", "refcursor", "ltree"),
        *("numeric", "uuid", "inet", "cidr", "macaddr", "macaddr8", "interval", "timetz", "bit", "varbit"),
    )
)
#: Base types of extensions that are known by their names, in any schema.
_EXTENSIONS = ("citext", "ltree", "hstore", "vector")
_HAS_FRACTION = ("time", "timetz", "timestamp", "timestamptz", "interval")
#: Kinds with values that their Arrow type cannot hold: a column of such a kind may be captured as text.
_NARROW = (Kind.LIST, Kind.DECIMAL, Kind.DATETIME, Kind.INSTANT)


class PostgresTypes:
    """The types of a database.

    Args:
        types: the known types that are not built in (`TYPES_QUERY`).
    """

    def __init__(self, types: Iterable[PostgresType] = ()) -> None:
        self._types = dict(_BY_OID)
        self._types.update((t.oid, t) for t in types)

    def __contains__(self, oid: int) -> bool:
        return oid in self._types

    def described(self, oid: int, modifier: int) -> tuple[int, int]:
        """Type and modifier by which the server describes a column of a result; of a domain its base's."""
        type_ = self._types.get(oid)
        if type_ is None or type_.form != "d":
            return oid, modifier
        return self.described(type_.base, type_.modifier)

    def column_type(self, oid: int, modifier: int = -1, *, unfit: str | None = None) -> ColumnType:
        """The type of a column.

        Args:
            oid: of its type; an unknown type is read as text.
            modifier: the column's `atttypmod`.
            unfit: what is done about values that its Arrow type cannot hold: `text`: the column is captured
                as text. `null`: they are null. None: they are errors. Without effect on types that hold
                every value.
        """
        type_ = self._types.get(oid)
        if type_ is None:
            return ColumnType(Kind.STRING, f"type {oid}")
        if type_.form == "d":
            return self.column_type(
                type_.base, type_.modifier if type_.modifier >= 0 else modifier, unfit=unfit
            )
        if type_.element:
            element = self.column_type(type_.element, modifier, unfit=None if unfit == "text" else unfit)
            if unfit == "text" or not _is_element(element):
                return ColumnType(Kind.STRING, _native(type_), unfit="text" if unfit == "text" else None)
            return ColumnType(Kind.LIST, _native(type_), element=element, unfit=unfit)
        found = _base_type(type_, modifier)
        is_narrow = found.kind in _NARROW or found.native == "numeric"
        if unfit is None or not is_narrow:
            return found
        if unfit == "null":
            return replace(found, unfit=unfit)
        return ColumnType(Kind.STRING, found.native, fraction=found.fraction, unfit="text")


def has_binary(type_: ColumnType) -> bool:
    """Whether the binary form of the type's values is supported; if not, they are requested as text."""
    if type_.kind is Kind.LIST:
        assert type_.element is not None
        return has_binary(type_.element)
    if type_.kind is Kind.STRING:
        return type_.native in BINARY_TEXTS
    return True


def _is_element(type_: ColumnType) -> bool:
    return type_.kind not in (Kind.LIST, Kind.VECTOR)


def _base_type(type_: PostgresType, modifier: int) -> ColumnType:
    native = _native(type_)
    if type_.form == "e":
        return ColumnType(Kind.ENUM, native, labels=type_.labels)
    if type_.form != "b" or "." in native:
        return ColumnType(Kind.STRING, native)
    if native == "numeric":
        return _numeric(modifier)
    if native == "money":
        return ColumnType(Kind.DECIMAL, native, precision=19, scale=2)
    if native in ("bit", "varbit"):
        if native == "bit" and modifier == 1:
            return ColumnType(Kind.BOOLEAN, native)
        return ColumnType(Kind.STRING, native, length=modifier if modifier > 0 else None)
    length = None
    if native in ("varchar", "bpchar") and modifier >= 4:
        length = modifier - 4
    if native == "vector" and modifier > 0:
        length = modifier
    fraction = None
    if native in _HAS_FRACTION:
        digits = modifier & 0xFFFF if modifier >= 0 else 6
        fraction = min(digits, 6)
    return ColumnType(
        _KINDS.get(native, Kind.STRING),
        native,
        bits=_BITS.get(native),
        unsigned=native in _UNSIGNED,
        fraction=fraction,
        length=length,
    )


def _numeric(modifier: int) -> ColumnType:
    if modifier < 4:
        return ColumnType(Kind.STRING, "numeric")
    precision = (modifier - 4) >> 16 & 0xFFFF
    scale = (((modifier - 4) & 0x7FF) ^ 1024) - 1024
    if scale < 0:
        precision, scale = precision - scale, 0
    elif scale > precision:
        precision = scale
    if precision > MAX_DECIMAL_DIGITS:
        return ColumnType(Kind.STRING, "numeric", precision=precision, scale=scale)
    return ColumnType(Kind.DECIMAL, "numeric", precision=precision, scale=scale)


def _native(type_: PostgresType) -> str:
    """The type's name; with its schema if it is defined in this database."""
    known = type_.schema == "pg_catalog" or (type_.form == "b" and type_.name.lstrip("_") in _EXTENSIONS)
    if known:
        return type_.name
    schema = type_.schema.replace('"', '""')
    # a dot in the schema's name would end it: it is quoted as in SQL
    return f'"{schema}".{type_.name}' if set(schema) & {".", '"'} else f"{schema}.{type_.name}"


def _built_in() -> dict[int, PostgresType]:
    types = {}
    for entry in _BUILT_IN.split():
        name, oid, array = entry.split(":")
        form = "m" if name.endswith("multirange") else "r" if name.endswith("range") else "b"
        types[int(oid)] = PostgresType(int(oid), "pg_catalog", name, form)
        types[int(array)] = PostgresType(int(array), "pg_catalog", f"_{name}", element=int(oid))
    return types


_BY_OID = _built_in()
