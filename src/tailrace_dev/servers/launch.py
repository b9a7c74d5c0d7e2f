"""How a new server comes to be: name and port claimed, data made, process started."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from tailrace.cache import cache_dir, locked
from tailrace.private import write_private
from tailrace_dev.servers import account, registry
from tailrace_dev.servers.program import Program
from tailrace_dev.servers.server import DevServer, ServerState

S = TypeVar("S", bound=DevServer)


def launch(
    server: type[S],
    program: Program,
    port: int | None,
    *,
    detached: bool,
    prepare: Callable[[S], list[str]],
    password: str | None = None,
) -> S:
    """Starts a new server.

    Args:
        server: its class.
        program: what runs it.
        port: TCP port, None for a free one.
        detached: whether it outlives this process.
        prepare: makes the server's data directory (not there yet), hands it over, and returns the arguments
            to run with.
        password: the administrator's; None: a random one, if the server knows users.

    Returns:
        The running server.

    Raises:
        TailraceError: it did not start. Its log is kept.
    """
    registry.remove_orphans()
    name, port, directory = registry.claim(server.product, port)
    run_as = account.unprivileged()
    private = directory if run_as is None else account.private_directory()
    state = ServerState(
        name=name,
        product=server.product,
        version=program.version,
        port=port,
        command=[],
        data=str(private / "data"),
        owner=None if detached else os.getpid(),
        run_as=run_as,
    )
    new = server(state)
    if new.user:
        write_private(new.password_file, password or secrets.token_hex(16))
    try:
        state.command = [*program.command, *prepare(new)]
        return new.start()
    except BaseException:
        if new.running:
            new.kill()
        shutil.rmtree(state.data if run_as is None else private, ignore_errors=True)
        if not new.log.exists():
            shutil.rmtree(directory, ignore_errors=True)
        raise


def copy_template(key: str, make: Callable[[Path], None], server: DevServer) -> None:
    """Makes a server's data a copy of an initialised data directory, which is made at first use.

    Args:
        key: names the template: product, version and all that its content depends on.
        make: fills the empty directory it is given, as the user that runs the server.
        server: the server.
    """
    template = cache_dir("templates") / key
    with locked(f"template-{key}"):
        if not template.exists():
            new = template.with_name(template.name + ".new")
            shutil.rmtree(new, ignore_errors=True)
            # the user that fills it cannot reach root's cache
            made = account.private_directory()
            try:
                (made / "data").mkdir(mode=0o700)
                account.give(made, server.state.run_as)
                make(made / "data")
                shutil.copytree(made / "data", new)
            finally:
                shutil.rmtree(made, ignore_errors=True)
            new.rename(template)
    shutil.copytree(template, server.data)


def as_arguments(options: Mapping[str, str]) -> list[str]:
    """Server options as command-line arguments: `{"server_id": "7"}` as `--server_id=7`."""
    return [f"--{name}={value}" for name, value in options.items()]


def with_defaults(defaults: Mapping[str, str], options: Mapping[str, str] | None) -> dict[str, str]:
    """`defaults` with `options` over them; names may be written with dashes."""
    return {**defaults, **{name.replace("-", "_"): value for name, value in (options or {}).items()}}
