"""By which names a server is reached, and which proxies it believes."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient

from tailrace.control.api.app import create_app
from tailrace.control.front import Front
from tailrace.control.http import HttpServer
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.operations import Control
from tailrace.control.tokens import Attempts
from tailrace.errors import ConfigError
from tests.support.certificates import Authority


@contextmanager
def served(tmp_path: Path, front: Front) -> Iterator[tuple[str, Control]]:
    database = ControlDatabase(f"sqlite:///{tmp_path}/t.db")
    database.prepare()
    control = Control(database, tmp_path)
    with HttpServer(create_app(control), "127.0.0.1:0", front=front) as server:
        yield server.url, control
    database.close()


def ask(url: str, path: str, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    connection.putrequest("GET", path, skip_host="host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if text.startswith(b"{") else text


def test_page_of_another_name_is_refused(tmp_path: Path) -> None:
    """An attacker's name that stands for this address: DNS rebinding."""
    front = Front("https://tailrace.example", ["*.svc.cluster.local"])
    with served(tmp_path, front) as (url, _):
        for host in ("evil.example", "evil.example:8770", "tailrace.example.evil.test", "xn--e1afmkfd.test"):
            status, problem = ask(url, "/sign-in", host=host)
            assert status == 421, host
            assert problem["code"] == "TR-8471"
            assert "evil" not in json.dumps(problem)
            assert ask(url, "/api/v1/me", host=host, authorization="Bearer tr_" + "A" * 43)[0] == 421
        for host in ("a b", "[::1", "127.0.0.1@evil.test", "[evil.test]", "127.0.0.1:x", ""):
            assert ask(url, "/sign-in", host=host)[0] in (400, 421), host
        for host in (
            *("localhost", "LOCALHOST:1", "127.0.0.1", "10.1.2.3:8770", "[::1]:8770", "[fd00::1]"),
            *("tailrace.example", "Tailrace.Example.:443", "tailrace.prod.svc.cluster.local"),
        ):
            assert ask(url, "/sign-in", host=host)[0] == 200, host
        assert ask(url, "/healthz", host="evil.example")[0] == 200


def test_name_of_the_certificate_is_allowed(tmp_path: Path) -> None:
    certificate, _ = Authority(tmp_path).sign("server", "tailrace.example", "*.lake.example")
    app = Front().before(refuse_nothing, "0.0.0.0", certificate)
    assert statuses(app, "tailrace.example", "a.lake.example", "evil.example") == [200, 200, 421]


async def refuse_nothing(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def statuses(app: Any, *hosts: str) -> list[int]:
    client = TestClient(app)
    return [client.get("/sign-in", headers={"host": host}).status_code for host in hosts]


def test_clients_behind_a_trusted_proxy_are_counted_one_by_one(tmp_path: Path) -> None:
    with served(tmp_path, Front(proxies=["127.0.0.0/8", "10.0.0.0/8"])) as (url, control):
        control.attempts = Attempts(most=2)

        def status(forwarded: str) -> int:
            wrong = "Bearer tr_" + "A" * 43
            return ask(url, "/api/v1/me", authorization=wrong, x_forwarded_for=forwarded)[0]

        assert [status("203.0.113.5") for _ in range(3)] == [401, 401, 429]
        assert status("203.0.113.6") == 401
        # what the client itself claims stands before what the proxy has seen
        assert status("198.51.100.1, 203.0.113.5, 10.0.0.9") == 429
        # a client has a network of IPv6, not an address
        assert [status(f"2001:db8:1:1::{n}") for n in range(3)] == [401, 401, 429]
        assert status("2001:db8:1:2::1") == 401


def test_nobody_else_is_believed(tmp_path: Path) -> None:
    with served(tmp_path, Front(proxies=["10.0.0.0/8"])) as (url, control):
        control.attempts = Attempts(most=2)
        wrong = "Bearer tr_" + "A" * 43
        found = [
            ask(url, "/api/v1/me", authorization=wrong, x_forwarded_for=f"203.0.113.{n}")[0] for n in range(3)
        ]
        assert found == [401, 401, 429]


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "tailrace.example"},
        {"url": "ftp://tailrace.example"},
        {"url": "https://u:p@tailrace.example"},
        {"url": "https://tailrace.example/app"},
        {"url": "https://tailrace.example:x"},
        {"names": ["https://tailrace.example"]},
        {"names": ["tailrace.example:80"]},
        {"names": ["*.*"]},
        {"proxies": ["*"]},
        {"proxies": ["proxy.example"]},
        {"proxies": ["10.0.0.1/8"]},
    ],
)
def test_wrong_setting_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        Front(**wrong)
    assert refused.value.code == "TR-8478"
