"""Verify and repair as jobs: real servers, workers and comparisons; a server dies in the midst of one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tailrace.control import jobs, subscriptions
from tailrace.control.jobs import JobKind, JobState, TableJob
from tailrace.control.metadata.database import ControlDatabase
from tests.recovery.test_control_takeover import Shop
from tests.support import control
from tests.support.control_servers import ControlServer, wait_for_batch
from tests.support.databases import fresh_database

pytestmark = pytest.mark.slow


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlDatabase]:
    with control.database("sqlite", request, tmp_path) as found:
        yield found


@pytest.fixture
def shop(mysql, tmp_path: Path) -> Iterator[Shop]:
    with fresh_database(mysql) as name:
        yield Shop(mysql, name, tmp_path)


def _ask(database: ControlDatabase, kind: JobKind) -> TableJob:
    with database.begin() as connection:
        return jobs.create(connection, "ann", "shop", kind, [])[0]


def _wait(
    database: ControlDatabase, job: TableJob, enough: Callable[[TableJob], bool], timeout_s: float = 180
) -> TableJob:
    deadline = time.monotonic() + timeout_s
    while not enough(found := database.read(lambda c: jobs.get(c, "shop", job.id))):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def _has_ended(job: TableJob) -> bool:
    return job.state.has_ended


def test_jobs_find_repair_and_survive_the_server_that_runs_them(
    shop: Shop, database: ControlDatabase, tmp_path: Path
) -> None:
    env = {"TEST_PASSWORD": shop.server.password}
    with database.begin() as connection:
        subscriptions.create(connection, "ann", "shop", shop.spec("shop"))
    servers = [ControlServer("s1", database, tmp_path, env)]
    try:
        wait_for_batch(database, "shop")
        shop.wait_until_equal("shop")
        DeltaTable(str(shop.target("shop") / f"{shop.name}.orders")).update(
            predicate="id = 7", updates={"n": "77"}
        )
        found = _wait(database, _ask(database, JobKind.VERIFY), _has_ended)
        assert (found.state, found.differences, found.done, found.total) == (JobState.DONE, 1, 1, 1), found
        # the server dies while the next job runs: another one ends it
        repair = _ask(database, JobKind.REPAIR)
        _wait(database, repair, lambda job: job.state is JobState.RUNNING)
        servers.append(ControlServer("s2", database, tmp_path, env))
        servers[0].kill()
        found = _wait(database, repair, _has_ended)
        assert found.state is JobState.DONE, found
        assert found.result is not None
        (result,) = found.result["tables"]
        assert (result["differences"], result["reads_again"]) == (0, False)
        assert found.attempts == 2
        shop.wait_until_equal("shop")
    finally:
        for server in servers:
            server.close()
