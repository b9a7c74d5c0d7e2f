"""Servers that are Java programs: their jars from the cache that Spark's resolver fills."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tailrace.cache import locked
from tailrace.errors import TailraceError
from tailrace_dev.servers.account import reachable
from tailrace_dev.servers.program import run


def java() -> str:
    """The `java` that Spark would take.

    Raises:
        TailraceError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        raise TailraceError(
            "no Java found", "this server is a Java program", "install Java 17 or set JAVA_HOME"
        )
    return found


def jars(name: str, packages: Sequence[str]) -> list[Path]:
    """The jars of some packages and of all they depend on, fetched at first use, where servers can read them.

    Args:
        name: directory in the cache, with the version.
        packages: `group:artifact:version` each.

    Raises:
        TailraceError: they are not in the cache and could not be downloaded.
    """
    # Its own process: development servers import nothing of Spark.
    with locked(f"jars-{name}"):
        printed = run(
            [sys.executable, "-m", "tailrace.spark.jars", name, *packages],
            f"the jars of {', '.join(packages)} could not be fetched",
        )
        found = [Path(line) for line in printed.splitlines()]
        return [reachable(found[0].parent, f"jars-{name}") / jar.name for jar in found]


def scala_library() -> Path:
    """Scala's library, which Spark brings itself and its resolver therefore leaves out."""
    spec = importlib.util.find_spec("pyspark")
    for place in (spec.submodule_search_locations or []) if spec else []:
        for jar in Path(place).glob("jars/scala-library-2.13.*.jar"):
            return reachable(jar, jar.name)
    raise TailraceError("no Scala library found", "it comes with pyspark", "pip install pyspark")
