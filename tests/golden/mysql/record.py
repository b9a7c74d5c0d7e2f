"""Records `recorded.binlog` and `recorded.json` anew from a real server.

    python -m tests.golden.mysql.record

The log holds every kind of event and column type; the JSON what the server's own SELECT and the statements
say should come out of it.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from tailrace_dev.servers import MySqlServer, start_mysql

HERE = Path(__file__).parent
_TYPES = """
    id int primary key, a tinyint, b bigint unsigned, c mediumint, d mediumint unsigned, e float, f double,
    g decimal(12,3), h decimal(65,30), i date, j time(3), k datetime(6), l timestamp(2) null, m year,
    n char(5), o varchar(300), p varchar(20) character set latin1, q text, r binary(4), s varbinary(9),
    t blob, u bit(1), v bit(12), w enum('x', 'ä'), x set('p', 'q'), y json, z varchar(9) character set utf8mb3
"""
_FULL = """
    1, -128, 18446744073709551615, -8388608, 16777215, -1.5, 1e300, -1.005, '-0.5', '2026-02-28',
    '-838:59:59', '1000-01-01 00:00:00.000001', '1970-01-01 00:00:01.01', 1901, 'é', repeat('漢', 100), '€',
    repeat('t', 300), 'a', x'00ff', x'00', 1, 2049, 'ä', 'p,q',
    '{"a": [1, 2.5, "x\\\\n", null, true, -70000, 18446744073709551615], "é": {}}', 'ü'
"""
_NULLS = f"2, {', '.join(['NULL'] * 26)}"
_ZEROS = f"3, {', '.join(['0'] * 24)}, '[]', ''"


def _work(mysql: MySqlServer) -> None:
    mysql.execute(
        "SET sql_mode = '', time_zone = '+00:00'",
        f"INSERT INTO rec.t VALUES ({_FULL}), ({_NULLS}), ({_ZEROS})",
        "UPDATE rec.t SET a = 5, q = concat(q, '!') WHERE id <= 2",
        "DELETE FROM rec.t WHERE id = 3",
        "BEGIN",
        "INSERT INTO rec.u VALUES (1, 'one'), (2, 'two')",
        "UPDATE rec.t SET a = 6",
        "UPDATE rec.u SET name = upper(name)",
        "COMMIT",
        "ALTER TABLE rec.u ADD n int",
        "INSERT INTO rec.u VALUES (3, 'three', 3)",
        "SET SESSION binlog_transaction_compression = ON",
        "INSERT INTO rec.u VALUES (4, repeat('four', 100), 4), (5, 'five', 5)",
        "SET SESSION binlog_transaction_compression = OFF",
        "SET gtid_next = 'ffffffff-80ab-11ee-9b01-0242ac110002:tag:7'",
        "DELETE FROM rec.u WHERE id = 4",
    )


def main() -> None:
    with start_mysql(options={"default_time_zone": "+00:00"}) as mysql:
        mysql.execute(
            "CREATE DATABASE rec CHARACTER SET utf8mb4",
            f"CREATE TABLE rec.t ({_TYPES})",
            "CREATE TABLE rec.u (id int primary key, name varchar(400))",
            "CREATE TABLE rec.odd (id int primary key, g geometry)",
            "INSERT INTO rec.odd (id) VALUES (1)",
            "FLUSH BINARY LOGS",
        )
        _work(mysql)
        file = mysql.execute("SHOW BINARY LOG STATUS")[0][0]
        mysql.execute("FLUSH BINARY LOGS")
        (HERE / "recorded.binlog").write_bytes((mysql.data / file).read_bytes())
        with closing(mysql.connect(conv={})) as connection, connection.cursor() as cursor:
            expected = {}
            for table in "tu":
                cursor.execute(f"SELECT * FROM rec.{table} ORDER BY id")
                names = [d[0] for d in cursor.description]
                expected[table] = [
                    dict(zip(names, map(_text, row), strict=True)) for row in cursor.fetchall()
                ]
        (HERE / "recorded.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


def _text(value: str | bytes | None) -> str | None:
    return value.hex() if isinstance(value, bytes) else value


if __name__ == "__main__":
    main()
