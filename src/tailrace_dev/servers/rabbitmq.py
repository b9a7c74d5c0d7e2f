"""RabbitMQ from Debian's packages, with Erlang.

Erlang's `erl` runs the virtual machine, which starts programs that lie beside it, and all of them need the
packages' C library. So the server's process is that machine, run by the packages' dynamic loader, and a
directory of scripts stands in for the programs: each runs one by that loader.

The node listens on the loopback interface, for AMQP only. It has no port for other nodes, and so needs no
`epmd`; `rabbitmqctl` cannot reach it.

    data/bin/         scripts in place of Erlang's programs
    data/rabbitmq.conf, enabled_plugins
    data/node/        queues and everything else
"""

from __future__ import annotations

import secrets
import shlex
import socket
from collections.abc import Mapping
from pathlib import Path

from tailrace_dev.servers import debian
from tailrace_dev.servers.launch import Starter
from tailrace_dev.servers.program import Program
from tailrace_dev.servers.server import DevServer

_PACKAGES = {"sid": ("rabbitmq-server",)}
#: Default settings of a server.
DEFAULTS = {
    "loopback_users": "none",
    "log.console": "true",
    "log.console.level": "warning",
    "log.file": "false",
    # of a machine that others share
    "vm_memory_high_watermark.relative": "0.3",
    "disk_free_limit.absolute": "50MB",
}
#: What Erlang starts in the directory of its machine.
_CHILDREN = ("erl_child_setup", "inet_gethost")
_NODE = "tailrace@127.0.0.1"
_HEADER = b"AMQP\x00\x00\x09\x01"


class RabbitMqServer(DevServer):
    """A server with one user, who has every right."""

    product = "rabbitmq"
    scheme = "amqp"
    user = "tailrace"
    start_timeout_s = 180

    def _probe(self) -> str | None:
        try:
            with socket.create_connection((self.host, self.port), timeout=2) as connection:
                connection.sendall(_HEADER)
                said = connection.recv(64)
        except OSError as error:
            return str(error)
        # the first frame is that of the method `connection.start`
        return None if said[:1] == b"\x01" else "no AMQP yet"


def _program(version: str | None) -> Program:
    root = debian.first_with("RabbitMQ", "rabbitmq-server", _PACKAGES, version, [])
    (machine,) = root.path.glob("usr/lib/erlang/erts-*/bin/beam.smp")
    return Program(root.command(str(machine.relative_to(root.path))), root.version, share=root.path)


def _prepare(server: RabbitMqServer, program: Program, options: Mapping[str, str]) -> list[str]:
    assert program.share is not None
    root = program.share
    erlang = root / "usr/lib/erlang"
    (home,) = root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*")
    data = server.data
    data.mkdir(mode=0o700)
    programs = _stand_ins(data / "bin", program.command)
    settings = {
        "listeners.tcp.1": f"{server.host}:{server.port}",
        "default_user": server.user,
        "default_pass": server.password,
        **DEFAULTS,
        **options,
    }
    text = "".join(f"{name} = {value}\n" for name, value in settings.items())
    (data / "rabbitmq.conf").write_text(text, encoding="utf-8")
    (data / "enabled_plugins").write_text("[].\n", encoding="utf-8")
    server.state.environment = {
        "BINDIR": str(programs),
        "ROOTDIR": str(erlang),
        "EMU": "beam",
        "PROGNAME": "erl",
        "HOME": str(data),
        "ERL_LIBS": str(home / "plugins"),
        "ERL_CRASH_DUMP": "/dev/null",
        "ERL_MAX_PORTS": "65536",
        "RABBITMQ_HOME": str(home),
        "RABBITMQ_PLUGINS_DIR": str(home / "plugins"),
        "RABBITMQ_NODENAME": _NODE,
        "RABBITMQ_USE_LONGNAME": "true",
        "RABBITMQ_CONFIG_FILE": str(data / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": str(data / "none"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(data / "none.config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(data / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(data / "node"),
        "RABBITMQ_LOG_BASE": str(data / "log"),
        "RABBITMQ_PID_FILE": str(data / "pid"),
    }
    # the cookie lets another node take part; it is in a file for the server's user only, not in the command
    cookie = data / ".erlang.cookie"
    cookie.write_text(secrets.token_hex(32), encoding="utf-8")
    cookie.chmod(0o400)
    server.hand_over()
    machine = ["-W", "w", "-S", "2:2", "-sbwt", "none", "-sbwtdcpu", "none", "-sbwtdio", "none", "-B", "i"]
    paths = ["--", "-root", str(erlang), "-bindir", str(programs), "-progname", "erl"]
    node = ["--", "-home", str(data), "--", "-name", _NODE, "-dist_listen", "false"]
    # what watches over `epmd` is content with a port that is fixed, whether there is one or not
    node += ["-start_epmd", "false", "-erl_epmd_port", str(server.port)]
    boot = ["-boot", str(erlang / "bin/start_sasl"), "-noshell", "-noinput", "-s", "rabbit", "boot"]
    quiet = ["-syslog", "logger", "[]", "-syslog", "syslog_error_logger", "false"]
    return [*machine, *paths, *node, *quiet, *boot]


def _stand_ins(directory: Path, command: list[str]) -> Path:
    """Scripts in place of the programs beside Erlang's machine.

    Args:
        directory: where to; new.
        command: runs the machine.
    """
    directory.mkdir()
    *loader, machine = command
    for name in _CHILDREN:
        script = directory / name
        words = shlex.join([*loader, str(Path(machine).with_name(name))])
        script.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    return directory


start_rabbitmq = Starter(RabbitMqServer, _program, _prepare)
