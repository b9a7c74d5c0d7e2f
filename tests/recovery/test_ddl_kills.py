"""Eight writers, random schema changes and random kills: in the end targets equal the tables.

As `test_ddl_fuzz_sinks`, with pipelines that are processes of their own and are killed with SIGKILL, and with
sinks of messages, which are added up. Schema changes are those that every target can follow; those that park
a table are tried there.

TAILRACE_SEED=1234 runs that seed alone.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, ClassVar

import pytest

from tailrace.config.message_sinks import NatsSettings, RedisSettings
from tailrace.config.rabbitmq import QueueType
from tailrace.config.sinks import DuckDbSettings, WriteMode
from tailrace.repetition import repeatedly
from tests.recovery.test_ddl_fuzz import Place, noted
from tests.recovery.test_ddl_fuzz_sinks import comparable, without_types
from tests.recovery.test_versioned_stress import Documents, Log, Rows
from tests.support.databases import named_rows
from tests.support.ddl import MySqlTable
from tests.support.kills import BACKLOG_S, once
from tests.support.pipelines import PipelineProcess
from tests.support.sinks import duckdb, nats, rabbitmq, redis
from tests.support.sinks.case import Row

SEEDS, KILLS = range(3), 6


class FittingTable(MySqlTable):
    """A table whose key stays, and whose columns keep their types or become wider."""

    #: Schema changes that are left out.
    UNFIT: ClassVar = (
        "MODIFY",
        "CHANGE ",
        "CONVERT TO",
        "PRIMARY KEY (id, ",
        "CREATE TABLE t (z",
        "ADD COLUMN `",
        ", RENAME COLUMN",
    )
    WIDER: ClassVar = {"number": "BIGINT", "text": "VARCHAR(60)", "decimal": "DECIMAL(14,2)"}

    def shapes(self) -> Iterator[Sequence[str]]:
        """Schema changes that are possible now."""
        for statements in super().shapes():
            if not any(unfit in statement for statement in statements for unfit in self.UNFIT):
                yield statements
        for field in self.fields():
            if not field.is_generated:
                yield [f"ALTER TABLE t MODIFY {self.quoted(field.name)} {self.WIDER[field.kind]}"]


class WholeTable(FittingTable):
    """The same, and no row is ever gone without a delete in the log: messages do not tell of these."""

    UNFIT: ClassVar = (
        *FittingTable.UNFIT,
        "TRUNCATE",
        "DROP TABLE",
        "DROP PARTITION",
        "EXCHANGE",
        "RENAME TABLE",
        "RENAME TO",
        "OR REPLACE",
    )


class DuckRows:
    """Tables of DuckDB."""

    table, mode, is_log = FittingTable, WriteMode.UPSERT, False

    def __init__(self, request: Any) -> None:
        path = request.getfixturevalue("tmp_path")
        self._settings = DuckDbSettings(database=f"{path}/shop.duckdb", mode=self.mode)
        self.sink = {"type": "duckdb", "database": self._settings.database, "mode": str(self.mode)}

    def rows(self, table: str, key: Sequence[str]) -> list[Row]:
        return duckdb.held_rows(self._settings, table, key)


class DuckLog(DuckRows):
    """Change logs of DuckDB."""

    mode, is_log = WriteMode.CHANGELOG, True


class ClickHouseRows(Rows):
    """Rows of ClickHouse."""

    table, is_log = FittingTable, False


class ClickHouseLog(Log):
    """Change logs of ClickHouse."""

    table, is_log = FittingTable, True


class OpenSearchDocuments(Documents):
    """Documents of OpenSearch."""

    table, is_log = FittingTable, False


class Messages:
    """Messages, and the rows that they add up to."""

    table, is_log = WholeTable, True
    sink: dict[str, Any]

    def __init__(self, request: Any) -> None:
        self._prefix = request.getfixturevalue("database")
        self.sink = {"topic-prefix": self._prefix, "decimal-handling-mode": "string", "parallelism": 2}

    def rows(self, table: str, key: Sequence[str]) -> list[Row]:
        state: dict[str, Row] = {}
        for of, _, op, value in self._found(f"{self._prefix}.{table}"):
            state.pop(of, None)
            if op != "d":
                state[of] = json.loads(value)["after"]
        return [{name: _decimal(value) for name, value in row.items()} for row in state.values()]

    def _found(self, target: str) -> Iterable[tuple[str, str, str, bytes]]:
        """Key, `seq`, operation and value of each message of a target."""
        raise NotImplementedError


def _decimal(value: Any) -> Any:
    """A decimal that is a text in messages; texts of these tables have no point."""
    return Decimal(value) if isinstance(value, str) and re.fullmatch(r"-?\d+\.\d+", value) else value


def in_order(found: Iterable[tuple[str, str, str, bytes]]) -> Iterator[tuple[str, str, str, bytes]]:
    """Messages, none of which comes again or late."""
    last: dict[str, tuple[str, str]] = {}
    for key, seq, op, value in found:
        assert (seq, op) > last.get(key, ("", "")), f"{op} of {key} came again, or late"
        last[key] = seq, op
        yield key, seq, op, value


class RedisMessages(Messages):
    """Streams of Redis."""

    def __init__(self, request: Any) -> None:
        super().__init__(request)
        url = request.getfixturevalue("redis").url
        self.sink |= {"type": "redis", "url": url}
        self._settings = RedisSettings(url=url, topic_prefix=self._prefix)

    def _found(self, target: str) -> Iterable[tuple[str, str, str, bytes]]:
        entries = redis.entries(self._settings, target)
        return in_order((e["key"].decode(), e["seq"].decode(), e["op"].decode(), e["value"]) for e in entries)


class NatsMessages(Messages):
    """A stream of NATS."""

    def __init__(self, request: Any) -> None:
        super().__init__(request)
        url = request.getfixturevalue("nats").url
        self.sink |= {"type": "nats", "url": url, "duplicate-window": 3600}
        self._settings = NatsSettings(url=url, topic_prefix=self._prefix)

    def _found(self, target: str) -> Iterable[tuple[str, str, str, bytes]]:
        messages = nats.messages(self._settings, target)
        return in_order((h["key"], h["seq"], h["op"], value) for h, value in messages)


class RabbitMessages(Messages):
    """Queues of RabbitMQ."""

    def __init__(self, request: Any) -> None:
        super().__init__(request)
        server = request.getfixturevalue("rabbitmq")
        self._settings = rabbitmq.settings_of(server, topic_prefix=self._prefix, queue_type=QueueType.QUORUM)
        password = f"${{file:{server.password_file}}}"
        self.sink |= {"type": "rabbitmq", "url": server.url, "user": server.user, "password": password}
        self.sink |= {"queue-type": "quorum"}

    def _found(self, target: str) -> Iterable[tuple[str, str, str, bytes]]:
        found = [(p.headers, value) for p, value in rabbitmq.messages(self._settings, target)]
        return once((h["key"], h["_seq"], h["op"], value) for h, value in found)


KINDS = [DuckRows, DuckLog, ClickHouseRows, ClickHouseLog, OpenSearchDocuments]
KINDS += [RedisMessages, NatsMessages, RabbitMessages]


def seeds() -> list[int]:
    """The seeds."""
    given = os.environ.get("TAILRACE_SEED")
    return [*SEEDS] if given is None else [int(given)]


def columns_of(place: Place, table: str) -> list[str]:
    """The columns of a table, invisible ones too."""
    schema, _, name = table.partition(".")
    found = place.execute(
        "SELECT column_name FROM information_schema.columns"
        f" WHERE table_schema = '{schema}' AND table_name = '{name}' ORDER BY ordinal_position"
    )
    return [column for (column,) in found]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("kind", KINDS)
def test_targets_equal_their_tables_after_random_schema_changes_and_kills(
    request: pytest.FixtureRequest, mysql: Any, tmp_path: Any, kind: type[Any], seed: int
) -> None:
    subject, place, draw = kind(request), Place(request, "mysql", seed), random.Random(seed)
    table = place.table = subject.table(place.execute, seed)
    table.create()
    run = PipelineProcess(
        tmp_path,
        mysql,
        rf"{place.database}\.(t|u)",
        sink=subject.sink,
        pipeline={"name": place.database},
        **{"snapshot-chunk-rows": 7, "max-bytes-per-trigger": "500k"},
    )

    def change() -> None:
        draw.choice([table.change_shape, lambda: table.change_rows(4)])()

    with noted(table):
        for number in range(KILLS):
            with place.writers(pause_s=0.3), repeatedly(change, 0.5):
                if number % 3:
                    run.work_for(draw.uniform(0, 6))
                else:
                    run.run_for(draw.uniform(5, 20))
            table.log.append("-- killed")
            table.change_shape()
        for _ in range(2):  # what is found out by the first may have to be read again
            assert run.run(timeout_s=BACKLOG_S) == 0, run.output()
        for name in ("t", "u"):
            of_table = f"{place.database}.{name}"
            columns = columns_of(place, of_table)
            listed = ", ".join(f"`{column}`" for column in columns)
            with mysql.connect() as connection, connection.cursor() as cursor:
                wanted = named_rows(cursor, f"SELECT {listed} FROM {of_table}")
            held = [
                without_types(row, columns, is_log=subject.is_log) for row in subject.rows(of_table, ("id",))
            ]
            assert comparable(held) == comparable(wanted), name
