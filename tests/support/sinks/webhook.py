"""A webhook: a row of the contract suite."""

from __future__ import annotations

import json
from typing import Any

from tailrace.config.message_sinks import WebhookSettings
from tailrace.sinks.messages.sink import MessageSink, message_sink
from tailrace.sinks.webhook.sink import WebhookSystem
from tests.support.http_receiver import Receiver, http_receiver
from tests.support.sinks.case import Change, SinkCase
from tests.support.sinks.kafka import changes_of


def received(receiver: Receiver) -> list[dict[str, Any]]:
    """Every message that was taken, with its table, target and batch."""
    requests = [json.loads(post.body) for post in list(receiver.posts) if post.status < 300]
    return [
        {**{name: request[name] for name in ("table", "target", "batch")}, **message}
        for request in requests
        for message in request["messages"]
    ]


def webhook(request: Any) -> SinkCase:
    opened = http_receiver()
    receiver = opened.__enter__()
    request.addfinalizer(lambda: opened.__exit__(None, None, None))
    settings = WebhookSettings(
        url=f"{receiver.url}/changes", topic_prefix="t", parallelism=2, decimal_handling_mode="string"
    )

    def changes(name: str) -> list[Change]:
        values = [json.dumps(m["value"]).encode() for m in received(receiver) if m["target"] == name]
        return list(changes_of(values))

    def open_(router: Any) -> MessageSink:
        return message_sink(settings, router, WebhookSystem(settings, router), "mysql")

    return SinkCase(open_, lambda _: None, changes=changes)
