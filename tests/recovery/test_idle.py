"""An idle stream waits for its log, and no longer than until there is more of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import postgres as postgres_support
from tests.support.engine import Engine, options_for
from tests.support.wait import wait_until

#: Longer than a loaded machine takes to deliver a change.
LONG_S = 60.0


@pytest.mark.parametrize("product", ["mysql", "mariadb", "postgres"])
def test_wait_ends_with_the_next_change(request: pytest.FixtureRequest, product: str) -> None:
    server = request.getfixturevalue(product)
    execute: Callable[..., Any]
    if product == "postgres":
        name = request.getfixturevalue("postgres_database")
        options = postgres_support.options_for(server, name, r"public\.t")

        def execute(*statements: str) -> Any:
            return server.execute(*statements, database=name)
    else:
        name = request.getfixturevalue("database" if product == "mysql" else "mariadb_database")
        options = options_for(server, rf"{name}\.t")

        def execute(*statements: str) -> Any:
            return server.execute(f"USE {name}", *statements)

    execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with Engine(options) as engine:
        wait_until(lambda: engine.next() is None and bool(engine.offset.done), 30, "the snapshot")

        def is_idle() -> bool:
            begin = time.monotonic()
            engine.next()
            engine.plan.wait(engine.offset, 0.2)
            return time.monotonic() - begin >= 0.2

        wait_until(is_idle, 30, "the log's end")
        for value in (2, 3):
            threading.Timer(0.5, lambda value=value: execute(f"INSERT INTO t VALUES ({value})")).start()
            begin = time.monotonic()
            found = None
            while found is None and time.monotonic() - begin < LONG_S:
                found = engine.next()
                if found is None:
                    engine.plan.wait(engine.offset, LONG_S)
            assert found is not None
            assert time.monotonic() - begin < LONG_S / 2
