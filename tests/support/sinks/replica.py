"""Database replicas: the targets of tests, and rows of the contract suite."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tailrace.config.secret import Secret
from tailrace.config.sinks import MySqlSettings, PostgresSettings, ReplicaTransaction
from tailrace.sinks.replica.sink import ReplicaSink
from tests.support.databases import named_rows
from tests.support.sinks.case import Row, SinkCase


@dataclass(frozen=True)
class Target:
    """A database without Tailrace's tables and without `shop`.

    Args:
        server: the dev server.
        settings: of a sink that writes there.
        notes: the database or schema of Tailrace's own tables.
    """

    server: Any
    settings: Any
    notes: str

    def rows(self, name: str) -> list[Row]:
        """The rows of a table in the order of its first column."""
        quote = '"' if isinstance(self.settings, PostgresSettings) else "`"
        schema, dot, table = name.partition(".")
        if not dot:
            schema, table = self.notes, name
        sql = f"SELECT * FROM {quote}{schema}{quote}.{quote}{table}{quote} ORDER BY 1"
        with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
            return named_rows(cursor, sql)

    def execute(self, *statements: str) -> None:
        """Run statements."""
        with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)

    def staged(self) -> list[str]:
        """Tables with staged rows."""
        with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(
                "SELECT table_name FROM information_schema.tables"
                f" WHERE table_schema = '{self.notes}' AND table_name LIKE '\\_tailrace\\_s\\_%'"
            )
            return [row[0] for row in cursor.fetchall()]

    def _connect(self) -> Any:
        if isinstance(self.settings, PostgresSettings):
            return self.server.connect()
        names = {row[0] for row in self.server.execute("SHOW DATABASES")}
        return self.server.connect(database=self.notes if self.notes in names else None)


def replica_target(request: Any, product: str, transaction: ReplicaTransaction) -> Target:
    """An empty target on a product's shared server, removed at the end of the test."""
    server = request.getfixturevalue(product)
    if server.scheme == "postgresql":
        gone = [f'DROP SCHEMA IF EXISTS "{name}" CASCADE' for name in ("public", "shop", "all")]
    else:
        gone = [f"DROP DATABASE IF EXISTS `{name}`" for name in ("tailrace", "shop", "all")]
    server.execute(*gone)
    request.addfinalizer(lambda: server.execute(*gone))
    password = Secret(server.password)
    if server.scheme == "postgresql":
        url = f"postgresql://{server.host}:{server.port}/postgres"
        settings = PostgresSettings(url, server.user, password, transaction=transaction)
        return Target(server, settings, "public")
    url = f"mysql://{server.host}:{server.port}"
    settings = MySqlSettings(url, server.user, password, transaction=transaction, tls_mode="disabled")
    return Target(server, settings, "tailrace")


def mysql(request: Any) -> SinkCase:
    return _case(request, "mysql", ReplicaTransaction.PARTS)


def mariadb(request: Any) -> SinkCase:
    return _case(request, "mariadb", ReplicaTransaction.WHOLE_BATCH)


def postgres(request: Any) -> SinkCase:
    return _case(request, "postgres", ReplicaTransaction.PARTS)


def postgres_whole_batch(request: Any) -> SinkCase:
    return _case(request, "postgres", ReplicaTransaction.WHOLE_BATCH)


def _case(request: Any, product: str, transaction: ReplicaTransaction) -> SinkCase:
    target = replica_target(request, product, transaction)
    return SinkCase(
        lambda router: ReplicaSink(target.settings, router),
        lambda name: target.execute(f"DROP TABLE {name}"),
        rows=target.rows,
        takes_parts=True,
    )
