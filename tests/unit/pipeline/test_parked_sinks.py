"""Which errors park a sink, and with which batch it goes on, without a stream."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailrace.config.load import parse_pipeline
from tailrace.enumerator.offset import RereadProgress, StreamOffset
from tailrace.errors import (
    ConfigError,
    SinkError,
    SourceError,
    StateError,
    TablesParkedError,
    TailraceError,
    TransientSinkError,
)
from tailrace.model.parked import Parked, Reason
from tailrace.pipeline.parked_sinks import ParkedSinks, parked_sinks, request_resume
from tailrace.spark.requests import RequestDirectory, requests_path

FIRST = StreamOffset("initial", {"pos": 100}, done={"s.a": 1, "s.b": 1})
SECOND = replace(FIRST, log={"pos": 200})
ERROR = SinkError("no right to write", "found x", "grant it", code="TR-7101")
OF_A_TABLE = SinkError("no such type", code="TR-7001", table="s.b")


class Stream:
    """A pipeline with a checkpoint made by hand; `sinks` is what its process knows."""

    def __init__(self, directory: Path, settings: str = "", on_error: str = "park") -> None:
        self.pipeline = parse_pipeline(
            "source: {url: 'mysql://h', user: u, password: p, tables: 's.*'}\n"
            f"sink: [{{type: parquet, path: {directory}/one}},"
            f" {{type: json, path: {directory}/two, on-error: {on_error}}},"
            f" {{type: json, path: {directory}/three, name: third, on-error: {on_error}}}]\n"
            f"pipeline: {{checkpoint: {directory}/checkpoint{settings}}}\n",
            directory / "pipeline.yaml",
        )
        self.checkpoint = directory / "checkpoint"
        self.told: list[str] = []
        self.restart()

    def restart(self) -> None:
        self.sinks = ParkedSinks(
            self.pipeline, requests_path(self.pipeline.checkpoint), self.told.append, lambda: 0.0
        )

    def batch(self, number: int, end: StreamOffset, *, done: bool = True) -> None:
        for name, is_there in (("offsets", True), ("commits", done)):
            if is_there:
                (self.checkpoint / name).mkdir(parents=True, exist_ok=True)
                (self.checkpoint / name / str(number)).write_text(f"v1\n{{}}\n{json.dumps(end.to_json())}\n")

    def resume(self, sink: int = 1) -> list[Any]:
        request_resume(self.pipeline.checkpoint, self.pipeline.sinks[sink])
        self.sinks.look()
        return self.requested

    @property
    def requested(self) -> list[Any]:
        return list(RequestDirectory(requests_path(self.pipeline.checkpoint)).pending())


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    found = Stream(tmp_path)
    found.batch(0, FIRST)
    found.batch(1, SECOND, done=False)
    return found


def accepted(*requests: Any, **more: Any) -> StreamOffset:
    again = {name: RereadProgress("r") for name in ("s.a", "s.b")}
    return replace(SECOND, again=again, requests=tuple(request.id for request in requests), **more)


def test_sink_of_a_batch_that_failed_is_parked_at_the_begin_of_the_batch(stream: Stream) -> None:
    assert stream.sinks.park(ERROR, "json")
    assert stream.sinks.left_out() == {"json": None}
    (told,) = stream.told
    assert told.startswith(
        "sink `json` is parked since batch 1, the others go on: no right to write [TR-7101]"
    )
    assert told.endswith("once that is fixed: tailrace resume PIPELINE.YAML --sink json")
    (entry,) = parked_sinks(stream.pipeline.checkpoint)
    assert (entry.table, entry.batch, entry.log) == (None, 1, {"pos": 100})
    assert entry.reason == Reason.of(ERROR)
    stream.restart()
    assert stream.sinks.left_out() == {"json": None}
    assert stream.told == [told, told]
    with pytest.raises(TablesParkedError, match="sink `json` is parked") as parked:
        stream.sinks.at_end(stopped=False)
    assert parked.value.code == "TR-7611"
    stream.sinks.at_end(stopped=True)


def test_sink_that_was_not_in_the_file_waits_for_the_batch_that_begins_to_read_its_tables(
    stream: Stream,
) -> None:
    back = stream.pipeline.sinks[2]
    assert stream.sinks.wait(back, 1)
    assert stream.sinks.left_out() == {"third": None}
    (entry,) = parked_sinks(stream.pipeline.checkpoint)
    assert (entry.batch, entry.log, entry.reason.code) == (1, {"pos": 100}, None)
    stream.restart()
    assert stream.sinks.wait(back, 1), "also if the process ended in between"
    assert parked_sinks(stream.pipeline.checkpoint) == [entry]
    stream.sinks.look()
    (request,) = stream.requested
    assert set(request.tables) == {"s.a", "s.b"}
    stream.sinks.begin(1, SECOND)
    assert stream.sinks.left_out() == {"third": None}, "a batch before"
    stream.batch(1, SECOND)
    stream.sinks.begin(2, accepted(request))
    assert stream.sinks.left_out() == {}


def test_sink_that_would_be_waited_for_by_all_does_not_wait(stream: Stream) -> None:
    one, two, three = stream.pipeline.sinks
    assert stream.sinks.wait(two, 1)
    assert stream.sinks.wait(three, 1)
    assert not stream.sinks.wait(one, 1)


def test_table_that_a_sink_refuses_is_parked_in_that_sink(stream: Stream) -> None:
    assert stream.sinks.park(OF_A_TABLE, "third")
    assert stream.sinks.left_out() == {"third": frozenset({"s.b"})}
    assert stream.sinks.report()["third"][0]["table"] == "s.b"
    assert stream.sinks.park(ERROR, "third"), "the rest of it"
    assert stream.sinks.left_out() == {"third": None}


@pytest.mark.parametrize(
    ("error", "sink"),
    [
        (ERROR, None),
        (ERROR, "parquet"),
        (SourceError("x", code="TR-4101"), "json"),
        (ConfigError("x", code="TR-1010"), "json"),
    ],
)
def test_error_of_no_sink_or_of_one_that_is_to_fail_parks_nothing(
    stream: Stream, error: TailraceError, sink: str | None
) -> None:
    assert not stream.sinks.park(error, sink)


@pytest.mark.parametrize("error", [StateError("x", code="TR-6001"), TransientSinkError("x", code="TR-7007")])
def test_target_of_another_stream_and_server_that_is_down_park_the_sink(
    stream: Stream, error: TailraceError
) -> None:
    assert stream.sinks.park(error, "json")


def test_last_sink_first_batch_and_one_too_many_are_not_parked(tmp_path: Path) -> None:
    stream = Stream(tmp_path, ", max-parked: 1")
    stream.batch(0, FIRST, done=False)
    assert not stream.sinks.park(ERROR, "json"), "nothing was written before"
    stream.batch(0, FIRST)
    stream.batch(1, SECOND, done=False)
    assert stream.sinks.park(ERROR, "json")
    assert not stream.sinks.park(ERROR, "third")
    assert stream.told[-1] == "nothing more is parked (max-parked: 1)"


def test_sink_of_a_stream_without_a_snapshot_is_not_parked(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.batch(0, replace(FIRST, mode="latest"))
    stream.batch(1, replace(SECOND, mode="latest"), done=False)
    assert not stream.sinks.park(ERROR, "json")
    assert "the stream began without a snapshot" in stream.told[0]


def test_resumed_sink_is_given_the_batch_in_which_its_tables_begin_to_be_read(stream: Stream) -> None:
    stream.sinks.park(ERROR, "json")
    stream.sinks.look()
    assert stream.requested == [], "nobody has asked"
    (request,) = stream.resume()
    assert (request.tables, request.needed) == (("s.a", "s.b"), True)
    stream.sinks.look()
    assert len(stream.requested) == 1
    stream.sinks.begin(1, SECOND)
    assert stream.sinks.left_out() == {"json": None}, "a batch that was planned before"
    stream.batch(1, SECOND)
    stream.batch(2, accepted(request), done=False)
    stream.sinks.begin(2, accepted(request))
    assert stream.sinks.left_out() == {}
    assert parked_sinks(stream.pipeline.checkpoint) == []
    assert not list((stream.checkpoint / "_tailrace" / "resume_sinks").iterdir())


def test_resumed_sink_waits_for_tables_that_its_request_does_not_name(stream: Stream) -> None:
    stream.sinks.park(ERROR, "json")
    (first,) = stream.resume()
    more = replace(SECOND, done={**SECOND.done, "s.new": 7})
    stream.batch(1, more)
    stream.sinks.begin(2, accepted(first, done=more.done))
    assert stream.sinks.left_out() == {"json": None}
    _, second = stream.requested
    assert second.tables == ("s.a", "s.b", "s.new")
    stream.batch(2, accepted(first, done=more.done))
    stream.sinks.begin(3, accepted(first, second, done=more.done))
    assert stream.sinks.left_out() == {}


def test_restarted_process_requests_anew_and_takes_no_reading_that_has_begun(stream: Stream) -> None:
    stream.sinks.park(ERROR, "json")
    (first,) = stream.resume()
    stream.batch(1, accepted(first))
    stream.restart()
    stream.sinks.look()
    _, second = stream.requested
    stream.sinks.begin(2, accepted(first))
    assert stream.sinks.left_out() == {"json": None}
    stream.sinks.begin(3, accepted(first, second))
    assert stream.sinks.left_out() == {}


def test_one_table_of_a_sink_is_read_again_alone_also_if_it_is_parked(stream: Stream) -> None:
    stream.sinks.park(OF_A_TABLE, "json")
    parked = replace(SECOND, done={"s.a": 1}, parked={"s.b": Parked(Reason("x"), {"pos": 1}, "all", 1)})
    stream.batch(1, parked)
    (request,) = stream.resume()
    assert request.tables == ("s.b",)
    stream.sinks.begin(2, replace(parked, requests=(request.id,)))
    assert stream.sinks.left_out() == {}


def test_file_of_another_form_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "_tailrace").mkdir(parents=True)
    (tmp_path / "checkpoint" / "_tailrace" / "parked_sinks.json").write_text('{"v": 2}')
    with pytest.raises(StateError, match="cannot be read") as refused:
        Stream(tmp_path)
    assert refused.value.code == "TR-7612"
