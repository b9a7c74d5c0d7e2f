"""The servers of this cache, found by their state files, whichever process started them."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tailrace.cache import cache_dir, locked
from tailrace.errors import TailraceError
from tailrace_dev.servers.server import STATE_VERSION, ServerState, delete_files, free_port, terminate


def states() -> list[ServerState]:
    """The state of every server, by name.

    Raises:
        TailraceError: another version of Tailrace wrote a state file.
    """
    found = [_read(file) for file in sorted(cache_dir("run").glob("*/server.json"))]
    return [state for state in found if state is not None]


def remove_orphans() -> None:
    """Remove the servers whose owner died without removing them."""
    for state in states():
        if state.owner is not None and not _alive(state.owner):
            terminate(state)
            delete_files(state)


def claim(product: str, port: int | None, ports: range | None = None) -> tuple[str, int, Path]:
    """A new server's name, port and (empty, existing) directory.

    Args:
        product: the server's product.
        port: its port; None: a free one.
        ports: those that the product can listen on; None: any.

    Raises:
        TailraceError: a server of this name already exists, or no port is free.
    """
    with locked("registry"):
        taken = {p.name for p in cache_dir("run").iterdir()}
        chosen = port or free_port(ports)
        while port is None and f"{product}-{chosen}" in taken:
            chosen = free_port(ports)
        name = f"{product}-{chosen}"
        if name in taken:
            raise TailraceError(
                f"server `{name}` already exists",
                f"its directory is {cache_dir('run') / name}",
                f"tailrace dev stop {name}",
                code="TR-9006",
            )
        return name, chosen, cache_dir("run", name)


def _read(file: Path) -> ServerState | None:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        # removed by another process in the meantime
        return None
    if value.get("v") != STATE_VERSION:
        raise TailraceError(
            f"`{file}` was written by another version of Tailrace",
            f"found version {value.get('v')}, needed {STATE_VERSION}",
            "stop that server by hand and delete its directory",
            code="TR-9006",
        )
    return ServerState(**value)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
