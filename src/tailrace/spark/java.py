"""The Java that Spark runs on, and what its JVM is started with."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pyspark

from tailrace.cache import cache_dir


def archive_options() -> list[str]:
    """Options of a JVM that is to use the file; none where it has not been made."""
    path = archive_path()
    return (
        [f"-XX:SharedArchiveFile={path}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"] if path.exists() else []
    )


def java() -> str:
    """The program that Spark starts."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"


def archive_path() -> Path:
    """Where the file of this JVM and this Spark is kept."""
    program = Path(java()).resolve()
    release = program.parent.parent / "release"
    version = release.read_text(encoding="utf-8") if release.exists() else ""
    of = "\n".join([str(program), version, pyspark.__version__, *pyspark.__path__])
    return cache_dir("classes") / f"{hashlib.sha256(of.encode()).hexdigest()[:16]}.jsa"
