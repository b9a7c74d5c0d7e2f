"""Errors of the client of RabbitMQ as those of the sink.

The client guesses from the moment of a closed connection that a password or a virtual host is wrong. Here
only what the server says is definite: a server that stops closes connections at any moment.
"""

from __future__ import annotations

import re
import ssl

from pika import exceptions
from pika.adapters.utils import connection_workflow as workflow

from tailrace.errors import SinkError, TransientSinkError
from tailrace.printable import shortened

#: AMQP's reply codes.
_TOO_LARGE, _REFUSED, _GONE, _LOCKED, _PRECONDITION, _NOT_ALLOWED = 311, 403, 404, 405, 406, 530
#: Those of a client that does what the server does not know.
_WRONG_USE = range(501, 506)
#: Failures behind an address that a server listens on.
_ANSWERED = (workflow.AMQPConnectorTransportSetupError, workflow.AMQPConnectorAMQPHandshakeError)
#: A server's reply within the client's guess.
_REPLY = re.compile(r"Closed(?:ByBroker)?: \((\d+)\) (.*)", re.DOTALL)


def cause(error: BaseException) -> BaseException:
    """The failure of the last address that answered, or else of the last one, where connecting failed."""
    if isinstance(error, workflow.AMQPConnectionWorkflowFailed) and error.exceptions:
        answered = [e for e in error.exceptions if isinstance(e, _ANSWERED)]
        error = (answered or error.exceptions)[-1]
    return error.exception if isinstance(error, workflow.AMQPConnectorPhaseErrorBase) else error


def failure(error: BaseException, blocked: str) -> SinkError:
    """The sink's error.

    Args:
        error: the client's.
        blocked: why the server takes no messages from anybody, as it has said; "" if it takes some.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return SinkError(
            "the certificate of RabbitMQ is not trusted",
            shortened(str(error)),
            "set `sink.tls-ca` to the certificate of its authority",
            code="TR-7844",
        )
    if blocked:
        return TransientSinkError(
            "RabbitMQ blocks whoever publishes",
            shortened(blocked),
            "free memory or disk space of the server, or raise its limits; it goes on by itself then",
            code="TR-7847",
        )
    number, text = _reply(error)
    detail = shortened(f"{number}: {text}" if number else f"{type(error).__name__}: {text}")
    is_refused = number == _REFUSED or isinstance(error, exceptions.AuthenticationError)
    # of connections, which others may close
    is_limit = number == _NOT_ALLOWED and "limit" in text.lower()
    if is_refused or (number == _NOT_ALLOWED and not is_limit):
        return SinkError(
            "RabbitMQ rejects the client",
            detail,
            "check `sink.user`, `sink.password` and `sink.vhost`; the user writes to the exchange that is "
            "named as the topic prefix; to what the sink creates it needs every right",
            code="TR-7842",
        )
    if number == _TOO_LARGE or (number == _PRECONDITION and "size" in text and "larger" in text):
        return SinkError(
            "a message is larger than RabbitMQ takes",
            detail,
            "raise the server's `max_message_size` (16 MiB by default), or leave large columns out "
            "(`column.exclude.list`)",
            code="TR-7845",
        )
    if number in (_PRECONDITION, _LOCKED) or number in _WRONG_USE:
        return SinkError(
            "RabbitMQ refuses a request", detail, "see what it says of the exchange or queue", code="TR-7843"
        )
    return TransientSinkError(
        "RabbitMQ does not take messages",
        detail,
        "the exchange or a queue has been deleted: the batch is written again"
        if number == _GONE
        else "are the servers at `sink.url` up, and is it their AMQP port, with TLS for `amqps:`?",
        code="TR-7841",
    )


def _reply(error: BaseException) -> tuple[int, str]:
    """A reply's code and text; 0 if the server has not replied."""
    if isinstance(error, exceptions.ConnectionClosed | exceptions.ChannelClosed):
        return error.reply_code, error.reply_text
    text = str(error.args[0]) if len(error.args) == 1 else str(error)
    found = _REPLY.search(text)
    return (int(found[1]), found[2]) if found else (0, text)
