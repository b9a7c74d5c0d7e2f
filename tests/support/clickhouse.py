"""A server with the engine of ClickHouse; what it is not, `clickhouse_shim` says."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from tailrace.cache import cache_dir, locked
from tests.support import clickhouse_shim

#: The engine's version and the SHA-256 of its files, in pip's form; written by `make lock`.
_REQUIREMENTS = Path(__file__).with_suffix(".lock")


def _engine() -> Path:
    """The directory of the engine's package, downloaded on first use.

    It is kept apart from what tests import: it requires pandas by its metadata, though not to run statements,
    and tests have to show that Tailrace needs no pandas.
    """
    version = hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()[:16]
    target = cache_dir("clickhouse", version)
    with locked(f"clickhouse-{version}"):
        done = target / ".installed"
        if not done.exists():
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
            command += ["--no-deps", "--only-binary=:all:", "--require-hashes", "-r", str(_REQUIREMENTS)]
            subprocess.run([*command, "--target", str(target)], check=True)
            done.touch()
    return target


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
