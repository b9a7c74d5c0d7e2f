"""Pipelines of a group share a worker: what happens to one of them is no business of the others."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import update

from tailrace.control import subscriptions
from tailrace.control.metadata.database import ControlDatabase, now_us
from tailrace.control.metadata.tables import subscriptions as table
from tailrace.control.stages import Desired, Stage
from tests.support import control
from tests.support.control_servers import ControlServer, Shop, named, wait_for_batch, wait_for_owner
from tests.support.databases import fresh_database


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlDatabase]:
    with control.database("postgresql", request, tmp_path) as found:
        yield found


@pytest.fixture
def shop(mysql, database: ControlDatabase, tmp_path: Path) -> Iterator[Shop]:
    with fresh_database(mysql) as name:
        yield Shop(mysql, name, tmp_path)


def _wait(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def _jvms(server: ControlServer) -> list[int]:
    def is_jvm(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/comm").read_text() == "java\n"
        except OSError:
            return False

    return [pid for pid in server.workers() if is_jvm(pid)]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pipelines_of_a_group_leave_each_other_alone(
    shop: Shop, database: ControlDatabase, tmp_path: Path
) -> None:
    env = {"TEST_PASSWORD": shop.server.password, "TEST_WRONG": "wrong"}
    grouped = {"group": "g", "restarts": 0}
    broken = shop.spec("broken", **grouped).replace("TEST_PASSWORD", "TEST_WRONG")
    with database.begin() as connection:
        for name in ("paused", "taken"):
            subscriptions.create(connection, "ann", name, shop.spec(name, **grouped))
        subscriptions.create(connection, "ann", "broken", broken)
    first = ControlServer("s1", database, tmp_path, env)
    second = None

    def has_failed() -> bool:
        return named(database, "broken").stage is Stage.FAILED

    try:
        with shop.writing():
            for name in ("paused", "taken"):
                wait_for_batch(database, name)
            _wait(has_failed, "the broken one")
            (jvm,) = _jvms(first)
            # one is paused and resumed: the other one keeps its lease
            with database.begin() as connection:
                subscriptions.set_desired(connection, "ann", "paused", Desired.PAUSE)
            _wait(lambda: named(database, "paused").owner is None, "it goes on")
            with database.begin() as connection:
                subscriptions.set_desired(connection, "ann", "paused", Desired.RUN)
            wait_for_batch(database, "paused", 2)
            assert named(database, "taken").lease == 1
            # one is mended
            with database.begin() as connection:
                subscriptions.change_spec(connection, "ann", "broken", shop.spec("broken", **grouped))
                subscriptions.retry(connection, "ann", "broken")
            wait_for_batch(database, "broken", 2)
            # one is taken: its query ends, those beside it go on
            with database.begin() as connection:
                values = {"owner": "s9", "lease": 7, "lease_until_us": now_us() + 3_000_000}
                connection.execute(update(table).where(table.c.name == "taken").values(**values))
            wait_for_batch(database, "taken", 8)
            assert [named(database, name).lease for name in ("paused", "broken")] == [2, 2]
            assert _jvms(first) == [jvm]
            # the server dies: all go to another one, again in one worker
            second = ControlServer("s2", database, tmp_path, env)
            first.kill()
            for name, lease in (("paused", 3), ("broken", 3), ("taken", 9)):
                assert wait_for_owner(database, name, lease)[0] == "s2"
                wait_for_batch(database, name, lease)
            assert len(_jvms(second)) == 1
        for name in ("paused", "taken", "broken"):
            shop.wait_until_equal(name)
        logs = {name: tmp_path / "subscriptions" / name / "tailrace.log" for name in ("broken", "paused")}
        assert "Access denied" in logs["broken"].read_text()
        assert "Access denied" not in logs["paused"].read_text()
        assert second.end() == 0, second.output()
        assert {named(database, name).owner for name in ("paused", "taken", "broken")} == {None}
        assert {named(database, name).failures for name in ("paused", "taken", "broken")} == {0}
    finally:
        for server in (first, second):
            if server is not None:
                server.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_group_starts_again_when_its_jvm_is_killed_while_it_starts(
    shop: Shop, database: ControlDatabase, tmp_path: Path
) -> None:
    with database.begin() as connection:
        for name in ("a", "b"):
            subscriptions.create(connection, "ann", name, shop.spec(name, group="g"))
    server = ControlServer("s1", database, tmp_path, {"TEST_PASSWORD": shop.server.password})
    try:
        killed = set[int]()
        for after_s in (0.0, 2.5, 5.0):  # before it can be reached, and while Spark starts in it
            _wait(lambda: _are_to_run(database) and bool({*_jvms(server)} - killed), "no JVM starts", 90)
            time.sleep(after_s)
            for pid in {*_jvms(server)} - killed:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        _wait(lambda: _are_to_run(database) and bool({*_jvms(server)} - killed), "no JVM starts", 90)
        for name in ("a", "b"):
            wait_for_batch(database, name)
            shop.wait_until_equal(name)
    finally:
        server.close()


def _are_to_run(database: ControlDatabase) -> bool:
    """Whether neither has failed for good; one that waits for its next try does so no more."""
    with database.begin() as connection:
        connection.execute(update(table).values(retry_us=None))
    return all(named(database, name).desired is Desired.RUN for name in ("a", "b"))
