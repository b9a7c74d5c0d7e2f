"""What happens to a pipeline, in its log."""

from __future__ import annotations

import logging

import pytest

from tailrace.errors import TransientSinkError, TransientSourceError
from tailrace.model.table import TableId
from tailrace.pipeline.event_log import EventLog
from tailrace.sinks.base import Written


def test_events_carry_table_batch_and_code(caplog: pytest.LogCaptureFixture) -> None:
    events = EventLog(batches=True)
    with caplog.at_level(logging.INFO, "tailrace.pipeline"):
        events.on_written(7, [Written(TableId("shop", "t"), "lake.t", 0, 3)])
        events.on_restart(TransientSinkError("a disk is full", code="TR-7007"), 2, 4.0)
        events.on_notice("table `shop.t` is parked, the others go on: no such type [TR-7010]\nHint: ...")
        events.on_notice("the stream failed more than 60 times within an hour")
    written, restart, parked, other = (record.__dict__ for record in caplog.records)
    assert (written["batch"], written["table"], written["rows"]) == (7, "shop.t", 3)
    assert caplog.messages[0] == "3 changes of shop.t written to lake.t"
    assert (restart["code"], restart["event"]) == ("TR-7007", "restart")
    assert caplog.messages[1] == "a disk is full; start 2 in 4 s"
    assert (parked["code"], parked["table"]) == ("TR-7010", "shop.t")
    assert (other["code"], other["table"]) == (None, None)


def test_source_that_does_not_answer_is_logged_until_it_does(caplog: pytest.LogCaptureFixture) -> None:
    events = EventLog(batches=False)
    events.on_trouble(TransientSourceError("no connection", code="TR-3003"))
    events.on_trouble(None)
    assert caplog.messages == ["no connection; tried again", "the source answers again"]
    assert caplog.records[0].__dict__["code"] == "TR-3003"


def test_batches_are_left_out_of_a_log_of_warnings(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tailrace.pipeline"):
        EventLog(batches=False).on_written(7, [Written(TableId("shop", "t"), "lake.t", 0, 3)])
    assert not caplog.records
