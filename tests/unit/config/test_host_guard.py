"""Names that stand for other addresses than when the policy looked them up."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tailrace.config import host_guard
from tailrace.control.policy import Policy
from tailrace.errors import ConfigError
from tailrace.sources.network import Deadline, open_socket

SPEC = """\
source: {url: 'mysql://NAME:3306/shop', user: u, password: '${env:TAILRACE_SECRET_X}', tables: 'a.b'}
sink: {type: delta, path: lake}
"""


@pytest.fixture
def stands_for(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """What names stand for, now; `guard` is taken back at the end."""
    names: dict[str, str] = {}
    real = socket.getaddrinfo

    def look_up(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        text = host.decode() if isinstance(host, bytes) else host
        return real(names.get(text, text), port, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(host_guard, "_unguarded", look_up)
    monkeypatch.setattr(host_guard, "_named", set())
    monkeypatch.setattr(host_guard, "_patterns", ())
    monkeypatch.setattr(host_guard, "_file", None)
    monkeypatch.delenv(host_guard.VARIABLE, raising=False)
    yield names
    os.environ.pop(host_guard.VARIABLE, None)


def connect(host: str, port: int) -> None:
    open_socket(host, port, Deadline(5)).close()


def connect_plainly(host: str, port: int) -> None:
    socket.create_connection((host, port), 5).close()


def connect_later(host: str, port: int) -> None:
    async def opened() -> None:
        _, writer = await asyncio.open_connection(host, port)
        writer.close()

    asyncio.run(opened())


def connect_as_a_driver(host: str, port: int) -> None:
    with pytest.raises(pymysql.OperationalError):  # nobody speaks MySQL there, but somebody answers
        pymysql.connect(host=host, port=port, connect_timeout=5, read_timeout=1)


@pytest.fixture
def port() -> Iterator[int]:
    """A port of 127.0.0.1 at which somebody answers, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("way", [connect, connect_plainly, connect_later, connect_as_a_driver])
def test_name_that_stands_for_another_address_is_not_connected_to(
    way: Callable[[str, int], None], stands_for: dict[str, str], port: int, tmp_path: Path
) -> None:
    patterns = ["127.0.0.0/8"]
    host_guard.guard(patterns)
    stands_for["db.example"] = "127.0.0.1"
    policy = Policy(hosts=patterns, look_up=lambda _: [ipaddress.ip_address("127.0.0.1")])
    policy.require(SPEC.replace("NAME", "DB.example").replace("lake", f"{tmp_path}/lake"), tmp_path)
    way("db.example", port)
    for address in ("10.0.0.1", "169.254.169.254", "::ffff:169.254.169.254"):
        stands_for["db.example"] = address  # the name's owner answers differently now
        with pytest.raises(ConfigError) as refused:
            way("db.example", port)
        assert refused.value.code == "TR-8479"
    stands_for["db.example"] = "127.0.0.1"
    way("db.example", port)


def test_name_that_was_handed_out_never_stands_for_the_cloud_s_credentials(
    stands_for: dict[str, str], port: int
) -> None:
    host_guard.guard(["db.example"])
    stands_for["broker.example"] = "127.0.0.1"
    connect_plainly("broker.example", port)
    stands_for["broker.example"] = "169.254.169.254"
    with pytest.raises(ConfigError):
        socket.getaddrinfo("broker.example", 80)
    # libraries of clouds ask there for the server's own identity
    assert socket.getaddrinfo("169.254.169.254", 80)
    stands_for["metadata.google.internal"] = "169.254.169.254"
    assert socket.getaddrinfo("metadata.google.internal", 80)
    host_guard.named("metadata.google.internal")
    with pytest.raises(ConfigError):
        socket.getaddrinfo("metadata.google.internal", 80)
    assert socket.getaddrinfo(None, 80)


def test_children_guard_themselves(stands_for: dict[str, str]) -> None:
    host_guard.guard(["10.0.0.0/8"])
    host_guard.named("localhost")
    given = json.loads(os.environ[host_guard.VARIABLE])
    assert given == {"patterns": ["10.0.0.0/8"], "named": ["localhost"], "file": None}
    script = (
        "import socket\nfrom tailrace.config.host_guard import guard_from_environment\n"
        "guard_from_environment()\nsocket.getaddrinfo('localhost', 80)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert "TR-8479" in done.stderr or "stands for an address" in done.stderr
    assert done.returncode


def test_children_hear_of_names_after_they_have_started(stands_for: dict[str, str], tmp_path: Path) -> None:
    assert stands_for == {}
    host_guard.guard(["10.0.0.0/8"])
    host_guard.keep_names_in(tmp_path / "hosts.json")
    script = (
        "import socket\nfrom tailrace.config.host_guard import guard_from_environment\n"
        "guard_from_environment()\nsocket.getaddrinfo('localhost', 80)\nprint('allowed', flush=True)\n"
        "input()\nsocket.getaddrinfo('localhost', 80)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=dict(os.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "allowed\n"
        host_guard.named("localhost")
        _, errors = child.communicate("\n", 30)
    assert "stands for an address" in errors
    assert child.returncode


def test_nobody_is_guarded_unasked() -> None:
    assert host_guard.VARIABLE not in os.environ
    before = socket.getaddrinfo
    host_guard.guard_from_environment()
    assert socket.getaddrinfo is before
