"""The Python that a local Spark starts for planning, sources and tasks.

Spark puts its own copies of PySpark and Py4J, which are zip files, and a jar before everything else on
PYTHONPATH. Python keeps no compiled modules of a zip file, so each process would compile PySpark anew: 1.1 of
the 1.7 s of CPU time that a process takes to import `tailrace.spark.source`. Where PySpark is installed as
files, a script starts the interpreter without these entries; or asks a process that has imported everything
to fork (`fork_server`).
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

import py4j  # type: ignore[import-untyped]
import pyspark

from tailrace.cache import cache_dir
from tailrace.spark import fork_client

_SCRIPT = """\
#!/bin/sh
# Written by Tailrace (tailrace.spark.interpreter): PySpark's installed files instead of Spark's zipped ones.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
    case $entry in
        */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip | */jars/spark-core_*.jar) ;;
        *) kept=${{kept:+$kept:}}$entry ;;
    esac
done
unset IFS
export PYTHONPATH="$kept"
if [ "$1" = -m ] && [ -S "$TAILRACE_FORK_SERVER" ]; then
    exec {python} -I -S {client} "$@"
fi
exec {python} "$@"
"""


def local_python() -> str:
    """The program for `PYSPARK_PYTHON` of a Spark on this machine: a script, or this interpreter itself.

    Raises:
        ConfigError: the cache cannot be written.
    """
    if not all(Path(module.__path__[0], "__init__.py").is_file() for module in (pyspark, py4j)):
        return sys.executable
    text = _SCRIPT.format(python=shlex.quote(sys.executable), client=shlex.quote(fork_client.__file__))
    script = cache_dir("python", hashlib.sha256(text.encode()).hexdigest()[:16]) / "python"
    if not script.exists() and not _write(script, text):
        return sys.executable
    return str(script)


def _write(script: Path, text: str) -> bool:
    """Write the script; False if this directory allows no programs."""
    made = script.with_name(f"{script.name}.{os.getpid()}")
    made.write_text(text, encoding="utf-8")
    made.chmod(0o700)
    try:
        subprocess.run([str(made), "-c", ""], check=True, capture_output=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        made.unlink()
        return False
    made.replace(script)
    return True
