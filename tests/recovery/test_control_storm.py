"""Thirty pipelines in groups, three servers, and faults of everything at random: each target is exact.

TAILRACE_STORM_MINUTES    how long, 30 by default
TAILRACE_STORM_SEED       of the dice, 1 by default
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from sqlalchemy import select, text, update

from tailrace.control import subscriptions
from tailrace.control.metadata.database import ControlDatabase, now_us
from tailrace.control.metadata.tables import subscriptions as table
from tailrace.errors import StateError, TransientControlError
from tests.support import control
from tests.support.control_servers import ControlServer, Shop, thaw, wait_for_batch
from tests.support.databases import fresh_database
from tests.support.processes import with_children

GROUPS, EACH = 3, 10
#: The longest time without an owner while another server could take over, and until the watcher sees it.
TAKE_OVER_S, LOOK_S = 15.0, 0.3


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlDatabase]:
    with control.database("postgresql", request, tmp_path) as found:
        yield found


@dataclass
class Watch:
    """Notes each owner and how long a subscription that is to run has none.

    Args:
        database: of the control plane.
    """

    database: ControlDatabase
    owners: dict[str, dict[int, set[str]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )
    gaps: list[tuple[float, str]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def watching(self) -> Iterator[None]:
        watcher = threading.Thread(target=self._run)
        watcher.start()
        try:
            yield
        finally:
            self.ended.set()
            watcher.join()

    def _run(self) -> None:
        of = table.c
        query = select(
            *(of.name, of.owner, of.lease),
            (of.lease_until_us > now_us()).label("is_owned"),
            (of.retry_us > now_us()).label("waits"),
        )
        since: dict[str, float] = {}
        while not self.ended.wait(LOOK_S):
            began = time.monotonic()
            try:
                rows = self.database.read(lambda c: c.execute(query).all())
            except (TransientControlError, StateError):
                since.clear()  # nobody can take anything over
                continue
            if time.monotonic() - began > 1:  # nor while it stood still
                since.clear()
            for row in rows:
                if row.owner is not None:
                    self.owners[row.name][row.lease].add(row.owner)
                if row.is_owned or row.waits:
                    if row.name in since:
                        self.gaps.append((time.monotonic() - since.pop(row.name), row.name))
                else:
                    since.setdefault(row.name, time.monotonic())


class Storm:
    """Faults.

    Args:
        dice: decides.
        servers: the servers.
        database: of the control plane.
        processes: of the server of that database.
    """

    def __init__(
        self, dice: random.Random, servers: list[ControlServer], database: ControlDatabase, processes: int
    ) -> None:
        self._dice, self._servers, self._database, self._processes = dice, servers, database, processes
        self.done: list[str] = []

    def strike(self) -> None:
        """One fault, and what follows it."""
        kinds = ("kill", "freeze", "worker", "connections", "freeze-database", "kill-database")
        kind = self._dice.choice(kinds)
        server = self._dice.choice(self._servers)
        self.done.append(f"{kind} {server.name}")
        match kind:
            case "kill":
                server.kill()
                time.sleep(self._dice.uniform(0, 15))
                server.start()
            case "freeze":
                frozen = server.freeze()
                time.sleep(self._dice.uniform(1, 25))
                thaw(frozen)
            case "worker":
                workers = server.workers()
                if workers:
                    with suppress(ProcessLookupError):
                        os.kill(self._dice.choice(workers), signal.SIGKILL)
            case "connections":
                self._run("SELECT pg_terminate_backend(pid)")
            case "freeze-database":
                frozen = with_children(self._processes)
                for pid in frozen:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGSTOP)
                time.sleep(self._dice.uniform(1, 15))
                thaw(frozen)
            case _:  # PostgreSQL ends all others, and recovers
                for pid in self._run("SELECT pid")[:1]:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        time.sleep(self._dice.uniform(0, 8))

    def _run(self, what: str) -> list[Any]:
        others = "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        with suppress(TransientControlError, StateError), self._database.begin() as connection:
            query = text(f"{what} FROM pg_stat_activity {others}")
            return list(connection.execute(query).scalars())
        return []


def _leases_of(target: Path) -> list[int]:
    """The leases that the commits of a Delta table carry, oldest first."""
    found = []
    for commit in reversed(DeltaTable(str(target)).history()):
        metadata = json.loads(commit.get("userMetadata") or "{}")
        if "lease" in metadata:
            found.append(metadata["lease"])
    return found


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_thirty_pipelines_are_exact_after_a_storm(
    mysql, postgres, database: ControlDatabase, tmp_path: Path
) -> None:
    dice = random.Random(int(os.environ.get("TAILRACE_STORM_SEED", "1")))
    minutes = float(os.environ.get("TAILRACE_STORM_MINUTES", "30"))
    env = {"TEST_PASSWORD": mysql.password}
    settings = {"restarts-per-hour": 0, "spark": {"spark.driver.memory": "1g"}}
    with fresh_database(mysql) as schema:
        shop = Shop(mysql, schema, tmp_path)
        names = [f"p{number:02d}" for number in range(GROUPS * EACH)]
        with database.begin() as connection:
            for number, name in enumerate(names):
                spec = shop.spec(name, group=f"g{number % GROUPS}", **settings)
                subscriptions.create(connection, "ann", name, spec)
        more = ("--group-size", str(EACH))
        # each two of them can run everything
        servers = [ControlServer(f"s{i}", database, tmp_path, env, capacity=2, more=more) for i in range(3)]
        watch = Watch(database)
        storm = Storm(dice, servers, database, postgres.state.pid)
        try:
            for name in names:
                wait_for_batch(database, name, timeout_s=900)
            with watch.watching(), shop.writing():
                until = time.monotonic() + minutes * 60
                while time.monotonic() < until:
                    storm.strike()
                time.sleep(TAKE_OVER_S)
            with database.begin() as connection:  # what waits for its next try need not wait longer
                connection.execute(update(table).values(retry_us=None))
            for name in names:
                shop.wait_until_equal(name, 600)
        finally:
            for server in servers:
                server.close()
        longest = sorted(watch.gaps, reverse=True)[:5]
        print(f"{len(storm.done)} faults, {len(watch.gaps)} hand-overs, longest {longest}")  # noqa: T201
        for name, leases in watch.owners.items():
            assert all(len(owners) == 1 for owners in leases.values()), (name, leases)
        for name in names:
            written = _leases_of(shop.target(name) / f"{schema}.orders")
            assert written == sorted(written), (name, written)
        assert not longest or longest[0][0] <= TAKE_OVER_S + LOOK_S, longest
