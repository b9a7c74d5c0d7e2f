"""Debezium 3.6 itself and Tailrace's `debezium` shape read the same changes: their messages are equal."""

from __future__ import annotations

import pytest

from bench.peers import compare_postgres
from bench.peers.compare import compare
from bench.peers.toolkit import UnavailableError
from bench.servers import Server
from tests.support.databases import global_variable

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("schemas", [False, True], ids=["plain", "schemas"])
def test_messages_equal_those_of_debezium(mysql, spark, schemas):
    server = Server(mysql.host, mysql.port, mysql.user, mysql.password, None)
    try:
        found = compare(server, spark, schemas=schemas)
    except UnavailableError as error:
        pytest.skip(str(error))
    assert [str(difference) for difference in found] == []


def test_statements_comments_and_declared_types_equal_those_of_debezium(mysql, spark):
    server = Server(mysql.host, mysql.port, mysql.user, mysql.password, None)
    options = {
        "include.query": "true",
        "include.schema.comments": "true",
        "column.propagate.source.type": ".*[.]pairs[.].*",
        "datatype.propagate.source.type": ".*[.](?!pairs|uniques).*[.].*",
    }
    with global_variable(mysql, "binlog_rows_query_log_events", "ON"):
        try:
            found = compare(server, spark, schemas=True, debezium=options, tailrace=options)
        except UnavailableError as error:
            pytest.skip(str(error))
    assert [str(difference) for difference in found] == []


@pytest.mark.parametrize(
    ("schemas", "modes"),
    [
        (True, {}),
        (False, {"decimal.handling.mode": "string", "binary.handling.mode": "base64"}),
        (False, {"decimal.handling.mode": "double", "time.precision.mode": "microseconds"}),
    ],
    ids=["schemas", "strings", "doubles"],
)
def test_messages_of_postgresql_equal_those_of_debezium(postgres, spark, schemas, modes):
    if schemas:  # how these columns are declared is not in the log
        modes["column.propagate.source.type"] = "(?!.*[.](free|rounded|tiny)$).*[.].*[.].*"
    try:
        found = compare_postgres.compare(postgres, spark, schemas=schemas, debezium=modes, tailrace=modes)
    except UnavailableError as error:
        pytest.skip(str(error))
    assert [str(difference) for difference in found] == []
