"""The jars of servers that are Java programs, from the cache that Spark's resolver fills."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from tailrace.cache import locked
from tailrace.errors import TailraceError
from tailrace_dev.servers.account import reachable
from tailrace_dev.servers.program import run

#: Options of each server's JVM: little memory, and no counters in /tmp.
SMALL_JVM = ("-XX:-UsePerfData", "-XX:+UseSerialGC")


def jars(name: str, packages: Sequence[str]) -> list[Path]:
    """The jars of some packages with their dependencies, downloaded at first use.

    Args:
        name: directory in the cache, with the version.
        packages: `group:artifact:version` each.

    Returns:
        Their paths, where a server's user can read them.

    Raises:
        TailraceError: they are not in the cache and could not be downloaded.
    """
    # In a process of its own: development servers import nothing of Spark.
    with locked(f"jars-{name}"):
        printed = run(
            [sys.executable, "-m", "tailrace.spark.jars", name, *packages],
            f"the jars of {', '.join(packages)} could not be downloaded",
        )
        found = [Path(line) for line in printed.splitlines()]
        return [reachable(found[0].parent, f"jars-{name}") / jar.name for jar in found]


def scala_library() -> Path:
    """Scala's library, which Spark's resolver leaves out because Spark contains it.

    Raises:
        TailraceError: it is missing.
    """
    jar = spark_jar("scala-library-2.13.*.jar", "Scala library")
    return reachable(jar, jar.name)


def spark_jar(pattern: str, content: str) -> Path:
    """A jar of the installed Spark.

    Args:
        pattern: its file name, a glob.
        content: what it holds, for the error.

    Raises:
        TailraceError: it is missing.
    """
    spec = importlib.util.find_spec("pyspark")
    for directory in (spec.submodule_search_locations or []) if spec else []:
        for jar in Path(directory, "jars").glob(pattern):
            return jar
    raise TailraceError(f"no {content} found", "it comes with pyspark", "pip install pyspark", code="TR-9004")
