"""Which errors park a table, how, and what the message says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tailrace.config.load import parse_pipeline
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import (
    ConfigError,
    PositionLostError,
    SinkError,
    TablesParkedError,
    TailraceError,
    TransientSinkError,
)
from tailrace.model.parked import Parked, Reason
from tailrace.pipeline.parking import Parking
from tailrace.spark.requests import RequestDirectory, requests_path

FIRST = StreamOffset("initial", {"pos": 100}, done={"s.a": 1, "s.b": 1})
SECOND = StreamOffset("initial", {"pos": 200}, done={"s.a": 1, "s.b": 1})
ERROR = SinkError("no such type", "found x", code="TR-7001", table="s.b")


class Files:
    """A pipeline with a checkpoint made by hand."""

    def __init__(self, directory: Path, settings: str = "") -> None:
        self.pipeline = parse_pipeline(
            "source: {url: 'mysql://h', user: u, password: p, tables: 's.*'}\n"
            f"sink: {{type: parquet, path: {directory}/lake}}\n"
            f"pipeline: {{checkpoint: {directory}/checkpoint{settings}}}\n",
            directory / "pipeline.yaml",
        )
        self.checkpoint = directory / "checkpoint"
        self.told: list[str] = []
        self.parking = Parking(self.pipeline, self.told.append)

    def batch(self, number: int, end: StreamOffset, *, done: bool = True) -> None:
        for name, is_there in (("offsets", True), ("commits", done)):
            if is_there:
                (self.checkpoint / name).mkdir(parents=True, exist_ok=True)
                (self.checkpoint / name / str(number)).write_text(f"v1\n{{}}\n{json.dumps(end.to_json())}\n")

    @property
    def requested(self) -> list[Any]:
        return list(RequestDirectory(requests_path(self.pipeline.checkpoint)).pending())


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_table_of_a_batch_that_failed_is_parked_at_the_begin_of_the_batch(files: Files) -> None:
    files.batch(0, FIRST)
    files.batch(1, SECOND, done=False)
    assert files.parking.park(ERROR)
    (told,) = files.told
    assert "no such type [TR-7001]" in told
    assert "tailrace resume PIPELINE.YAML s.b" in told
    (request,) = files.requested
    assert (request.kind, request.tables) == ("park", ("s.b",))
    assert request.parked == Parked(Reason.of(ERROR), {"pos": 100}, "all", 1)
    assert files.parking.left_out(SECOND.to_json()) == {"s.b"}
    assert not files.parking.park(ERROR), "it is parked already"


def test_table_of_a_batch_that_could_not_be_planned_is_parked_at_the_end_of_the_last_one(
    files: Files,
) -> None:
    files.batch(0, FIRST)
    files.batch(1, SECOND)
    assert files.parking.park(ERROR)
    assert files.requested[0].parked.log == {"pos": 200}
    files.parking.look({"sources": [{"endOffset": json.dumps(SECOND.to_json())}]})
    assert len(files.told) == 1, "it is not resumed: the next batch parks it"


@pytest.mark.parametrize(
    "error",
    [
        SinkError("x", code="TR-7001"),
        TransientSinkError("x", code="TR-7007", table="s.b"),
        PositionLostError("x", code="TR-4101", table="s.b"),
    ],
)
def test_errors_that_may_pass_or_are_not_of_one_table_park_nothing(
    files: Files, error: TailraceError
) -> None:
    files.batch(0, FIRST)
    assert not files.parking.park(error)
    assert files.requested == []


def test_wrong_file_is_an_error_until_something_is_written(files: Files) -> None:
    error = ConfigError("no such column", code="TR-1501", table="s.b")
    files.batch(0, FIRST, done=False)
    assert not files.parking.park(error)
    files.batch(0, FIRST)
    assert files.parking.park(error)


def test_last_table_that_flows_is_not_parked(files: Files) -> None:
    files.batch(0, StreamOffset("initial", {"pos": 1}, done={"s.b": 1}))
    assert not files.parking.park(ERROR)


def test_one_table_too_many_is_not_parked(tmp_path: Path) -> None:
    files = Files(tmp_path, ", max-parked: 1")
    files.batch(0, StreamOffset("initial", {"pos": 1}, done={"s.a": 1, "s.b": 1, "s.c": 1}))
    assert files.parking.park(ERROR)
    assert not files.parking.park(SinkError("x", code="TR-7001", table="s.a"))
    assert files.told[-1] == "nothing more is parked (max-parked: 1); parked are `s.b`"


def test_user_is_told_once_of_a_parked_table_and_that_it_is_resumed(files: Files) -> None:
    entry = Parked(Reason.of(ERROR), {"pos": 100}, "all", 1)
    parked = StreamOffset("initial", {"pos": 200}, done={"s.a": 1}, parked={"s.b": entry})
    for offset in (parked, parked, SECOND):
        files.parking.look({"sources": [{"endOffset": json.dumps(offset.to_json())}]})
    first, second = files.told
    assert first.startswith("table `s.b` is parked, the others go on: no such type [TR-7001]")
    assert second == "table `s.b` is resumed"


def test_run_that_has_read_everything_but_a_parked_table_is_not_done(tmp_path: Path) -> None:
    files = Files(tmp_path, ", trigger: available-now")
    files.batch(0, FIRST)
    files.parking.at_end(stopped=False)
    entry = Parked(Reason.of(ERROR), {"pos": 100}, "all", 1)
    files.batch(1, StreamOffset("initial", {"pos": 200}, done={"s.a": 1}, parked={"s.b": entry}))
    files.parking.at_end(stopped=True)
    assert "`s.b`" in files.told[0]
    with pytest.raises(TablesParkedError, match=r"TR-7001") as raised:
        files.parking.at_end(stopped=False)
    assert "`s.b`" in raised.value.message
