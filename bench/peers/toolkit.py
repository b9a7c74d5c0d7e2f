"""What peers need to run, fetched once into the cache: jars by Spark's resolver, compiled classes, a venv.

A machine that can run Spark has Java, but not always a compiler (a JRE has none), and not always a way to the
registries. Then `UnavailableError` says what is missing, and that peer is left out of the report by name.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tailrace.cache import cache_dir
from tailrace.errors import ConfigError
from tailrace.spark.jars import cached_jars

SOURCES = Path(__file__).parent


class UnavailableError(Exception):
    """A peer cannot run here; the text says why and what would help."""


def java() -> str:
    """The `java` that Spark would take.

    Raises:
        UnavailableError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        raise UnavailableError("no Java found; install a JDK 17 or set JAVA_HOME")
    return found


def class_path(name: str, packages: Sequence[str], without: Sequence[str], sources: Sequence[str]) -> str:
    """A class path with some packages' jars and some of our own programs, compiled against them.

    Args:
        name: directory in the cache, with the version.
        packages: `group:artifact:version` each.
        without: `group:artifact` each: dependencies that are not wanted.
        sources: files beside this one.

    Raises:
        UnavailableError: jars cannot be downloaded, or this Java has no compiler.
    """
    try:
        jars = cached_jars(name, packages, without, pinned=False)
    except ConfigError as error:
        raise UnavailableError(f"{error.message}: {error.detail}") from error
    path = os.pathsep.join(str(jar) for jar in jars)
    files = [SOURCES / source for source in sources]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    classes = cache_dir() / name / f"classes-{digest}"
    if not classes.exists():
        _compile(path, files, classes)
    return os.pathsep.join([str(classes), path])


def _compile(path: str, files: list[Path], classes: Path) -> None:
    if "jdk.compiler" not in _run([java(), "--list-modules"]).stdout:
        raise UnavailableError(
            f"{java()} has no compiler (module jdk.compiler); install a JDK 17 instead of a JRE"
        )
    made = classes.with_name(f"{classes.name}.{os.getpid()}")
    made.mkdir(parents=True)
    command = [java(), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-nowarn", "-proc:none"]
    result = _run([*command, "-cp", path, "-d", str(made), *map(str, files)])
    if result.returncode != 0:
        shutil.rmtree(made)
        raise RuntimeError(f"the peers' programs do not compile:\n{result.stderr}")
    made.rename(classes)


def python(name: str, *requirements: str) -> Path:
    """The Python of a virtual environment of its own with requirements installed.

    Args:
        name: directory in the cache, with the version.
        requirements: as pip takes them.

    Raises:
        UnavailableError: uv is missing beside this Python, or it cannot install the requirements.
    """
    home = cache_dir() / name
    found = home / "bin" / "python"
    done = home / "complete"
    if not done.exists():
        uv = Path(sys.executable).with_name("uv")
        if not uv.exists():
            raise UnavailableError(f"no uv beside {sys.executable}; `make setup` installs it")
        for command in (
            [str(uv), "venv", "--quiet", "--clear", "--python", sys.executable, str(home)],
            [str(uv), "pip", "install", "--quiet", "--python", str(found), *requirements],
        ):
            result = _run(command)
            if result.returncode != 0:
                raise UnavailableError(
                    f"{', '.join(requirements)} cannot be installed: {result.stderr.strip()[-300:]}"
                )
        done.touch()
    return found


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)
