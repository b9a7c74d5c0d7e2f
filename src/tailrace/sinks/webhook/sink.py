"""A webhook: changes in batches of JSON, posted one request after the other, at least once.

Each writer waits for the answer to a request before it sends the next one, so the changes of a key come in
their order. A request that was not answered is sent again, with the same `webhook-id`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa

from tailrace.config.message_sinks import WebhookSettings
from tailrace.failpoints import failpoint
from tailrace.model.table import TableId
from tailrace.sinks.base import CellBatch, Delivery
from tailrace.sinks.messages.outgoing import identities
from tailrace.sinks.messages.writer import MessageShare
from tailrace.sinks.route import Router
from tailrace.sinks.webhook.bodies import head, portions, request_id
from tailrace.sinks.webhook.endpoint import Endpoint


@dataclass(frozen=True)
class WebhookChannels:
    """See `Channels`.

    Args:
        endpoint: where to.
        most_messages: most messages of a request.
        most_bytes: most bytes of a request.
    """

    endpoint: Endpoint
    most_messages: int
    most_bytes: int

    def open(self, share: MessageShare, writer: int, *, may_repeat: bool) -> WebhookChannel:  # noqa: ARG002 - nobody tells
        """See `Channels`."""
        return WebhookChannel(self, share)


@dataclass(frozen=True)
class WebhookChannel:
    """See `MessageChannel`.

    Args:
        to: where to.
        share: the batch's settings.
    """

    to: WebhookChannels
    share: MessageShare

    def send(self, table: str, messages: pa.RecordBatch) -> None:
        """See `MessageChannel`."""
        share = self.share
        start = head(share.stream, share.batch, table, share.targets[table])
        known = identities(messages, table)
        for first, count, body in portions(messages, start, self.to.most_messages, self.to.most_bytes):
            id_ = request_id(known.slice(first, count), share.stream, share.batch)
            self.to.endpoint.post(id_, body)
            failpoint("sink.produced")

    def finish(self) -> None:
        """See `MessageChannel`: each answer says that its messages are taken."""

    def close(self) -> None:
        """See `MessageChannel`: connections last as long as a request."""


class WebhookSystem:
    """See `System`.

    Args:
        settings: the sink's.
        router: names the targets.
    """

    def __init__(self, settings: WebhookSettings, router: Router) -> None:
        self._settings = settings
        self._router = router
        self._endpoint = Endpoint.of(settings)

    @property
    def delivery(self) -> Delivery:
        """See `System`."""
        return Delivery.AT_LEAST_ONCE

    def target(self, table: TableId) -> str:
        """See `System`."""
        return self._router.target(table)

    def existing(self, targets: Collection[str]) -> Collection[str]:
        """See `System`: whatever the receiver makes of them, nothing is created."""
        return targets

    def begin(self, batch: CellBatch, writers: int, *, is_first: bool) -> int:  # noqa: ARG002 - nothing is noted
        """See `System`."""
        return writers

    def channels(self, targets: Collection[str], missing: Collection[str]) -> WebhookChannels:  # noqa: ARG002
        """See `System`."""
        settings = self._settings
        return WebhookChannels(self._endpoint, settings.max_request_messages, settings.max_request_bytes)

    def close(self) -> None:
        """See `System`: there is nothing to release."""
