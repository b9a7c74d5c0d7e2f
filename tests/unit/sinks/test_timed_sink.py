"""Sinks' names, and the time that they take."""

from __future__ import annotations

from typing import Any

from tailrace.config.load import parse_pipeline
from tailrace.config.sinks import sink_names
from tailrace.sinks.base import CellBatch, StreamId, Written
from tailrace.sinks.timed_sink import TimedSink
from tailrace.sinks.timings import WRITE

FILE = """
source: {url: "mysql://h", user: u, tables: "shop.*"}
pipeline: {checkpoint: /tmp/c}
sink:
  - {type: delta, path: /tmp/a}
  - {type: console}
  - {type: delta, path: /tmp/b}
"""


class Sink:
    def __init__(self) -> None:
        self.names: list[str] = []

    def write(self, batch: CellBatch) -> list[Written]:
        self.names.append(batch.sink)
        return []


def test_sinks_of_one_type_have_numbers_from_the_second_on() -> None:
    assert sink_names(parse_pipeline(FILE).sinks) == ["delta", "console", "delta-2"]


def test_batch_is_timed_under_the_name_of_its_sink() -> None:
    frame: Any = None
    batch, sink = CellBatch(StreamId("p", "q"), 1, frame, None), Sink()
    written: Any = sink
    TimedSink(written, "delta-2").write(batch)
    assert sink.names == ["delta-2"]
    assert [(step.sink, step.name) for step in batch.timings.steps] == [("delta-2", WRITE)]
