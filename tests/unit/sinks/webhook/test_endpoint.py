"""What the webhook sink posts, to a real server."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tailrace.config.message_sinks import WebhookSettings
from tailrace.config.secret import Secret
from tailrace.errors import ConfigError, SinkError, TransientSinkError
from tailrace.sinks.webhook.bodies import head, portions
from tailrace.sinks.webhook.endpoint import Endpoint
from tests.support.http_receiver import Receiver, http_receiver

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with http_receiver() as found:
        yield found


def endpoint(receiver: Receiver, slept: list[float], **given: Any) -> Endpoint:
    made = Endpoint.of(WebhookSettings(url=f"{receiver.url}/in?token=t0psecret", topic_prefix="p", **given))
    made.sleep = slept.append
    return made


def messages(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([f'{{"id":{i}}}'.encode() if i else None for i in range(count)], pa.binary()),
            "value": pa.array([f'{{"n":"{"x" * i}"}}'.encode() for i in range(count)], pa.binary()),
            "seq": pa.array([f"{i:032}" for i in range(count)]),
            "op": pa.array(["c"] * count),
            "row": pa.nulls(count, pa.string()),
        }
    )


def test_requests_are_signed_as_standard_webhooks_are(receiver: Receiver) -> None:
    given = {"secret": Secret(SECRET), "headers": {"Authorization": "Bearer abc"}}
    endpoint(receiver, [], **given).post("msg_1", b"{}")
    (post,) = receiver.posts
    signed = f"msg_1.{post.headers['webhook-timestamp']}.".encode() + b"{}"
    expected = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    assert post.headers["webhook-signature"] == f"v1,{expected}"
    assert (post.headers["webhook-id"], post.headers["authorization"]) == ("msg_1", "Bearer abc")
    assert post.headers["content-type"] == "application/json"


def test_busy_server_is_asked_again_with_the_same_id_and_as_late_as_it_wants(receiver: Receiver) -> None:
    receiver.next_statuses = [429, 503]
    receiver.headers = {"Retry-After": "7"}
    slept: list[float] = []
    endpoint(receiver, slept).post("msg_2", b"{}")
    assert [post.headers["webhook-id"] for post in receiver.posts] == ["msg_2"] * 3
    assert slept == [7.0, 7.0]


def test_server_that_stays_busy_is_a_transient_error_without_the_urls_secret(receiver: Receiver) -> None:
    receiver.status = 500
    with pytest.raises(TransientSinkError) as caught:
        endpoint(receiver, []).post("msg_3", b"{}")
    assert caught.value.code == "TR-7821"
    assert "t0psecret" not in str(caught.value)
    assert len(receiver.posts) == 5


@pytest.mark.parametrize(("status", "code"), [(400, "TR-7822"), (401, "TR-7822"), (410, "TR-7822")])
def test_refused_message_is_a_definite_error(receiver: Receiver, status: int, code: str) -> None:
    receiver.status = status
    with pytest.raises(SinkError) as caught:
        endpoint(receiver, []).post("msg_4", b"{}")
    assert (caught.value.code, len(receiver.posts)) == (code, 1)
    assert not isinstance(caught.value, TransientSinkError)


def test_redirect_is_not_followed(receiver: Receiver) -> None:
    receiver.status, receiver.headers = 307, {"Location": f"{receiver.url}/elsewhere"}
    with pytest.raises(SinkError) as caught:
        endpoint(receiver, []).post("msg_5", b"{}")
    assert caught.value.code == "TR-7823"
    assert [post.path for post in receiver.posts] == ["/in?token=t0psecret"]


def test_server_that_is_away_is_a_transient_error() -> None:
    slept: list[float] = []
    made = Endpoint.of(WebhookSettings(url="http://127.0.0.1:9/x", topic_prefix="p"))
    made.sleep = slept.append
    with pytest.raises(TransientSinkError) as caught:
        made.post("msg_6", b"{}")
    assert (caught.value.code, len(slept)) == ("TR-7821", 4)


@pytest.mark.parametrize(("most_messages", "most_bytes"), [(1, 10_000), (3, 10_000), (100, 400), (100, 1)])
def test_bodies_hold_all_messages_in_order_within_their_limits(most_messages: int, most_bytes: int) -> None:
    start = head("s", 5, "shop.t", "t")
    found = list(portions(messages(10), start, most_messages, most_bytes))
    bodies = [json.loads(body) for _, _, body in found]
    told = [message for body in bodies for message in body["messages"]]
    assert [m["value"]["n"] for m in told] == ["x" * i for i in range(10)]
    assert [m["key"] for m in told] == [None, *({"id": i} for i in range(1, 10))]
    assert {(b["stream"], b["batch"], b["table"], b["target"]) for b in bodies} == {("s", 5, "shop.t", "t")}
    for (_, count, body), parsed in zip(found, bodies, strict=True):
        assert count == len(parsed["messages"]) <= most_messages
        assert len(body) <= most_bytes or count == 1


@pytest.mark.parametrize(
    "given",
    [
        {"url": "ftp://host/x"},
        {"url": "http://user:pw@host/x"},
        {"url": "http://host/x", "headers": {"Webhook-Id": "1"}},
        {"url": "http://host/x", "headers": {"a b": "1"}},
        {"url": "http://host/x", "tls_ca": "ca.pem"},
        {"url": "http://host/x", "timeout": 0},
    ],
)
def test_wrong_settings_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        WebhookSettings(topic_prefix="p", **given)


def test_secret_that_is_no_base64_is_refused_without_showing_it() -> None:
    settings = WebhookSettings(url="http://host/x", topic_prefix="p", secret=Secret("whsec_***!"))
    with pytest.raises(ConfigError) as caught:
        Endpoint.of(settings)
    assert "***!" not in str(caught.value)
