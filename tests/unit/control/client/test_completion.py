"""The shells' completion of the command line: scripts for each, and what bash makes of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MARKS = {
    "bash": "complete -o nosort -F _tailrace_completion tailrace",
    "zsh": "#compdef tailrace",
    "fish": "complete --no-files --command tailrace",
}


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """The command, as pip installs it."""
    path = tmp_path / "bin" / "tailrace"
    path.parent.mkdir()
    path.write_text(f"#!{sys.executable}\nfrom tailrace.cli import main\n\nmain()\n")
    path.chmod(0o755)
    return path


def _run(arguments: list[str], command: Path, **variables: str) -> str:
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, **variables}
    done = subprocess.run(arguments, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("shell", list(MARKS))
def test_each_shell_gets_a_script(command: Path, shell: str) -> None:
    script = _run([str(command)], command, _TAILRACE_COMPLETE=f"{shell}_source")
    assert MARKS[shell] in script
    assert f"_TAILRACE_COMPLETE={shell}_complete" in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_commands_options_and_their_values(command: Path) -> None:
    script = """
        eval "$(_TAILRACE_COMPLETE=bash_source tailrace)"
        compopt() { :; }
        for line in 'tailrace offsets se' 'tailrace token create ci --scope op'; do
            COMP_WORDS=($line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
            _tailrace_completion tailrace
            echo "${COMPREPLY[*]}"
        done
    """
    text = _run(["bash", "-c", script], command)
    assert text.splitlines() == ["set", "operate"]
