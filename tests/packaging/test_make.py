"""The Makefile on machines that lack something."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


def _make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=_ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def _java(directory: Path, version: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)
    return directory


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_make_takes_java_17_and_newer(tmp_path: Path, version: str) -> None:
    assert _make("machine", JAVA_HOME=str(_java(tmp_path, version))).returncode == 0


def test_make_refuses_an_old_java_and_says_what_to_do(tmp_path: Path) -> None:
    made = _make("machine", JAVA_HOME=str(_java(tmp_path, "1.8.0_452")))
    assert made.returncode != 0
    assert "Tailrace needs Java 17 or newer for Spark. Found: 1 " in made.stdout
    assert "set JAVA_HOME" in made.stdout


def test_make_refuses_a_machine_without_java(tmp_path: Path) -> None:
    made = _make("machine", JAVA_HOME=str(tmp_path))
    assert made.returncode != 0
    assert "Found: none" in made.stdout


def test_make_refuses_an_old_python_and_says_what_to_do() -> None:
    made = _make("machine", "PYTHON=false")
    assert made.returncode != 0
    assert "Tailrace needs Python 3.11 or newer" in made.stdout
    assert "make PYTHON=" in made.stdout


def test_make_alone_lists_the_targets() -> None:
    made = _make()
    assert made.returncode == 0
    for target in ("setup", "demo", "test", "test-slow", "lint", "bench", "fuzz", "lock", "clean"):
        assert f"\n{target} " in "\n" + made.stdout


def test_ci_ends_with_the_closing_line_and_the_exit_code_of_the_tests(tmp_path: Path) -> None:
    make = tmp_path / "make"
    make.write_text("#!/bin/sh\necho '=== 1 failed, 41 passed in 3.21s ==='\necho 'make: Error 1'\nexit 2\n")
    make.chmod(0o755)
    ran = subprocess.run(
        [str(_ROOT / ".ci" / "run")],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stdout.splitlines()[-1] == "1 failed, 41 passed in 3.21s"
