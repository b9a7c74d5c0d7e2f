"""The archive of Spark's classes that a JVM can map instead of loading them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyspark

from tailrace.cache import cache_dir
from tailrace.java import java


def archive_options() -> list[str]:
    """Options of a JVM that loads Spark's classes from the archive; none where it has not been made."""
    path = archive_path()
    return (
        [f"-XX:SharedArchiveFile={path}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"] if path.exists() else []
    )


def archive_path() -> Path:
    """The path of the class archive for this JVM and this Spark.

    A JVM refuses an archive if a jar's size or time of modification has changed: a Spark that was installed
    again, at the same path, has another archive.
    """
    program = Path(java()).resolve()
    release = program.parent.parent / "release"
    version = release.read_text(encoding="utf-8") if release.exists() else ""
    identity = "\n".join([str(program), version, pyspark.__version__, *pyspark.__path__, *_jars()])
    return cache_dir("classes") / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsa"


def _jars() -> list[str]:
    """Name, size and time of modification of each of Spark's jars."""
    found = [jar for path in pyspark.__path__ for jar in sorted(Path(path, "jars").glob("*.jar"))]
    status = [jar.stat() for jar in found]
    return [f"{jar.name} {s.st_size} {s.st_mtime_ns}" for jar, s in zip(found, status, strict=True)]
