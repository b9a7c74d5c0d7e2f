"""Debezium 3.6 is killed within a transaction, and a pipeline goes on at the offset that it has stored.

Each row is then in Debezium's messages, or in the pipeline's changes; in both are only rows from the first
one of the transaction on in which the stored offset stands.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.peers.compare import debezium_messages
from bench.peers.peers import DEBEZIUM_JSON, DEBEZIUM_POSTGRES_JSON
from bench.peers.toolkit import UnavailableError
from bench.peers.watch import started
from tailrace.config.importing import debezium, debezium_offsets
from tailrace.config.load import parse_pipeline
from tailrace.config.options import SourceOptions
from tailrace.config.secret import Secret
from tailrace.sources.mysql.start.starting import starting_position
from tailrace_dev.servers.server import wait_until
from tests.support.engine import Engine, changes_of
from tests.support.pipelines import PipelineProcess
from tests.support.topics import messages

pytestmark = pytest.mark.slow

#: Rows of a transaction, and transactions.
ROWS, COUNT = 40, 60
_PATIENCE_S = 60
#: Debezium stores its offset after every few messages.
OFTEN = {"offset.flush.interval.ms": "0", "max.batch.size": "7", "max.queue.size": "14"}
#: Columns besides `id`, and a row's values.
COLUMNS = "hashed VARCHAR(100), blank VARCHAR(100), cut VARCHAR(100)"
VALUES = "'m\u00e4il@example.org', 'secret', 'a long text'"


def insert(connection: Any, table: str) -> None:
    """Transactions of rows, with ids from 1 on."""
    for number in range(COUNT):
        with closing(connection.cursor()) as cursor:
            cursor.executemany(
                f"INSERT INTO {table} VALUES (%s, {VALUES})", [(number * ROWS + i + 1,) for i in range(ROWS)]
            )
        connection.commit()


def kill_within_a_transaction(
    process: Any, sent: Callable[[], int], offsets: Path, connection: Any, table: str
) -> bytes:
    """Rows are inserted, and Debezium is killed while its stored offset is within a transaction.

    Args:
        process: Debezium's.
        sent: how many messages it has sent.
        offsets: its file of offsets, which is returned.
        connection: for the rows.
        table: their table.
    """
    writer = threading.Thread(target=insert, args=(connection, table))
    writer.start()
    deadline = time.monotonic() + _PATIENCE_S
    try:
        while True:
            process.send_signal(signal.SIGSTOP)
            content = offsets.read_bytes() if offsets.exists() else b""
            is_whole = content.endswith(b"x") and b'"snapshot"' not in content
            is_within = any(mark in content for mark in (b'"row"', b'"event"', b'"messageType":"INSERT"'))
            if is_whole and is_within and sent() > 5 * ROWS:
                return content
            process.send_signal(signal.SIGCONT)
            assert time.monotonic() < deadline, content
            time.sleep(0.005)
    finally:
        process.kill()
        process.wait()
        writer.join()


def killed_within_a_transaction(
    peer: Any, offsets: Path, connection: Any, table: str
) -> tuple[list[int], bytes]:
    """As above, of Debezium that writes to a file: the ids that it has written, and its offset."""
    content = kill_within_a_transaction(
        peer._process, lambda: peer._output.read_bytes().count(b"\n"), offsets, connection, table
    )
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


def of_mysql(server: Any, table: str) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": "p",
        "topic.prefix": "bench",
        "table.include.list": table,
    }


def test_topic_goes_on_with_each_change_once_or_again(mysql, database, kafka, tmp_path):
    table, topic = f"{database}.t", f"bench.{database}.t"
    mysql.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, {COLUMNS})", f"INSERT INTO {table} VALUES (0, {VALUES})"
    )
    task = {"host": mysql.host, "port": str(mysql.port), "user": mysql.user, "password": mysql.password}
    task |= {"database": database, "tables": table, "serverId": str(0x7FFD_0002), "kafka": kafka.bootstrap}
    task |= {"directory": str(tmp_path), "expected": str(1 << 62)}
    masks = {
        "column.mask.hash.v2.SHA-256.with.salt.salz": f"{table}.hashed",
        "column.mask.with.5.chars": f"{table}.blank",
        "column.truncate.to.3.chars": f"{table}.cut",
    }
    task |= {f"debezium.{name}": value for name, value in (OFTEN | masks).items()}
    try:
        with started(DEBEZIUM_JSON.command(), task, tmp_path / "log") as process:
            wait_until(lambda: len(messages(kafka, topic)) > 0, _PATIENCE_S)
            with closing(mysql.connect(autocommit=False)) as writer:
                content = kill_within_a_transaction(
                    process, lambda: len(messages(kafka, topic)), tmp_path / "offsets", writer, table
                )
    except UnavailableError as error:
        pytest.skip(str(error))
    sent = [json.loads(m.value) for m in messages(kafka, topic)]
    config = of_mysql(mysql, table) | masks
    for side in ("key", "value"):
        config[f"{side}.converter"] = "org.apache.kafka.connect.json.JsonConverter"
        config[f"{side}.converter.schemas.enable"] = "false"
    made = debezium.draft(debezium.read(json.dumps(config), "shop"), kafka.bootstrap)
    debezium_offsets.start(made, content, "bench")
    document = yaml.safe_load(made.text("test"))
    document["pipeline"] |= {"checkpoint": str(tmp_path / "checkpoint"), "trigger": "available-now"}
    pipeline = PipelineProcess(
        tmp_path, mysql, table, env={"DATABASE_PASSWORD": mysql.password, "MASK_SALT": "salz"}
    )
    pipeline.file.write_text(yaml.safe_dump(document))
    assert pipeline.run() == 0, pipeline.output()
    come = [json.loads(m.value) for m in messages(kafka, topic)][len(sent) :]
    assert [sent[0]["op"], sent[0]["after"]["blank"], sent[0]["after"]["cut"]] == ["r", "*****", "a l"]
    # each key has one message; messages of different keys have no order
    prove(sorted(m["after"]["id"] for m in sent[1:]), sorted(m["after"]["id"] for m in come))
    again = {m["after"]["id"]: m for m in come}
    for message in sent[1:]:
        if (other := again.get(message["after"]["id"])) is not None:
            own = ("ts_ms", "ts_us", "ts_ns")
            theirs, ours = ({k: v for k, v in m.items() if k not in own} for m in (message, other))
            for one in (theirs, ours):
                one["source"] = {k: v for k, v in one["source"].items() if k != "version"}
            assert ours == theirs


def test_pipeline_goes_on_within_a_transaction_of_mysql(mysql, database, tmp_path):
    table = f"{database}.t"
    mysql.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, {COLUMNS})", f"INSERT INTO {table} VALUES (0, {VALUES})"
    )
    task = {"host": mysql.host, "port": str(mysql.port), "user": mysql.user, "password": mysql.password}
    task |= {"database": database, "tables": table, "serverId": str(0x7FFD_0001)}
    config = of_mysql(mysql, table)
    try:
        with debezium_messages(DEBEZIUM_JSON, task, OFTEN, tmp_path) as peer:
            peer.until(lambda messages: len(messages) >= 1)
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
        f"CREATE TABLE t (id int PRIMARY KEY, {COLUMNS})",
        f"INSERT INTO t VALUES (0, {VALUES})",
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
