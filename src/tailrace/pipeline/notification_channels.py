"""Where notifications go: the log, a file, a webhook, a function of the user's.

The log and the file are written with the batch. What may be slow or dead has a thread and a bounded queue of
its own (`Apart`), so that it can neither delay nor stop the stream: notifications that do not fit, or are
refused `_ATTEMPTS` times, are dropped, with one warning.
"""

from __future__ import annotations

import http.client
import importlib
import json
import logging
import queue
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tailrace.config.notifications import NotificationSettings, is_http
from tailrace.config.secret import resolve_all
from tailrace.errors import ConfigError
from tailrace.pipeline.log_output import in_this_log
from tailrace.pipeline.notifications import Notification
from tailrace.printable import printable
from tailrace.private import make_private_directory, open_private
from tailrace.sinks.bounded_http import send

#: Most notifications that wait for a slow channel.
_MOST_WAITING = 10_000
_ATTEMPTS = 3
#: How long Kafka may take to accept a notification, seconds.
_TOPIC_S = 10.0
_FIRST_PAUSE_S = 1.0
#: How long the end of a pipeline waits for what still waits, seconds.
_LAST_S = 5.0
#: Bytes from a file's end in which its last line is looked for.
_TAIL_BYTES = 1 << 20
_log = logging.getLogger("tailrace.notifications")


class Channel(Protocol):
    """Takes the notifications of a batch; raises OSError or another error where it cannot."""

    name: str

    def send(self, batch: int, notifications: Sequence[tuple[Notification, str]]) -> None:
        """Take notifications, each with its JSON."""

    def close(self) -> None:
        """Let go of what the channel holds."""


class LogChannel:
    """Writes each to Python's log `tailrace.notifications`, which `tailrace run` has in its log file."""

    name = "log"

    def __init__(self) -> None:
        _log.setLevel(logging.INFO)

    def send(self, batch: int, notifications: Sequence[tuple[Notification, str]]) -> None:  # noqa: ARG002
        """See `Channel`."""
        for _, text in notifications:
            _log.info("%s", text)

    def close(self) -> None:
        """See `Channel`."""


class FileChannel:
    """Appends a JSON line for each, those of a batch by one write.

    The first batch after a start may be a repeated one: of it, lines that the file's end has are left out.

    Args:
        path: the file.
    """

    name = "file"

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._is_first = True

    def send(self, batch: int, notifications: Sequence[tuple[Notification, str]]) -> None:  # noqa: ARG002
        """See `Channel`."""
        make_private_directory(self._path.parent)
        before, is_cut = _tail(self._path) if self._is_first else (set(), False)
        lines = "".join(f"{text}\n" for _, text in notifications if _told(text) not in before)
        with open(self._path, "ab", opener=open_private) as file:
            file.write((f"\n{lines}" if is_cut else lines).encode())
        self._is_first = False

    def close(self) -> None:
        """See `Channel`."""


def _tail(path: Path) -> tuple[set[str], bool]:
    """What the last lines of a file tell, and whether the last one was not written to its end."""
    if not path.exists():
        return set(), False
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
        data = file.read()
    return {_told(line) for line in data.decode("utf-8", "replace").splitlines()}, bool(data) and data[
        -1:
    ] != b"\n"


def _told(line: str) -> str:
    """A notification's JSON without the time, which differs if its batch is repeated."""
    return line.rpartition(', "timestamp"')[0]


class Webhook:
    """Posts each to an address, as JSON.

    Args:
        settings: the address and headers.

    Raises:
        ConfigError: a secret cannot be resolved, or the address is none.
    """

    name = "webhook"

    def __init__(self, settings: NotificationSettings) -> None:
        assert settings.webhook is not None
        self._url = settings.webhook.resolve("`notifications.webhook`")
        if not is_http(self._url):
            raise ConfigError(
                "`notifications.webhook` is wrong",
                "needed: http://HOST/... or https://HOST/...",
                code="TR-1010",
            )
        given = resolve_all(settings.webhook_headers, "notifications.webhook-headers")
        self._headers = {"Content-Type": "application/json", "User-Agent": "tailrace", **given}
        self._timeout_s = float(settings.webhook_timeout)

    def send(self, batch: int, notifications: Sequence[tuple[Notification, str]]) -> None:  # noqa: ARG002
        """See `Channel`."""
        for _, text in notifications:
            answer = send(
                self._url,
                text.encode(),
                self._headers,
                tls=ssl.create_default_context,
                timeout_s=self._timeout_s,
            )
            if not 200 <= answer.status < 300:
                raise http.client.HTTPException(f"HTTP {answer.status}")

    def close(self) -> None:
        """See `Channel`."""


class Function:
    """Calls a function of the user's with each notification, a dict.

    Args:
        path: `package.module:name`.

    Raises:
        ConfigError: there is no such function.
    """

    name = "call"

    def __init__(self, path: str) -> None:
        module, _, name = path.partition(":")
        try:
            self._function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"`notifications.call` cannot be imported: `{path}`",
                str(error),
                "its module must be on PYTHONPATH where `tailrace run` is started",
                code="TR-1069",
            ) from None

    def send(self, batch: int, notifications: Sequence[tuple[Notification, str]]) -> None:  # noqa: ARG002
        """See `Channel`."""
        for _, text in notifications:
            self._function(json.loads(text))

    def close(self) -> None:
        """See `Channel`."""


class NotificationTopic:
    """Sends each to a Kafka topic, as Debezium's channel `sink` with JSON: the key is {"id": ...}.

    Args:
        client: librdkafka's settings.
        topic: the topic.
    """

    name = "topic"

    def __init__(self, client: Mapping[str, str], topic: str) -> None:
        from confluent_kafka import Producer  # noqa: PLC0415 - an extra

        self._topic = topic
        self._producer = Producer(
            {**client, "enable.idempotence": "true", "message.timeout.ms": str(int(_TOPIC_S * 1000))}
        )

    def send(self, batch: int, notifications: Sequence[tuple[Notification, str]]) -> None:  # noqa: ARG002
        """See `Channel`."""
        lost: list[str] = []
        for one, text in notifications:
            self._producer.produce(
                self._topic,
                text.encode(),
                json.dumps({"id": one.id}).encode(),
                on_delivery=lambda error, _: lost.append(str(error)) if error is not None else None,
            )
        left = self._producer.flush(2 * _TOPIC_S)
        if left or lost:
            raise TimeoutError(lost[0] if lost else f"not delivered within {2 * _TOPIC_S:g} s")

    def close(self) -> None:
        """See `Channel`."""


class Apart:
    """A channel with a thread and a bounded queue of its own.

    Args:
        channel: the channel.
        tell: tells the user that notifications were dropped.
    """

    def __init__(self, channel: Channel, tell: Callable[[str], None]) -> None:
        self.name = channel.name
        self._channel = channel
        self._tell = tell
        self._waiting: queue.Queue[tuple[int, Notification, str]] = queue.Queue(_MOST_WAITING)
        self._closing = threading.Event()
        self._is_told = False
        self._thread = threading.Thread(
            target=in_this_log(self._run), name=f"notify-{channel.name}", daemon=True
        )
        self._thread.start()

    def send(self, batch: int, notifications: Sequence[tuple[Notification, str]]) -> None:
        """See `Channel`; never waits."""
        for one, text in notifications:
            try:
                self._waiting.put_nowait((batch, one, text))
            except queue.Full:
                self._dropped(f"{_MOST_WAITING:,} notifications wait already")
                return

    def close(self) -> None:
        """Wait a while for what waits, then leave it."""
        deadline = time.monotonic() + _LAST_S
        self._closing.set()
        self._thread.join(max(deadline - time.monotonic(), 0))

    def _run(self) -> None:
        while not (self._closing.is_set() and self._waiting.empty()):
            try:
                batch, one, text = self._waiting.get(timeout=0.1)
            except queue.Empty:
                continue
            self._deliver(batch, one, text)
        self._channel.close()

    def _deliver(self, batch: int, one: Notification, text: str) -> None:
        pause = _FIRST_PAUSE_S
        for attempt in range(_ATTEMPTS):
            try:
                self._channel.send(batch, [(one, text)])
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything
                problem = f"{type(error).__name__}: {getattr(error, 'reason', error)}"
                if attempt + 1 < _ATTEMPTS and not self._closing.wait(pause):
                    pause *= 2
                    continue
                self._dropped(problem)
            else:
                self._is_told = False
            return

    def _dropped(self, problem: str) -> None:
        if not self._is_told:
            self._is_told = True
            self._tell(f"notifications are lost: channel `{self.name}` fails: {printable(problem)[:300]}")
