"""All common types of PostgreSQL, for comparing messages: tables, rows that are there, changes of them.

As `workload` for MySQL: each table has an ordinary row, extreme ones and one of NULLs; then come inserts, an
update, an update of the key, a delete. The last change is one of the table `zz_end`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.peers.workload import END, Table

#: Extensions that the server may lack; tables that need them are left out then.
EXTENSIONS = ("hstore", "ltree", "citext", "vector")

_TABLES: Mapping[str, Table] = {
    "integers": Table(
        {"small": "int2", "whole": "int4", "big": "int8", "object": "oid", "flag": "bool"},
        (
            ("1", "2", "3", "4", "true"),
            ("-32768", "-2147483648", "-9223372036854775808", "0", "false"),
            ("32767", "2147483647", "9223372036854775807", "4294967295", "true"),
            ("NULL",) * 5,
        ),
    ),
    "floats": Table(
        {"single": "real", "twice": "float8"},
        (
            ("1.5", "2.25"),
            ("'NaN'", "'NaN'"),
            ("'Infinity'", "'Infinity'"),
            ("'-Infinity'", "'-Infinity'"),
            ("3.4028235e38", "1.7976931348623157e308"),
            ("0.1", "0.1"),
            ("'-0'", "'-0'"),
            ("1e-45", "5e-324"),
            ("NULL", "NULL"),
        ),
    ),
    "numbers": Table(
        {
            "price": "numeric(10,2)",
            "whole": "numeric(20)",
            "long": "numeric(50,10)",
            "wide": "numeric(45)",
            "free": "numeric",
            "rounded": "numeric(5,-2)",
            "tiny": "numeric(3,5)",
            "cash": "money",
        },
        (
            ("12.34", "42", "1.5", "42", "1.10", "1200", "0.00123", "12.34"),
            ("-0.01", "-1", "-0.5", "-1", "100", "-99900", "-0.00001", "-0.01"),
            ("0", "0", "0", "0", "0.000", "0", "0", "0"),
            (
                *(
                    "99999999.99",
                    "99999999999999999999",
                    "1234567890123456789012345678901234567890.0123456789",
                ),
                *("123456789012345678901234567890123456789012345", "1e40", "9999900", "0.00999"),
                "92233720368547758.07",
            ),
            ("1.28", "128", "-1.28", "-129", "-0.0000000001000", "100", "0.0", "-92233720368547758.08"),
            ("1", "255", "255", "255", "123456.7890", "100", "0.00256", "2.56"),
            ("NULL",) * 8,
        ),
    ),
    "times": Table(
        {
            "day": "date",
            "clock": "time",
            "clock0": "time(0)",
            "clock3": "time(3)",
            "clock_zone": "timetz",
            "moment": "timestamp",
            "moment0": "timestamp(0)",
            "moment3": "timestamp(3)",
            "instant": "timestamptz",
            "instant0": "timestamptz(0)",
            "instant3": "timestamptz(3)",
            "span": "interval",
        },
        (
            (
                *("'2024-02-29'", "'12:34:56.789012'", "'12:34:56'", "'12:34:56.789'", "'12:34:56.5+05:30'"),
                *("'2024-02-29 12:34:56.789012'", "'2024-02-29 12:34:56'", "'2024-02-29 12:34:56.789'"),
                *("'2024-02-29 12:34:56.789012+02'", "'2024-02-29 12:34:56Z'"),
                *("'2024-02-29 12:34:56.789Z'", "'1 year 2 mons 3 days 04:05:06.7'"),
            ),
            (
                *("'1000-01-01'", "'00:00:00'", "'00:00:00'", "'00:00:00'", "'00:00:00Z'"),
                *("'1000-01-01 00:00:00'", "'1969-12-31 23:59:59'", "'1969-12-31 23:59:59.999'"),
                *("'1000-01-01 00:00:00Z'", "'1969-12-31 23:59:59Z'", "'1969-12-31 23:59:59.999Z'", "'0'"),
            ),
            (
                *(
                    "'9999-12-31'",
                    "'23:59:59.999999'",
                    "'23:59:59'",
                    "'23:59:59.999'",
                    "'23:59:59.999999-12'",
                ),
                *("'9999-12-31 23:59:59.999999'", "'9999-12-31 23:59:59'", "'9999-12-31 23:59:59.999'"),
                *("'9999-12-31 23:59:59.999999Z'", "'9999-12-31 23:59:59Z'", "'9999-12-31 23:59:59.999Z'"),
                "'-1 day 01:00:00.000001'",
            ),
            (
                *("'2024-01-01'", "'12:00:00.1'", "'12:00:00'", "'12:00:00.1'", "'12:00:00.100+00'"),
                *("'2024-01-01 00:00:00.1'", "'2024-01-01 00:00:00'", "'2024-01-01 00:00:00.1'"),
                *("'2024-01-01 00:00:00.1Z'", "'2024-01-01 00:00:00Z'", "'2024-01-01 00:00:00.1Z'"),
                "'-0.5 seconds'",
            ),
            ("NULL",) * 12,
        ),
    ),
    "endless": Table(
        {
            "day": "date",
            "moment": "timestamp",
            "moment0": "timestamp(0)",
            "moment3": "timestamp(3)",
            "instant": "timestamptz",
            "instant3": "timestamptz(3)",
        },
        (
            ("'2024-02-29'", *("'2024-02-29 12:34:56'",) * 5),
            ("NULL", *("'infinity'",) * 5),
            ("NULL", *("'-infinity'",) * 5),
            ("NULL",) * 6,
        ),
    ),
    "far": Table(
        {"day": "date", "moment": "timestamp", "moment3": "timestamp(3)", "instant": "timestamptz"},
        (
            ("'2024-02-29'", *("'2024-02-29 12:34:56'",) * 3),
            ("'0044-03-15 BC'", *("'0044-03-15 12:00:00 BC'",) * 3),
            ("'12024-02-29'", *("'12024-02-29 12:00:00.5'",) * 3),
            ("'0018-04-01'", *("'0018-04-01 12:00:00'",) * 3),
            ("NULL",) * 4,
        ),
    ),
    "texts": Table(
        {
            "fixed": "char(5)",
            "short": "varchar(100)",
            "long_text": "text",
            "title": "name",
            "document": "json",
            "binary_document": "jsonb",
            "unique_id": "uuid",
            "address": "inet",
            "network": "cidr",
            "card": "macaddr",
            "card8": "macaddr8",
            "feeling": "mood",
            "words": "tsvector",
        },
        (
            (
                *("'ab'", "'hello'", "'text'", "'n'", """'{"a": 1,  "b": [true, null]}'"""),
                *("""'{"a": 1,  "b": [true, null]}'""", "'11111111-2222-3333-4444-555555555555'"),
                *("'10.0.0.1'", "'10.0.0.0/8'", "'08:00:2b:01:02:03'", "'08:00:2b:01:02:03:04:05'", "'sad'"),
                "'a fat cat'",
            ),
            (
                *(
                    "''",
                    """'quote " back \\ slash / tab \t'""",
                    "repeat('x', 3000)",
                    "'\U0001f600'",
                    "'null'",
                ),
                *("'[1.50, 1e3]'", "'00000000-0000-0000-0000-000000000000'", "'::1/64'", "'::/0'"),
                *("'ff:ff:ff:ff:ff:ff'", "'ff:ff:ff:ff:ff:ff:ff:ff'", "'so, so'", "'it''s:1A b:2'"),
            ),
            ("NULL",) * 13,
        ),
    ),
    "ranges": Table(
        {
            "whole": "int4range",
            "big": "int8range",
            "number": "numrange",
            "moments": "tsrange",
            "instants": "tstzrange",
            "days": "daterange",
        },
        (
            (
                *("'[1,5)'", "'[1,5)'", "'[1.5,2]'", "'[2024-01-01 00:00:00,2024-01-02 00:00:00)'"),
                *("'[2024-01-01 00:00:00Z,2024-01-02 00:00:00Z)'", "'[2024-01-01,2024-01-02)'"),
            ),
            ("'empty'", "'(,)'", "'(,1.10]'", "'[infinity,)'", "'(,)'", "'empty'"),
            ("NULL",) * 6,
        ),
    ),
    "bits": Table(
        {
            "bit1": "bit(1)",
            "bit8": "bit(8)",
            "bit16": "bit(16)",
            "bit33": "bit(33)",
            "vary1": "varbit(1)",
            "vary20": "varbit(20)",
            "vary": "varbit",
            "raw": "bytea",
        },
        (
            (
                "B'1'",
                "B'10101010'",
                "B'0000000000000001'",
                f"B'{'1' * 33}'",
                "B'1'",
                "B'101'",
                "B'1'",
                "'ab'",
            ),
            ("B'0'", "B'00000000'", f"B'{'0' * 16}'", f"B'{'0' * 33}'", "B'0'", "B''", "B''", "''"),
            (
                *("B'1'", "B'11111111'", "B'1000000000000000'", f"B'1{'0' * 32}'", "B'1'"),
                *("B'00000000000000000001'", "B'000000001'", "'\\x00ff'"),
            ),
            ("NULL",) * 8,
        ),
    ),
    "dots": Table(
        {"dot": "point"},
        (
            ("'(1.5,-2)'",),
            ("'(0,0)'",),
            ("'(1e300,0.1)'",),
            ("NULL",),
        ),
    ),
    "others": Table(
        {
            "surface": "box",
            "ring": "circle",
            "ray": "line",
            "segment": "lseg",
            "way": "path",
            "area": "polygon",
            "several": "int4multirange",
            "question": "tsquery",
            "place": "pg_lsn",
            "couple": "pair",
            "sums": "money[]",
            "spans": "interval[]",
            "titles": "name[]",
        },
        (
            (
                *("'(1,1),(0,0)'", "'<(0,0),1>'", "'{1,2,3}'", "'[(0,0),(1,1)]'", "'((0,0),(1,1))'"),
                *("'((0,0),(1,1),(1,0))'", "'{[1,2),[5,6)}'", "'a & b'", "'0/16B3748'", "ROW(1, 'a')"),
                *("'{1.50}'", "'{1 day}'", "'{a}'"),
            ),
            ("NULL",) * 13,
        ),
    ),
    "lists": Table(
        {
            "smalls": "int2[]",
            "wholes": "int4[]",
            "bigs": "int8[]",
            "objects": "oid[]",
            "flags": "bool[]",
            "singles": "real[]",
            "doubles": "float8[]",
            "prices": "numeric(10,2)[]",
            "longs": "numeric(38,2)[]",
            "days": "date[]",
            "clocks": "time[]",
            "moments": "timestamp[]",
            "moments3": "timestamp(3)[]",
            "names": "text[]",
            "shorts": "varchar(10)[]",
            "fixed": "char(3)[]",
            "ids": "uuid[]",
            "documents": "jsonb[]",
            "raws": "bytea[]",
            "addresses": "inet[]",
            "feelings": "mood[]",
        },
        (
            (
                *("'{1,2}'", "'{1,2}'", "'{1,2}'", "'{1}'", "'{t,f}'", "'{1.5,0.1}'", "'{1.5,0.1}'"),
                *("'{1.25,-0.01}'", "'{1.25,-0.01}'", "'{2024-02-29}'", "'{12:34:56.789}'"),
                *("'{2024-02-29 12:34:56.789012}'", "'{2024-02-29 12:34:56.789}'", """'{a,"b c","d\\"e"}'"""),
                *("'{ab}'", "'{ab}'", "'{11111111-2222-3333-4444-555555555555}'", """'{"{\\"a\\":1}"}'"""),
                *("""'{"\\\\x00ff"}'""", "'{10.0.0.1}'", "'{sad}'"),
            ),
            (
                *("'{NULL}'", "'{NULL,3}'", "'{NULL}'", "'{NULL}'", "'{NULL}'", "'{NULL}'", "'{NULL}'"),
                *("'{NULL}'", "'{NULL}'", "'{NULL}'", "'{NULL}'", "'{NULL}'", "'{NULL}'", "'{NULL}'"),
                *("'{NULL}'", "'{NULL}'", "'{NULL}'", "'{NULL}'", "'{NULL}'", "'{NULL}'", "'{NULL}'"),
            ),
            (
                *("'{}'", "'{}'", "'{}'", "'{}'", "'{}'", "'{3.4028235e38}'", "'{1e22}'", "'{}'"),
                *(
                    "'{123456789012345678901234567890123456.78}'",
                    "'{}'",
                    "'{}'",
                    "'{}'",
                    "'{}'",
                    "'{}'",
                    "'{}'",
                ),
                *("'{}'", "'{}'", "'{}'", "'{}'", "'{}'", "'{}'"),
            ),
            ("NULL",) * 21,
        ),
    ),
    "infinite_lists": Table(
        {"singles": "real[]", "doubles": "float8[]"},
        (("'{1}'", "'{1}'"), ("'{NaN,Infinity,-Infinity}'", "'{NaN,Infinity,-Infinity}'"), ("NULL", "NULL")),
    ),
}

#: Tables with types of extensions, by extension.
_EXTENDED: Mapping[str, Mapping[str, Table]] = {
    "hstore": {
        "pairs_of_text": Table(
            {"attributes": "hstore"},
            (("'a=>1, \"b c\"=>NULL'",), ("''",), ("""'"q\\"" => "back\\\\slash"'""",), ("NULL",)),
        )
    },
    "ltree": {"trees": Table({"path": "ltree"}, (("'a.b.c'",), ("''",), ("NULL",)))},
    "citext": {"caseless": Table({"word": "citext"}, (("'AbC'",), ("''",), ("NULL",)))},
    "vector": {
        "vectors": Table(
            {"embedding": "vector(3)", "half": "halfvec(3)", "sparse": "sparsevec(5)"},
            (
                ("'[1,-2.5,0.1]'", "'[1,-2.5,0.5]'", "'{1:1.5,3:-2}/5'"),
                ("'[0,0,1e10]'", "'[0,0,100]'", "'{}/5'"),
                ("NULL",) * 3,
            ),
        )
    },
}

_LARGE = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 400) i)"
#: Columns of `large`: values that are stored out of line, and so left out of an update that keeps them.
_LARGE_COLUMNS: Mapping[str, tuple[str, str]] = {
    "words": ("text", _LARGE),
    "short": ("varchar(20000)", _LARGE),
    "raw": ("bytea", f"convert_to({_LARGE}, 'UTF8')"),
    "document": ("jsonb", f"to_jsonb({_LARGE})"),
    "names": ("text[]", f"ARRAY[{_LARGE}]"),
    "raws": ("bytea[]", f"ARRAY[convert_to({_LARGE}, 'UTF8')]"),
    "wholes": ("int4[]", "(SELECT array_agg(hashint4(i)) FROM generate_series(1, 4000) i)"),
    "bigs": ("int8[]", "(SELECT array_agg(hashint4(i)::int8) FROM generate_series(1, 4000) i)"),
    "days": (
        "date[]",
        "(SELECT array_agg('2000-01-01'::date + mod(i * 7919, 9999)) FROM generate_series(1, 4000) i)",
    ),
    "ids": ("uuid[]", "(SELECT array_agg(md5(i::text)::uuid) FROM generate_series(1, 1000) i)"),
}

_TYPES = ("CREATE TYPE mood AS ENUM ('sad', 'happy', 'so, so')", "CREATE TYPE pair AS (a int, b text)")
_OTHER_TABLES = (
    "CREATE TABLE pairs (b int, a varchar(10), v int, PRIMARY KEY (a, b))",
    "CREATE TABLE whole_rows (id int PRIMARY KEY, v int, w text)",
    "ALTER TABLE whole_rows REPLICA IDENTITY FULL",
    "CREATE TABLE by_index (id int PRIMARY KEY, code text NOT NULL UNIQUE, v int)",
    "ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_code_key",
    "CREATE TABLE by_number (id float8 PRIMARY KEY, v int)",
    (
        "CREATE TABLE required (id int PRIMARY KEY, n int NOT NULL, t text NOT NULL, d date NOT NULL,"
        " f float8 NOT NULL, b bool NOT NULL, p numeric(5,2) NOT NULL, c timestamptz NOT NULL,"
        " l int[] NOT NULL, y bytea NOT NULL, j jsonb NOT NULL, u uuid NOT NULL, s interval NOT NULL,"
        " z timetz NOT NULL, dot point NOT NULL, free numeric NOT NULL, v varbit(1) NOT NULL)"
    ),
    (
        "CREATE TABLE defaults (id int PRIMARY KEY, number int NOT NULL DEFAULT 7, maybe int DEFAULT 5,"
        " title varchar(10) NOT NULL DEFAULT 'x', price numeric(5,2) NOT NULL DEFAULT 1.20,"
        " created timestamptz NOT NULL DEFAULT now())"
    ),
    f"CREATE TABLE {END} (id int PRIMARY KEY)",
)
_OTHER_ROWS = (
    "INSERT INTO pairs VALUES (1, 'x', 1), (2, 'y', 2)",
    "INSERT INTO whole_rows VALUES (1, 1, 'a'), (2, 2, 'b')",
    "INSERT INTO by_index VALUES (1, 'a', 1), (2, 'b', 2)",
    "INSERT INTO by_number VALUES ('NaN', 1), ('Infinity', 2), ('-Infinity', 3), (0.1, 4)",
    (
        "INSERT INTO required SELECT i, i, 'a', '2024-01-01', 1.5, true, 1.25, '2024-01-01Z', '{1}', 'a',"
        " '{}', '11111111-2222-3333-4444-555555555555', '1 day', '12:00Z', '(1,2)', 1.5, B'1'"
        " FROM generate_series(1, 2) i"
    ),
    "INSERT INTO defaults VALUES (1, 1, NULL, 'a', 2.50, '2024-01-01Z')",
)
_OTHER_CHANGES = (
    "INSERT INTO pairs VALUES (3, 'z', 3)",
    "UPDATE pairs SET v = 10 WHERE b = 1",
    "UPDATE pairs SET a = 'q', v = 11 WHERE b = 1",
    "DELETE FROM pairs WHERE b = 2",
    "UPDATE whole_rows SET v = 10 WHERE id = 1",
    "UPDATE whole_rows SET id = 5 WHERE id = 1",
    "DELETE FROM whole_rows WHERE id = 2",
    "UPDATE by_index SET v = 10 WHERE id = 1",
    "UPDATE by_index SET code = 'c' WHERE id = 1",
    "DELETE FROM by_index WHERE id = 2",
    "DELETE FROM by_number WHERE v = 1",
    "DELETE FROM by_number WHERE v = 3",
    "UPDATE required SET n = 5 WHERE id = 1",
    "UPDATE required SET id = 6 WHERE id = 1",
    "DELETE FROM required WHERE id = 2",
    "UPDATE defaults SET number = 2 WHERE id = 1",
    "UPDATE large SET v = 2 WHERE id = 1",
    f"INSERT INTO {END} VALUES (1)",
)


def tables(extensions: Sequence[str]) -> dict[str, Table]:
    """The tables on a server that has these extensions."""
    found = dict(_TABLES)
    for extension in extensions:
        found |= _EXTENDED[extension]
    return found


def definitions(extensions: Sequence[str]) -> list[str]:
    """The statements that make extensions, types and tables."""
    made = [
        f"CREATE TABLE {name} (id int PRIMARY KEY, "
        + ", ".join(f"{column} {kind}" for column, kind in table.columns.items())
        + ")"
        for name, table in tables(extensions).items()
    ]
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in _LARGE_COLUMNS.items())
    large = f"CREATE TABLE large (id int PRIMARY KEY, v int, {columns})"
    return [*(f"CREATE EXTENSION {name}" for name in extensions), *_TYPES, *made, large, *_OTHER_TABLES]


def rows(extensions: Sequence[str]) -> list[str]:
    """The statements that insert what a snapshot finds."""
    values = ", ".join(value for _, value in _LARGE_COLUMNS.values())
    return [*_inserts(1, extensions), f"INSERT INTO large VALUES (1, 1, {values})", *_OTHER_ROWS]


def changes(extensions: Sequence[str]) -> list[str]:
    """The statements that are read from the log."""
    made = _inserts(101, extensions)
    for name, table in tables(extensions).items():
        values = ", ".join(
            f"{column} = {value}" for column, value in zip(table.columns, table.rows[0], strict=True)
        )
        made += [
            f"UPDATE {name} SET {values} WHERE id = 102",
            f"UPDATE {name} SET id = 201 WHERE id = 101",
            f"DELETE FROM {name} WHERE id = 102",
        ]
    return [*made, *_OTHER_CHANGES]


def _inserts(first: int, extensions: Sequence[str]) -> list[str]:
    return [
        f"INSERT INTO {name} VALUES ({', '.join([str(first + i), *row])})"
        for name, table in tables(extensions).items()
        for i, row in enumerate(table.rows)
    ]
