"""Servers of the control plane die, hang and come back: one owner each, and targets are exact."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import text, update

from tailrace.control import audit, subscriptions
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.metadata.tables import subscriptions as subscriptions_table
from tailrace.control.stages import Desired, Stage
from tailrace.errors import StateError, TransientControlError
from tests.support import control
from tests.support.control_servers import (
    ControlServer,
    Shop,
    named,
    thaw,
    wait_for_batch,
    wait_for_owner,
    wait_until_done,
)

#: The longest time without an owner after a server has died, seconds.
TAKE_OVER_S = 15.0
#: How long faults come, seconds.
_FAULTS_S = 180


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlDatabase]:
    with control.database("postgresql", request, tmp_path) as found:
        yield found


@pytest.fixture
def shop(mysql, database: ControlDatabase, request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    return Shop(mysql, request.getfixturevalue("mysql_schema"), tmp_path)


@pytest.fixture
def mysql_schema(mysql) -> Iterator[str]:
    from tests.support.databases import fresh_database

    with fresh_database(mysql) as name:
        yield name


def test_another_server_takes_over_from_one_that_died_or_hung(
    shop: Shop, database: ControlDatabase, tmp_path: Path
) -> None:
    env = {"TEST_PASSWORD": shop.server.password}
    with database.begin() as connection:
        subscriptions.create(connection, "ann", "shop", shop.spec("shop"))
    first = ControlServer("s1", database, tmp_path, env)
    second = None
    try:
        wait_for_batch(database, "shop")
        second = ControlServer("s2", database, tmp_path, env)
        with shop.writing():
            # the server dies: its worker ends, and the other server goes on
            first.kill()
            owner, took_s = wait_for_owner(database, "shop", 2)
            assert owner == "s2"
            assert took_s < TAKE_OVER_S
            first.start()
            wait_for_batch(database, "shop", 2)
            # the other one hangs with all its processes; when it comes back, nobody needs it
            frozen = second.freeze()
            owner, took_s = wait_for_owner(database, "shop", 3)
            assert owner == "s1"
            assert took_s < TAKE_OVER_S
            wait_for_batch(database, "shop", 3)
            thaw(frozen)
            time.sleep(2)
        shop.wait_until_equal("shop")
        found = named(database, "shop")
        assert (found.owner, found.lease) == ("s1", 3)
        assert found.stage is Stage.INCREMENTAL_LOG
        assert second.process.poll() is None, second.output()
        wait_until_done(database, 3)
        kinds = [e.kind for e in database.read(lambda c: audit.read_events(c, "shop"))]
        assert kinds.count("subscription.stage") <= 2
    finally:
        for server in (first, second):
            if server is not None:
                server.close()


@pytest.mark.slow
def test_pipeline_is_handed_over_by_a_server_that_is_asked_to_end_and_paused(
    shop: Shop, database: ControlDatabase, tmp_path: Path
) -> None:
    env = {"TEST_PASSWORD": shop.server.password}
    with database.begin() as connection:
        subscriptions.create(connection, "ann", "shop", shop.spec("shop"))
    first = ControlServer("s1", database, tmp_path, env)
    second = None
    try:
        wait_for_batch(database, "shop")
        second = ControlServer("s2", database, tmp_path, env)
        assert first.end() == 0, first.output()
        owner, took_s = wait_for_owner(database, "shop", 2)
        assert owner == "s2"
        assert took_s < TAKE_OVER_S
        shop.server.execute(f"INSERT INTO {shop.name}.orders VALUES (-1, 7)")
        wait_for_batch(database, "shop", 2)
        with database.begin() as connection:
            subscriptions.set_desired(connection, "ann", "shop", Desired.PAUSE)
        deadline = time.monotonic() + 60
        while named(database, "shop").owner is not None:
            assert time.monotonic() < deadline, second.output()
            time.sleep(0.1)
        shop.wait_until_equal("shop")
        wait_until_done(database, 2)
        (newest, *_) = database.read(lambda c: audit.read_events(c, "shop"))
        assert newest.kind == "subscription.pause"
    finally:
        for server in (first, second):
            if server is not None:
                server.close()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 2])
def test_targets_are_exact_after_minutes_of_faults(
    seed: int, shop: Shop, database: ControlDatabase, tmp_path: Path
) -> None:
    """Servers are killed and hang, and connections of the database break, at random."""
    dice = random.Random(seed)
    env = {"TEST_PASSWORD": shop.server.password}
    names = ("a", "b", "c")
    with database.begin() as connection:
        for name in names:
            subscriptions.create(connection, "ann", name, shop.spec(name, **{"restarts-per-hour": 0}))
    servers = [ControlServer(f"s{i}", database, tmp_path, env, capacity=2) for i in range(3)]
    seen: dict[str, list[tuple[int, str]]] = {name: [] for name in names}
    ended = threading.Event()

    def watch() -> None:
        """Note each owner that a subscription has had, with its lease."""
        while not ended.wait(0.2):
            with suppress(TransientControlError):
                for name in names:
                    found = named(database, name)
                    if found.owner is not None and (found.lease, found.owner) not in seen[name]:
                        seen[name].append((found.lease, found.owner))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for name in names:
            wait_for_batch(database, name, timeout_s=240)
        with shop.writing():
            until = time.monotonic() + _FAULTS_S
            while time.monotonic() < until:
                server = dice.choice(servers)
                match dice.choice(("kill", "freeze", "worker", "connections")):
                    case "kill":
                        server.kill()
                        time.sleep(dice.uniform(0, 15))
                        server.start()
                    case "freeze":
                        frozen = server.freeze()
                        time.sleep(dice.uniform(1, 25))
                        thaw(frozen)
                    case "worker":
                        for pid in server.workers()[:1]:
                            with suppress(ProcessLookupError):
                                os.kill(pid, signal.SIGKILL)
                    case _:
                        with suppress(TransientControlError, StateError), database.begin() as connection:
                            connection.execute(
                                text(
                                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                                    "datname = current_database() AND pid <> pg_backend_pid()"
                                )
                            )
                time.sleep(dice.uniform(0, 8))
        with database.begin() as connection:  # what waits for its next try need not wait longer
            connection.execute(update(subscriptions_table).values(retry_us=None))
        for name in names:
            shop.wait_until_equal(name, 300)
    finally:
        ended.set()
        watcher.join()
        for server in servers:
            server.close()
    for owners in seen.values():
        numbers = [number for number, _ in owners]
        assert numbers == sorted(set(numbers)), owners  # one owner for each lease, and they rise
