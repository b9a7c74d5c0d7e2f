"""Replicas in a database of another kind are compared value by value, in whatever form that keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline
from tailrace.verify.run import verify
from tailrace_dev.servers import PostgresServer
from tests.e2e.test_verify import run_once
from tests.support.databases import fresh_database

COLUMNS = """
  a TEXT, b INTEGER, i2 SMALLINT, i8 BIGINT, o OID, f4 REAL, f8 DOUBLE PRECISION, n NUMERIC, m MONEY,
  n10 NUMERIC(10, 3), big NUMERIC(60, 20), fine NUMERIC(38, 35), ok BOOLEAN, one BIT(1), bits BIT(12),
  vb VARBIT, c CHAR(5), v VARCHAR(20), bin BYTEA, day DATE, at TIMESTAMP(3), stamp TIMESTAMPTZ,
  t TIME(6), tz TIMETZ, span INTERVAL, u UUID, net INET, j JSON, jb JSONB, mood MOOD, ints INTEGER[],
  texts TEXT[], moments TIMESTAMP[], bytes BYTEA[], reals REAL[], r INT4RANGE, PRIMARY KEY (a, b)
"""
ROWS = """
  SELECT 'Élan ' || i % 7, i, i % 100, -9223372036854775808 + i, 4294967295, i / 3.0, i / 7.0, i / 8.0,
    i + 0.25, i + 0.125, 1234567890123456789012345678901234567890.5 + i,
    0.12345678901234567890123456789012345,
    i % 2 = 0, B'1', (i % 4096)::bit(12), B'101', 'ab', E'très\\t"\\\\', '\\x00ff27', '2024-02-29',
    '2025-01-01 00:00:00.125', '2999-06-01 12:00:00.000001+02', '23:59:59.5', '12:30:00.5+02',
    '1 year 2 days 03:04:05.6', ('6f1b0a2e-0000-4000-8000-00000000000' || i % 10)::uuid, '10.0.0.0/8',
    ('{"z": 1, "a": [1.50, 1e2, null, "é\\u0001", 18446744073709551615, 18446744073709551616], "n": '
      || i || '}')::json,
    ('{"zz": {"b": -0.0, "a": 1.10}, "a": ' || i || ', "long": "x"}')::jsonb, 'so so', ARRAY[1, NULL, i],
    ARRAY['a"b', NULL, 'é', ''], ARRAY['2024-01-01 00:00:00.5'::timestamp], ARRAY['\\x00ff'::bytea],
    ARRAY[0.1, i / 3.0]::real[], '[1,5)'
  FROM generate_series(1, 300) i
"""


class _Copied:
    """A table with every type in PostgreSQL, and its copy in another database."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, execute: Callable[..., Any]) -> None:
        self.pipeline, self.spark, self.execute = pipeline, spark, execute

    def differing(self) -> dict[int, tuple[str, tuple[str, ...]]]:
        """By the second column of its key: how a row differs, and in which columns."""
        (found,) = verify(self.pipeline, self.spark, parallelism=2).targets
        assert (found.source_rows, found.left_out) == (301, ())
        shown = () if found.differences is None else found.differences.shown
        return {d.key[1]: (str(d.kind), tuple(d.columns)) for d in shown}


@pytest.fixture(params=["mysql", "mariadb"])
def copied(
    request: pytest.FixtureRequest,
    postgres: PostgresServer,
    postgres_database: str,
    spark: SparkSession,
    tmp_path: Path,
) -> Iterator[_Copied]:
    server = request.getfixturevalue(request.param)
    postgres.execute(
        "CREATE TYPE mood AS ENUM ('so so', 'good')",
        f"CREATE TABLE t ({COLUMNS})",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        f"INSERT INTO t {ROWS}",
        "INSERT INTO t (a, b) VALUES ('nothing', 0)",
        database=postgres_database,
    )
    with ExitStack() as stack:
        place = stack.enter_context(fresh_database(server))
        pipeline = parse_pipeline(
            f"source: {{url: 'postgresql://{postgres.host}:{postgres.port}/{postgres_database}',"
            f" user: postgres, password: {postgres.password}, tables: public.t,"
            f" slot-name: slot_{postgres_database}}}\n"
            f"sink: {{type: mysql, url: 'mysql://{server.host}:{server.port}/{place}',"
            f" user: {server.user}, password: {server.password}}}\n"
            "route: [{source-table: 'public.(.*)', sink-table: $1}]\n"
            f"pipeline: {{trigger: available-now, checkpoint: '{tmp_path / 'checkpoint'}'}}\n"
        )
        run_once(pipeline, spark)
        yield _Copied(pipeline, spark, lambda *each: server.execute(f"USE {place}", *each))


def test_replica_of_postgresql_is_compared_in_values_of_every_type(copied: _Copied) -> None:
    assert copied.differing() == {}
    copied.execute(
        "UPDATE t SET n10 = n10 + 0.001 WHERE b = 1",
        "UPDATE t SET ok = 1 - ok WHERE b = 2",
        "UPDATE t SET j = JSON_SET(j, '$.a[0]', 1.51) WHERE b = 3",
        "UPDATE t SET ints = '[1,2]' WHERE b = 4",
        "UPDATE t SET t = '23:59:59.500001' WHERE b = 5",
        "UPDATE t SET stamp = stamp + INTERVAL 1 MICROSECOND WHERE b = 6",
        "UPDATE t SET bin = NULL WHERE b = 7",
        "UPDATE t SET span = 'PT1S' WHERE b = 8",
        "UPDATE t SET jb = '{}' WHERE b = 0",
        "DELETE FROM t WHERE b = 9",
    )
    assert copied.differing() == {
        1: ("different", ("n10",)),
        2: ("different", ("ok",)),
        3: ("different", ("j",)),
        4: ("different", ("ints",)),
        5: ("different", ("t",)),
        6: ("different", ("stamp",)),
        7: ("different", ("bin",)),
        8: ("different", ("span",)),
        0: ("different", ("jb",)),
        9: ("missing", ()),
    }
