"""The settings of the RabbitMQ sink."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.config.rabbitmq import QueueType, RabbitMqSettings
from tailrace.config.secret import Secret
from tailrace.errors import ConfigError
from tailrace.sinks.rabbitmq.names import queue_name


def settings(**given: Any) -> RabbitMqSettings:
    return RabbitMqSettings(**{"url": "amqp://h", "topic_prefix": "app", **given})


def test_addresses_have_the_usual_ports() -> None:
    assert settings().addresses == (("amqp", "h", 5672),)
    several = settings(url="amqps://a.example:1, amqps://[::1]/", queue_type=QueueType.QUORUM)
    assert several.addresses == (("amqps", "a.example", 1), ("amqps", "::1", 5671))
    assert several.address == ("a.example", 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "http://h"}, "`sink.url` is wrong"),
        ({"url": "amqp://u:t0psecret@h"}, "`sink.url` is wrong"),
        ({"url": "amqp://h/vhost"}, "`sink.url` is wrong"),
        ({"url": "amqp://h:70000"}, "`sink.url` is wrong"),
        ({"url": "amqp://h,amqps://h"}, "`sink.url` is wrong"),
        ({"topic_prefix": "amq.topic"}, "`sink.topic-prefix` is wrong"),
        ({"topic_prefix": "a b"}, "`sink.topic-prefix` is wrong"),
        ({"user": "u"}, "belong together"),
        ({"password": Secret("t0psecret", is_literal=True)}, "belong together"),
        ({"tls_ca": "/ca.pem"}, "no meaning without TLS"),
    ],
)
def test_wrong_settings_are_refused_without_their_secrets(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        settings(**given)
    assert "t0psecret" not in str(caught.value)


def test_name_of_a_queue_is_limited_in_bytes() -> None:
    assert queue_name("app", "shop.ü") == "app.shop.ü"
    with pytest.raises(ConfigError, match="too long") as caught:
        queue_name("app", "ü" * 126)
    assert caught.value.code == "TR-7849"
