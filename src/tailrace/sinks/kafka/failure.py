"""Kafka's error codes as errors of the sink: transient or definite, with a hint. Pure.

Source: librdkafka `rdkafka.h` (names of codes), Kafka protocol guide, "Error Codes".
"""

from __future__ import annotations

from tailrace.errors import SinkError, TransientSinkError
from tailrace.printable import shortened

#: By Kafka's code: our code, the message and the hint.
_DEFINITE = {
    "_AUTHENTICATION": (
        "TR-7402",
        "the Kafka brokers refuse the credentials",
        "check `sasl.mechanism`, `sasl.username` and `sasl.password` in `sink.properties`",
    ),
    "_SSL": (
        "TR-7403",
        "no TLS connection to the Kafka brokers can be made",
        "check `security.protocol` and the `ssl.*` settings in `sink.properties`",
    ),
    "_INVALID_ARG": ("TR-7404", "a setting of the Kafka client is wrong", "check `sink.properties`"),
    "TOPIC_AUTHORIZATION_FAILED": (
        "TR-7405",
        "the Kafka brokers do not allow writing",
        "kafka-acls.sh --add --allow-principal User:... --operation Write --operation Describe --topic ...",
    ),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        "TR-7405",
        "the Kafka brokers do not allow transactions",
        "let the user write and describe ids that begin with `tailrace.`, or set `delivery: at-least-once`",
    ),
    "CLUSTER_AUTHORIZATION_FAILED": (
        "TR-7405",
        "the Kafka brokers do not allow this client what it needs",
        "kafka-acls.sh --add --allow-principal User:... --operation IdempotentWrite --cluster",
    ),
    "INVALID_TRANSACTION_TIMEOUT": (
        "TR-7406",
        "the Kafka brokers do not allow transactions this long",
        "set `transaction.timeout.ms` in `sink.properties` to the brokers' `transaction.max.timeout.ms`",
    ),
    "MSG_SIZE_TOO_LARGE": (
        "TR-7407",
        "a message is larger than its topic takes",
        "raise the topic's `max.message.bytes`, or set `sink.on-refused-row: quarantine`",
    ),
    "INVALID_TOPIC_EXCEPTION": (
        "TR-7408",
        "a topic's name is not allowed",
        "route the table to another name",
    ),
    "POLICY_VIOLATION": ("TR-7408", "the Kafka brokers' policy refuses a topic", "make the topic by hand"),
    "INVALID_REPLICATION_FACTOR": (
        "TR-7408",
        "a topic cannot have so many replicas",
        "set `sink.topic-replication` to the number of brokers or less",
    ),
    "INVALID_CONFIG": ("TR-7408", "a topic's setting is wrong", "check `sink.topic-config`"),
    "UNSUPPORTED_VERSION": (
        "TR-7409",
        "the Kafka brokers are too old",
        "transactions need brokers of version 2.5 or newer; or set `delivery: at-least-once`",
    ),
}
#: A newer producer has the same transactional id.
FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})


def overdue(limit_s: float, name: str, text: str) -> TransientSinkError:
    """The error for a transaction that exceeded the brokers' time limit.

    Args:
        limit_s: the time limit, seconds.
        name: the code's name.
        text: Kafka's text.
    """
    return TransientSinkError(
        f"a transaction was not written to Kafka within {limit_s:.0f} s, its time limit",
        f"the brokers or the way to them are slow, a quota may hold the client back; {name}:"
        f" {shortened(text)}",
        "raise `transaction.timeout.ms` in `sink.properties` (and the brokers' `transaction.max.timeout.ms`),"
        " or make batches smaller: `source.max-bytes-per-trigger`",
        code="TR-7411",
    )


def sink_error(name: str, text: str, topic: str | None = None) -> SinkError:
    """The sink's error for an error of Kafka.

    Args:
        name: the code's name, e.g. `_TRANSPORT`.
        text: Kafka's text.
        topic: the topic concerned, None: no topic.
    """
    where = f" (topic `{topic}`)" if topic else ""
    detail = f"{name}: {shortened(text)}"
    if name in _DEFINITE:
        code, message, hint = _DEFINITE[name]
        return SinkError(message + where, detail, hint, code=code)
    if name in FENCED:
        return TransientSinkError(
            "another run of the pipeline writes to Kafka",
            detail,
            "let only one process run a pipeline, or give them other names",
            code="TR-7010",
        )
    return TransientSinkError(
        f"writing to Kafka failed{where}",
        detail,
        "are the brokers at `sink.bootstrap-servers` up and well, and does `security.protocol` in "
        "`sink.properties` fit their listener?",
        code="TR-7410",
    )
