"""A server of the control plane runs pipelines on a Spark cluster: `master` in their files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.control import subscriptions
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.stages import Desired
from tests.support import control
from tests.support.control_servers import ControlServer, Shop, named, wait_for_batch
from tests.support.databases import fresh_database
from tests.support.spark_cluster import Cluster
from tests.support.wait import wait_until


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlDatabase]:
    with control.database("sqlite", request, tmp_path) as found:
        yield found


@pytest.mark.slow  # workers of a cluster start for a minute
@pytest.mark.timeout(900)
def test_group_runs_on_a_cluster_as_one_application(mysql, database: ControlDatabase, tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    directory.mkdir()
    env = {"TEST_PASSWORD": mysql.password}
    names = ("one", "two")
    with fresh_database(mysql) as schema, Cluster(directory, workers=2) as cluster:
        shop = Shop(mysql, schema, tmp_path)
        settings = {"group": "g", "master": cluster.master, "spark": {"spark.executor.memory": "512m"}}
        with database.begin() as connection:
            for name in names:
                spec = shop.spec(name, **settings).replace("  parallelism: 1\n", "")
                subscriptions.create(connection, "ann", name, spec)
        server = ControlServer("s1", database, tmp_path, env)
        try:
            with shop.writing():
                for name in names:
                    wait_for_batch(database, name, timeout_s=300)
                with database.begin() as connection:
                    subscriptions.set_desired(connection, "ann", "one", Desired.PAUSE)
                wait_until(lambda: named(database, "one").owner is None, 120, server.output)
                with database.begin() as connection:
                    subscriptions.set_desired(connection, "ann", "one", Desired.RUN)
                wait_for_batch(database, "one", 2, timeout_s=180)
            for name in names:
                shop.wait_until_equal(name, 180)
            applications = {path.name for path in directory.glob("work-*/app-*")}
            assert len(applications) == 1, applications
            assert server.end() == 0, server.output()
        finally:
            server.close()
