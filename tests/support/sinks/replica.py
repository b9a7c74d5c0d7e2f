"""Database replicas in the contract suite."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from tailrace.config.model import MySqlSettings, PostgresSettings, ReplicaTransaction
from tailrace.sinks.replica.sink import ReplicaSink
from tests.support.sinks.case import Row, SinkCase


def mysql(request: Any) -> SinkCase:
    return _mysql(request, request.getfixturevalue("mysql"))


def mariadb(request: Any) -> SinkCase:
    return _mysql(request, request.getfixturevalue("mariadb"), ReplicaTransaction.WHOLE_BATCH)


def postgres(request: Any) -> SinkCase:
    return _postgres(request)


def postgres_whole_batch(request: Any) -> SinkCase:
    return _postgres(request, ReplicaTransaction.WHOLE_BATCH)


def _mysql(request: Any, server: Any, transaction: ReplicaTransaction = ReplicaTransaction.PARTS) -> SinkCase:
    server.execute("DROP DATABASE IF EXISTS tailrace", "DROP DATABASE IF EXISTS shop")
    settings = MySqlSettings(
        f"mysql://{server.host}:{server.port}", server.user, transaction=transaction, tls_mode="disabled"
    )

    def rows(name: str) -> list[Row]:
        schema, table = name.split(".")
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM `{schema}`.`{table}`")
            names = [d[0] for d in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    return SinkCase(lambda router: ReplicaSink(settings, router), rows=rows)


def _postgres(request: Any, transaction: ReplicaTransaction = ReplicaTransaction.PARTS) -> SinkCase:
    server = request.getfixturevalue("postgres")
    postgres_rows(server, "DROP SCHEMA IF EXISTS public CASCADE")
    postgres_rows(server, "DROP SCHEMA IF EXISTS shop CASCADE")
    settings = PostgresSettings(
        f"postgresql://{server.host}:{server.port}/postgres", server.user, transaction=transaction
    )

    def rows(name: str) -> list[Row]:
        schema, table = name.split(".")
        return postgres_rows(server, f'SELECT * FROM "{schema}"."{table}"')

    return SinkCase(lambda router: ReplicaSink(settings, router), rows=rows)


def postgres_rows(server: Any, sql: str) -> list[dict[str, Any]]:
    """The rows of a statement."""
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(sql)
        names = [d[0] for d in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in (cursor.fetchall() if names else ())]
