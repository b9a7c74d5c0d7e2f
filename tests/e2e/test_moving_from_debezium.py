"""Debezium 3.6 is killed within a transaction, and a pipeline goes on at the offset that it has stored.

Each row is then in Debezium's messages, or in the pipeline's changes; in both are only rows from the first
one of the transaction on in which the stored offset stands.
"""

from __future__ import annotations

import hashlib
import json
import signal
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.peers.compare import debezium_messages
from bench.peers.peers import DEBEZIUM_JSON, DEBEZIUM_POSTGRES_JSON
from bench.peers.toolkit import UnavailableError
from tailrace.config.importing import debezium, debezium_offsets
from tailrace.config.load import parse_pipeline
from tailrace.config.options import SourceOptions
from tailrace.config.secret import Secret
from tailrace.sources.mysql.start.starting import starting_position
from tests.support.engine import Engine, changes_of

pytestmark = pytest.mark.slow

#: Rows of a transaction, and transactions.
ROWS, COUNT = 40, 60
_PATIENCE_S = 60
#: Debezium stores its offset after every few messages.
OFTEN = {"offset.flush.interval.ms": "0", "max.batch.size": "7", "max.queue.size": "14"}
#: The hash that is taken over as `mask-hash`.
MASKED = {"column.mask.hash.v2.SHA-256.with.salt.salt": ".*\\.v"}


def insert(connection: Any, table: str) -> None:
    """Transactions of rows, with ids from 1 on."""
    for number in range(COUNT):
        with closing(connection.cursor()) as cursor:
            cursor.executemany(
                f"INSERT INTO {table} VALUES (%s, 'x')", [(number * ROWS + i + 1,) for i in range(ROWS)]
            )
        connection.commit()


def killed_within_a_transaction(
    peer: Any, offsets: Path, connection: Any, table: str
) -> tuple[list[int], bytes]:
    """Rows are inserted, and Debezium is killed while its stored offset is within a transaction.

    Returns:
        The ids that it has written, and the offset.
    """
    writer = threading.Thread(target=insert, args=(connection, table))
    writer.start()
    deadline = time.monotonic() + _PATIENCE_S
    try:
        while True:
            peer._process.send_signal(signal.SIGSTOP)
            content = offsets.read_bytes() if offsets.exists() else b""
            sent = peer._output.read_bytes().count(b"\n")
            is_whole = content.endswith(b"x") and b'"snapshot"' not in content and sent > 5 * ROWS
            if is_whole and any(
                mark in content for mark in (b'"row"', b'"event"', b'"messageType":"INSERT"')
            ):
                break
            peer._process.send_signal(signal.SIGCONT)
            assert time.monotonic() < deadline, content
            time.sleep(0.005)
    finally:
        peer._process.kill()
        peer._process.wait()
        writer.join()
    found = peer.until(lambda _: True)
    return [message.value["after"]["id"] for message in found if message.value["op"] == "c"], content


def source_of(config: dict[str, str], content: bytes, server: Any) -> SourceOptions:
    """The source of the pipeline that goes on for a connector."""
    made = debezium.draft(debezium.read(json.dumps(config), "shop"))
    debezium_offsets.start(made, content, "bench")
    source = parse_pipeline(made.text("test")).source
    assert source.starting_position.startswith(("gtid:", "file-at-or-before:", "lsn:")), (
        source.starting_position
    )
    return replace(source, password=Secret(server.password))


def rest(source: SourceOptions) -> list[int]:
    """The ids of the changes from a source's start on."""
    found: list[int] = []
    deadline = time.monotonic() + _PATIENCE_S
    with Engine(source) as engine:
        while not found or found[-1] < ROWS * COUNT:
            planned = engine.next()
            assert time.monotonic() < deadline, found[-1:]
            if planned is not None:
                snapshot, log = engine.read(*planned)
                assert snapshot == []
                found += [after["id"] for op, _, after, _ in changes_of(log) if op == "c"]
    return found


def prove(sent: list[int], come: list[int]) -> None:
    assert sent == list(range(1, len(sent) + 1))
    assert come == list(range(come[0], ROWS * COUNT + 1))
    assert come[0] % ROWS == 1, "the first one of a transaction"
    assert come[0] <= len(sent), "no row is missing, and the half-sent transaction comes again"
    assert come[0] > 2 * ROWS, "the transactions that Debezium had finished do not come again"


def test_pipeline_goes_on_within_a_transaction_of_mysql(mysql, database, tmp_path):
    table = f"{database}.t"
    mysql.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v TEXT)", f"INSERT INTO {table} VALUES (0, 'x')"
    )
    task = {"host": mysql.host, "port": str(mysql.port), "user": mysql.user, "password": mysql.password}
    task |= {"database": database, "tables": table, "serverId": str(0x7FFD_0001)}
    config = {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.hostname": mysql.host,
        "database.port": str(mysql.port),
        "database.user": mysql.user,
        "database.password": "p",
        "topic.prefix": "bench",
        "table.include.list": table,
    }
    try:
        with debezium_messages(DEBEZIUM_JSON, task, {**OFTEN, **MASKED}, tmp_path) as peer:
            (first,) = peer.until(lambda messages: len(messages) >= 1)
            # what `mask-hash` makes of salt and text; tests/e2e have that
            assert first.value["after"]["v"] == hashlib.sha256(b"saltx").hexdigest()
            with closing(mysql.connect(autocommit=False)) as writer:
                sent, content = killed_within_a_transaction(peer, tmp_path / "offsets", writer, table)
    except UnavailableError as error:
        pytest.skip(str(error))
    by_gtids = source_of(config, content, mysql)
    ((partition, offset),) = debezium_offsets._offsets(content)
    without = {"offsets": [{"partition": partition, "offset": {**offset, "gtids": None}}]}
    by_file = source_of(config, json.dumps(without).encode(), mysql)
    assert by_gtids.starting_position.startswith("gtid:")
    assert starting_position(by_file).order == starting_position(by_gtids).order
    prove(sent, rest(by_gtids))


def test_pipeline_goes_on_within_a_transaction_of_postgresql(postgres, postgres_database, tmp_path):
    server, database = postgres, postgres_database
    server.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t VALUES (0, 'x')",
        "CREATE PUBLICATION dbz FOR TABLE t",
        database=database,
    )
    task = {"host": server.host, "port": str(server.port), "user": server.user, "password": server.password}
    task |= {"database": database, "tables": "public.t", "slot": f"d_{database}"[:60].lower()}
    task |= {"publication": "dbz", "snapshot": "initial"}
    config = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": "p",
        "database.dbname": database,
        "database.sslmode": "disable",
        "plugin.name": "pgoutput",
        "slot.name": task["slot"],
        "publication.name": "dbz",
        "topic.prefix": "bench",
        "table.include.list": "public.t",
    }
    try:
        with debezium_messages(DEBEZIUM_POSTGRES_JSON, task, OFTEN, tmp_path) as peer:
            peer.until(lambda messages: len(messages) >= 1)
            with closing(server.connect(database=database)) as writer:
                writer.autocommit = False
                sent, content = killed_within_a_transaction(peer, tmp_path / "offsets", writer, "t")
    except UnavailableError as error:
        pytest.skip(str(error))
    prove(sent, rest(source_of(config, content, server)))
