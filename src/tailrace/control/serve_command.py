"""`tailrace serve`: a server of the control plane."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import click

from tailrace.config import host_guard
from tailrace.config.secret import Secret
from tailrace.control import tokens
from tailrace.control.api.app import create_app
from tailrace.control.front import Front
from tailrace.control.groups import GROUP_SIZE
from tailrace.control.http import HttpServer
from tailrace.control.job_execution import JobExecutor
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.oidc.settings import read_settings
from tailrace.control.oidc.sign_on import SignOn
from tailrace.control.operations import Control
from tailrace.control.policy_options import policy_of, policy_options
from tailrace.control.runner import Runner
from tailrace.control.server import Owner, require_name
from tailrace.errors import ConfigError, TransientControlError
from tailrace.machine import cores, memory_bytes
from tailrace.pipeline.signals import stop_on_signals
from tailrace.printable import printable_lines
from tailrace.private import make_private_directory

_R = TypeVar("_R")

#: How often a database that does not answer yet is asked again, seconds.
_LOOK_S = 1.0
#: Memory that a worker takes, bytes: Spark's JVM, its Python processes and the source.
_WORKER_BYTES = 1_500_000_000
#: Connections of what a server does by itself: one for its subscriptions, one for jobs, and one to spare.
_OWN_CONNECTIONS = 3


def _state_directory() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "tailrace"


def _capacity() -> int:
    return max(1, min(memory_bytes() // 2 // _WORKER_BYTES, 4 * cores()))


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=_state_directory,
    show_default="~/.local/state/tailrace",
    help="Directory for checkpoints, logs and what paths of pipeline files are relative to; servers on "
    "several hosts need the same one.",
)
@click.option(
    "--database",
    metavar="URL",
    help="Database that the servers share: sqlite:////FILE (one host), postgresql://USER@HOST/DATABASE, "
    "mysql://USER@HOST/DATABASE; default: SQLite in the data directory.",
)
@click.option("--database-password", metavar="REFERENCE", help="Its password: ${env:NAME} or ${file:PATH}.")
@click.option("--name", help="Name of this server, unique; default: HOST-PID.")
@click.option(
    "--capacity",
    type=click.IntRange(min=0),
    default=_capacity,
    show_default="by memory and cores",
    help="Workers that this server has at a time, each for a pipeline or for those of a group; 0: none, it "
    "only has the API and the page.",
)
@click.option(
    "--group-size",
    type=click.IntRange(1, 500),
    default=GROUP_SIZE,
    show_default=True,
    help="Pipelines of one group that share a worker at most.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8770",
    show_default=True,
    help="Where the API and the page are; other addresses than loopback need a certificate.",
)
@click.option("--tls-cert", type=click.Path(path_type=Path), help="Certificate of that address, PEM.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="Its key.")
@click.option("--plain-http", is_flag=True, help="No certificate: a proxy in front of this server has it.")
@click.option(
    "--public-url", metavar="URL", help="Address that browsers use, if a proxy is in front: https://HOST."
)
@click.option(
    "--public-host",
    metavar="PATTERN",
    multiple=True,
    help="Further name under which clients reach this server: NAME, *.DOMAIN, or *.",
)
@click.option(
    "--trusted-proxy",
    metavar="ADDRESS|NETWORK",
    multiple=True,
    help="Proxy whose X-Forwarded-For and X-Forwarded-Proto are believed.",
)
@click.option(
    "--oidc",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File that says with which provider of OpenID Connect people sign in, and who may do what.",
)
@policy_options
def serve(
    *,
    data_dir: Path,
    database: str | None,
    database_password: str | None,
    name: str | None,
    capacity: int,
    group_size: int,
    listen: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    plain_http: bool,
    public_url: str | None,
    public_host: tuple[str, ...],
    trusted_proxy: tuple[str, ...],
    oidc: Path | None,
    **allowed: Any,
) -> None:
    """Run pipelines as subscriptions of a database, until Ctrl-C: running batches finish first."""
    front = Front(public_url, public_host, trusted_proxy)
    settings = None if oidc is None else read_settings(oidc)
    name = require_name(name or f"{platform.node()}-{os.getpid()}")
    data_dir = data_dir.absolute()
    make_private_directory(data_dir)
    url = database or f"sqlite:///{data_dir}/tailrace.db"
    password = _password(database_password)
    with (
        closing(ControlDatabase(url, password)) as metadata,
        # requests that wait in the other's pool must not keep this server from its subscriptions
        closing(ControlDatabase(url, password, connections=_OWN_CONNECTIONS)) as own_metadata,
    ):
        _answered(metadata.prepare, time.sleep)
        host_guard.guard(tuple(allowed["allow_hosts"]))
        own = [path.absolute() for path in (tls_cert, tls_key) if path is not None]
        control = Control(metadata, data_dir, policy_of(allowed, url, own))
        runner = Runner(own_metadata, data_dir, name, group_size)
        owner = Owner(own_metadata, name, capacity, runner, control.runnable, tell=_tell)
        work = Control(own_metadata, data_dir, control.policy)
        with (
            stop_on_signals(lambda: _tell("stopping: running batches finish first")) as stop,
            HttpServer(
                create_app(control, stop), listen, tls_cert, tls_key, plain=plain_http, front=front
            ) as http,
            JobExecutor(work, name),
        ):
            owner.stop, owner.url = stop, http.url
            if settings is not None:
                control.sign_on = SignOn(settings, public_url or http.url)
            # before anybody reads that it answers: it may fail
            token = _answered(lambda: tokens.first_token(metadata, name), stop.wait)
            _tell(f"server {name} has up to {capacity} workers, and answers at {http.url}")
            if token is not None:
                _tell(f"sign in with the token {token}\nIt may do everything, and is shown only now.")
            owner.run()


def _answered(work: Callable[[], _R], wait: Callable[[float], object]) -> _R:
    """What `work` gives, as soon as the database answers: it may start after this server, or with it.

    Args:
        work: asks the database.
        wait: waits for some seconds; says if this server is to end.

    Raises:
        TransientControlError: the database does not answer, and this server is to end.
    """
    is_told = False
    while True:
        try:
            return work()
        except TransientControlError as error:
            if not is_told:
                _tell(f"{error}\nwaiting for it")
            is_told = True
            if wait(_LOOK_S):
                raise


def _tell(text: str) -> None:
    click.echo(printable_lines(text))


def _password(text: str | None) -> Secret | None:
    if text is None:
        return None
    try:
        secret = Secret(text)
    except ValueError:
        secret = None
    if secret is None or not secret.is_reference:
        raise ConfigError(
            "`--database-password` is not a reference",
            "command lines are seen by every user of the machine",
            "give ${env:NAME} or ${file:PATH}",
            code="TR-8426",
        )
    return secret
