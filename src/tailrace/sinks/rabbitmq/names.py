"""The names of queues."""

from __future__ import annotations

from tailrace.errors import ConfigError

#: Most bytes of a name and of a routing key in AMQP.
_MOST_BYTES = 255


def queue_name(prefix: str, target: str) -> str:
    """The queue of a target, where the sink creates one.

    Raises:
        ConfigError: it is longer than AMQP allows.
    """
    name = f"{prefix}.{target}"
    if len(name.encode()) > _MOST_BYTES:
        raise ConfigError(
            f"the name of target `{target}` is too long for RabbitMQ",
            f"`{name}` has {len(name.encode())} bytes, at most {_MOST_BYTES} are allowed",
            "route the table to a shorter name, or shorten `topic-prefix`",
            code="TR-7849",
        )
    return name
