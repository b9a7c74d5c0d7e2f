"""Several sources in one pipeline: shards of three servers in one Delta table, and each in tables of its own."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.load import parse_pipelines
from tailrace.errors import ConfigError, TailraceError
from tailrace.pipeline.run_sources import run_sources
from tests.support.databases import fresh_database
from tests.support.sources import Notes

_ROUTES = """
  - {source-table: '(.*)\\.orders', sink-table: orders, shard-column: _shard}
  - {source-table: '(.*)\\.own', sink-table: '{source}_own'}
"""


@pytest.fixture
def shards(mysql: Any, mariadb: Any, postgres: Any, postgres_database: str) -> Any:
    """The servers, by source: how to execute SQL, and the entry of the pipeline file."""
    with ExitStack() as stack:
        east = stack.enter_context(fresh_database(mysql))
        west = stack.enter_context(fresh_database(mariadb))
        yield {
            "east": (
                lambda *sql: mysql.execute(*(s.replace("@", f"{east}.") for s in sql)),
                _entry("east", mysql, east),
            ),
            "west": (
                lambda *sql: mariadb.execute(*(s.replace("@", f"{west}.") for s in sql)),
                _entry("west", mariadb, west),
            ),
            "north": (
                lambda *sql: postgres.execute(
                    *(s.replace("@", "public.") for s in sql), database=postgres_database
                ),
                _postgres("north", postgres, postgres_database),
            ),
        }


def _entry(name: str, server: Any, database: str) -> str:
    return (
        f"{{name: {name}, url: 'mysql://{server.host}:{server.port}', user: {server.user},"
        f" password: {server.password}, tables: '{database}\\..*'}}"
    )


def _postgres(name: str, server: Any, database: str) -> str:
    return (
        f"{{name: {name}, url: 'postgresql://{server.host}:{server.port}/{database}', user: {server.user},"
        f" password: '{server.password}', tables: 'public\\..*', slot-name: {database}}}"
    )
