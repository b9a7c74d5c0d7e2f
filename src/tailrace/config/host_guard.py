"""Names of hosts, looked at again whenever a connection looks them up (DNS rebinding).

The policy of a server looks a name up when a file is created, and before a worker starts. What the name
stands for may change after that. So `socket.getaddrinfo` is guarded in the server, its workers and Spark's
Python processes: the addresses that it returns are those that are connected to, and they are judged there.

    names that a pipeline file has     by the server's patterns, as the policy does
    other names                        never addresses of the link, or of a cloud's credentials
    other addresses                    not judged: libraries of clouds ask for their credentials there

All drivers in Python look names up so. Not guarded: librdkafka, the JVM (stores, `hdfs://`), Arrow's and
DuckDB's own access to stores, `ssh`, and executors of a cluster; a proxy looks names up itself.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Sequence
from typing import Any

from tailrace.config import hosts
from tailrace.errors import ConfigError

#: The variable that has children of a server guard themselves: patterns, and names of pipeline files.
VARIABLE = "TAILRACE_HOST_GUARD"
#: The name by which Google's libraries ask for credentials.
_OF_CLOUDS = frozenset({"metadata.google.internal"})
_lock = threading.Lock()
_patterns: Sequence[str] = ()
_named: set[str] = set()
_unguarded = socket.getaddrinfo


def guard(patterns: Sequence[str]) -> None:
    """Guard this process, and those that it starts.

    Args:
        patterns: see `config.hosts`.
    """
    global _patterns  # noqa: PLW0603 - of the process, as `socket.getaddrinfo` is
    with _lock:
        _patterns = tuple(patterns)
        _tell_children()
    socket.getaddrinfo = _guarded


def guard_from_environment() -> None:
    """Guard this process if a server has started it."""
    if VARIABLE in os.environ:
        given = json.loads(os.environ[VARIABLE])
        _named.update(given["named"])
        guard(given["patterns"])


def named(host: str) -> None:
    """Note that a pipeline file names a host, which the policy allows."""
    with _lock:
        _named.add(_plain(host))
        if socket.getaddrinfo is _guarded:
            _tell_children()


def _tell_children() -> None:
    os.environ[VARIABLE] = json.dumps({"patterns": list(_patterns), "named": sorted(_named)})


def _plain(host: str) -> str:
    return host.rstrip(".").lower()


def _guarded(host: Any, *args: Any, **kwargs: Any) -> Any:
    found = _unguarded(host, *args, **kwargs)
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if not isinstance(text, str):
        return found
    name = _plain(text.partition("%")[0])
    addresses = hosts.addresses_of(found)
    if name in _named:
        why = hosts.problem(name, _patterns, lambda _: addresses)
    elif name in _OF_CLOUDS or hosts.is_address(name):
        why = None
    else:
        why = hosts.problem(name, ("*",), lambda _: addresses)
    if why is not None:
        raise ConfigError(
            f"host `{text}` stands for an address that is not allowed",
            why,
            "see what the name stands for: it was another address when the pipeline was checked, or nothing",
            code="TR-8479",
        )
    return found
