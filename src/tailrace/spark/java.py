"""The Java program that Spark runs on, and options of its JVM."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pyspark

from tailrace.cache import cache_dir


def archive_options() -> list[str]:
    """Options of a JVM that uses the class archive; none if there is no archive."""
    path = archive_path()
    return (
        [f"-XX:SharedArchiveFile={path}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"] if path.exists() else []
    )


def java() -> str:
    """The path of the Java program that Spark starts."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"


def archive_path() -> Path:
    """The path of the class archive for this JVM and this Spark."""
    program = Path(java()).resolve()
    release = program.parent.parent / "release"
    version = release.read_text(encoding="utf-8") if release.exists() else ""
    identity = "\n".join([str(program), version, pyspark.__version__, *pyspark.__path__])
    return cache_dir("classes") / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsa"
