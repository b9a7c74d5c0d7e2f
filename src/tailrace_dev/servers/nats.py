"""NATS with JetStream: `nats-server` from PATH, else Debian's package.

The server listens on the loopback interface, without a password: every user of the machine can read and write
its streams, so they are for test data.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping

from tailrace_dev.servers import debian
from tailrace_dev.servers.launch import Starter
from tailrace_dev.servers.program import Program, version_on_path
from tailrace_dev.servers.server import DevServer

_PACKAGES = dict.fromkeys(("sid", "bookworm"), ("nats-server",))


class NatsServer(DevServer):
    """A server without a password, for test data."""

    product = "nats"
    scheme = "nats"
    user = ""

    def _probe(self) -> str | None:
        try:
            with socket.create_connection((self.host, self.port), timeout=2) as connection:
                said = connection.recv(4096)
        except OSError as error:
            return str(error)
        return None if said.startswith(b"INFO") and b'"jetstream":true' in said else "no JetStream yet"


def _program(version: str | None) -> Program:
    seen: list[str] = []
    found = version_on_path("nats-server", r"v(\d+\.\d+\.\d+)", version, seen)
    if found:
        return Program([found[0]], found[1])
    root = debian.first_with("NATS", "nats-server", _PACKAGES, version, seen)
    return Program(root.command("usr/sbin/nats-server"), root.version)


def _prepare(server: NatsServer, program: Program, options: Mapping[str, str]) -> list[str]:
    del program
    server.data.mkdir(mode=0o700)
    store = {"store_dir": str(server.data)}
    given = {"host": server.host, "port": server.port, "jetstream": store, **options}
    settings = server.data / "nats.conf"
    settings.write_text(json.dumps(given, indent=1), encoding="utf-8")
    server.hand_over()
    return ["-c", str(settings)]


start_nats = Starter(NatsServer, _program, _prepare)
