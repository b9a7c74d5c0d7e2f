"""OpenSSH's server from Debian's packages: one user, one key, on a port of the loopback interface."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Self

from tailrace_dev.servers import account, debian
from tailrace_dev.servers.server import free_port
from tests.support.processes import with_children
from tests.support.wait import listens, wait_until

#: The suite of the package: up to this version, the server is one program.
_SUITE, _PACKAGES = "bookworm", ("openssh-server",)
#: The user that runs it for root.
_NAME = "daemon"


class SshServer:
    """An SSH server that forwards connections for the user that runs it.

    Args:
        settings: lines of its configuration, before the defaults.

    Attributes:
        key: file of the user's private key, which it accepts.
        known_hosts: file with its host key.
    """

    host = "127.0.0.1"

    def __init__(self, *settings: str) -> None:
        # not `nobody`, as other servers: systemd's name service says that this account is locked
        as_root = os.getuid() == 0
        found = pwd.getpwnam(_NAME) if as_root else pwd.getpwuid(os.getuid())
        self._account = (found.pw_uid, found.pw_gid) if as_root else None
        self.user = found.pw_name
        self.port = free_port()
        self._directory = account.private_directory()
        self._ours = Path(tempfile.mkdtemp(prefix="tailrace-ssh-"))
        self.key, self.known_hosts = self._ours / "id", self._ours / "known_hosts"
        host_key = self._directory / "host_key"
        for path in (self.key, host_key):
            make_key(path)
        self.known_hosts.write_text(f"[{self.host}]:{self.port} {host_key.with_suffix('.pub').read_text()}")
        authorized = self._directory / "authorized_keys"
        authorized.write_text(self.key.with_suffix(".pub").read_text())
        lines = [
            *settings,
            f"ListenAddress {self.host}:{self.port}",
            f"HostKey {host_key}",
            f"AuthorizedKeysFile {authorized}",
            f"PidFile {self._directory / 'pid'}",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
        ]
        self._config = self._directory / "sshd_config"
        self._config.write_text("\n".join(lines) + "\n")
        account.give(self._directory, self._account)
        self.log = self._ours / "log"

    def start(self) -> Self:
        root = debian.unpack(_SUITE, _PACKAGES)
        assert root is not None
        user, group = self._account or (None, None)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                # -r: not by running itself anew, which would need the machine's libraries
                [
                    *root.command("usr/sbin/sshd"),
                    "-D",
                    "-e",
                    "-r",
                    "-f",
                    str(self._directory / "sshd_config"),
                ],
                stderr=log,
                user=user,
                group=group,
                extra_groups=None if group is None else [],
                start_new_session=True,
                cwd="/",
            )
        wait_until(self._listens, 20, "the SSH server")
        return self

    def _listens(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        return listens(self.port, self.host)

    def options(self, **given: str) -> dict[str, str]:
        """The options of a source behind it."""
        return {
            "sshTunnel": f"{self.user}@{self.host}:{self.port}",
            "sshKeyFile": str(self.key),
            "sshKnownHostsFile": str(self.known_hosts),
            **given,
        }

    def stop(self) -> None:
        """End it with all its connections."""
        for pid in with_children(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def tunnels(self) -> set[int]:
        """The running programs `ssh` that are connected to it."""
        found = set()
        for directory in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended meanwhile
                command = (directory / "cmdline").read_bytes().split(b"\0")
                state = (directory / "stat").read_text().rpartition(")")[2].split()[0]
                if command[0] == b"ssh" and str(self.port).encode() in command and state not in "ZX":
                    found.add(int(directory.name))
        return found

    def logins(self) -> int:
        """How many log-ins it has accepted."""
        return self.log.read_text().count("Accepted publickey")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)
        shutil.rmtree(self._ours, ignore_errors=True)


def make_key(path: Path) -> None:
    """A new key without a passphrase."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "a test", "-f", str(path)], check=True
    )
