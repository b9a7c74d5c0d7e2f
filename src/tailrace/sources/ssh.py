"""A connection through an SSH server, made by the machine's program `ssh`.

    driver or task ── socket pair ── ssh -W HOST:PORT SERVER ══ SSH ══ sshd ── TCP ── database

Each connection has a program of its own, whose input and output are one end of a pair of sockets. So:

* Nothing listens: no other user of the machine can use the tunnel.
* Whoever holds the other end holds the tunnel. Once it is closed, `ssh` is ended: by the thread that watches
  over it; or, if this process was killed, by the system (`setpriv --pdeathsig`, Linux). On a machine without
  that program it ends with the next byte that it cannot deliver.
* The user's configuration, agent and ProxyJump hold as they do at the prompt. Whoever wants one SSH
  connection for many sets ControlMaster there.

A library (Paramiko, AsyncSSH) would encrypt in this process, next to the decoding, and know less of that
configuration. Its errors would be classes; `ssh` has one exit code for all, and so its messages are
classified by their text, which OpenSSH does not translate. What is unknown is tried again.

The program never asks anything: a host key that is unknown, or has changed, is refused.
"""

from __future__ import annotations

import functools
import math
import os
import queue
import re
import select
import shutil
import socket
import subprocess
import threading
from pathlib import Path

from tailrace.config.options import RouteOptions
from tailrace.errors import ConfigError, SourceError, TransientSourceError
from tailrace.printable import shortened
from tailrace.sources.bounds import Deadline

#: Of this process's environment: other variables may hold secrets, which the configuration's programs
#: (ProxyCommand, Match exec) would get.
_ENVIRONMENT = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TMPDIR",
    "SSH_AUTH_SOCK",
    "KRB5CCNAME",
    "XDG_RUNTIME_DIR",
)
#: An SSH server that does not answer is given up after this time, seconds and number of questions.
_ALIVE_S, _ALIVE_COUNT = 30, 4
#: Most bytes of messages that are kept.
_MOST_TEXT = 8 << 10
#: How long it may take to pass on the last bytes.
_GRACE_MS = 1000
#: How long `ssh` may take to end after it has closed the connection.
_END_S = 1.0
_UNKNOWN_KEY = re.compile(
    r"host key verification failed|host identification has changed|no .* host key is known", re.I
)
_REFUSED = re.compile(
    r"permission denied|too many authentication failures|no more authentication methods", re.I
)
_FORBIDDEN = re.compile(r"open failed: administratively prohibited", re.I)
_UNREACHED = re.compile(r"open failed: (?!administratively prohibited)", re.I)
_BROKEN_SETTINGS = re.compile(r"bad configuration|bad owner or permissions|no such identity", re.I)


class Tunnel:
    """One connection through an SSH server; it may still be under way.

    Args:
        route: the SSH server, key and known hosts.
        host: the database's, as the SSH server knows it.
        port: its port.
        deadline: of the log-in to the database.

    Attributes:
        socket: leads to the database.

    Raises:
        ConfigError: there is no program `ssh`, or a file is missing.
    """

    def __init__(self, route: RouteOptions, host: str, port: int, deadline: Deadline) -> None:
        assert route.ssh_tunnel is not None
        self._route = route
        self._text = b""
        self._code: int | None = None
        program = command(route, host, port, deadline.left())
        self.socket, theirs = socket.socketpair()
        begun: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()
        self._watch = threading.Thread(
            target=self._run,
            args=(program, theirs, begun),
            name="tailrace-ssh",
            daemon=True,
        )
        self._watch.start()
        if (error := begun.get()) is not None:
            self.socket.close()
            raise _no_program(f"it cannot be run: {error.strerror}")

    def _run(
        self, program: list[str], theirs: socket.socket, begun: queue.SimpleQueue[OSError | None]
    ) -> None:
        """Run the program, keep what it says, and end it some time after the other socket was closed.

        This thread lives as long as the program: the system's signal at the death of the parent is one at the
        death of the thread that started it.
        """
        with theirs:
            try:
                process = subprocess.Popen(  # noqa: S603
                    program,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.PIPE,
                    env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
                    | {"SSH_ASKPASS_REQUIRE": "never"},
                    start_new_session=True,  # neither a terminal to ask on, nor its Ctrl+C
                )
            except OSError as error:
                begun.put(error)
                return
            begun.put(None)
            assert process.stderr is not None
            with process.stderr as stream:
                poll = select.poll()
                poll.register(stream, select.POLLIN)
                poll.register(theirs, 0)  # only its end
                limit_ms: int | None = None
                while True:
                    found = [fd for fd, _ in poll.poll(limit_ms)]
                    if not found:
                        process.terminate()
                        limit_ms = None
                    if theirs.fileno() in found:
                        poll.unregister(theirs)
                        limit_ms = _GRACE_MS
                    if stream.fileno() in found:
                        piece = os.read(stream.fileno(), _MOST_TEXT)
                        if not piece:  # the program has ended
                            break
                        self._text = (self._text + piece)[-_MOST_TEXT:]
        self._code = process.wait()

    def failure(self, doing: str) -> SourceError | None:
        """Why there is no connection to the database, if it is for the tunnel.

        Args:
            doing: what was being done, for errors.

        Returns:
            The error to raise; None: the tunnel stands, or ended because the database closed the connection.
        """
        self._watch.join(_END_S)
        if self._code in (None, 0):  # it runs, or ended in order
            return None
        text = self._text.decode("utf-8", "replace").replace("\r", "")
        return _failure(self._route, " | ".join(text.strip().splitlines()[-4:]), doing)


def command(route: RouteOptions, host: str, port: int, seconds: float) -> list[str]:
    """The program and its arguments.

    Args:
        route: the SSH server, key and known hosts.
        host: the database's.
        port: its port.
        seconds: the time that is left for the SSH connection.

    Raises:
        ConfigError: there is no program `ssh`, or a file is missing.
    """
    server = route.ssh_tunnel
    assert server is not None
    if shutil.which("ssh") is None:
        raise _no_program("it is not on PATH")
    settings = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "PermitLocalCommand": "no",
        "LogLevel": "INFO",  # which says why a connection to the database failed
        "ConnectTimeout": str(max(1, math.ceil(seconds))),
        "ServerAliveInterval": str(_ALIVE_S),
        "ServerAliveCountMax": str(_ALIVE_COUNT),
    }
    if route.ssh_key_file is not None:
        settings["IdentityFile"] = _file("sshKeyFile", route.ssh_key_file)
        settings["IdentitiesOnly"] = "yes"
    if route.ssh_known_hosts_file is not None:
        settings["UserKnownHostsFile"] = _file("sshKnownHostsFile", route.ssh_known_hosts_file)
        settings["GlobalKnownHostsFile"] = "none"
    given = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    if server.user is not None:
        given += ["-l", server.user]
    if server.port is not None:
        given += ["-p", str(server.port)]
    dying = ["setpriv", "--pdeathsig", "TERM", "--"] if _can_die_with_its_parent() else []
    return [
        *dying,
        "ssh",
        *given,
        "-W",
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        "--",
        server.host,
    ]


@functools.cache
def _can_die_with_its_parent() -> bool:
    """Whether there is a program that asks the system for a signal at the death of the parent."""
    if shutil.which("setpriv") is None:
        return False
    said = subprocess.run(["setpriv", "--help"], capture_output=True, check=False).stdout  # noqa: S607
    return b"--pdeathsig" in said


def _no_program(found: str) -> ConfigError:
    return ConfigError(
        "option `sshTunnel` needs the program `ssh`",
        found,
        "install OpenSSH's client on the driver's machine and on every executor's "
        "(Debian: apt-get install openssh-client)",
        code="TR-3031",
    )


def _file(option: str, path: str) -> str:
    """A file's path, quoted as the program's settings are."""
    try:
        Path(path).open("rb").close()
    except OSError as error:
        raise ConfigError(
            f"{option} `{path}` cannot be read",
            error.strerror,
            "name a file that the driver and every executor can read",
            code="TR-1102",
        ) from None
    if '"' in path or "\n" in path:
        raise ConfigError(
            f"{option} `{path}` cannot be given to `ssh`",
            "it holds a quotation mark or a line break",
            code="TR-1102",
        )
    # a percent sign begins a token there, and a dollar sign with a brace a variable
    return f'"{Path(path).absolute()}"'.replace("%", "%%")


def _failure(route: RouteOptions, text: str, doing: str) -> SourceError:
    server = route.ssh_tunnel
    assert server is not None
    said = f"ssh: {shortened(text)}"
    if _UNKNOWN_KEY.search(text):
        where = route.ssh_known_hosts_file or "~/.ssh/known_hosts"
        port = f"-p {server.port} " if server.port else ""
        return SourceError(
            f"{doing} failed: the SSH server's host key is not trusted",
            said,
            f"ssh-keyscan {port}{server.host}; compare it with the key that the server's administrator "
            f"names, then add the line to {where}",
            code="TR-3033",
        )
    if _REFUSED.search(text):
        return SourceError(
            f"{doing} failed: the SSH server refuses the user or the key",
            said,
            "add the public key to the user's authorized_keys there; keys with a passphrase need an agent; "
            "nothing is ever asked",
            code="TR-3034",
        )
    if _FORBIDDEN.search(text):
        return SourceError(
            f"{doing} failed: the SSH server forbids connections to the database",
            said,
            "allow it in its sshd_config (AllowTcpForwarding, PermitOpen) or in authorized_keys (permitopen)",
            code="TR-3035",
        )
    if _BROKEN_SETTINGS.search(text):
        return SourceError(
            f"{doing} failed: the configuration of `ssh` is wrong",
            said,
            "correct it: `ssh -v` shows which file it is",
            code="TR-3036",
        )
    reached = _UNREACHED.search(text) is not None
    return TransientSourceError(
        f"{doing} failed: "
        + ("the SSH server does not reach the database" if reached else "the SSH server cannot be reached"),
        said,
        "check that the database listens at this host and port as seen from the SSH server"
        if reached
        else "check its host and port, and that it is running",
        code="TR-3037" if reached else "TR-3032",
    )
