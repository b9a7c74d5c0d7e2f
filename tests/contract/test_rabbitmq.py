"""What RabbitMQ says, and what becomes of it: errors, queues of the sink's own, TLS, alarms."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa
import pytest

from tailrace.config.rabbitmq import QueueType, RabbitMqSettings
from tailrace.config.secret import Secret
from tailrace.errors import SinkError, TransientSinkError
from tailrace.sinks.messages.outgoing import OUTGOING
from tailrace.sinks.messages.writer import MessageShare
from tailrace.sinks.rabbitmq.sink import RabbitMqExchange
from tailrace.sinks.route import Router
from tailrace_dev.servers import RabbitMqServer, start_rabbitmq
from tailrace_dev.servers.server import free_port
from tests.support.certificates import Authority
from tests.support.sinks.rabbitmq import channel_of, messages, settings_of
from tests.support.wait import listens, wait_until

TABLE = "shop.t"


def outgoing(*keys: bytes | None, size: int = 9, op: str = "c") -> pa.RecordBatch:
    columns = [
        pa.array(keys, pa.binary()),
        pa.array([str(i).encode() * size for i in range(len(keys))], pa.binary()),
        pa.array([f"{i:08}" for i in range(len(keys))]),
        pa.array([op] * len(keys)),
        pa.array([f"row.{i}" if key is None else None for i, key in enumerate(keys)], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=OUTGOING)


def send(exchange: RabbitMqExchange, *parts: pa.RecordBatch, create: bool = True) -> None:
    """Send messages as a batch does; without `create`, to what an earlier one has found."""
    missing = {TABLE} - set(exchange.existing({TABLE})) if create else set()
    channels: Any = exchange.channels({TABLE}, missing)
    format_: Any = None
    share = MessageShare(channels, {TABLE: TABLE}, format_, 1, frozenset(), 0, "query/0", 3, may_repeat=False)
    channel = channels.open(share, 0, may_repeat=False)
    try:
        for part in parts:
            channel.send(TABLE, part)
        channel.finish()
    finally:
        channel.close()


def exchange_of(settings: RabbitMqSettings) -> RabbitMqExchange:
    return RabbitMqExchange(settings, Router([]))


def failed(settings: RabbitMqSettings, *parts: pa.RecordBatch) -> SinkError:
    with pytest.raises(SinkError) as caught:
        send(exchange_of(settings), *(parts or (outgoing(b"1"),)))
    return caught.value


@pytest.mark.parametrize("type_", QueueType)
def test_messages_are_durable_in_order_and_known_when_they_come_again(
    rabbitmq: RabbitMqServer, type_: QueueType
) -> None:
    settings = settings_of(rabbitmq, queue_type=type_)
    keyless = [outgoing(None, None, op="r"), outgoing(None, None)]
    for _ in range(2):  # as two runs do
        send(exchange_of(settings), outgoing(b"1", b"2", b"1"), *keyless)
    found = messages(settings, f"{settings.topic_prefix}.{TABLE}")
    values = [b"0" * 9, b"1" * 9, b"2" * 9] + [b"0" * 9, b"1" * 9] * 2
    assert [body for _, body in found] == values * 2
    first, again = found[:7], found[7:]
    assert [p.message_id for p, _ in first] == [p.message_id for p, _ in again]
    assert len({p.message_id for p, _ in first}) == 7
    properties = first[2][0]
    assert properties.delivery_mode == 2
    assert (properties.content_type, properties.app_id) == ("application/json", "tailrace")
    assert properties.message_id.startswith("query:3:00000002:")
    told = {name: properties.headers[name] for name in ("_seq", "batch", "op", "table", "key")}
    assert told == {"_seq": "00000002", "batch": 3, "op": "c", "table": TABLE, "key": "1"}


def test_many_messages_keep_their_order(rabbitmq: RabbitMqServer) -> None:
    settings = settings_of(rabbitmq, queue_type=QueueType.QUORUM)
    many = outgoing(*(str(i).encode() for i in range(5000)), size=100)
    send(exchange_of(settings), many)
    found = messages(settings, f"{settings.topic_prefix}.{TABLE}")
    assert [body for _, body in found] == many.column("value").to_pylist()


def test_messages_that_no_queue_takes_are_an_error_until_one_is_bound(rabbitmq: RabbitMqServer) -> None:
    settings = settings_of(rabbitmq)
    error = failed(settings)
    assert (type(error), error.code) == (SinkError, "TR-7846")
    assert f"exchange `{settings.topic_prefix}` with the routing key `{TABLE}`" in str(error.hint)
    queue = f"{settings.topic_prefix}-all"
    with channel_of(settings) as channel:
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_bind(queue, settings.topic_prefix, "#")
    send(exchange_of(settings), outgoing(b"1"))
    assert [body for _, body in messages(settings, queue)] == [b"0" * 9]


def test_queue_and_exchange_that_are_deleted_are_created_again(rabbitmq: RabbitMqServer) -> None:
    settings = settings_of(rabbitmq, queue_type=QueueType.QUORUM)
    exchange, queue = exchange_of(settings), f"{settings.topic_prefix}.{TABLE}"
    send(exchange, outgoing(b"1"))
    for code, delete, *names in (
        ("TR-7846", "queue_delete", queue),
        ("TR-7846", "queue_unbind", queue, settings.topic_prefix, TABLE),
        ("TR-7841", "exchange_delete", settings.topic_prefix),
    ):
        with channel_of(settings) as channel:
            getattr(channel, delete)(*names)
        with pytest.raises(TransientSinkError) as caught:
            send(exchange, outgoing(b"1"), create=False)
        assert caught.value.code == code
        batch: Any = None
        exchange.begin(batch, 1, is_first=True)
        send(exchange, outgoing(b"2"))
    assert len(messages(settings, queue)) == 3


def test_message_larger_than_the_server_takes_is_a_definite_error(rabbitmq: RabbitMqServer) -> None:
    settings = settings_of(rabbitmq, queue_type=QueueType.QUORUM)
    error = failed(settings, outgoing(b"1"), outgoing(b"2", size=17 << 20))
    assert (type(error), error.code) == (SinkError, "TR-7845")
    assert len(messages(settings, f"{settings.topic_prefix}.{TABLE}")) == 1


def test_full_queue_is_a_transient_error(rabbitmq: RabbitMqServer) -> None:
    settings = settings_of(rabbitmq)
    prefix = settings.topic_prefix
    with channel_of(settings) as channel:
        channel.exchange_declare(prefix, "fanout", durable=True)  # one that exists is taken as it is
        full = {"x-max-length": 1, "x-overflow": "reject-publish"}
        channel.queue_declare(prefix, durable=True, arguments=full)
        channel.queue_bind(prefix, prefix)
        channel.basic_publish("", prefix, b"x", pika.BasicProperties(delivery_mode=2))
    error = failed(settings, outgoing(b"1", b"2"))
    assert (type(error), error.code) == (TransientSinkError, "TR-7848")
    assert error.detail == "2 were not confirmed"


@pytest.mark.parametrize(
    "given", [{"password": Secret("t0psecret", is_literal=True)}, {"vhost": "nowhere"}, {"user": "nobody"}]
)
def test_client_that_is_not_let_in_is_a_definite_error(
    rabbitmq: RabbitMqServer, given: dict[str, Any]
) -> None:
    error = failed(settings_of(rabbitmq, **given))
    assert (type(error), error.code) == (SinkError, "TR-7842")
    assert "t0psecret" not in str(error)
    assert rabbitmq.password not in str(error)


def test_other_properties_of_a_queue_are_a_definite_error(rabbitmq: RabbitMqServer) -> None:
    settings = settings_of(rabbitmq)
    send_to = replace(settings, queue_type=QueueType.QUORUM)
    queue = f"{settings.topic_prefix}.{TABLE}"
    with channel_of(settings) as channel:
        channel.queue_declare(queue, exclusive=True)
        error = failed(send_to)
    assert (type(error), error.code) == (SinkError, "TR-7843")


def test_server_that_does_not_answer_is_a_transient_error_and_another_one_is_tried(
    rabbitmq: RabbitMqServer,
) -> None:
    nobody = f"amqp://127.0.0.1:{free_port()}"
    error = failed(settings_of(rabbitmq, url=nobody))
    assert (type(error), error.code) == (TransientSinkError, "TR-7841")
    settings = settings_of(rabbitmq, url=f"{nobody},{rabbitmq.url}", queue_type=QueueType.CLASSIC)
    send(exchange_of(settings), outgoing(b"1"))
    assert len(messages(settings, f"{settings.topic_prefix}.{TABLE}")) == 1


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that the server's user can read."""
    found = Path(tempfile.mkdtemp(prefix="tailrace-rabbitmq-"))
    found.chmod(0o755)
    yield found
    shutil.rmtree(found)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_server_with_tls_and_without_disk_space(directory: Path) -> None:
    authority, port = Authority(directory), free_port()
    certificate, key = authority.sign("server")
    key.chmod(0o644)
    options = {
        "listeners.ssl.1": f"127.0.0.1:{port}",
        "ssl_options.certfile": str(certificate),
        "ssl_options.keyfile": str(key),
        "disk_free_limit.absolute": "100000TB",
    }
    with start_rabbitmq(options=options) as server:
        settings = settings_of(server, url=f"amqps://127.0.0.1:{port}", queue_type=QueueType.QUORUM)
        wait_until(lambda: listens(port), 30)  # it may be the last of its ports
        error = failed(settings)
        assert (type(error), error.code) == (SinkError, "TR-7844"), error
        trusting = replace(settings, tls_ca=str(authority.file))
        assert not exchange_of(trusting).existing({TABLE})
        error = failed(trusting)
        assert (type(error), error.code) == (TransientSinkError, "TR-7847")
        assert "disk" in str(error.detail)
        # TLS is spoken to a port without it
        error = failed(replace(trusting, url=f"amqps://127.0.0.1:{server.port}"))
        assert (type(error), error.code) == (TransientSinkError, "TR-7841")
