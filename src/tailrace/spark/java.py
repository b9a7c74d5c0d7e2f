"""The Java that Spark starts: which, with what options, and why it does not start."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pyspark

from tailrace.cache import cache_dir
from tailrace.errors import ConfigError

#: The oldest Java that Spark 4.2 runs on.
OLDEST = 17

_REMEDY = f"install Java {OLDEST} or newer and put `java` on PATH, or set JAVA_HOME to its directory"


def java() -> str:
    """The path of the Java program that Spark starts."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"


def require_java() -> None:
    """Look whether Spark can start its Java.

    Raises:
        ConfigError: there is none, or it is too old.
    """
    program = java()
    if shutil.which(program) is None:
        home = os.environ.get("JAVA_HOME")
        found = f"JAVA_HOME is `{home}`, where there is no `bin/java`" if home else "`java` is not on PATH"
        raise ConfigError("no Java found, and Spark needs one", found, _REMEDY)
    asked = subprocess.run(  # noqa: S603 - what Spark would run
        [program, "-version"], capture_output=True, text=True, check=False
    )
    version = re.search(r'version "(?:1\.)?(\d+)', asked.stderr)
    if version is None:
        said = (asked.stderr or asked.stdout).strip().splitlines()
        raise ConfigError(
            f"Java `{program}` does not run",
            said[0] if said else f"`{program} -version` ended with {asked.returncode}",
            _REMEDY,
        )
    if int(version[1]) < OLDEST:
        raise ConfigError(
            f"Java {version[1]} is too old for Spark 4.2", f"`{program}` is Java {version[1]}", _REMEDY
        )


def archive_options() -> list[str]:
    """Options of a JVM that loads Spark's classes from the archive; none where it has not been made."""
    path = archive_path()
    return (
        [f"-XX:SharedArchiveFile={path}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"] if path.exists() else []
    )


def archive_path() -> Path:
    """The path of the class archive for this JVM and this Spark."""
    program = Path(java()).resolve()
    release = program.parent.parent / "release"
    version = release.read_text(encoding="utf-8") if release.exists() else ""
    identity = "\n".join([str(program), version, pyspark.__version__, *pyspark.__path__])
    return cache_dir("classes") / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsa"
