"""RocketMQ: a name server and a broker from Maven Central's jars, run by the `java` that runs Spark.

Both listen on the loopback interface, without passwords: every user of the machine can read and write the
topics, so they are for test data. Messages survive a restart and SIGKILL: they are in the page cache.

The broker's port for slaves listens on all interfaces of the machine: it has no setting for that. With the
setting `proxy=true` the broker runs inside RocketMQ's proxy, for clients that speak gRPC. The proxy
does, too.

The server's process is the broker. A shell beside it runs the name server, and ends that with the broker.
"""

from __future__ import annotations

import json
import os
import random
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tailrace.java import require_java
from tailrace.sinks.rocketmq import frames
from tailrace_dev.servers.jars import SMALL_JVM, jars
from tailrace_dev.servers.launch import Starter
from tailrace_dev.servers.program import Program, require_only
from tailrace_dev.servers.server import DevServer, free_port, wait_until

_VERSION = "5.5.0"
#: The servers' jars: their directory in the cache, and packages.
JARS = (
    f"rocketmq-{_VERSION}",
    tuple(f"org.apache.rocketmq:rocketmq-{part}:{_VERSION}" for part in ("proxy", "namesrv", "tools")),
)
#: Default settings of a broker.
DEFAULTS = {
    "autoCreateTopicEnable": "false",
    "mappedFileSizeCommitLog": "67108864",
    "mappedFileSizeConsumeQueue": "600000",
    "diskMaxUsedSpaceRatio": "99",
    # the store takes no more of a page cache that others need
    "warmMapedFileEnable": "false",
    "transferMsgByHeap": "true",
}
_CLUSTER = "tailrace"
#: The first and the last port of outgoing connections, on Linux.
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_JVM = (
    *SMALL_JVM,
    "-XX:TieredStopAtLevel=1",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.nio", "sun.nio.ch", "java.util", "java.lang")
    ),
)
#: Runs the name server ($1, a file with its command) as long as this process, which becomes the broker.
_SCRIPT = (
    "trap '' HUP; names=$1; shift; "
    'rm -rf "${names%/*}/tmp/"*; '  # what JVMs that were killed have left
    '( sh "$names" & name=$!; while kill -0 $$ 2>/dev/null && kill -0 $name 2>/dev/null; do sleep 0.2; done; '
    "kill -9 $name 2>/dev/null ) & "
    'exec "$@"'
)


class RocketMqServer(DevServer):
    """A name server and a broker without passwords, for test data."""

    product = "rocketmq"
    scheme = "rocketmq"
    user = ""
    #: Two JVMs, with 145 jars each.
    start_timeout_s = 180

    @property
    def name_server(self) -> str:
        """The name server's `host:port`."""
        return f"{self.host}:{self.port}"

    @property
    def proxy(self) -> str | None:
        """Where clients with gRPC connect; None without the proxy."""
        settings = self.data / "proxy.json"
        if not settings.exists():
            return None
        return f"{self.host}:{json.loads(settings.read_text(encoding='utf-8'))['grpcServerPort']}"

    @property
    def _broker_port(self) -> int:
        lines = (self.data / "broker.conf").read_text(encoding="utf-8").splitlines()
        return int(dict(line.split("=", 1) for line in lines)["listenPort"])

    def start(self) -> Self:
        """See `DevServer`; the name server of an earlier start may take a moment to end."""
        if not self.running:
            wait_until(lambda: not _listens(self.host, self.port), self.start_timeout_s)
        return super().start()

    def _probe(self) -> str | None:
        if not _listens(self.host, self.port):
            return "the name server does not listen"
        if not _listens(self.host, self._broker_port):
            return "the broker does not listen"
        if self.proxy is not None and not _listens(self.host, int(self.proxy.rpartition(":")[2])):
            return "the proxy does not listen"
        return None if self._is_registered() else "the broker is not registered"

    def _is_registered(self) -> bool:
        """Whether the name server knows the broker."""
        asked = frames.request(frames.GET_BROKER_CLUSTERS, 1, {})
        try:
            with socket.create_connection((self.host, self.port), timeout=2) as connection:
                connection.sendall(asked)
                (length,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
                _, said = frames.answer(connection.recv(length, socket.MSG_WAITALL))
        except (OSError, ValueError, struct.error):
            return False
        return said.code == frames.SUCCESS and bool(frames.parsed(said.body)["brokerAddrTable"])


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError:
        return False
    return True


def _program(version: str | None) -> Program:
    require_only("RocketMQ", _VERSION, version)
    return Program(["sh", "-c", _SCRIPT, "sh"], _VERSION)


def class_path() -> str:
    """The class path of the servers and of RocketMQ's own tools.

    Raises:
        TailraceError: the jars could not be downloaded.
    """
    return os.pathsep.join(str(jar) for jar in jars(*JARS))


def _prepare(server: RocketMqServer, program: Program, options: Mapping[str, str]) -> list[str]:
    del program
    given = dict(options)
    has_proxy = given.pop("proxy", "false") == "true"
    given_names = {k.removeprefix("namesrv."): given.pop(k) for k in list(given) if k.startswith("namesrv.")}
    jvm = given.pop("jvm", "").split()
    data = server.data
    for name in ("logs", "tmp"):
        (data / name).mkdir(mode=0o700, parents=True)
    names = {
        "listenPort": str(server.port),
        "bindAddress": server.host,
        "rocketmqHome": str(data),
        "kvConfigPath": f"{data}/names/kv.json",
        "configStorePath": f"{data}/names/names.properties",
        **given_names,
    }
    broker = {
        "brokerClusterName": _CLUSTER,
        "brokerName": "broker",
        "brokerId": "0",
        "brokerIP1": server.host,
        "bindAddress": server.host,
        "listenPort": str(_three_free_ports()),
        "namesrvAddr": f"{server.host}:{server.port}",
        "storePathRootDir": f"{data}/store",
        "storePathCommitLog": f"{data}/store/commitlog",
        **DEFAULTS,
        **given,
    }
    _write(data / "names.conf", names)
    _write(data / "broker.conf", broker)
    java = [
        require_java(),
        *_JVM,
        *jvm,
        f"-Duser.home={data}",
        f"-Djava.io.tmpdir={data / 'tmp'}",  # RocksDB's library, keys of TLS
        f"-Drocketmq.home.dir={data}",
        "-cp",
        class_path(),
    ]
    quoted = [f"'{word}'" for word in (*java[:1], "-Xmx128m", *java[1:])]
    main = "org.apache.rocketmq.namesrv.NamesrvStartup"
    (data / "names.sh").write_text(
        f"exec {' '.join(quoted)} {main} -c '{data}/names.conf'\n", encoding="utf-8"
    )
    arguments = [str(data / "names.sh"), *java[:1], "-Xmx512m", *java[1:]]
    if has_proxy:
        proxy = {
            "rocketMQClusterName": _CLUSTER,
            "namesrvAddr": f"{server.host}:{server.port}",
            "grpcServerPort": free_port(),
            "remotingListenPort": free_port(),
            "proxyMode": "LOCAL",
            "localServeAddr": server.host,
        }
        (data / "proxy.json").write_text(json.dumps(proxy), encoding="utf-8")
        arguments[2:2] = ["-Dtls.server.mode=disabled"]  # the proxy's TLS needs a native library
        main = "org.apache.rocketmq.proxy.ProxyStartup"
        arguments += [main, "-pm", "local", "-pc", str(data / "proxy.json"), "-bc", str(data / "broker.conf")]
    else:
        arguments += ["org.apache.rocketmq.broker.BrokerStartup", "-c", str(data / "broker.conf")]
    server.hand_over()
    return arguments


def _three_free_ports() -> int:
    """A port with two free ones: the broker takes that two below for itself, and the next one for slaves.

    They are below the ports that the system gives to outgoing connections: such a connection could take one
    while the broker is down, which then would not start again.
    """
    lowest = int(_PORT_RANGE.read_text(encoding="ascii").split()[0]) if _PORT_RANGE.exists() else 32_768
    while True:
        port = random.randrange(10_002, lowest - 1)  # noqa: S311 - no secret
        if all(_is_free(port + by) for by in (-2, 0, 1)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        try:
            tried.bind(("", port))
        except OSError:
            return False
    return True


def _write(file: Path, settings: Mapping[str, str]) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")


start_rocketmq = Starter(RocketMqServer, _program, _prepare)
