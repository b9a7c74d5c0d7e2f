"""The log file: JSON lines, and its size."""

from __future__ import annotations

import json
import logging
import stat
import sys
from pathlib import Path

from tailrace.errors import SinkError
from tailrace.pipeline.log_output import KEPT, RotatedFile
from tailrace.spark.log_records import JsonFormatter


def test_error_is_a_line_with_its_code_and_table() -> None:
    try:
        raise SinkError("no such type", "found\nBIT", code="TR-7010", table="shop.t")
    except SinkError:
        record = logging.LogRecord("tailrace", logging.ERROR, "", 0, "%s\n", ("failed",), sys.exc_info())
    text = JsonFormatter({"pipeline": "shop"}).format(record)
    assert "\n" not in text
    found = json.loads(text)
    assert found["error"].startswith("Traceback")
    assert {name: found[name] for name in ("level", "message", "pipeline", "code", "table")} == {
        "level": "ERROR",
        "message": "failed\\n",
        "pipeline": "shop",
        "code": "TR-7010",
        "table": "shop.t",
    }


def test_attributes_of_a_record_are_fields() -> None:
    record = logging.makeLogRecord({"msg": "written", "batch": 7, "rows": 0, "other": 1, "table": None})
    found = json.loads(JsonFormatter({}).format(record))
    assert (found["batch"], found["rows"]) == (7, 0)
    assert not {"other", "table", "code"} & found.keys()


def test_full_file_is_emptied_and_its_last_contents_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "tailrace.log"
    rotated = RotatedFile(path, 10)
    assert not rotated.rotate()
    with path.open("a") as writer:  # as a process that keeps the file open does
        for number in range(KEPT + 2):
            writer.write(f"content {number}\n")
            writer.flush()
            assert rotated.rotate()
            assert path.read_text() == ""
        writer.write("short\n")
        writer.flush()
        assert not rotated.rotate()
    assert path.read_text() == "short\n"
    kept = [tmp_path / f"tailrace.log.{number}" for number in range(1, KEPT + 1)]
    assert [file.read_text() for file in kept] == ["content 4\n", "content 3\n", "content 2\n"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in kept} == {0o600}
    assert len(list(tmp_path.iterdir())) == KEPT + 1
