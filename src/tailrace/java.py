"""The Java that Spark runs on: where it is, and whether it is new enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tailrace.errors import ConfigError

#: The oldest Java that Spark 4 runs on.
OLDEST = 17

_REMEDY = f"install Java {OLDEST} or newer and put `java` on PATH, or set JAVA_HOME to its directory"


def java() -> str:
    """The program that Spark starts: JAVA_HOME's, else the one on PATH; it may be missing."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"


def java_version(program: str) -> tuple[int, str] | None:
    """The major and the full version of a Java, e.g. (17, "17.0.12"); None if the program is no Java.

    Raises:
        OSError: the program cannot be run.
    """
    return _version(_ask(program).stderr)


def require_java() -> str:
    """Check that Spark can start its Java.

    Returns:
        The program.

    Raises:
        ConfigError: there is none, it does not run, or it is too old.
    """
    program = java()
    if shutil.which(program) is None:
        home = os.environ.get("JAVA_HOME")
        found = f"JAVA_HOME is `{home}`, where there is no `bin/java`" if home else "`java` is not on PATH"
        raise ConfigError("no Java found, and Spark needs one", found, _REMEDY, code="TR-1204")
    answer = _ask(program)
    version = _version(answer.stderr)
    if version is None:
        lines = (answer.stderr or answer.stdout).strip().splitlines()
        raise ConfigError(
            f"Java `{program}` does not run",
            lines[0] if lines else f"`{program} -version` ended with {answer.returncode}",
            _REMEDY,
            code="TR-1204",
        )
    if version[0] < OLDEST:
        raise ConfigError(
            f"Java {version[0]} is too old for Spark 4",
            f"`{program}` is Java {version[0]}",
            _REMEDY,
            code="TR-1204",
        )
    return program


def _ask(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - what Spark would run
        [program, "-version"], capture_output=True, text=True, check=False
    )


def _version(text: str) -> tuple[int, str] | None:
    found = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', text)
    return (int(found[2]), found[1]) if found else None
