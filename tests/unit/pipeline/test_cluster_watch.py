"""What is said of a cluster's executors, and when."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tailrace.pipeline import cluster_watch
from tailrace.pipeline.cluster_watch import LOOK_S, PATIENCE_S, ClusterWatch


class Spark:
    """A session on a cluster, as far as it is looked at."""

    def __init__(self, master="spark://master:7077", **conf):
        self.jobs = [1]
        self.executors = frozenset()
        self.looks = 0
        self.now = 0.0
        tracker = SimpleNamespace(getActiveJobsIds=lambda: self.jobs)
        self.sparkContext = SimpleNamespace(master=master, statusTracker=lambda: tracker)
        self.conf = SimpleNamespace(get=lambda name, default: conf.get(name.rpartition(".")[2], default))
        self.said: list[str] = []

    def watch(self):
        return ClusterWatch(self, self.said.append, clock=lambda: self.now)

    def pass_time(self, watch, seconds, *executors):
        self.executors = frozenset(executors)
        for _ in range(int(seconds / LOOK_S) + 1):
            self.now += LOOK_S
            watch.look()


@pytest.fixture(autouse=True)
def _executors(monkeypatch):
    def found(session):
        session.looks += 1
        return session.executors

    monkeypatch.setattr(cluster_watch, "executors", found)


def test_local_spark_is_not_looked_at():
    spark = Spark("local[2,4]")
    spark.pass_time(spark.watch(), 60)
    assert (spark.looks, spark.said) == (0, [])


def test_job_without_executors_is_reported_once_with_the_remedy():
    spark = Spark()
    watch = spark.watch()
    spark.pass_time(watch, PATIENCE_S - 2 * LOOK_S)
    assert not spark.said
    spark.pass_time(watch, 60)
    (text,) = spark.said
    assert text.startswith("waiting for executors: `spark://master:7077` has given none")
    assert "spark.cores.max" in text
    spark.pass_time(watch, 4, "a:1")
    assert spark.said[1:] == ["1 executor joined"]


def test_cluster_without_a_job_is_not_waited_for():
    spark = Spark()
    spark.jobs = []
    spark.pass_time(spark.watch(), 60)
    assert not spark.said


def test_lost_executor_is_reported():
    spark = Spark()
    watch = spark.watch()
    spark.pass_time(watch, 4, "a:1", "b:2")
    spark.pass_time(watch, 4, "b:2")
    assert spark.said == ["lost 1 executor: `a:1`; 1 left; unfinished tasks run again"]


def test_executors_that_the_cluster_allocates_dynamically_come_and_go():
    spark = Spark(enabled="true")
    watch = spark.watch()
    spark.jobs = []
    spark.pass_time(watch, 4, "a:1", "b:2")
    spark.pass_time(watch, 4)
    assert not spark.said


def test_looks_are_far_apart():
    spark = Spark()
    watch = spark.watch()
    for _ in range(10):
        watch.look()
    assert spark.looks == 1
