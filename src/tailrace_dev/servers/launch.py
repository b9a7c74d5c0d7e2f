"""How a new server comes to be: name and port claimed, data made, process started."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from tailrace.cache import cache_dir, locked
from tailrace_dev.servers import registry
from tailrace_dev.servers.program import Program
from tailrace_dev.servers.server import DevServer, ServerState

S = TypeVar("S", bound=DevServer)


def launch(
    server: type[S],
    program: Program,
    port: int | None,
    *,
    detached: bool,
    prepare: Callable[[ServerState], list[str]],
) -> S:
    """Starts a new server.

    Args:
        server: its class.
        program: what runs it.
        port: TCP port, None for a free one.
        detached: whether it outlives this process.
        prepare: makes the data directory that the state names (not there yet; it may choose another
            one), and returns the arguments to run with.

    Returns:
        The running server.

    Raises:
        TailraceError: it did not start. Its log is kept.
    """
    registry.remove_orphans()
    name, port, directory = registry.claim(server.product, port)
    data = directory / "data"
    state = ServerState(
        name=name,
        product=server.product,
        version=program.version,
        port=port,
        command=[],
        data=str(data),
        owner=None if detached else os.getpid(),
    )
    new = server(state)
    try:
        state.command = [*program.command, *prepare(state)]
        return new.start()
    except BaseException:
        if new.running:
            new.kill()
        shutil.rmtree(state.data, ignore_errors=True)
        if not new.log.exists():
            shutil.rmtree(directory, ignore_errors=True)
        raise


def copy_template(key: str, make: Callable[[Path], None], state: ServerState) -> None:
    """Makes a server's data a copy of an initialised data directory, which is made at first use.

    Args:
        key: names the template: product, version and all that its content depends on.
        make: fills the directory it is given (not there yet).
        state: the server.
    """
    template = cache_dir("templates") / key
    with locked(f"template-{key}"):
        if not template.exists():
            new = template.with_name(template.name + ".new")
            shutil.rmtree(new, ignore_errors=True)
            try:
                make(new)
            except BaseException:
                shutil.rmtree(new, ignore_errors=True)
                raise
            new.rename(template)
    shutil.copytree(template, state.data)


def as_arguments(options: Mapping[str, str]) -> list[str]:
    """Server options as command-line arguments: `{"server_id": "7"}` as `--server_id=7`."""
    return [f"--{name}={value}" for name, value in options.items()]


def with_defaults(defaults: Mapping[str, str], options: Mapping[str, str] | None) -> dict[str, str]:
    """`defaults` with `options` over them; names may be written with dashes."""
    return {**defaults, **{name.replace("-", "_"): value for name, value in (options or {}).items()}}
