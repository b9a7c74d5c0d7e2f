"""Tells what each batch did: to the channels of `notifications`, and answers to signals to the user.

A notification is made once the sink has its batch, of the two offsets that bound it. If the process ends
before Spark has recorded the batch as done, the batch is repeated, and so are its notifications, with the
same ids.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tailrace.config.model import Pipeline
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import TailraceError
from tailrace.model.signal import Answer
from tailrace.pipeline.batch_run import BatchRun
from tailrace.pipeline.kafka_access import kafka_settings
from tailrace.pipeline.notification_channels import (
    Apart,
    Channel,
    FileChannel,
    Function,
    LogChannel,
    NotificationTopic,
    Webhook,
)
from tailrace.pipeline.notifications import Batch, Notification, notifications, of_sinks
from tailrace.printable import printable
from tailrace.sinks.base import Written
from tailrace.spark.checkpoint import Checkpoint


class Notifier:
    """A watcher of the stream; a context manager.

    Args:
        pipeline: the pipeline.
        tell: tells the user something.

    Raises:
        ConfigError: a channel cannot be set up.
    """

    def __init__(self, pipeline: Pipeline, tell: Callable[[str], None]) -> None:
        self._name = pipeline.settings.name
        self._checkpoint = Checkpoint(pipeline.checkpoint)
        self._tell = tell
        self._channels = channels(pipeline, tell)
        #: The newest batch and its end.
        self._last: tuple[int, StreamOffset] | None = None
        #: Channels of which the user knows that they fail.
        self._failing: set[str] = set()
        self._sending = threading.Lock()
        #: What is parked of sinks, by the entry's id.
        self._parked_sinks: Mapping[str, Mapping[str, Any]] = {}

    def __enter__(self) -> Notifier:
        return self

    def __exit__(self, *_: object) -> None:
        for channel in self._channels:
            channel.close()

    def on_written(self, batch_id: int, written: list[Written]) -> None:  # noqa: ARG002
        """See `Watcher`."""
        former, new = self._end_of(batch_id - 1), self._end_of(batch_id)
        if new is None:
            return
        self._last = batch_id, new
        for answer in new.answers:
            if (text := _in_words(answer)) is not None:
                self._tell(text)
        if not self._channels or former is None:
            return
        batch = Batch(self._checkpoint.query_id() or "", self._name, batch_id)
        self.send(batch_id, notifications(batch, former, new))

    def send(self, batch_id: int, found: Sequence[Notification]) -> None:
        """Send notifications; any thread may do it."""
        with self._sending:
            self._send(batch_id, found)

    def _send(self, batch_id: int, found: Sequence[Notification]) -> None:
        now_ms = time.time_ns() // 1_000_000
        lines = [(one, one.to_json(now_ms)) for one in found]
        for channel in self._channels if lines else ():
            try:
                channel.send(batch_id, lines)
                self._failing.discard(channel.name)
            except OSError as error:
                if channel.name not in self._failing:
                    self._failing.add(channel.name)
                    self._tell(f"notifications are lost: channel `{channel.name}` fails: {error.strerror}")

    def _end_of(self, batch_id: int) -> StreamOffset | None:
        """The offset at a batch's end; None if the checkpoint does not have it any more."""
        if self._last is not None and self._last[0] == batch_id:
            return self._last[1]
        end = self._checkpoint.end_of(batch_id) if batch_id >= 0 else StreamOffset().to_json()
        return None if end is None else StreamOffset.from_json(end)

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """See `Watcher`. Of sinks that a former run has parked, each run tells again, with the same ids."""
        parked = {
            entry["id"]: {**entry, "sink": name}
            for name, entries in (progress.get("parkedSinks") or {}).items()
            for entry in entries
        }
        found = of_sinks(self._name, self._parked_sinks, parked)
        self._parked_sinks = parked
        if found:
            self.send(int(progress.get("batchId", 0)), found)

    def on_batch(self, run: BatchRun) -> None:
        """See `Watcher`."""

    def on_restart(self, error: TailraceError, attempt: int, pause_s: float) -> None:
        """See `Watcher`."""

    def on_trouble(self, error: TailraceError | None) -> None:
        """See `Watcher`."""

    def on_step(self, step: str) -> None:
        """See `Watcher`."""

    def on_notice(self, text: str) -> None:
        """See `Watcher`."""


def channels(pipeline: Pipeline, tell: Callable[[str], None]) -> Sequence[Channel]:
    """The channels of a pipeline's notifications.

    Raises:
        ConfigError: one cannot be set up.
    """
    settings = pipeline.notifications
    found: list[Channel] = []
    if settings.log:
        found.append(LogChannel())
    if settings.file is not None:
        found.append(FileChannel(settings.file))
    if settings.webhook is not None:
        found.append(Apart(Webhook(settings), tell))
    if settings.call is not None:
        found.append(Apart(Function(settings.call), tell))
    if settings.topic is not None:
        client = kafka_settings(pipeline, "notifications", settings.bootstrap_servers, settings.properties)
        found.append(Apart(NotificationTopic(client, settings.topic), tell))
    return found


def _in_words(answer: Answer) -> str | None:
    """An answer for the terminal; None if what the signal does is seen there anyway."""
    name = f"signal `{printable(answer.signal)}` ({printable(answer.id)})"
    about = f": {', '.join(map(printable, answer.tables))}" if answer.tables else ""
    if answer.signal == "log" and answer.status == "COMPLETED":
        return printable(answer.reason)
    if answer.status == "ABORTED":
        return f"{name} is refused: {printable(answer.reason)}"
    if answer.status == "UNKNOWN_SCHEMA":
        return f"{name}{about}: {answer.reason}"
    return (
        f"{name}: {answer.status.lower()}{about}{f' ({printable(answer.reason)})' if answer.reason else ''}"
    )
