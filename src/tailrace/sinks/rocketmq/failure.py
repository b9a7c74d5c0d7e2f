"""RocketMQ's codes of errors as errors of the sink. Pure.

Source: apache/rocketmq 5.5.0 `ResponseCode`.
"""

from __future__ import annotations

from tailrace.errors import SinkError, TransientSinkError
from tailrace.printable import shortened
from tailrace.sinks.rocketmq import frames
from tailrace.sinks.rocketmq.frames import Reply

#: Stored, but not where the broker's settings promise it.
_NOT_DURABLE = {
    frames.FLUSH_DISK_TIMEOUT: "not flushed to its disk",
    frames.SLAVE_NOT_AVAILABLE: "it has no slave",
    frames.FLUSH_SLAVE_TIMEOUT: "not copied to its slave",
}
#: What brokers say of a message that their store does not take; they have no code of its own for it.
_TOO_LARGE = "size exceeded"


def unavailable(address: str, problem: str) -> TransientSinkError:
    """The error for a server that does not answer."""
    return TransientSinkError(
        f"RocketMQ at `{address}` does not answer",
        shortened(problem),
        "are the name servers at `sink.name-servers` and the brokers up, and reachable from where tasks run?",
        code="TR-7801",
    )


def untrusted(address: str, problem: str) -> SinkError:
    """The error for a certificate that is not trusted."""
    return SinkError(
        f"the certificate of RocketMQ at `{address}` is not trusted",
        problem,
        "set `sink.tls-ca` to the certificate of its authority; brokers are reached at the addresses that "
        "they give the name servers (`brokerIP1`), which the certificate must name",
        code="TR-7802",
    )


def failure(answer: Reply, what: str) -> SinkError:
    """The error for an answer that is none of success.

    Args:
        answer: the answer.
        what: what was asked for: "sending to topic `t`".
    """
    detail = f"code {answer.code}: {shortened(answer.remark)}"
    if answer.code == frames.NO_PERMISSION:
        return SinkError(
            f"RocketMQ does not allow {what}",
            detail,
            "check `sink.access-key` and `sink.secret-key`; the user needs Pub and Sub on the topics, Sub on "
            "the group `TOOLS_CONSUMER`, and Create on the topics unless they exist",
            code="TR-7803",
        )
    if answer.code in _NOT_DURABLE:
        return TransientSinkError(
            f"RocketMQ has not made messages durable while {what}",
            f"{_NOT_DURABLE[answer.code]}; {detail}",
            "see to the broker's disk and to its slave",
            code="TR-7804",
        )
    if answer.code == frames.TOPIC_NOT_EXIST:
        return deleted(f"{what}: {detail}")
    if answer.code == frames.MESSAGE_ILLEGAL or _TOO_LARGE in answer.remark:
        return SinkError(
            f"RocketMQ refuses a message while {what}",
            detail,
            "raise `maxMessageSize` of the brokers (4 MiB by default) if it is too large",
            code="TR-7805",
        )
    return TransientSinkError(
        f"RocketMQ has failed while {what}",
        detail,
        "see the broker's log",
        code="TR-7801",
    )


def too_large(what: str, size: int, most: int) -> SinkError:
    """The error for a message that is too large.

    Args:
        what: what is too large of it.
        size: its bytes.
        most: the limit.
    """
    return SinkError(
        f"{what} of a message is larger than RocketMQ takes",
        f"found {size} bytes, the limit is {most}",
        "leave large columns out (`column.exclude.list`), or raise `sink.max-message-bytes` and the brokers' "
        "`maxMessageSize`",
        code="TR-7805",
    )


def deleted(where: str) -> TransientSinkError:
    """The error for a topic that was there a moment ago."""
    return TransientSinkError(
        "a topic has been deleted while it was written",
        where,
        "the batch is written again, and the topic created anew",
        code="TR-7808",
    )
