"""The script that starts Spark's Python processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import py4j  # type: ignore[import-untyped]
import pytest

from tailrace.spark import interpreter
from tailrace.spark.interpreter import local_python


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_script_drops_zipped_copies_from_the_path() -> None:
    home = "/opt/my spark"
    kept = ["/a b", "/python/lib/mine.zip", "*"]
    path = [
        f"{home}/python/lib/pyspark.zip",
        kept[0],
        f"{home}/python/lib/py4j-0.10.9.9-src.zip",
        *kept[1:],
        f"{home}/jars/spark-core_2.13-4.2.0.jar",
    ]
    program = local_python()
    assert program != sys.executable
    code = "import os, sys; print(os.environ['PYTHONPATH'], sys.executable, sys.argv[1:], sep='\\n')"
    for entries, found in ((path, kept), (path[:1], []), ([], [])):
        printed = subprocess.run(
            [program, "-c", code, "x  y", "$HOME"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(entries)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        assert printed == [os.pathsep.join(found), sys.executable, "['x  y', '$HOME']"]


def test_script_is_written_once() -> None:
    program = Path(local_python())
    before = program.stat()
    assert local_python() == str(program)
    assert program.stat() == before


def test_interpreter_itself_where_no_program_may_be_started(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(interpreter.subprocess, "run", refuse)
    assert local_python() == sys.executable
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_interpreter_itself_where_pyspark_comes_from_a_zip_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(py4j, "__path__", ["/opt/spark/python/lib/py4j-0.10.9.9-src.zip/py4j"])
    assert local_python() == sys.executable
