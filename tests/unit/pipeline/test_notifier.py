"""What a pipeline tells of its batches, by a checkpoint made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tailrace.config.load import parse_pipeline
from tailrace.enumerator.offset import StreamOffset, TableProgress
from tailrace.errors import ConfigError
from tailrace.model.signal import Answer
from tailrace.pipeline.notifier import Notifier

BEGUN = StreamOffset("initial", {"pos": 1}, {"s.a": TableProgress((1,), 1, 2)})
DONE = StreamOffset("initial", {"pos": 2}, done={"s.a": 2})


class Run:
    """A pipeline, its checkpoint and what it tells."""

    def __init__(self, directory: Path, notifications: str) -> None:
        self.directory = directory
        self.told: list[str] = []
        self.pipeline = parse_pipeline(
            "source: {url: 'mysql://h', user: u, password: p, tables: 's.*'}\n"
            f"sink: {{type: parquet, path: {directory}/lake}}\n"
            f"pipeline: {{checkpoint: {directory}/checkpoint, name: shop}}\n"
            f"notifications: {notifications}\n"
        )
        offsets = directory / "checkpoint" / "offsets"
        offsets.mkdir(parents=True)
        (directory / "checkpoint" / "metadata").write_text('{"id": "q"}')
        for number, end in enumerate((BEGUN, DONE)):
            self.end(number, end)

    def end(self, number: int, end: StreamOffset) -> None:
        path = self.directory / "checkpoint" / "offsets" / str(number)
        path.write_text(f"v1\n{{}}\n{json.dumps(end.to_json())}\n")

    def written(self, *batches: int) -> None:
        with Notifier(self.pipeline, self.told.append) as notifier:
            for batch in batches:
                notifier.on_written(batch, [])

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / "n.jsonl").read_text().splitlines()]


def test_batches_are_told_once_even_if_the_last_is_repeated(tmp_path: Path) -> None:
    run = Run(tmp_path, f"{{file: {tmp_path}/n.jsonl}}")
    run.written(0, 1)
    run.written(1)
    assert [line["type"] for line in run.lines] == [
        "STARTED",
        "IN_PROGRESS",
        "TABLE_SCAN_COMPLETED",
        "COMPLETED",
    ]
    assert {line["additional_data"]["connector_name"] for line in run.lines} == {"shop"}


def test_answers_are_told_without_any_channel(tmp_path: Path) -> None:
    run = Run(tmp_path, "{}")
    answers = (
        Answer("1", "coffee", "ABORTED", "its type is unknown"),
        Answer("2", "log", "COMPLETED", "hello"),
        Answer("3", "pause-snapshot", "PAUSED", "", ("s.a",)),
        Answer("4", "resync", "UNKNOWN_SCHEMA", "no captured table matches", ("s.x",)),
    )
    run.end(1, StreamOffset("initial", {"pos": 2}, done={"s.a": 2}, answers=answers))
    run.written(1)
    assert run.told == [
        "signal `coffee` (1) is refused: its type is unknown",
        "hello",
        "signal `pause-snapshot` (3): paused: s.a",
        "signal `resync` (4): s.x: no captured table matches",
    ]


def test_file_that_cannot_be_written_is_told_of_once_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "n").mkdir()
    run = Run(tmp_path, f"{{file: {tmp_path}/n}}")
    run.written(0, 1)
    assert len(run.told) == 1
    assert "channel `file` fails" in run.told[0]


def test_sinks_that_are_parked_or_go_on_are_told_once_a_run_with_the_same_id(tmp_path: Path) -> None:
    run = Run(tmp_path, f"{{file: {tmp_path}/n.jsonl}}")
    entry = {"id": "7", "table": None, "batch": 3, "code": "TR-7101", "message": "no right to write"}
    parked = {"batchId": 4, "parkedSinks": {"lake": [], "replica": [entry]}}
    with Notifier(run.pipeline, run.told.append) as notifier:
        notifier.on_progress(parked)
        notifier.on_progress(parked)
        notifier.on_progress({"batchId": 5, "parkedSinks": {"lake": [], "replica": []}})
    told = [(line["id"], line["aggregate_type"], line["type"]) for line in run.lines]
    assert told == [("7", "Sink", "PARKED"), ("7", "Sink", "RESUMED")]
    data = {
        "connector_name": "shop",
        "sink": "replica",
        "batch": "3",
        "reason": "no right to write [TR-7101]",
    }
    assert run.lines[0]["additional_data"] == data


def test_batch_whose_begin_is_gone_is_not_told(tmp_path: Path) -> None:
    run = Run(tmp_path, f"{{file: {tmp_path}/n.jsonl}}")
    (tmp_path / "checkpoint" / "offsets" / "0").unlink()
    run.written(1)
    assert not (tmp_path / "n.jsonl").exists()


@pytest.mark.parametrize(
    "settings",
    ["{webhook: 'ftp://h'}", "{call: x}", "{webhook-timeout: 3}", "{fil: x}", "{log: 1}"],
)
def test_wrong_settings_are_refused(tmp_path: Path, settings: str) -> None:
    with pytest.raises(ConfigError):
        Run(tmp_path, settings)


def test_webhook_may_be_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "no address")
    run = Run(tmp_path, "{webhook: '${env:HOOK}', webhook-headers: {X: '${env:HOOK}'}}")
    assert "no address" not in repr(run.pipeline)
    with pytest.raises(ConfigError, match=r"`notifications\.webhook` is wrong"):
        run.written(0)
