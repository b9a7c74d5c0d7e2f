"""Zero and partial dates under each policy, the same from a SELECT and from the log."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa
import pytest

from tailrace.config.options import parse_options
from tailrace.errors import ConfigError, DecodeError
from tailrace.sources.mysql.connection import connect
from tailrace.sources.mysql.snapshot.keys import boundary, key_values, within
from tailrace.sources.mysql.snapshot.select import select_pages
from tailrace_dev.servers import MySqlServer
from tests.support.logged import both_ways, captured, changes_during, selected

_COLUMNS = (
    "d date",
    "dt datetime",
    "dt3 datetime(3)",
    "dt6 datetime(6)",
    "ts timestamp null",
    "ts2 timestamp(2) null",
)
_VALUES = (
    ("0000-00-00", "0000-00-00", "0000-00-00", "0000-00-00 00:00:00", "0000-00-00", "0000-00-00"),
    ("2024-00-00", "2024-00-00 01:02:03", "2024-02-00 23:59:59.123", "2024-00-31 00:00:00.000001",
     None, None),
    ("2024-02-30", "2023-02-29 01:02:03", "0000-01-01", "0001-01-01 12:00:00.5", None, None),
    ("9999-12-31", "9999-12-31 23:59:59", "1000-01-01 00:00:00.001", "2024-02-29 23:59:59.999999",
     "1970-01-01 00:00:01", "2038-01-19 03:14:07.99"),
    (None, None, None, None, "2001-09-09 01:46:40", "2024-02-29 12:34:56.07"),
)  # fmt: skip


def _fill(database: str) -> list[str]:
    rows = ", ".join(
        f"({i}, {', '.join('NULL' if v is None else repr(v) for v in row)})" for i, row in enumerate(_VALUES)
    )
    return [
        "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'",
        f"INSERT INTO {database}.t VALUES {rows}",
    ]


def test_text_is_what_the_server_prints(mysql: MySqlServer, database: str) -> None:
    mysql.execute(f"CREATE TABLE {database}.t (id int primary key, {', '.join(_COLUMNS)})")
    rows = both_ways(mysql, database, *_fill(database), zero_dates=lambda _: "text")
    with closing(mysql.connect(database=database, conv={})) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute("SELECT * FROM t ORDER BY id")
        printed = cursor.fetchall()
    names = [c.split()[0] for c in _COLUMNS]
    assert [tuple(r[n] for n in names) for r in rows.to_pylist()] == [tuple(line[1:]) for line in printed]
    assert all(rows.field(n).type == pa.string() for n in names)


def test_the_default_is_null(mysql: MySqlServer, database: str) -> None:
    mysql.execute(f"CREATE TABLE {database}.t (id int primary key, {', '.join(_COLUMNS)})")
    rows = both_ways(mysql, database, *_fill(database))
    assert rows.field("d").is_null().to_pylist() == [True, True, True, False, True]
    assert rows.field("ts").is_null().to_pylist() == [True, True, True, False, False]


# a TIMESTAMP holds no partial date
@pytest.mark.parametrize(
    ("column", "value"),
    [(c, "0000-00-00 00:00:00") for c in _COLUMNS]
    + [(c, "2024-00-10 00:00:00") for c in _COLUMNS if not c.startswith("ts")],
)
def test_error_names_table_column_and_position(
    mysql: MySqlServer, database: str, column: str, value: str
) -> None:
    policy = {f"{database}.t.{column.split(maxsplit=1)[0]}": "error"}.get
    mysql.execute(f"CREATE TABLE {database}.t (id int primary key, other date, {column})")
    good = f"INSERT INTO {database}.t VALUES (1, '0000-00-00', '2024-01-01 00:00:00')"
    both_ways(mysql, database, "SET sql_mode = ''", good, zero_dates=policy)
    bad = f"INSERT INTO {database}.t VALUES (2, NULL, '{value}')"
    with pytest.raises(DecodeError, match="a zero or partial date") as logged:
        changes_during(mysql, database, lambda: mysql.execute("SET sql_mode = ''", bad), zero_dates=policy)
    name = column.split(maxsplit=1)[0]
    assert f"`{database}.t`" in str(logged.value)
    assert f"column `{name}`" in str(logged.value)
    assert "zeroDates" in str(logged.value)
    with pytest.raises(DecodeError, match=rf"a zero or partial date in column `{database}\.t\.{name}`"):
        selected(mysql, captured(mysql, database, policy)["t"], "id")


def test_policies_are_given_by_column_and_the_first_that_matches_counts() -> None:
    def parsed(text: str) -> list[str | None]:
        given = {"url": "mysql://h", "user": "u", "tables": "a.b", "zeroDates": text}
        zero_dates = parse_options(given).zero_dates
        return [zero_dates.of(name) for name in ("shop.orders.due", "shop.orders.paid", "x.y.z")]

    assert parsed("null") == [None, None, None]
    assert parsed("text") == ["text"] * 3
    assert parsed(r"text:shop\.orders\.due, error:shop\..*") == ["text", "error", None]
    assert parsed(r"null:.*\.due,text") == [None, "text", "text"]
    assert parsed(r"text:x\.y{1,2}\.z") == [None, None, "text"]
    for wrong in ("epoch", "text:(", "text:a.b.c,", ""):
        with pytest.raises(ConfigError, match="zeroDates"):
            parsed(wrong)


def test_keys_with_partial_dates_are_cut_and_compared_as_the_server_sorts_them(
    mysql: MySqlServer, database: str
) -> None:
    days = ["0000-00-00", "0000-00-07", "2023-12-31", "2024-00-00", "2024-00-05", "2024-01-00", "2024-01-01"]
    mysql.execute(
        "SET sql_mode = ''",
        f"CREATE TABLE {database}.t (d date, n int, primary key (d, n))",
        f"INSERT INTO {database}.t VALUES " + ", ".join(f"('{d}', {n})" for d in days for n in (1, 2)),
    )
    table = captured(mysql, database, lambda _: "text")["t"]
    options = parse_options(
        {
            "url": f"mysql://{mysql.host}:{mysql.port}",
            "user": mysql.user,
            "password": mysql.password,
            "tables": f"{database}.t",
        }
    )
    with closing(connect(options, purpose="test")) as connection:
        pages = list(select_pages(connection, table, None, None, 3))
        rows = pa.concat_arrays([p.rows for p in pages])
        assert key_values(rows, table) == [(d, n) for d in days for n in (1, 2)]
        bound = boundary(connection, table, None, 7)
        assert bound is not None
        assert sum(within(connection, table, rows, None, bound).to_pylist()) in (7, 8)
        assert within(connection, table, rows, ("2024-00-00", 1), ("2024-01-00", 1)).to_pylist() == [
            ("2024-00-00", 1) < (d, n) <= ("2024-01-00", 1) for d in days for n in (1, 2)
        ]
