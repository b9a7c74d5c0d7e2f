"""Where batches begin on Spark 4.1, which does not say it."""

from __future__ import annotations

import json

import pytest

from tailrace.config.options import parse_options
from tailrace.errors import StateError
from tailrace.spark.remembering_reader import RememberingReader
from tailrace.spark.row_layouts import CellLayout
from tailrace.spark.stream_reader import TailraceStreamReader

NEW = {"v": 1}
PROGRESS = {"c": [100], "n": 100, "e": 700, "k": [["id", {"kind": "integer", "native": "int", "bits": 32}]]}


def offset(position, *, tables=None, done=None):
    log = {"file": "binlog.000001", "pos": position, "gtids": "", "server": "", "epoch": 0, "ts_ms": 1}
    return {"v": 1, "mode": "initial", "log": log, "tables": tables or {}, "done": done or {}}


READ = offset(10, done={"d.t": 700})


@pytest.fixture
def reader(tmp_path, monkeypatch):
    given = {
        "url": "mysql://h",
        "user": "u",
        "tables": "d.t",
        "shape": "cells",
        "checkpointPath": str(tmp_path),
    }
    made = RememberingReader(parse_options(given), CellLayout(), compares=False)
    made.starts = []

    def next_(start, _limits):
        made.starts.append(start)
        return made.end

    monkeypatch.setattr(made, "_next", next_)
    monkeypatch.setattr(TailraceStreamReader, "partitions", lambda *_: ["planned"])
    return made


def store(directory, number, *ends):
    for name, text in (("offsets", "\n".join(["v1", "{}", *map(json.dumps, ends)])), ("commits", "v1\n{}")):
        (directory / name).mkdir(exist_ok=True)
        (directory / name / str(number)).write_text(text)


def test_each_batch_begins_where_the_one_before_ends(reader):
    for end in (offset(1), offset(2), offset(2), offset(3)):
        reader.end = end
        assert reader.latestOffset() == end
    assert reader.starts == [NEW, offset(1), offset(2), offset(2)]
    assert reader.partitions(offset(2), offset(3)) == ["planned"]


def test_first_batch_after_a_restart_begins_at_the_checkpoints_newest_offset(reader, tmp_path):
    store(tmp_path, 9, offset(9))
    store(tmp_path, 10, READ)
    reader.end = offset(20, done={"d.t": 700})
    reader.latestOffset()
    assert reader.starts == [READ]


def test_batch_that_begins_elsewhere_than_it_was_planned_is_refused(reader):
    reader.end = offset(5)
    reader.latestOffset()
    with pytest.raises(StateError, match="not that of the option `checkpointPath`") as raised:
        reader.partitions(READ, offset(5))
    assert raised.value.code == "TR-1234"


def test_replayed_batch_that_begins_anew_is_refused_and_another_is_not(reader):
    with pytest.raises(StateError, match="not that of the option `checkpointPath`"):
        reader.partitions(READ, offset(20, tables={"d.t": PROGRESS}))
    assert reader.partitions(READ, offset(20, done={"d.t": 700})) == ["planned"]
    first = offset(10, tables={"d.t": PROGRESS})
    assert reader.partitions(NEW, first) == reader.partitions(first, READ) == ["planned"]


def test_checkpoint_of_several_sources_is_refused(reader, tmp_path):
    store(tmp_path, 0, READ, READ)
    reader.end = READ
    with pytest.raises(StateError, match="cannot have other sources") as raised:
        reader.latestOffset()
    assert raised.value.code == "TR-1235"
