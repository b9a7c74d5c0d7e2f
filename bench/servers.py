"""The server that is measured: one of our own, or one that is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pymysql

from bench import data
from tailrace_dev.servers import start_mysql


@dataclass(frozen=True)
class Server:
    """A running MySQL, and how to reach it as a user that may do everything.

    Args:
        host: its host.
        port: its port.
        user: the user.
        password: the user's password.
        pid: its process here, None for one that is not ours.
    """

    host: str
    port: int
    user: str
    password: str
    pid: int | None

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of `pymysql.connect`."""
        return {"host": self.host, "port": self.port, "user": self.user, "password": self.password}

    def connect(self) -> pymysql.Connection[Any]:
        """A connection with autocommit; in the benchmark's database if it is there already."""
        connection = pymysql.connect(**self.arguments, autocommit=True)
        with connection.cursor() as cursor:
            if cursor.execute("SHOW DATABASES LIKE %s", (data.DATABASE,)):
                cursor.execute(f"USE {data.DATABASE}")
        return connection

    def options(self, table: str, shape: str, **more: str) -> dict[str, str]:
        """Options of `format("tailrace")` for one of the benchmark's tables; no TLS: the drains have none."""
        return {
            "url": f"mysql://{self.host}:{self.port}",
            "user": self.user,
            "password": self.password,
            "tables": f"{data.DATABASE}\\.{table}",
            "shape": shape,
            "tlsMode": "disabled",
            **more,
        }


@contextmanager
def running(url: str | None, port: int | None = None) -> Iterator[Server]:
    """The server at `url` (mysql://user:password@host:port), or a new one that is removed afterwards."""
    if url is not None:
        parts = urlsplit(url)
        yield Server(
            parts.hostname or "127.0.0.1",
            parts.port or 3306,
            parts.username or "root",
            parts.password or "",
            None,
        )
        return
    # one file must hold a whole part of the log, whatever its size
    options = {"max_binlog_size": str(1 << 30), "innodb_buffer_pool_size": str(1 << 30)}
    with start_mysql(port=port, options=options) as server:
        yield Server(server.host, server.port, server.user, server.password, server.state.pid)
