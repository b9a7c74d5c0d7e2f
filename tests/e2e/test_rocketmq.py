"""The RocketMQ sink and brokers: read by RocketMQ's own client, with TLS and signatures, shared topics."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.config.message_sinks import RocketMqSettings, TopicType
from tailrace.config.secret import Secret
from tailrace.config.sink_settings import MessageValue
from tailrace.errors import ConfigError, SinkError, TransientSinkError
from tailrace.java import java
from tailrace.model.table import TableId
from tailrace.sinks.messages.sink import message_sink
from tailrace.sinks.rocketmq import frames
from tailrace.sinks.rocketmq.channel import _request
from tailrace.sinks.rocketmq.messages import encoded
from tailrace.sinks.rocketmq.remoting import BrokerConnections
from tailrace.sinks.rocketmq.sink import RocketMq, access_of
from tailrace.sinks.rocketmq.topics import find
from tailrace.sinks.route import Router
from tailrace_dev.servers import RocketMqServer, start_rocketmq
from tailrace_dev.servers.rocketmq import class_path
from tests.support.cells import cell_batch
from tests.support.changes import INT, TEXT, changes, table
from tests.support.sinks.rocketmq import messages

SCHEMA = table(("id", INT), ("name", TEXT), key=("id",))
KEYLESS = table(("id", INT), ("name", TEXT), key=(), name="shop.events")
_KINDS = ("authentication", "authorization")
USER = {"username": "tailrace", "password": "the-secret-of-tests"}


def settings_of(server: RocketMqServer, **given: Any) -> RocketMqSettings:
    names = {"name_servers": server.name_server, "topic_prefix": f"e{uuid.uuid4().hex[:8]}"}
    return RocketMqSettings(**{**names, "parallelism": 1, "topic_queues": 2, **given})


def inserts(*ids: int, first: int = 1) -> tuple[str, object]:
    return "log", changes(SCHEMA, [("c", None, {"id": i, "name": f"n{i}"}) for i in ids], first=first)


def write(spark: SparkSession, settings: RocketMqSettings, *cells: Any, batch: int = 0) -> None:
    sink = message_sink(settings, Router([]), RocketMq(settings, Router([])), "mysql")
    try:
        sink.write(cell_batch(spark, batch, list(cells)))
    finally:
        sink.close()


def admin(server: RocketMqServer, *arguments: str) -> str:
    """What RocketMQ's own tool prints."""
    command = [java(), "-XX:TieredStopAtLevel=1", f"-Drocketmq.home.dir={server.data}"]
    home = tempfile.mkdtemp()
    try:
        done = subprocess.run(
            [
                *command,
                f"-Duser.home={home}",
                "-cp",
                class_path(),
                "org.apache.rocketmq.tools.command.MQAdminStartup",
                *arguments,
                "-n",
                server.name_server,
            ],
            env={**os.environ, "ROCKETMQ_HOME": str(server.data)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("type_", TopicType)
def test_rocketmqs_own_client_reads_what_was_written(
    spark: SparkSession, rocketmq: RocketMqServer, type_: TopicType
) -> None:
    settings = settings_of(rocketmq, topic_type=type_)
    write(spark, settings, inserts(1, 2, 3))
    topic = f"{settings.topic_prefix}_shop_t"
    printed = admin(rocketmq, "consumeMessage", "-t", topic)
    bodies = [json.loads(found) for found in re.findall(r"BODY: (\{.*\})", printed)]
    assert sorted(body["after"]["id"] for body in bodies) == [1, 2, 3], printed
    for part in ("TAGS=shop.t", '__SHARDINGKEY={"id":2}', 'KEYS={"id":2}', "_op=c", "_batch=0"):
        assert part in printed
    assert f"message.type={type_.value.upper()}" in admin(rocketmq, "topicList", "-c") or (
        type_.value.upper() in (rocketmq.data / "store" / "config" / "topics.json").read_text()
    )


@pytest.mark.slow
def test_canal_messages_are_written(spark: SparkSession, rocketmq: RocketMqServer) -> None:
    settings = settings_of(rocketmq, value_format=MessageValue.CANAL_JSON)
    write(
        spark, settings, inserts(1), ("log", changes(SCHEMA, [("d", {"id": 1, "name": "n1"}, None)], first=9))
    )
    found = [json.loads(m.value) for m in messages(settings, f"{settings.topic_prefix}_shop_t")]
    assert [(m["type"], m["data"][0]["id"], m["table"]) for m in found] == [
        ("INSERT", "1", "t"),
        ("DELETE", "1", "t"),
    ]


@pytest.mark.slow
def test_batch_that_comes_again_is_found_behind_messages_of_another_producer(
    spark: SparkSession, rocketmq: RocketMqServer
) -> None:
    settings = settings_of(rocketmq)
    topic = f"{settings.topic_prefix}_shop_t"
    write(spark, settings, inserts(1, 2, 3))
    connections = BrokerConnections(access_of(settings))
    found = find(connections, [topic])[topic]
    theirs = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"x"] * 5000),
            "value": pa.array([b"theirs"] * 5000),
            "seq": pa.array(["0"] * 5000),
            "op": pa.array(["c"] * 5000),
            "row": pa.nulls(5000, pa.string()),
        }
    )
    body = b"".join(encoded(theirs, "shop.t", "another stream", 7, 1 << 20).to_pylist())
    for queue in found.queues:
        assert connections.to(queue.address).ask(_request(found, queue, body)).code == frames.SUCCESS
    connections.close()
    write(spark, settings, inserts(1, 2, 3))  # the same batch, by another run
    write(spark, settings, inserts(4, first=50), batch=1)
    mine = [m for m in messages(settings, topic) if m.value != b"theirs"]
    assert sorted(json.loads(m.value)["after"]["id"] for m in mine) == [1, 2, 3, 4]
    assert len(messages(settings, topic)) == 4 + 2 * 5000


@pytest.mark.slow
def test_equal_rows_of_a_table_without_a_key_come_once(spark: SparkSession, rocketmq: RocketMqServer) -> None:
    settings = settings_of(rocketmq)
    rows = [("r", None, {"id": i % 3, "name": "same"}) for i in range(9)]
    snapshot = changes(KEYLESS, rows)
    at = snapshot.origin.schema.get_field_index("seq")
    one = pa.repeat(snapshot.origin.column("seq")[0], len(rows))
    snapshot = replace(snapshot, origin=snapshot.origin.set_column(at, snapshot.origin.schema.field(at), one))
    for _ in range(2):
        write(spark, settings, ("snapshot", snapshot))
    found = messages(settings, f"{settings.topic_prefix}_shop_events")
    assert sorted(json.loads(m.value)["after"]["id"] for m in found) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert len({m.queue for m in found}) == 1


@pytest.mark.slow
def test_message_that_is_too_large_names_its_table(spark: SparkSession, rocketmq: RocketMqServer) -> None:
    settings = settings_of(rocketmq, max_message_bytes=2000)
    large = changes(SCHEMA, [("c", None, {"id": 1, "name": "n" * 3000})])
    with pytest.raises(SinkError, match="larger than RocketMQ takes") as caught:
        write(spark, settings, ("log", large))
    assert (caught.value.code, caught.value.table) == ("TR-7805", "shop.t")
    # the sink's limit is above the broker's, which refuses the message itself
    beyond = replace(settings, max_message_bytes=32 << 20)
    large = changes(SCHEMA, [("c", None, {"id": 1, "name": "n" * (5 << 20)})])
    with pytest.raises(SinkError) as caught:
        write(spark, beyond, ("log", large))
    assert not isinstance(caught.value, TransientSinkError), caught.value
    assert caught.value.code == "TR-7805"


def test_topic_with_too_long_a_name_is_refused() -> None:
    settings = RocketMqSettings(name_servers="nowhere:1", topic_prefix="p" * 100)
    sink = message_sink(settings, Router([]), RocketMq(settings, Router([])), "mysql")
    with pytest.raises(ConfigError) as caught:
        sink.claim([TableId("d" * 20, "t" * 20)])
    assert caught.value.code == "TR-7806"


def test_absent_name_server_is_a_transient_error(spark: SparkSession) -> None:
    settings = RocketMqSettings(name_servers="127.0.0.1:1,127.0.0.1:2", topic_prefix="p")
    with pytest.raises(TransientSinkError) as caught:
        write(spark, settings, inserts(1))
    assert caught.value.code == "TR-7801"


# ---- TLS and signatures ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[RocketMqServer, Path]]:
    """A broker with TLS and users, and its certificate."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    certificate, key = directory / "cert.pem", directory / "key.pem"
    subprocess.run(
        [
            *[
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=rocketmq",
            ],
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    key.chmod(0o644)
    of_users, of_rights = (f"org.apache.rocketmq.auth.{kind}.provider." for kind in _KINDS)
    options = {
        "jvm": f"-Dtls.test.mode.enable=false -Dtls.server.certPath={certificate} -Dtls.server.keyPath={key}",
        "authenticationEnabled": "true",
        "authenticationProvider": f"{of_users}DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{of_users}LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": json.dumps(USER),
        "innerClientAuthenticationCredentials": json.dumps(
            {"accessKey": USER["username"], "secretKey": USER["password"]}
        ),
        "authorizationEnabled": "true",
        "authorizationProvider": f"{of_rights}DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{of_rights}LocalAuthorizationMetadataProvider",
    }
    try:
        with start_rocketmq(options=options) as server:
            yield server, certificate
    finally:
        shutil.rmtree(directory)


def guarded_settings(guarded: tuple[RocketMqServer, Path], **given: Any) -> RocketMqSettings:
    server, certificate = guarded
    access = {
        "access_key": USER["username"],
        "secret_key": Secret(USER["password"]),
        "tls": True,
        "tls_ca": str(certificate),
    }
    return settings_of(server, **{**access, **given})


@pytest.mark.slow
def test_signed_messages_are_written_by_tls(
    spark: SparkSession, guarded: tuple[RocketMqServer, Path]
) -> None:
    settings = guarded_settings(guarded)
    for _ in range(2):
        write(spark, settings, inserts(1, 2, 3))
    found = messages(settings, f"{settings.topic_prefix}_shop_t")
    assert sorted(json.loads(m.value)["after"]["id"] for m in found) == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        {"secret_key": Secret("the-wrong-one")},
        {"access_key": "stranger"},
        {"access_key": None, "secret_key": None},
    ],
    ids=["secret", "user", "unsigned"],
)
def test_wrong_access_key_is_a_definite_error(
    spark: SparkSession, guarded: tuple[RocketMqServer, Path], given: Any
) -> None:
    with pytest.raises(SinkError) as caught:
        write(spark, guarded_settings(guarded, **given), inserts(1))
    assert caught.value.code == "TR-7803", caught.value
    assert not isinstance(caught.value, TransientSinkError)
    assert "wrong-one" not in str(caught.value)


@pytest.mark.slow
def test_certificate_of_another_authority_is_a_definite_error(
    spark: SparkSession, guarded: tuple[RocketMqServer, Path]
) -> None:
    with pytest.raises(SinkError) as caught:
        write(spark, guarded_settings(guarded, tls_ca=None), inserts(1))
    assert caught.value.code == "TR-7802"
