"""The errors of RabbitMQ's client as those of the sink."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from pika import exceptions
from pika.adapters.utils import connection_workflow as workflow

from tailrace.error_catalogue import CATALOGUE
from tailrace.errors import SinkError, TransientSinkError
from tailrace.sinks.rabbitmq.failure import cause, failure

TRANSIENT = (TransientSinkError, "TR-7841")


def closed(code: int, text: str) -> exceptions.ConnectionClosedByBroker:
    return exceptions.ConnectionClosedByBroker(code, text)


def refused(code: int, text: str) -> exceptions.ChannelClosedByBroker:
    return exceptions.ChannelClosedByBroker(code, text)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (exceptions.ProbableAuthenticationError(repr(closed(403, "ACCESS_REFUSED"))), (SinkError, "TR-7842")),
        # a server that ends while the client logs in says nothing of its password
        (exceptions.ProbableAuthenticationError(repr(exceptions.StreamLostError("reset"))), TRANSIENT),
        (
            exceptions.ProbableAccessDeniedError(repr(closed(530, "no such vhost"))),
            (SinkError, "TR-7842"),
        ),
        (
            exceptions.ProbableAccessDeniedError(repr(closed(530, "limit (1) is reached"))),
            TRANSIENT,
        ),
        (exceptions.ProbableAccessDeniedError(repr(closed(541, "vhost / is down"))), TRANSIENT),
        (exceptions.AuthenticationError("PLAIN"), (SinkError, "TR-7842")),
        (closed(320, "CONNECTION_FORCED - broker forced connection closure"), TRANSIENT),
        (exceptions.StreamLostError("Transport indicated EOF"), TRANSIENT),
        (exceptions.AMQPHeartbeatTimeout("no activity"), TRANSIENT),
        (refused(404, "NOT_FOUND - no exchange 'app' in vhost '/'"), TRANSIENT),
        (refused(403, "ACCESS_REFUSED - write access to exchange 'app'"), (SinkError, "TR-7842")),
        (refused(406, "PRECONDITION_FAILED - inequivalent arg 'x-queue-type'"), (SinkError, "TR-7843")),
        (refused(406, "message size 17 is larger than configured max size 16"), (SinkError, "TR-7845")),
        (refused(405, "RESOURCE_LOCKED"), (SinkError, "TR-7843")),
        (refused(506, "RESOURCE_ERROR"), TRANSIENT),
        (TimeoutError(), TRANSIENT),
        (ConnectionRefusedError(111, "Connection refused"), TRANSIENT),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), (SinkError, "TR-7844")),
    ],
    ids=str,
)
def test_error_is_definite_only_if_the_server_says_so(error: Exception, expected: tuple[type, str]) -> None:
    found = failure(error, "")
    assert (type(found), found.code) == expected
    assert found.code in CATALOGUE
    assert found.hint


def test_server_that_blocks_is_told_by_its_reason() -> None:
    found = failure(exceptions.ConnectionBlockedTimeout("20 s"), "low on disk")
    assert (type(found), found.code, found.detail) == (TransientSinkError, "TR-7847", "low on disk")


def test_cause_is_the_last_address_that_answered() -> None:
    down = workflow.AMQPConnectorSocketConnectError(ConnectionRefusedError(111, "refused"))
    untrusted = ssl.SSLCertVerificationError(1, "unknown authority")
    tries: list[Any] = [down, workflow.AMQPConnectorTransportSetupError(untrusted), down]
    assert cause(workflow.AMQPConnectionWorkflowFailed(tries)) is untrusted
    assert cause(workflow.AMQPConnectionWorkflowFailed([down, OSError("no such host")])).args == (
        "no such host",
    )
    assert isinstance(cause(TimeoutError()), TimeoutError)
