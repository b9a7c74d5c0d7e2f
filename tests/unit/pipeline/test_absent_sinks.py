"""Which sinks a stream has been given, without a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace.config.kafka import KafkaSettings
from tailrace.config.secret import Secret
from tailrace.config.sinks import DeltaSettings, JsonSettings, MySqlSettings, SinkSettings
from tailrace.errors import StateError
from tailrace.model.table import TableId
from tailrace.pipeline.absent_sinks import AbsentSinks, sink_key
from tailrace.sinks.written_tables import WrittenTables
from tailrace.spark.requests import RequestDirectory, requests_path

ONE, TWO = DeltaSettings("/lake/one"), JsonSettings("/lake/two")
WHOLE = {"mode": "initial"}


class Stream:
    """A checkpoint; each call of `batch` is a new process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.requests = RequestDirectory(requests_path(str(path)))
        self.said: list[str] = []
        #: The sinks that wait for their tables to be read again.
        self.waiting: dict[str, int] = {}
        self.may_wait = False

    def wait(self, settings: SinkSettings, left: int) -> bool:
        if self.may_wait:
            self.waiting[settings.type] = left
        return self.may_wait

    def batch(self, number: int, *sinks: SinkSettings, end: dict[str, Any] | None = None) -> list[str]:
        """The requests that there are after a batch of `sinks`."""
        directory = requests_path(str(self.path))
        written = WrittenTables(str(self.path), directory, self.said.append)
        absent = AbsentSinks(str(self.path), directory, sinks, written, self.said.append, wait=self.wait)
        absent.note(number, WHOLE if end is None else end)
        absent.note(number + 100, None)  # later batches of a process write nothing
        written.note(number, [TableId.parse("shop.t")], ["shop.t"])
        return [",".join(request.tables) for request in RequestDirectory(directory).pending()]


def test_tables_of_a_sink_that_is_back_are_read_again_once(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    assert stream.batch(0, ONE, TWO) == []
    assert stream.batch(1, ONE) == []
    assert stream.batch(2, ONE) == []
    assert stream.batch(3, TWO, ONE) == ["shop.t"]
    assert stream.said == ["sink `json` was left out from batch 1 to batch 2: its tables are read again"]
    assert stream.batch(4, ONE, TWO) == ["shop.t"]


def test_sink_that_can_wait_until_its_tables_are_read_makes_no_request_of_its_own(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.may_wait = True
    for number, sinks in enumerate([(ONE, TWO), (ONE,), (ONE,)]):
        assert stream.batch(number, *sinks) == []
    assert stream.batch(3, TWO, ONE) == []
    assert stream.waiting == {"json": 1}
    assert stream.said == ["sink `json` was left out from batch 1 to batch 2: its tables are read again"]


def test_sink_that_is_back_before_a_batch_was_written_has_missed_nothing(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.batch(0, ONE, TWO)
    assert stream.batch(1, ONE) == []
    assert stream.batch(1, ONE, TWO) == []


def test_new_sink_is_filled_by_its_own_means(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.batch(0, ONE)
    assert stream.batch(1, ONE, TWO) == []


def test_stream_that_holds_no_whole_tables_refuses_the_sink(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    for number, sinks in enumerate([(ONE, TWO), (ONE,)]):
        stream.batch(number, *sinks, end={"mode": "latest"})
    for _ in range(2):
        with pytest.raises(StateError, match="sink `json` has missed batches") as refused:
            stream.batch(2, ONE, TWO, end={"mode": "latest"})
        assert refused.value.code == "TR-6078"


def test_sink_cannot_catch_up_with_tables_whose_earlier_rows_are_left_out(tmp_path: Path) -> None:
    stream, end = Stream(tmp_path), {"mode": "initial", "partial": ["shop.t"]}
    for number, sinks in enumerate([(ONE, TWO), (ONE,)]):
        stream.batch(number, *sinks, end=end)
    with pytest.raises(StateError, match="has missed batches") as refused:
        stream.batch(2, ONE, TWO, end=end)
    assert "`shop.t`" in str(refused.value)


def test_file_of_another_form_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "_tailrace").mkdir()
    (tmp_path / "_tailrace" / "sinks.json").write_text('{"v": 2}')
    with pytest.raises(StateError, match="cannot be read") as refused:
        Stream(tmp_path).batch(0, ONE)
    assert refused.value.code == "TR-6077"


def test_sink_is_known_by_its_place_not_by_its_user() -> None:
    def replica(url: str, user: str) -> str:
        return sink_key(MySqlSettings(url, user, Secret("p")))

    assert replica("mysql://h/d", "a") == replica("mysql://h:3306/d", "b") != replica("mysql://h/e", "a")
    assert sink_key(KafkaSettings("h:9092", "a")) != sink_key(KafkaSettings("h:9092", "b"))
    assert "h:9092" not in sink_key(KafkaSettings("h:9092", "a"))
