"""What a run notes of itself."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import SourceError, TransientSourceError
from tailrace.pipeline.run_state import RunNotes, RunState, forget_run


def report(complete_us: int | None, rate: float | None) -> dict[str, Any]:
    latest = {"v": 1, "complete_us": complete_us, "room": {"rate": rate}}
    return {"sources": [{"latestOffset": json.dumps(latest)}]}


def test_run_notes_what_only_a_running_stream_knows(tmp_path: Path) -> None:
    with RunNotes(str(tmp_path)) as notes:
        begun = RunState.read(str(tmp_path))
        assert begun is not None
        assert begun.runs is True
        assert begun.complete_us is None
        notes.on_progress(report(17, 2.5))
        notes.on_progress(report(None, None))
        notes.on_restart(TransientSourceError("connection lost", code="TR-3001"), 1, 1.0)
        now = RunState.read(str(tmp_path))
        assert now is not None
        assert (now.complete_us, now.log_rate, now.restarts, now.ended) == (17, 2.5, 1, None)
        assert (now.error or {})["code"] == "TR-3001"
    ended = RunState.read(str(tmp_path))
    assert ended is not None
    assert (ended.ended, ended.runs, ended.complete_us) == ("done", False, 17)
    file = tmp_path / "_tailrace" / "run.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    forget_run(str(tmp_path))
    assert RunState.read(str(tmp_path)) is None


def test_run_that_fails_notes_why(tmp_path: Path) -> None:
    with pytest.raises(SourceError), RunNotes(str(tmp_path)):
        raise SourceError("gone", code="TR-8001")
    found = RunState.read(str(tmp_path))
    assert found is not None
    assert found.ended == "failed"
    assert (found.error or {})["message"] == "gone"


def test_run_that_was_killed_is_seen_not_to_run(tmp_path: Path) -> None:
    begin = (
        "import os, sys; from tailrace.pipeline.run_state import RunNotes;"
        f"RunNotes({str(tmp_path)!r}).__enter__(); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", begin], check=False, timeout=60)
    found = RunState.read(str(tmp_path))
    assert found is not None
    assert found.ended is None
    assert found.runs is False


def test_whether_a_run_on_another_machine_lives_is_not_known(tmp_path: Path) -> None:
    with RunNotes(str(tmp_path)):
        file = tmp_path / "_tailrace" / "run.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "host": "elsewhere"}))
        found = RunState.read(str(tmp_path))
        assert found is not None
        assert found.runs is None


@pytest.mark.parametrize("text", ["", '{"v": 1, "ho', '{"v": 99}'])
def test_notes_that_cannot_be_read_say_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "_tailrace").mkdir()
    (tmp_path / "_tailrace" / "run.json").write_text(text)
    assert RunState.read(str(tmp_path)) is None


def test_full_disk_does_not_end_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "_tailrace").write_text("a file where a directory is needed")
    with RunNotes(str(tmp_path)) as notes:
        notes.on_progress(report(17, None))
    assert "could not be noted" in caplog.text
