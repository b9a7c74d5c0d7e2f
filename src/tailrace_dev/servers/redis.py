"""Redis: `redis-server` from PATH, else Debian's package.

The server listens on the loopback interface, without a password: every user of the machine can read and write
its keys, so they are for test data. Each command is in its log before it is answered: what was written
survives SIGKILL.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from tailrace_dev.servers import debian
from tailrace_dev.servers.launch import Starter
from tailrace_dev.servers.program import Program, version_on_path
from tailrace_dev.servers.server import DevServer

_PACKAGES = dict.fromkeys(("sid", "bookworm"), ("redis-server",))
#: Default settings of a server.
DEFAULTS = {"appendonly": "yes", "appendfsync": "no", "save": "", "daemonize": "no"}


class RedisServer(DevServer):
    """A server without a password, for test data."""

    product = "redis"
    scheme = "redis"
    user = ""

    def _probe(self) -> str | None:
        try:
            with socket.create_connection((self.host, self.port), timeout=2) as connection:
                connection.sendall(b"PING\r\n")
                answer = connection.recv(64)
        except OSError as error:
            return str(error)
        # a server that wants a password answers, too
        return None if answer.startswith((b"+PONG", b"-NOAUTH")) else answer.decode(errors="replace").strip()


def _program(version: str | None) -> Program:
    seen: list[str] = []
    found = version_on_path("redis-server", r"v=(\d+\.\d+\.\d+)", version, seen)
    if found:
        return Program([found[0]], found[1])
    root = debian.first_with("Redis", "redis-server", _PACKAGES, version, seen)
    return Program(root.command("usr/bin/redis-server"), root.version)


def _prepare(server: RedisServer, program: Program, options: Mapping[str, str]) -> list[str]:
    del program
    server.data.mkdir(mode=0o700)
    server.hand_over()
    settings = {"bind": server.host, "port": str(server.port), "dir": str(server.data), **DEFAULTS, **options}
    return [word for name, value in settings.items() for word in (f"--{name}", value)]


start_redis = Starter(RedisServer, _program, _prepare)
