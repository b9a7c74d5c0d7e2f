"""The servers of this cache: found by their state files, whoever started them."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tailrace.devservers.cache import cache_dir, locked
from tailrace.devservers.server import STATE_VERSION, DevServer, ServerState, free_port
from tailrace.errors import TailraceError


def servers(classes: dict[str, type[DevServer]]) -> list[DevServer]:
    """All servers, those of dead owners removed first.

    Args:
        classes: the class of each product.
    """
    found = []
    for file in sorted(cache_dir("run").glob("*/server.json")):
        state = _read(file)
        if state is None or state.product not in classes:
            continue
        server = classes[state.product](state)
        if state.owner is not None and not _alive(state.owner):
            server.remove()
        else:
            found.append(server)
    return found


def claim(product: str, port: int | None) -> tuple[str, int, Path]:
    """A new server's name, port and (empty, existing) directory.

    Raises:
        TailraceError: a server of that name is there already.
    """
    with locked("registry"):
        taken = {p.name for p in cache_dir("run").iterdir()}
        chosen = port or free_port()
        while port is None and f"{product}-{chosen}" in taken:
            chosen = free_port()
        name = f"{product}-{chosen}"
        if name in taken:
            raise TailraceError(
                f"server `{name}` is there already",
                f"its directory is {cache_dir('run') / name}",
                f"tailrace dev stop {name}",
            )
        return name, chosen, cache_dir("run", name)


def _read(file: Path) -> ServerState | None:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        # Removed meanwhile by another process.
        return None
    if value.get("v") != STATE_VERSION:
        raise TailraceError(
            f"`{file}` was written by another version of Tailrace",
            f"found version {value.get('v')}, needed {STATE_VERSION}",
            "end that server by hand and delete its directory",
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
