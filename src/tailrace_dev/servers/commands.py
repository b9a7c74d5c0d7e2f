"""`tailrace dev`: real servers from the command line."""

from __future__ import annotations

from collections.abc import Callable

import click

from tailrace.errors import TailraceError
from tailrace.printable import printable
from tailrace_dev.servers import registry
from tailrace_dev.servers.apicurio import RegistryServer, start_registry
from tailrace_dev.servers.kafka import KafkaServer, start_kafka
from tailrace_dev.servers.mariadb import MariaDbServer, start_mariadb
from tailrace_dev.servers.mysql import MySqlServer, start_mysql
from tailrace_dev.servers.nats import NatsServer, start_nats
from tailrace_dev.servers.opensearch import OpenSearchServer, start_opensearch
from tailrace_dev.servers.postgres import PostgresServer, start_postgres
from tailrace_dev.servers.rabbitmq import RabbitMqServer, start_rabbitmq
from tailrace_dev.servers.redis import RedisServer, start_redis
from tailrace_dev.servers.rocketmq import RocketMqServer, start_rocketmq
from tailrace_dev.servers.server import DevServer, is_running

_START: dict[str, Callable[..., DevServer]] = {
    "mysql": start_mysql,
    "mariadb": start_mariadb,
    "postgres": start_postgres,
    "kafka": start_kafka,
    "registry": start_registry,
    "opensearch": start_opensearch,
    "rocketmq": start_rocketmq,
    "redis": start_redis,
    "nats": start_nats,
    "rabbitmq": start_rabbitmq,
}
_CLASSES: dict[str, type[DevServer]] = {
    c.product: c
    for c in (
        MySqlServer,
        MariaDbServer,
        PostgresServer,
        KafkaServer,
        RegistryServer,
        OpenSearchServer,
        RocketMqServer,
        RedisServer,
        NatsServer,
        RabbitMqServer,
    )
}


@click.group()
def dev() -> None:
    """Real servers of databases, message systems, OpenSearch and a schema registry, without root or Docker.

    They listen on 127.0.0.1. Databases have a random password, kept in a file that only you can read.
    """


@dev.command()
@click.argument("product", type=click.Choice(list(_START)))
@click.option("--version", help="Leading part of the version, e.g. 9.7; default: any available one.")
@click.option("--port", type=click.IntRange(1, 65535), help="TCP port on 127.0.0.1; default: a free one.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Server setting; repeatable.")
def start(product: str, version: str | None, port: int | None, options: tuple[str, ...]) -> None:
    """Start a new, empty server, set up for capture. It runs until `tailrace dev stop`."""
    settings = {}
    for option in options:
        name, sign, value = option.partition("=")
        if not sign or not name:
            raise click.BadParameter(f"expected NAME=VALUE, got {option!r}", param_hint="--option")
        settings[name] = value
    server = _START[product](version, port, settings, detached=True)
    click.echo(f"{server.name}: {product} {server.version} at {server.url}")
    if server.user:
        click.echo(f"user: {server.user}")
        click.echo(f"password: {_password(server)}")
    else:
        click.echo("no password: every user of this machine can use it, over the loopback interface")
    click.echo(f"log {server.log}")
    click.echo(f"to stop it and delete its data: tailrace dev stop {server.name}")


@dev.command()
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Every server that `tailrace dev start` started.")
def stop(name: str | None, everything: bool) -> None:
    """Stop a server and delete its data."""
    if everything == (name is not None):
        raise click.UsageError("give either a NAME (see `tailrace dev list`) or --all")
    registry.remove_orphans()
    # a server that belongs to a process (a test, a demo) is stopped only by its name
    states = [s for s in registry.states() if (s.owner is None if everything else s.name == name)]
    if name is not None and not states:
        known = ", ".join(s.name for s in registry.states()) or "none"
        raise TailraceError(
            f"there is no server `{name}`", f"known are: {known}", "tailrace dev list", code="TR-9006"
        )
    for state in states:
        server = _CLASSES[state.product](state)
        server.stop()
        server.remove()
        click.echo(f"{state.name}: stopped, its data deleted")


@dev.command("list")
def list_() -> None:
    """List the servers of this cache."""
    registry.remove_orphans()
    states = registry.states()
    if not states:
        click.echo("no servers; start one: tailrace dev start mysql")
    for state in states:
        server = _CLASSES[state.product](state)
        condition = "running" if is_running(state) else "stopped"
        owner = f", of process {state.owner}" if state.owner is not None else ""
        password = f"  password {_password(server)}" if server.password_file.exists() else ""
        line = f"{state.name}  {state.version}  {server.url}  {condition}{owner}  {server.log}{password}"
        click.echo(printable(line))


def _password(server: DevServer) -> str:
    """The administrator's password as a reference in a pipeline file."""
    return f"${{file:{server.password_file}}}"
