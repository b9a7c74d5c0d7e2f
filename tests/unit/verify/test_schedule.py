"""When tables are compared beside a stream, and what becomes of it, without stream and comparison."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tailrace.config.load import parse_pipeline
from tailrace.config.verification import Recurrence
from tailrace.enumerator.offset import RereadProgress, StreamOffset, TableProgress
from tailrace.errors import ConfigError, StateError
from tailrace.model.parked import Parked, Reason
from tailrace.model.signal import Answer
from tailrace.pipeline.notifications import Notification
from tailrace.pipeline.verify_state import Comparison, VerifyState
from tailrace.verify.outcomes import Job
from tailrace.verify.schedule import Verifications
from tailrace.verify.worker import Task
from tailrace.verify.worker_process import WorkerProcess

END = StreamOffset("initial", {"pos": 100}, done={"s.a": 1, "s.b": 1})
PARKED = Parked(Reason("no key", "TR-5001"), None, "all")
NOON_S = datetime.fromisoformat("2026-11-24 12:00").timestamp()
HOUR_S = 3600


def compared(table: str, *, missing: int = 0, repaired: bool = False, **more: Any) -> dict[str, Any]:
    """The event of a comparison."""
    return {
        "event": "compared",
        "table": table,
        "tables": [table],
        "target": table,
        "batch": 0,
        "source_rows": 5,
        "target_rows": 5 - missing,
        "missing": missing,
        "extra": 0,
        "different": 0,
        "equal": not missing,
        "at_least": False,
        "left_out": [],
        "repaired": repaired,
        **more,
    }


class Pipeline:
    """A pipeline with a checkpoint made by hand; `run` is what its process does at one look."""

    def __init__(self, directory: Path, verify: str | None = "schedule: 1h", **settings: str) -> None:
        self.directory = directory
        given = {"trigger": "continuous", "checkpoint": str(directory), **settings}
        if verify is not None:
            given["verify"] = f"{{{verify}}}"
        self.pipeline = parse_pipeline(
            "source: {url: 'mysql://h', user: u, password: p, tables: 's.*',"
            " snapshot-windows: '08:00-20:00'}\n"
            f"sink: {{type: delta, path: {directory}/tables}}\n"
            f"pipeline: {{{', '.join(f'{k}: {v}' for k, v in given.items())}}}\n"
        )
        self.now_s = NOON_S
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.tasks: list[Task] = []
        self.told: list[str] = []
        self.notified: list[Notification] = []
        self.shown: Mapping[str, Mapping[str, Comparison]] = {}
        self.stop = threading.Event()
        self.batch = -1
        self.commit(END)
        self.start()

    def commit(self, end: StreamOffset) -> None:
        """The stream has written a batch, and Spark recorded it."""
        self.plan(end)
        (self.directory / "commits").mkdir(exist_ok=True)
        (self.directory / "commits" / str(self.batch)).write_text("v1\n{}")

    def plan(self, end: StreamOffset) -> None:
        """Spark has stored the end of a batch."""
        self.batch += 1
        (self.directory / "offsets").mkdir(exist_ok=True)
        text = f"v1\n{{}}\n{json.dumps(end.to_json())}"
        (self.directory / "offsets" / str(self.batch)).write_text(text)

    def start(self) -> None:
        """Start the process (again)."""
        self.verifications = Verifications(
            self.pipeline, self.told.append, self._notify, self._show, self.stop, start=self._start,
            clock=lambda: self.now_s,
        )  # fmt: skip

    def _notify(self, batch: int, found: Sequence[Notification]) -> None:
        self.notified += found

    def _show(self, known: Mapping[str, Mapping[str, Comparison]]) -> None:
        self.shown = known

    def _start(self, task: Task) -> Iterator[dict[str, Any]]:
        self.tasks.append(task)
        for sink, table in task.tables:
            events = self.events.get(table, [compared(table)])
            for event in [{"event": "begun"}, *events, {"event": "ended", "tables": [table]}]:
                if event["event"] == "killed":
                    return
                yield {"sink": sink, "table": table, **event}

    def run(self, after_s: float = 0) -> list[str]:
        """What is compared at a look some seconds later, by name."""
        self.now_s += after_s
        job = self.verifications._next()
        if job is None:
            return []
        self.verifications._do(job)
        return [name for _, name in job.tables]

    def known(self, table: str) -> Comparison:
        """What is known of a table."""
        return self.shown["delta"][table]

    def results(self) -> list[tuple[str, str, str, str]]:
        """Of the notifications: id if a signal gave it, what, how it ended, and the tables."""
        return [
            (n.id if len(n.id) < 32 else "", n.aggregate_type, n.type, n.additional_data["data_collections"])
            for n in self.notified
        ]


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path)


@pytest.mark.parametrize(
    ("text", "last", "due"),
    [
        ("6h", "2026-11-24 12:00", "2026-11-24 18:00"),
        (" 90 s ", "2026-11-24 12:00", "2026-11-24 12:01:30"),
        ("1d", "2026-11-24 12:00", "2026-11-25 12:00"),
        ("14:30, 02:30", "2026-11-24 12:00", "2026-11-24 14:30"),
        ("14:30, 02:30", "2026-11-24 14:30", "2026-11-25 02:30"),
        ("2:30", "2026-11-24 01:00", "2026-11-24 02:30"),
    ],
)
def test_schedule_is_an_interval_or_times_of_the_day(text: str, last: str, due: str) -> None:
    assert Recurrence.parse(text).after(datetime.fromisoformat(last)) == datetime.fromisoformat(due)


@pytest.mark.parametrize(
    "verify",
    [
        "schedule: 0h",
        "schedule: often",
        "schedule: '25:00'",
        "schedule: 6 h 3m",
        "schedule: 6h, tables: '('",
        "schedule: 6h, max-rows-per-second: 0",
        "schedule: 6h, max-bytes-per-second: -1",
    ],
)
def test_setting_that_is_wrong_is_refused(tmp_path: Path, verify: str) -> None:
    with pytest.raises(ConfigError, match="TR-1010"):
        Pipeline(tmp_path, verify)


def test_pipeline_without_a_sink_that_can_be_compared_is_refused(tmp_path: Path) -> None:
    pipeline = parse_pipeline(
        "source: {url: 'mysql://h', user: u, password: p, tables: s.a}\n"
        f"sink: {{type: json, path: {tmp_path}}}\npipeline: {{verify: {{schedule: 6h}}}}\n"
    )
    with pytest.raises(ConfigError, match="TR-8103"):
        Verifications(pipeline, print, print, print, threading.Event())  # type: ignore[arg-type]


def test_table_is_due_after_the_interval_across_restarts(pipeline: Pipeline) -> None:
    assert pipeline.run() == ["s.a", "s.b"], "they were never compared"
    assert pipeline.run(HOUR_S - 1) == []
    pipeline.start()
    assert pipeline.known("s.a").at_ms == NOON_S * 1000
    assert pipeline.run() == []
    assert pipeline.run(16) == ["s.a", "s.b"]
    assert pipeline.results() == [("", "Verification", "COMPLETED", name) for name in ("s.a", "s.b")] * 2


def test_table_is_due_at_times_of_the_day_and_made_up_for_after_a_pause(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, "schedule: '11:00, 13:00', tables: 's[.]a'")
    assert pipeline.run() == [], "its first time comes"
    assert pipeline.run(HOUR_S) == ["s.a"]
    pipeline.start()
    assert pipeline.run(24 * HOUR_S - 1) == ["s.a"], "11:00 passed while it was not running"
    assert pipeline.run(1 + 16) == ["s.a"]
    assert set(pipeline.shown["delta"]) == {"s.a"}


def test_source_is_read_within_its_windows_only(pipeline: Pipeline) -> None:
    pipeline.now_s += 9 * HOUR_S
    assert pipeline.run() == []
    assert pipeline.run(12 * HOUR_S) == ["s.a", "s.b"]


def test_table_that_cannot_be_compared_now_is_told_once(pipeline: Pipeline) -> None:
    reread = RereadProgress("r", TableProgress((3,), 3, 9))
    end = replace(
        END, done={"s.a": 1}, again={"s.a": reread}, parked={"s.b": PARKED}, tables={"s.c": TableProgress()}
    )
    pipeline.commit(end)
    assert pipeline.run() == []
    assert pipeline.run(61) == []
    pipeline.start()
    assert pipeline.run(61) == []
    assert pipeline.told == [
        "table `s.a` is not compared with its target in sink `delta`: rows of `s.a` are being read",
        "table `s.b` is not compared with its target in sink `delta`: it is parked",
        "table `s.c` is not compared with its target in sink `delta`: rows of `s.c` are being read",
    ]
    assert [(kind, name) for _, _, kind, name in pipeline.results()] == [
        ("ABORTED", name) for name in ("s.a", "s.b", "s.c")
    ]
    pipeline.commit(replace(end, again={"s.a": replace(reread, done=True)}))
    assert pipeline.run(61) == ["s.a"]
    assert pipeline.known("s.a").reason == ""
    pipeline.commit(END)
    assert pipeline.run(61) == ["s.b"]
    assert set(pipeline.shown["delta"]) == {"s.a", "s.b"}, "`s.c` was dropped"


def test_failure_is_told_once_and_does_not_hinder_other_tables(pipeline: Pipeline) -> None:
    failure = {"event": "failed", "code": "TR-8106", "message": "no such version"}
    pipeline.events["s.a"] = [failure]
    for after_s in (0, HOUR_S + 16):
        assert pipeline.run(after_s) == ["s.a", "s.b"]
    assert len(pipeline.told) == 1
    assert "`s.a`" in pipeline.told[0]
    assert "no such version [TR-8106]" in pipeline.told[0]
    assert (pipeline.known("s.a").at_ms, pipeline.known("s.b").differences) == (None, 0)
    assert not pipeline.known("s.a").is_open


def test_process_that_dies_is_noted_and_not_repeated_before_its_time(pipeline: Pipeline) -> None:
    pipeline.events["s.a"] = [{"event": "killed"}]
    assert pipeline.run() == ["s.a", "s.b"]
    assert "the process that compared it has ended" in pipeline.known("s.a").reason
    assert pipeline.run(16) == ["s.b"], "`s.b` had not begun"


def test_comparison_is_repeated_if_the_pipeline_was_killed_meanwhile_but_not_forever(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(event: Mapping[str, Any], job: Job) -> None:
        happened(event, job)
        if event["event"] == "begun":
            raise Killed

    pipeline.pipeline = replace(
        pipeline.pipeline,
        settings=replace(
            pipeline.pipeline.settings, verify=replace(pipeline.pipeline.settings.verify, tables="s.a")
        ),  # type: ignore[type-var]
    )
    for _ in range(3):
        pipeline.start()
        happened = pipeline.verifications._outcomes.happened
        monkeypatch.setattr(pipeline.verifications._outcomes, "happened", kill)
        with pytest.raises(Killed):
            pipeline.run(1)
    pipeline.start()
    assert pipeline.run(1) == []
    assert pipeline.run(HOUR_S) == ["s.a"]


def test_differences_are_told_repaired_and_compared_again(tmp_path: Path) -> None:
    pipeline = Pipeline(
        tmp_path, "schedule: 1h, repair: schedule, on-differences: fail, max-rows-per-second: 7"
    )
    requested = {"event": "requested", "id": "r1"}
    pipeline.events["s.a"] = [compared("s.a", missing=2), requested, compared("s.a", repaired=True)]
    assert pipeline.run() == ["s.a", "s.b"]
    (task,) = pipeline.tasks
    assert (task.repair, task.waits, task.limits.snapshot_max_rows_per_second) == (True, True, 7)
    assert pipeline.results()[:3] == [
        ("", "Verification", "COMPLETED", "s.a"),
        ("", "Repair", "STARTED", "s.a"),
        ("", "Repair", "COMPLETED", "s.a"),
    ]
    assert pipeline.notified[0].additional_data["missing"] == "2"
    assert (pipeline.known("s.a").differences, pipeline.known("s.a").found) == (0, 2)
    assert [text for text in pipeline.told if "TR-8110" in text] == pipeline.told[:1]
    assert not pipeline.stop.is_set(), "the repair has helped"
    pipeline.events["s.a"] = [
        compared("s.a", missing=2),
        requested,
        compared("s.a", missing=1, repaired=True),
    ]
    pipeline.run(HOUR_S + 16)
    assert pipeline.stop.is_set()
    with pytest.raises(StateError, match="differs from its target in sink `delta` after its repair"):
        pipeline.verifications.finish()


def test_signal_is_obeyed_once_and_answered_also_without_a_schedule(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, None)
    assert pipeline.run() == []
    answers = (Answer("s1", "verify", "ACCEPTED", "", ("s.a",)), Answer("s2", "repair", "ACCEPTED"))
    pipeline.plan(replace(END, answers=answers))
    for _ in range(2):  # the process was killed before Spark recorded the batch
        pipeline.verifications.on_written(1, [])
        pipeline.start()
    assert [a.id for a in VerifyState.read(str(tmp_path)).asked] == ["s1", "s2"]
    pipeline.commit(END)
    assert pipeline.run() == ["s.a"]
    pipeline.start()
    pipeline.verifications.on_written(1, [])
    pipeline.events["s.b"] = [{"event": "skipped", "why": "no key"}]
    assert pipeline.run() == ["s.a", "s.b"]
    assert [task.repair for task in pipeline.tasks] == [False, True]
    assert pipeline.run() == []
    assert pipeline.results() == [
        ("s1", "Verification", "STARTED", "s.a"),
        ("s1", "Verification", "COMPLETED", "s.a"),
        ("s1", "Signal", "COMPLETED", "s.a"),
        ("s2", "Verification", "STARTED", "s.a,s.b"),
        ("s2", "Verification", "COMPLETED", "s.a"),
        ("s2", "Verification", "ABORTED", "s.b"),
        ("s2", "Signal", "COMPLETED", "s.a,s.b"),
    ]


def test_run_that_ends_compares_at_its_end_and_leaves_repairs_to_the_next(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, "schedule: 1h, repair: schedule", trigger="available-now")
    pipeline.events["s.a"] = [compared("s.a", missing=1), {"event": "requested", "id": "r1"}]
    with pipeline.verifications:
        pipeline.verifications.finish()
    assert [task.waits for task in pipeline.tasks] == [False]
    assert pipeline.known("s.a").request == "r1"
    pipeline.events.clear()
    pipeline.now_s += 1
    pipeline.start()
    with pipeline.verifications:
        pipeline.verifications.finish()
    assert [[name for _, name in task.tables] for task in pipeline.tasks] == [["s.a", "s.b"], ["s.a"]]
    assert (pipeline.known("s.a").differences, pipeline.known("s.a").request) == (0, None)


@pytest.mark.parametrize("text", ["", "7", '{"v": 2}', '{"v": 1, "batch": 3, "tables": [], "asked": []}'])
def test_state_that_cannot_be_read_begins_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "_tailrace").mkdir()
    (tmp_path / "_tailrace" / "verify.json").write_text(text)
    assert VerifyState.read(str(tmp_path)) == VerifyState()


def test_process_reports_that_its_task_fails_and_ends_with_its_parent(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    no_server = replace(pipeline.pipeline.source, host="127.0.0.1", port=1, retry_timeout_ms=1)
    checked = replace(pipeline.pipeline, source=no_server, sinks=())
    task = Task(checked, (), False, True, 1.0, no_server, tmp_path / "verify.log")
    assert list(WorkerProcess(task)) == []
    assert (tmp_path / "verify.log").exists()
    waiting = WorkerProcess(task)
    pid = waiting._process.pid
    waiting.close()
    assert list(waiting) == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_times_of_the_day_skip_none() -> None:
    schedule, at = Recurrence.parse("00:00, 12:00"), datetime.fromisoformat("2026-11-24 23:59")
    for _ in range(4):
        before, at = at, schedule.after(at)
        assert timedelta() < at - before <= timedelta(hours=12)
