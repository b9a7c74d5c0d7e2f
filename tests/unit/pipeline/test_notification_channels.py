"""Channels take notifications; one that is dead or slow neither stops nor delays the stream."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.config.notifications import NotificationSettings
from tailrace.config.secret import Secret
from tailrace.errors import ConfigError
from tailrace.pipeline import notification_channels
from tailrace.pipeline.notification_channels import Apart, FileChannel, Function, LogChannel, Webhook
from tailrace.pipeline.notifications import Notification
from tests.support.wait import wait_until

CALLED: list[Any] = []


def take(value: dict[str, Any]) -> None:
    """A user's function."""
    CALLED.append(value)


def fail(value: dict[str, Any]) -> None:
    """A user's function that fails."""
    raise KeyError("no")


def lines(*ids: str, at: int = 1, batch: int = 1) -> list[tuple[Notification, str]]:
    found = [Notification(i, "Signal", "COMPLETED", {"batch": str(batch)}) for i in ids]
    return [(one, one.to_json(at)) for one in found]


@contextmanager
def web_server(status: int = 200, pause_s: float = 0.0) -> Iterator[tuple[str, list[Any]]]:
    posted: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            time.sleep(pause_s)
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append((json.loads(body)["id"], self.headers.get("Authorization")))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/hook", posted
        server.shutdown()


def ids_in(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def test_file_holds_a_line_each_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "made" / "n.jsonl"
    channel = FileChannel(str(path))
    channel.send(1, lines("a", "b"))
    channel.send(2, lines("c", batch=2))
    assert ids_in(path) == ["a", "b", "c"]
    assert path.stat().st_mode & 0o077 == 0


def test_file_has_the_lines_of_a_repeated_batch_once(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    FileChannel(str(path)).send(1, lines("a", "b", at=1))
    again = FileChannel(str(path))
    again.send(1, lines("a", "b", at=2))
    again.send(2, lines("a", at=3, batch=2))
    assert ids_in(path) == ["a", "b", "a"]


def test_file_with_a_cut_last_line_goes_on_with_whole_ones(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    (_, text), *_ = lines("a")
    path.write_text(text[:20])
    FileChannel(str(path)).send(1, lines("a"))
    assert path.read_text() == f"{text[:20]}\n{text}\n"


def test_log_has_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    LogChannel().send(1, lines("a"))
    told = [record.getMessage() for record in caplog.records if record.name == "tailrace.notifications"]
    assert [json.loads(text)["id"] for text in told] == ["a"]


def test_webhook_receives_each_with_the_headers() -> None:
    with web_server() as (url, posted):
        settings = NotificationSettings(webhook=Secret(url), webhook_headers={"Authorization": "Bearer x"})
        Webhook(settings).send(1, lines("a", "b"))
        assert posted == [("a", "Bearer x"), ("b", "Bearer x")]


def test_webhook_that_refuses_is_tried_again_then_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notification_channels, "_FIRST_PAUSE_S", 0.0)
    told: list[str] = []
    with web_server(status=500) as (url, posted):
        channel = Apart(Webhook(NotificationSettings(webhook=Secret(url))), told.append)
        channel.send(1, lines("a", "b"))
        wait_until(lambda: len(posted) == 6, 10, "every attempt")
        channel.close()
    assert [id_ for id_, _ in posted] == ["a", "a", "a", "b", "b", "b"]
    assert len(told) == 1
    assert "HTTP 500" in told[0]


def test_dead_webhook_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notification_channels, "_LAST_S", 0.1)
    monkeypatch.setattr(notification_channels, "_MOST_WAITING", 5)
    told: list[str] = []
    with web_server(pause_s=2.0) as (url, _):
        channel = Apart(Webhook(NotificationSettings(webhook=Secret(url), webhook_timeout=1)), told.append)
        began = time.monotonic()
        for batch in range(20):
            channel.send(batch, lines("a", "b"))
        channel.close()
        assert time.monotonic() - began < 1.0
    assert "wait already" in told[0]


def test_function_is_called_with_each() -> None:
    CALLED.clear()
    channel = Apart(Function(f"{__name__}:take"), pytest.fail)
    channel.send(1, lines("a"))
    channel.close()
    assert [value["id"] for value in CALLED] == ["a"]


def test_function_that_fails_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notification_channels, "_FIRST_PAUSE_S", 0.0)
    told: list[str] = []
    channel = Apart(Function(f"{__name__}:fail"), told.append)
    channel.send(1, lines("a"))
    channel.close()
    assert "KeyError" in told[0]


@pytest.mark.parametrize("path", ["no.such:thing", f"{__name__}:nothing"])
def test_function_that_is_not_there_is_an_error_at_the_start(path: str) -> None:
    with pytest.raises(ConfigError, match="cannot be imported"):
        Function(path)


@pytest.mark.parametrize(
    "settings",
    [
        {"file": "s3://b/x"},
        {"webhook": Secret("ftp://h")},
        {"webhook": Secret("http://h"), "webhook_timeout": 0},
        {"webhook_timeout": 3},
        {"call": "no function"},
        {"bootstrap_servers": "h:1"},
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        NotificationSettings(**settings)
