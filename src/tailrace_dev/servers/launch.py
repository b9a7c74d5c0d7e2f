"""Starts new servers: claims name and port, creates the data, starts the process."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from tailrace.cache import cache_dir, locked
from tailrace.private import write_private
from tailrace_dev.servers import account, registry
from tailrace_dev.servers.program import Program
from tailrace_dev.servers.server import DevServer, ServerState

S = TypeVar("S", bound=DevServer)


class Starter(Generic[S]):
    """Starts new, empty servers of one product.

    Args:
        server: the server's class.
        program: finds a program that runs here, given the leading part of the requested version. Raises
            TailraceError.
        prepare: creates the server's data directory, hands it over, and returns the arguments to run with;
            given the server, the program and the caller's options.
    """

    def __init__(
        self,
        server: type[S],
        program: Callable[[str | None], Program],
        prepare: Callable[[S, Program, Mapping[str, str]], list[str]],
    ) -> None:
        self._server = server
        self._program = program
        self._prepare = prepare

    def __call__(
        self,
        version: str | None = None,
        port: int | None = None,
        options: Mapping[str, str] | None = None,
        *,
        detached: bool = False,
    ) -> S:
        """Start a new, empty server.

        Args:
            version: leading part of the requested version, e.g. `9.7`; None: any available one.
            port: TCP port on 127.0.0.1; None: a free one.
            options: server settings that override the product's DEFAULTS, e.g. `{"server_id": "7"}`.
            detached: whether the server outlives this process.

        Returns:
            The running server. As a context manager it removes itself at the end of the block.

        Raises:
            TailraceError: no such server is available here, it does not start, or it cannot listen on `port`.
        """
        self._server.require_port(port)
        program = self._program(version)
        return launch(
            self._server,
            program,
            port,
            detached=detached,
            prepare=lambda server: self._prepare(server, program, options or {}),
        )


def launch(
    server: type[S],
    program: Program,
    port: int | None,
    *,
    detached: bool,
    prepare: Callable[[S], list[str]],
    password: str | None = None,
) -> S:
    """Start a new server.

    Args:
        server: its class.
        program: runs it.
        port: TCP port, None for a free one.
        detached: whether the server outlives this process.
        prepare: creates the server's data directory, hands it over, and returns the arguments to run with.
        password: the administrator's; None: a random one, if the product has users.

    Returns:
        The running server.

    Raises:
        TailraceError: it did not start. Its log is kept.
    """
    registry.remove_orphans()
    name, port, directory = registry.claim(server.product, port, server.ports)
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
    """Copy an initialised data directory, created at first use, to a server's.

    Args:
        key: the template's name: product, version and everything else that its content depends on.
        make: fills an empty directory, as the user that runs the server.
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
    """`defaults` overridden by `options`, whose names may contain dashes."""
    return {**defaults, **{name.replace("-", "_"): value for name, value in (options or {}).items()}}
