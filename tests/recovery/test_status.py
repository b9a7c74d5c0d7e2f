"""`tailrace status`: a pipeline's state from its checkpoint, its source and its sinks, without a driver."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailrace.config.load import load_pipeline
from tailrace.enumerator.offset import StreamOffset, TableProgress
from tailrace.model.parked import Parked, Reason
from tailrace.pipeline.doctor import diagnose
from tailrace.pipeline.run_state import RunNotes
from tailrace.pipeline.status import Status, status
from tailrace.pipeline.status_text import lines
from tailrace.pipeline.verify_state import Comparison, VerifyState
from tests.support import postgres as postgres_support
from tests.support.engine import Engine, options_for
from tests.support.json_schema import problems
from tests.support.switch import Switch
from tests.support.wait import wait_until

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/reference/status.schema.json").read_text("utf-8"))


@dataclass
class Shop:
    """A pipeline whose checkpoint a test writes, with an engine that reads the log.

    Args:
        file: the pipeline file.
        engine: the stream.
        execute: runs statements on the server.
        address: where the pipeline finds the server.
        table: the name of the captured table.
    """

    file: Path
    engine: Engine
    execute: Callable[..., Any]
    address: Switch
    table: str
    batches: int = 0

    def commit(self, offset: StreamOffset | None = None, *, done: bool = True) -> None:
        """Note a batch, as Spark does."""
        root = Path(load_pipeline(self.file).checkpoint)
        for name in ("offsets", "commits"):
            (root / name).mkdir(parents=True, exist_ok=True)
        (root / "metadata").write_text('{"id": "7"}')
        end = (offset or self.engine.offset).to_json()
        line = '{"batchTimestampMs": 1700000000000}'
        (root / "offsets" / str(self.batches)).write_text(f"v1\n{line}\n{json.dumps(end)}")
        if done:
            (root / "commits" / str(self.batches)).write_text("v1\n{}")
        self.batches += 1

    def catch_up(self) -> None:
        """Read everything, until the engine's position is that of the log's end."""

        def is_there() -> bool:
            self.engine.next()
            if not self.engine.offset.done or self.engine.offset.log is None:
                return False
            self.commit()
            source = self.status().source
            return source is not None and source.lag_ms == 0

        wait_until(is_there, 60, "the end of the log")

    def status(self) -> Status:
        found = status(load_pipeline(self.file))
        assert not problems(found.to_json(), SCHEMA)
        return found

    def text(self) -> str:
        return "\n".join(lines(self.status(), "shop.yaml"))


# MariaDB's clock and log are read by MySQL's code: a test run has one test of them
@pytest.fixture(params=["mysql", pytest.param("mariadb", marks=pytest.mark.slow), "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    server = request.getfixturevalue(request.param)
    with Switch(server) as address:
        source: dict[str, Any] = {"hostname": address.host, "port": address.port, "username": address.user}
        if request.param == "postgres":
            name = request.getfixturevalue("postgres_database")
            options = postgres_support.options_for(address, name, r"public\.t", slotName=name)
            source |= {"type": "postgresql", "database": name, "slot-name": name}
            table = "public.t"

            def execute(*statements: str) -> Any:
                return server.execute(*statements, database=name)
        else:
            name = request.getfixturevalue("database" if request.param == "mysql" else "mariadb_database")
            options = options_for(address, rf"{name}\.t")
            source |= {"type": "mysql"}
            table = f"{name}.t"

            def execute(*statements: str) -> Any:
                return server.execute(f"USE {name}", *statements)

        execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
        file = tmp_path / "shop.yaml"
        settings = {
            "source": {**source, "password": address.password, "tables": table.replace(".", "\\.")},
            "sink": {"type": "parquet", "path": str(tmp_path / "lake")},
            "pipeline": {"checkpoint": str(tmp_path / "checkpoint")},
        }
        file.write_text(yaml.safe_dump(settings))
        with Engine(options) as engine:
            yield Shop(file, engine, execute, address, table)


@pytest.mark.parametrize("shop", ["mysql", "mariadb", "postgres"], indirect=True)
def test_status_tells_how_far_a_pipeline_is(shop: Shop) -> None:
    empty = shop.status()
    assert (empty.last, empty.source, empty.tables, empty.run) == (None, None, [], None)
    assert "not running" in shop.text()
    assert "no batch yet" in shop.text()

    shop.catch_up()
    found = shop.status()
    (table,) = found.tables
    assert (table.name, table.state) == (shop.table, "streaming")
    assert found.source is not None
    assert found.source.clock_us is not None
    assert found.complete_us is not None
    assert found.complete_us == table.complete_us == found.source.clock_us
    assert found.committed_ms is not None
    assert found.source.retention is not None
    before = found.complete_us

    shop.execute("INSERT INTO t VALUES (3)")
    behind = shop.status()
    assert behind.source is not None
    assert (behind.source.lag_bytes or 0) > 0
    assert (behind.source.lag_ms or 0) >= 0
    assert behind.complete_us is None  # nothing is known without the end of the log, nor a run's notes
    assert "lag" in shop.text()

    shop.catch_up()
    assert (shop.status().complete_us or 0) > before


def test_status_says_that_the_source_does_not_answer(shop: Shop) -> None:
    shop.catch_up()
    with RunNotes(load_pipeline(shop.file).checkpoint) as notes:
        notes.on_progress({"sources": [{"latestOffset": {"v": 1, "complete_us": 1_700_000_000_000_000}}]})
        shop.address.stall()
        found = shop.status()
        assert found.source is not None
        assert found.source.error is not None
        assert found.to_json()["source"]["answers"] is False
        assert found.to_json()["running"] is True
        assert found.to_json()["complete_up_to"] == "2023-11-14T22:13:20.000Z"
        assert [table.state for table in found.tables] == ["streaming"]
        text = "\n".join(lines(found, "shop.yaml"))  # each look waits out the time limit
        assert "source does not answer" in text
        assert "running (process" in text


def test_status_tells_what_each_table_waits_for(shop: Shop) -> None:
    shop.catch_up()
    offset = shop.engine.offset
    assert offset.log is not None
    at = {**offset.log, "ts_ms": 1_700_000_000_000}
    parked = Parked(Reason("no such type", "TR-7001", None, "drop the column"), at, "all", 5)
    shop.commit(
        StreamOffset(
            "initial",
            offset.log,
            tables={"shop.new": TableProgress((4,), 40, 100)},
            done={"shop.old": 7},
            parked={"shop.bad": parked},
        ),
        done=False,
    )
    planned = shop.status()
    assert planned.planned == shop.batches - 1
    assert [table.name for table in planned.tables] == [shop.table]  # of the batch that the sinks have
    (Path(load_pipeline(shop.file).checkpoint) / "commits" / str(shop.batches - 1)).write_text("v1\n{}")
    tables = {table["name"]: table for table in shop.status().to_json()["tables"]}
    assert tables["shop.new"]["percent"] == 40
    assert tables["shop.new"]["complete_up_to"] is None
    assert tables["shop.bad"]["complete_up_to"] == "2023-11-14T22:13:20.000Z"
    assert tables["shop.bad"]["parked"]["code"] == "TR-7001"
    assert tables["shop.bad"]["parked"]["remedy"] == "tailrace resume PIPELINE.YAML shop.bad"
    assert tables["shop.old"]["complete_up_to"] is not None
    now_ms = planned.at_ms - 7_230_000
    compared = {
        "shop.old": Comparison(1, 2, 3, at_ms=now_ms, batch=1, source_rows=9, target_rows=8, differences=1),
        "shop.new": Comparison(1, reason="rows of `shop.new` are being read"),
    }
    VerifyState(1, {"delta": compared}).write(load_pipeline(shop.file).checkpoint)
    tables = {table["name"]: table for table in shop.status().to_json()["tables"]}
    assert tables["shop.old"]["compared"][0]["differences"] == 1
    assert tables["shop.new"]["compared"][0]["at"] is None
    assert tables["shop.bad"]["compared"] == []
    text = shop.text()
    assert "sink delta: compared 2 h ago: rows that differ: 1" in text
    assert "sink delta: never compared; not compared now: rows of `shop.new` are being read" in text
    assert "except 2 tables" in text
    assert "shop.bad: parked: no such type [TR-7001]; complete up to 2023-11-14T22:13:20.000Z" in text
    assert "drop the column" in text
    assert "tailrace resume shop.yaml shop.bad" in text
    assert "shop.new: snapshot 40 %: 40 of ~100 rows" in text


def test_doctor_measures_clock_and_round_trip_of_the_source(shop: Shop) -> None:
    found = {finding.check: finding for finding in diagnose(load_pipeline(shop.file))}
    assert found["clock"].code is None
    assert "answers within" in found[f"source {shop.address.host}:{shop.address.port}"].found
