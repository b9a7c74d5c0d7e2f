"""A pipeline's run behind the source: supervised, stopped, started again, into file sinks."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline
from tailrace.errors import PositionLostError, SinkError, StateError, TransientSourceError
from tailrace.pipeline.batch_run import BatchRun
from tailrace.pipeline.supervisor import Supervisor
from tailrace.sinks.base import CellBatch, Written
from tailrace.sinks.registry import make_sinks
from tailrace.spark.checkpoint import Checkpoint
from tests.support.changes import INT, TEXT, changes, table
from tests.support.fake_source import NAME, put_batch, put_failure, register

SCHEMA = table(("id", INT), ("name", TEXT), key=("id",))


class Watching:
    def __init__(self) -> None:
        self.batches: list[int] = []
        self.rows = 0
        self.restarts: list[str] = []
        self.reported: list[int] = []
        self.runs: list[BatchRun] = []
        self.written = threading.Event()

    def on_progress(self, progress: Any) -> None:
        if "addBatch" in progress["durationMs"]:
            self.reported.append(progress["batchId"])

    def on_written(self, batch_id: int, written: list[Written]) -> None:
        self.batches.append(batch_id)
        self.rows += sum(w.snapshot_rows + w.changes for w in written)
        self.written.set()

    def on_restart(self, error: Any, attempt: int, pause_s: float) -> None:
        self.restarts.append(type(error).__name__)

    def on_batch(self, run: BatchRun) -> None:
        self.runs.append(run)

    def on_trouble(self, error: Any) -> None: ...

    def on_step(self, step: str) -> None: ...

    def on_notice(self, text: str) -> None: ...


class Run:
    def __init__(self, spark: SparkSession, path: Path) -> None:
        register(spark)
        self.spark = spark
        self.path = path
        self.source = path / "source"
        self.source.mkdir()
        self.stop = threading.Event()
        self.watching = Watching()

    def pipeline(self, sink: str, trigger: str = "available-now") -> Pipeline:
        return parse_pipeline(
            f"source: {{url: 'mysql://x', user: u, tables: 'shop.*'}}\n"
            f"sink: {{type: {sink}, path: '{self.path / 'lake'}'}}\n"
            f"pipeline: {{trigger: {trigger}}}\n"
        )

    def put(self, number: int, *ids: int) -> None:
        rows = [("c", None, {"id": i, "name": f"n{i}"}) for i in ids]
        put_batch(self.source, number, [("log", changes(SCHEMA, rows, first=100 * number))])

    def __call__(self, pipeline: Pipeline, sink: Any = None) -> None:
        def read() -> Any:
            return self.spark.readStream.format(NAME).option("directory", str(self.source)).load()

        own = sink or make_sinks(pipeline)
        try:
            Supervisor(read, pipeline, own, self.watching, self.stop).run()
        finally:
            own.close()


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Run:
    return Run(spark, tmp_path)


@pytest.mark.parametrize("sink", ["parquet", "json"])
def test_files_hold_each_change_once_though_a_batch_came_again(run: Run, sink: str) -> None:
    pipeline = run.pipeline(sink)
    run.put(0, 1, 2)
    run.put(1, 3)
    run(pipeline)
    # As after a crash between the sink and Spark's commit.
    (Path(pipeline.checkpoint) / "commits" / "1").unlink()
    run.put(2, 4)
    run(pipeline)
    found = run.spark.read.format(sink).load(str(run.path / "lake" / "shop.t")).collect()
    assert run.watching.batches == [0, 1, 1, 2]
    assert sorted((r["id"], r["_op"], r["tailrace_batch"]) for r in found) == [
        (1, "c", 0),
        (2, "c", 0),
        (3, "c", 1),
        (4, "c", 2),
    ]


def test_files_of_another_stream_are_not_touched(run: Run) -> None:
    pipeline = run.pipeline("parquet")
    lake = run.path / "lake" / "shop.t"
    lake.mkdir(parents=True)
    (lake / "mine.parquet").write_bytes(b"")
    run.put(0, 1)
    with pytest.raises(StateError, match="is not this stream's"):
        run(pipeline)
    assert [p.name for p in lake.iterdir()] == ["mine.parquet"]


def test_passing_failure_of_the_source_starts_the_stream_again(run: Run) -> None:
    run.put(0, 1)
    put_failure(run.source, TransientSourceError("connection lost"))
    run(run.pipeline("parquet"))
    assert (run.watching.restarts, run.watching.batches) == (["TransientSourceError"], [0])


def test_definite_failure_of_the_source_is_raised_as_it_was(run: Run) -> None:
    parts = "`binlog.000001` is gone", "the oldest is `binlog.000009`", "start anew:\n  do it"
    error = PositionLostError(*parts, code="TR-4101")
    put_failure(run.source, error)
    with pytest.raises(PositionLostError) as caught:
        run(run.pipeline("parquet"))
    assert (caught.value.args, caught.value.code) == (error.args, "TR-4101")
    assert run.watching.restarts == []


def test_failure_of_the_sink_is_raised_as_it_was(run: Run) -> None:
    class Broken:
        pending_rows = 0

        def claim(self, tables: Any) -> None: ...

        def write(self, batch: CellBatch) -> list[Written]:
            raise SinkError("disk full", code="TR-7008")

        def close(self) -> None: ...

    run.put(0, 1)
    with pytest.raises(SinkError, match="disk full"):
        run(run.pipeline("parquet"), Broken())
    (attempt,) = run.watching.runs
    assert (attempt.batch, attempt.written, attempt.error is not None) == (0, [], True)
    assert attempt.error is not None
    assert attempt.error.code == "TR-7008"


def test_each_batch_is_timed_and_reported_once_however_quick_batches_are(run: Run) -> None:
    for number in range(3):
        run.put(number, number)
    run(run.pipeline("parquet"))
    assert run.watching.reported == [0, 1, 2]
    assert [attempt.batch for attempt in run.watching.runs] == [0, 1, 2]
    for attempt in run.watching.runs:
        steps = [step.name for step in attempt.steps]
        assert steps == ["read", "commit", "write"]
        assert {step.sink for step in attempt.steps} == {"parquet"}
        assert attempt.start_ns <= attempt.steps[0].start_ns <= attempt.steps[-1].end_ns <= attempt.end_ns


def test_stop_lets_the_running_batch_finish_and_begins_no_other(run: Run) -> None:
    pipeline = run.pipeline("parquet", "continuous")
    inner = make_sinks(pipeline)
    under_way, go_on = threading.Event(), threading.Event()

    class Slow:
        pending_rows = 0

        def claim(self, tables: Any) -> None: ...

        def write(self, batch: CellBatch) -> list[Written]:
            under_way.set()
            assert go_on.wait(60)
            return inner.write(batch)

        def close(self) -> None:
            inner.close()

    run.put(0, 1)
    run.put(1, 2)
    thread = threading.Thread(target=run, args=(pipeline, Slow()))
    thread.start()
    assert under_way.wait(60)
    run.stop.set()
    go_on.set()
    thread.join(60)
    last = Checkpoint(pipeline.checkpoint).last()
    assert not thread.is_alive()
    assert run.watching.batches == [0]
    assert last is not None
    assert Path(pipeline.checkpoint, "commits", "0").exists()


def test_offset_can_be_set_and_the_stream_goes_on_from_it(run: Run) -> None:
    pipeline = run.pipeline("parquet")
    for number in range(3):
        run.put(number, number)
    run(pipeline)
    checkpoint = Checkpoint(pipeline.checkpoint)
    end = checkpoint.end_of(0)
    assert end is not None
    checkpoint.set_end(end)
    run(pipeline)
    assert run.watching.batches == [0, 1, 2, 3, 4]
    kept = Path(pipeline.checkpoint) / "offsets.before" / "2.0"
    assert '"pos":3' in kept.read_text().replace(" ", "")


def test_offset_of_a_batch_not_yet_in_the_sink_cannot_be_set(run: Run) -> None:
    pipeline = run.pipeline("parquet")
    run.put(0, 1)
    run(pipeline)
    checkpoint = Checkpoint(pipeline.checkpoint)
    (Path(pipeline.checkpoint) / "commits" / "0").unlink()
    with pytest.raises(StateError, match=r"batch 0 .* is planned but not committed"):
        checkpoint.set_end({"v": 1})
