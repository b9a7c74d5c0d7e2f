"""Prometheus from Debian's package, unpacked into a private root."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace_dev.servers.debian import available, unpack
from tests.support.wait import wait_until


@dataclass(frozen=True)
class Prometheus:
    """A running server.

    Args:
        url: its address.
    """

    url: str

    def get(self, path: str, **query: str) -> Any:
        """The data of an answer of its HTTP API."""
        address = f"{self.url}{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None
        assert found["status"] == "success", found
        return found["data"]

    def values(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The labels and values of an expression now."""
        found = self.get("/api/v1/query", query=expression)
        return [(item["metric"], float(item["value"][1])) for item in found["result"]]


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def program(name: str) -> Path:
    """`prometheus` or `promtool`; both need nothing but the C library."""
    root = unpack("bookworm", ("prometheus",)) if available() else None
    assert root is not None, "this machine cannot download Debian's package `prometheus`"
    return root.path / "usr" / "bin" / name


@contextmanager
def prometheus(config: Path) -> Iterator[Prometheus]:
    """A server with a configuration; its data lies beside that."""
    port = free_port()
    arguments = [
        str(program("prometheus")),
        f"--config.file={config}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--storage.tsdb.path={config.parent / 'data'}",
        "--log.level=warn",
    ]
    with (config.parent / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log)
    server = Prometheus(f"http://127.0.0.1:{port}")

    def is_ready() -> bool:
        try:
            urllib.request.urlopen(f"{server.url}/-/ready", timeout=5).close()
        except OSError:
            return False
        return True

    try:
        wait_until(is_ready, 60, "Prometheus")
        yield server
    finally:
        process.terminate()
        process.wait(30)
