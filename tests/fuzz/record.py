"""Records a log of every rare kind of event from a real server: `python -m tests.fuzz.record`."""

from __future__ import annotations

from pathlib import Path

from tailrace_dev.servers import MySqlServer, start_mysql

_LOG = Path(__file__).parent / "logs" / "rare-9.7.binlog"
_LONG = "REPEAT('x', 300)"


def _work(mysql: MySqlServer) -> None:
    mysql.execute(
        "SET SESSION binlog_row_value_options = PARTIAL_JSON",
        f"INSERT INTO rec.j VALUES (1, JSON_OBJECT('a', 1, 'b', JSON_ARRAY(1, 'é', {_LONG})), 'v', NULL)",
        "UPDATE rec.j SET doc = JSON_SET(doc, '$.a', 2.5, '$.b[1]', JSON_OBJECT('q\"', NULL))",
        "UPDATE rec.j SET doc = JSON_REMOVE(JSON_ARRAY_APPEND(doc, '$.b', 7), '$.a'), v = 'w'",
        "SET SESSION binlog_transaction_compression = ON",
        "UPDATE rec.j SET doc = JSON_SET(doc, '$.new', 'member')",
        "INSERT INTO rec.m (id, v) VALUES (9, 'nine')",
    )
    for image in ("MINIMAL", "NOBLOB"):
        mysql.execute(
            f"SET SESSION binlog_row_image = {image}",
            "INSERT INTO rec.m (id, v) VALUES (1, 'a'), (2, NULL)",
            "UPDATE rec.m SET n = 5 WHERE id = 1",
            "UPDATE rec.m SET t = 'text', n = NULL",
            "DELETE FROM rec.m WHERE id < 3",
        )
    mysql.execute(
        "XA START 'x', 'y', 5",
        "INSERT INTO rec.m (id) VALUES (20)",
        "XA END 'x', 'y', 5",
        "XA PREPARE 'x', 'y', 5",
    )
    mysql.execute(
        "XA COMMIT 'x', 'y', 5",
        "BEGIN",
        "INSERT INTO rec.m (id) VALUES (30)",
        "SAVEPOINT s",
        "DELETE FROM rec.m",
        "ROLLBACK TO s",
        "COMMIT",
        "INSERT INTO rec.my VALUES (1)",
        "SET GLOBAL binlog_row_metadata = MINIMAL",
        "INSERT INTO rec.my VALUES (2)",
    )


def main() -> None:
    with start_mysql() as mysql:
        mysql.execute(
            "CREATE DATABASE rec",
            "CREATE TABLE rec.j (id int primary key, doc json, v varchar(9), other json)",
            "CREATE TABLE rec.m (id int primary key, v varchar(20), t text, n int default 3)",
            "CREATE TABLE rec.my (id int primary key) ENGINE = MyISAM",
            "FLUSH BINARY LOGS",
        )
        _work(mysql)
        file = mysql.execute("SHOW BINARY LOG STATUS")[0][0]
        mysql.execute("FLUSH BINARY LOGS")
        _LOG.write_bytes((mysql.data / file).read_bytes())


if __name__ == "__main__":
    main()
