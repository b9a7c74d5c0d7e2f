"""Databases of the control plane for tests: one of each kind, fresh for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.config.secret import Secret
from tailrace.control.metadata.database import ControlDatabase
from tests.support.databases import fresh_database

#: The kinds of databases that may hold the control plane.
KINDS = ("sqlite", "postgresql", "mysql")

#: A pipeline file that is accepted.
SPEC = """\
source:
  url: mysql://db.example/shop
  user: reader
  password: ${env:SHOP_PASSWORD}
  tables: shop\\.orders
sink: {type: delta, path: lake/NAME}
"""


def spec(name: str) -> str:
    """The file of a subscription called `name`."""
    return SPEC.replace("NAME", name)


@contextmanager
def database(kind: str, request: pytest.FixtureRequest, directory: Path) -> Iterator[ControlDatabase]:
    """A fresh database of that kind, with the tables of the control plane.

    Args:
        kind: one of KINDS.
        request: the test's; its servers are started when they are asked for.
        directory: for the file of SQLite.
    """
    if kind == "sqlite":
        found = ControlDatabase(f"sqlite:///{directory}/control/tailrace.db")
        found.prepare()
        yield found
        found.close()
        return
    if kind == "postgresql":
        server = request.getfixturevalue("postgres")
        name = f"t_{uuid.uuid4().hex[:12]}"
        server.execute(f"CREATE DATABASE {name}")
        try:
            found = ControlDatabase(_url(kind, server, name), Secret(server.password, is_literal=True))
            found.prepare()
            yield found
            found.close()
        finally:
            server.drop_database(name)
        return
    server = request.getfixturevalue("mysql")
    with fresh_database(server) as name:
        found = ControlDatabase(_url(kind, server, name), Secret(server.password, is_literal=True))
        found.prepare()
        yield found
        found.close()


def _url(kind: str, server: object, name: str) -> str:
    return f"{kind}://{server.user}@{server.host}:{server.port}/{name}"  # type: ignore[attr-defined]
