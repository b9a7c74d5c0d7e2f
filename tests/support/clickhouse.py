"""A server with the engine of ClickHouse; what it is not, `clickhouse_shim` says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support import clickhouse_shim
from tests.support.packages import packages_of

#: The engine's version and the SHA-256 of its files, in pip's form; written by `make lock`.
_REQUIREMENTS = Path(__file__).with_suffix(".lock")


def _engine() -> Path:
    """The directory of the engine's package, downloaded on first use.

    It is kept apart from what tests import: it requires pandas by its metadata, though not to run statements,
    and tests have to show that Tailrace needs no pandas.
    """
    return packages_of(_REQUIREMENTS, "--only-binary=:all:")


class ClickHouse:
    """The server as a process, with its data in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def __enter__(self) -> ClickHouse:
        self.start()
        return self

    def __exit__(
        self, type_: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, on a port that is free, or again on the one that it had."""
        command = [sys.executable, clickhouse_shim.__file__, str(self._directory), str(self.port)]
        environment = {**os.environ, "PYTHONPATH": str(_engine())}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"ended with {self._process.wait()}"
        self.port = int(line)

    def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def connect(self) -> Any:
        """A client, over HTTP."""
        from clickhouse_connect import common, get_client

        common.set_setting("use_protocol_version", value=False)  # the engine alone has no such thing
        return get_client(
            host="127.0.0.1",
            port=self.port,
            compress=False,
            autogenerate_session_id=False,
            connect_timeout=10,
            send_receive_timeout=60,
        )
