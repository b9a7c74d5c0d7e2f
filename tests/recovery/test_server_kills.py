"""The target's server is killed while it is written to: the pipeline goes on by itself and is exact."""

from __future__ import annotations

import pytest

from tests.recovery import test_kafka_kill, test_replica_kill
from tests.recovery.test_kafka_kill import run as kafka_run  # noqa: F401 - a fixture
from tests.recovery.test_replica_kill import replica  # noqa: F401 - a fixture
from tests.support.kills import brought_back, fill_tables, writing

pytestmark = pytest.mark.slow

POINTS = ("snapshot.batch", "sink.task", "sink.table", "log.batch", "sink.committed")
#: A batch that is one transaction is written by the driver: no task has a share of its own.
OF_WHOLE_BATCHES = tuple(point for point in POINTS if point != "sink.task")
REPLICAS = [
    pytest.param(("mariadb", "parts"), POINTS, id="mariadb-parts"),
    pytest.param(("postgres", "parts"), POINTS, id="postgres-parts"),
    pytest.param(("postgres", "whole-batch"), OF_WHOLE_BATCHES, id="postgres-whole-batch"),
]


def killed_at(server, database, process, target, points) -> None:
    """The first point is reached with rows of the snapshot, the next ones with what was written meanwhile."""
    for point in points:
        with writing(server, database), brought_back(target):
            code = process.run(failpoint=point, victim=str(target.state.pid))
        assert code == 0, process.output()
    assert process.run() == 0, process.output()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("replica", "points"), REPLICAS, indirect=["replica"])
def test_replica_is_exact_though_its_server_was_killed_at_every_failpoint(replica, points) -> None:  # noqa: F811
    fill_tables(replica.source, replica.database)
    killed_at(replica.source, replica.database, replica.process, replica.server, points)
    test_replica_kill.assert_exact(replica)


@pytest.mark.timeout(3600)
def test_topics_are_exact_though_the_broker_was_killed_at_every_failpoint(
    mysql,
    kafka,
    busy,
    kafka_run,  # noqa: F811
) -> None:
    killed_at(mysql, busy, kafka_run, kafka, (*POINTS, "sink.produced"))
    test_kafka_kill.assert_exact(mysql, kafka, busy)
