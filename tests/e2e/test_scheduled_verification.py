"""`pipeline.verify`: a running pipeline finds and repairs what its log does not tell."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline
from tailrace.config.verification import VerifySettings
from tailrace.errors import StateError
from tailrace.pipeline.notifications import Notification
from tailrace.pipeline.verify_state import Comparison, VerifyState
from tailrace.verify.schedule import Verifications
from tailrace.verify.worker import Task, work
from tailrace_dev.servers import MariaDbServer, MySqlServer
from tailrace_dev.servers.server import wait_until
from tests.e2e.test_repair import run
from tests.support.databases import fresh_database
from tests.support.pipelines import PipelineProcess

#: How long something may take on a loaded machine, seconds.
PATIENCE_S = 180


def cascading(server: MySqlServer, database: str) -> None:
    """Two tables; MariaDB's log, and that of MySQL before 9.6, lacks what the key does to the second."""
    server.execute(
        f"USE {database}",
        "CREATE TABLE orders (id INT PRIMARY KEY)",
        "CREATE TABLE items (id INT PRIMARY KEY, order_id INT, v INT,"
        " FOREIGN KEY (order_id) REFERENCES orders (id) ON DELETE CASCADE ON UPDATE CASCADE)",
        "INSERT INTO orders VALUES (1), (2), (3)",
        "INSERT INTO items VALUES (10, 1, 1), (11, 1, 1), (20, 2, 2), (30, 3, 3)",
    )


class Beside:
    """Comparisons of a pipeline, in this process and by the shared session."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession) -> None:
        self.pipeline = pipeline
        self.spark = spark
        self.told: list[str] = []
        self.notified: list[Notification] = []
        self.shown: Mapping[str, Mapping[str, Comparison]] = {}
        self.tasks: list[Task] = []
        self._ended = 0.0

    def finish_when_due(self, interval_s: float) -> None:
        """The same when an interval has passed since the last time: a run may take less."""
        time.sleep(max(0.0, self._ended + interval_s - time.monotonic()))
        self.finish()

    def finish(self) -> None:
        """What is done at the end of a run."""

        def notify(batch: int, found: Sequence[Notification]) -> None:
            self.notified += found

        def show(known: Mapping[str, Mapping[str, Comparison]]) -> None:
            self.shown = known

        def start(task: Task) -> Iterator[dict[str, Any]]:
            self.tasks.append(task)
            events: list[dict[str, Any]] = []
            work(task, self.spark, events.append)
            yield from json.loads(json.dumps(events))

        stop = threading.Event()
        with Verifications(self.pipeline, self.told.append, notify, show, stop, start=start) as verifications:
            verifications.finish()
        self._ended = time.monotonic()

    def results(self) -> list[tuple[str, str, str]]:
        """Of the notifications: what, how it ended, and the table."""
        return [(n.aggregate_type, n.type, n.additional_data["data_collections"]) for n in self.notified]


def replicated(server: MySqlServer, database: str, replica: str, path: Path, verify: str) -> Pipeline:
    """A pipeline from one database of a server into another."""
    place = f"user: {server.user}, password: {server.password}"
    return parse_pipeline(
        f"source: {{url: '{server.url}', {place}, tables: '{database}.*'}}\n"
        f"sink: [{{type: mysql, url: '{server.url.replace('mariadb:', 'mysql:')}/{replica}', {place}}},"
        f" {{type: json, path: '{path / 'files'}'}}]\n"
        f"route: [{{source-table: '{database}.(.*)', sink-table: $1}}]\n"
        f"pipeline: {{trigger: available-now, checkpoint: '{path / 'checkpoint'}', verify: {verify}}}\n"
    )


def test_rows_changed_by_a_cascade_are_found_and_repaired_by_the_next_run(
    mariadb: MariaDbServer, mariadb_database: str, spark: SparkSession, tmp_path: Path
) -> None:
    orders, items = f"{mariadb_database}.orders", f"{mariadb_database}.items"
    cascading(mariadb, mariadb_database)
    with fresh_database(mariadb) as replica:
        verify = "{schedule: 1s, repair: schedule}"
        pipeline = replicated(mariadb, mariadb_database, replica, tmp_path, verify)
        beside = Beside(pipeline, spark)

        def held() -> set[tuple[int, int]]:
            return set(mariadb.execute(f"SELECT id, order_id FROM {replica}.items"))

        run(spark, pipeline)
        beside.finish()
        both = [("Verification", "COMPLETED", items), ("Verification", "COMPLETED", orders)]
        assert beside.results() == both
        assert {n.additional_data["status"] for n in beside.notified} == {"EQUAL"}
        mariadb.execute(f"DELETE FROM {orders} WHERE id = 1", f"UPDATE {orders} SET id = 7 WHERE id = 2")
        run(spark, pipeline)
        assert held() == {(10, 1), (11, 1), (20, 2), (30, 3)}, "the log lacks what the key did"
        beside.finish_when_due(1)
        known = beside.shown["mysql"][items]
        assert (known.differences, known.source_rows, known.target_rows) == (3, 2, 4)
        assert any("[TR-8110]" in text and f"`{items}`" in text for text in beside.told)
        assert known.request is not None
        assert ("Repair", "STARTED", items) in beside.results()
        run(spark, pipeline)
        beside.finish_when_due(1)
        assert beside.shown["mysql"][items].differences == 0
        assert held() == {(20, 7), (30, 3)}


def test_difference_ends_the_pipeline_where_that_is_wanted(
    mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    cascading(mysql, database)
    with fresh_database(mysql) as replica:
        verify = "{schedule: 1h, on-differences: fail, max-rows-per-second: 1000}"
        pipeline = replicated(mysql, database, replica, tmp_path, verify)
        run(spark, pipeline)
        mysql.execute(f"DELETE FROM {replica}.items WHERE id = 10")
        beside = Beside(pipeline, spark)
        with pytest.raises(StateError, match=r"TR-8110[\s\S]*1 missing, 0 extra, 0 different"):
            beside.finish()
        assert "targets of sink `json` are not compared: that is not possible for this kind" in beside.told
        assert beside.tasks[0].limits.snapshot_max_rows_per_second == 1000
        again = Beside(pipeline, spark)
        again.finish()
        assert not again.tasks, "each table was compared within the hour"
        other = replace(pipeline.settings, verify=VerifySettings("1h", tables=".*[.]orders"))
        only = Beside(replace(pipeline, settings=other), spark)
        only.finish()
        assert set(only.shown["mysql"]) == {f"{database}.orders"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failpoint", "signalled"),
    [("verify.begun", True), ("verify.found", False), ("verify.requested", False)],
)
def test_comparison_that_was_killed_is_repeated_and_what_differs_is_repaired(
    mysql: MySqlServer, database: str, tmp_path: Path, failpoint: str, *, signalled: bool
) -> None:
    cascading(mysql, database)
    with fresh_database(mysql) as replica:
        sink = {
            "type": "mysql",
            "url": f"{mysql.url}/{replica}",
            "user": mysql.user,
            "password": "${env:TEST_PASSWORD}",
        }
        pipeline = PipelineProcess(
            tmp_path,
            mysql,
            f"{database}.*",
            sink=sink,
            pipeline={
                "trigger": "continuous",
                **({} if signalled else {"verify": {"schedule": "3s", "repair": "schedule"}}),
            },
            sections={
                "route": [{"source-table": f"{database}.(.*)", "sink-table": "$1"}],
                "notifications": {"file": str(tmp_path / "notifications.jsonl")},
            },
        )

        def items() -> list[tuple[int, int]]:
            if not mysql.execute(f"SHOW TABLES FROM {replica} LIKE 'items'"):
                return []
            return list(mysql.execute(f"SELECT id, order_id FROM {replica}.items ORDER BY id"))

        def work_until_repaired() -> None:
            # whatever is not in time is shown by what is asserted below
            if wait_until(lambda: items() == [(20, 7), (30, 3)], PATIENCE_S):
                wait_until(lambda: known().differences == 0 and not known().is_open, PATIENCE_S)
                wait_until(lambda: not state().asked, PATIENCE_S)
            pipeline.kill()

        def state() -> VerifyState:
            return VerifyState.read(str(pipeline.targets / "_tailrace" / "checkpoint"))

        def known() -> Comparison:
            return state().tables["mysql"][f"{database}.items"]

        def damage() -> None:
            wait_until(lambda: len(items()) == 4, PATIENCE_S)
            mysql.execute(
                f"USE {database}",
                "SET sql_log_bin = 0",
                "DELETE FROM items WHERE order_id = 1",
                "INSERT INTO orders VALUES (7)",
                "UPDATE items SET order_id = 7 WHERE id = 20",
            )
            if signalled:
                assert pipeline.command("signal", "repair", "--id", "fix-1") == 0

        damaging = threading.Thread(target=damage)
        damaging.start()
        code = pipeline.run(failpoint=failpoint, timeout_s=PATIENCE_S)
        damaging.join()
        assert code == -signal.SIGKILL, pipeline.output()
        repairing = threading.Thread(target=work_until_repaired)
        repairing.start()
        pipeline.run(timeout_s=2 * PATIENCE_S)
        repairing.join()
        assert items() == [(20, 7), (30, 3)], pipeline.output()
        lines = [json.loads(line) for line in (tmp_path / "notifications.jsonl").read_text().splitlines()]
        told = {(line["aggregate_type"], line["type"]) for line in lines}
        assert told >= {("Verification", "COMPLETED"), ("Repair", "STARTED"), ("Repair", "COMPLETED")}
        of_signal = [
            line["type"] for line in lines if line["id"] == "fix-1" and line["aggregate_type"] == "Signal"
        ]
        assert of_signal == (["ACCEPTED", "COMPLETED"] if signalled else [])
