"""Names of hosts, looked at again whenever a connection looks them up (DNS rebinding).

The policy of a server looks a name up when a file is created, and before a worker starts. What the name
stands for may change after that. So `socket.getaddrinfo` is guarded in the server, its workers and Spark's
Python processes: the addresses that it returns are those that are connected to, and they are judged there.

    names that a pipeline file has     by the server's patterns, as the policy does
    other names                        never addresses of the link, or of a cloud's credentials
    other addresses                    not judged: libraries of clouds ask for their credentials there

All drivers in Python look names up so. Not guarded: librdkafka, the JVM (stores, `hdfs://`), Arrow's and
DuckDB's own access to stores, `ssh`, and executors of a cluster; a proxy looks names up itself.

A worker of a group hears of names while its children run already: it keeps them in a file, where they look.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tailrace.config import hosts
from tailrace.errors import ConfigError
from tailrace.private import write_private

#: The variable that has children of a server guard themselves: patterns, and names of pipeline files.
VARIABLE = "TAILRACE_HOST_GUARD"
#: The name by which Google's libraries ask for credentials.
_OF_CLOUDS = frozenset({"metadata.google.internal"})
_lock = threading.Lock()
_patterns: Sequence[str] = ()
_named: set[str] = set()
#: Where names are that children hear of later.
_file: Path | None = None
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
        global _file  # noqa: PLW0603 - see `guard`
        given = json.loads(os.environ[VARIABLE])
        _named.update(given["named"])
        _file = None if given["file"] is None else Path(given["file"])
        guard(given["patterns"])


def keep_names_in(path: Path) -> None:
    """Let the children of this process hear of names after they have started, too.

    Args:
        path: a file for them.
    """
    global _file  # noqa: PLW0603 - see `guard`
    with _lock:
        _file = path
        if socket.getaddrinfo is _guarded:
            _tell_children()


def names() -> frozenset[str]:
    """The hosts that pipeline files name."""
    with _lock:
        return frozenset(_named)


def named(*found: str) -> None:
    """Note that pipeline files name hosts, which the policy allows."""
    with _lock:
        _named.update(map(_plain, found))
        if socket.getaddrinfo is _guarded:
            _tell_children()


def _tell_children() -> None:
    given = {"patterns": list(_patterns), "named": sorted(_named), "file": _file and str(_file)}
    os.environ[VARIABLE] = json.dumps(given)
    if _file is not None:
        write_private(_file, json.dumps(sorted(_named)))


def _plain(host: str) -> str:
    return host.rstrip(".").lower()


def _guarded(host: Any, *args: Any, **kwargs: Any) -> Any:
    found = _unguarded(host, *args, **kwargs)
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if not isinstance(text, str):
        return found
    name = _plain(text.partition("%")[0])
    if name not in _named and _file is not None:
        with suppress(OSError, ValueError):
            _named.update(json.loads(_file.read_text(encoding="utf-8")))
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
