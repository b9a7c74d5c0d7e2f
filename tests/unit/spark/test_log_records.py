"""Records of Spark's Python processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.spark.log_records import VARIABLE, settings

#: A process that warns in two ways, after a task's daemon has set up its log.
WARNS = """
import logging, warnings
from tailrace.spark.log_records import follow_settings
follow_settings()
logging.getLogger("tailrace.reader").warning("late\\n%s", "x", extra={"table": "shop.t"})
warnings.warn("old", DeprecationWarning, stacklevel=1)
"""


def run(code: str, variables: dict[str, str]) -> str:
    """What a process prints to stderr."""
    environment = {k: v for k, v in os.environ.items() if k != VARIABLE}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "default", **variables}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stderr


def test_warnings_of_a_worker_are_objects_in_the_log_file(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    assert run(WARNS, settings(log, {"pipeline": "shop"})) == ""
    late, old = map(json.loads, log.read_text().splitlines())
    assert (late["message"], late["table"], late["pipeline"]) == ("late\\nx", "shop.t", "shop")
    assert (late["logger"], late["level"]) == ("tailrace.reader", "WARNING")
    assert (old["logger"], "DeprecationWarning: old" in old["message"]) == ("py.warnings", True)


def test_warnings_of_a_worker_on_another_machine_are_objects_on_stderr() -> None:
    printed = run(WARNS, settings(None, {"pipeline": "shop"}))
    assert [json.loads(line)["pipeline"] for line in printed.splitlines()] == ["shop", "shop"]


def test_text_log_has_the_warnings_of_workers_as_lines(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    assert run(WARNS, settings(log, None)) == ""
    first, *_ = log.read_text().splitlines()
    assert first.endswith("WARNING tailrace.reader: late\\nx")
    assert log.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("before", ["", "import logging; logging.basicConfig(level=logging.ERROR)\n"])
def test_logging_of_other_programs_is_left_alone(tmp_path: Path, before: str) -> None:
    variables = settings(tmp_path / "run.log", None) if before else {}
    printed = run(before + WARNS, variables)
    assert ("late" in printed) is not bool(before)
    assert not (tmp_path / "run.log").exists()
