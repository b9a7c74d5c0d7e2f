"""A command or a webhook that hears of a failed pipeline."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tailrace.config.secret import Secret
from tailrace.errors import SinkError
from tailrace.pipeline.on_failure import tell_failure

ERROR = SinkError("no such type", "BIT", "drop it", code="TR-7010", table="shop.t")
WANTED = {
    "event": "failed",
    "pipeline": "shop",
    "code": "TR-7010",
    "table": "shop.t",
    "message": "no such type",
    "detail": "BIT",
    "hint": "drop it",
}


def told(on_failure: str) -> list[str]:
    notices: list[str] = []
    tell_failure(Secret(on_failure), "shop", ERROR, notices.append)
    return notices


def test_command_receives_the_error_at_its_standard_input(tmp_path: Path) -> None:
    script = tmp_path / "a script.py"
    script.write_text(
        "import os, pathlib, sys\n"
        "pathlib.Path(sys.argv[1]).write_text(os.environ['TAILRACE_CODE'] + sys.stdin.read())\n"
    )
    out = tmp_path / "out; echo"
    assert told(f"{sys.executable} '{script}' '{out}'") == []
    text = out.read_text()
    assert text.startswith("TR-7010{")
    found = json.loads(text.removeprefix("TR-7010"))
    assert {name: found[name] for name in WANTED} == WANTED


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("/nowhere/program", "No such file or directory"),
        (f"{sys.executable} -c 'raise SystemExit(3)'", "exit code 3"),
        ("'unbalanced", "No closing quotation"),
        ("${env:TAILRACE_NO_SUCH_VARIABLE}", "TAILRACE_NO_SUCH_VARIABLE"),
    ],
)
def test_command_that_does_not_work_is_named_as_the_setting(command: str, problem: str) -> None:
    (notice,) = told(command)
    assert notice.startswith("`pipeline.on-failure` has not worked: ")
    assert problem in notice


@pytest.fixture
def webhook() -> Iterator[Any]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            server: Any = self.server
            server.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(server.status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server: Any = HTTPServer(("127.0.0.1", 0), Handler)
    server.received, server.status = [], 204
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_webhook_receives_the_error(webhook: Any) -> None:
    url = f"http://127.0.0.1:{webhook.server_port}/hook?token=secret"
    assert told(url) == []
    (found,) = webhook.received
    assert {name: found[name] for name in WANTED} == WANTED
    webhook.status = 500
    assert told(url) == ["`pipeline.on-failure` has not worked: the webhook answered 500"]


def test_webhook_that_does_not_answer_is_not_shown() -> None:
    (notice,) = told("http://127.0.0.1:1/hook?token=secret")
    assert "secret" not in notice
    assert "does not answer" in notice
