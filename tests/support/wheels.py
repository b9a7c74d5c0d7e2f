"""The wheel as users get it, in environments without anything else."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]

#: How long a run may take on a loaded machine.
_RUN_S = 400


class Environment:
    """A virtual environment.

    Args:
        path: where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.python = path / "bin" / "python"
        self.tailrace = path / "bin" / "tailrace"
        (self.package,) = path.glob("lib/python*/site-packages/tailrace")

    @classmethod
    def make(cls, path: Path, wheel: Path, *extras: str) -> Environment:
        """A new environment with the wheel and its dependencies, in the versions of `requirements.lock`."""
        python = str(path / "bin" / "python")
        requirements = path.with_suffix(".txt")
        requirements.write_text(locked(extras))
        uv("venv", "--python", _interpreter(), str(path))
        uv("pip", "install", "--python", python, "--no-deps", "--require-hashes", "-r", str(requirements))
        uv("pip", "install", "--python", python, "--no-deps", "--no-index", str(wheel))
        uv("pip", "check", "--python", python)
        return cls(path)

    def install(self, wheel: Path) -> None:
        """Install another distribution of this repository."""
        uv("pip", "install", "--python", str(self.python), "--no-deps", "--no-index", str(wheel))
        uv("pip", "check", "--python", str(self.python))

    def run(self, *command: str | Path, **options) -> subprocess.CompletedProcess[str]:
        """Run a command as in a new terminal: without our environment variables, except those of `env`."""
        env: Mapping[str, str] = options.pop("env", {})
        process = subprocess.Popen(
            list(map(str, command)),
            env={"PATH": f"{self.path}/bin:{_path()}", **_java_home(), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **options,
        )
        try:
            printed, _ = process.communicate(timeout=_RUN_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(process.args, process.returncode, printed)


def build(directory: Path, project: Path = ROOT) -> tuple[Path, Path]:
    """The source distribution of a project of this repository, and the wheel built from it."""
    uv("build", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(directory), str(project))
    (sdist,) = directory.glob("*.tar.gz")
    (wheel,) = directory.glob("*.whl")
    return sdist, wheel


def locked(extras: Sequence[str], more: Sequence[str] = ()) -> str:
    """The part of `requirements.lock` that an installation needs, and `more` requirements with theirs."""
    needed = _needed(extras, more)
    blocks = re.split(r"^(?=[a-z0-9])", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE)
    return "".join(block for block in blocks if block.partition("==")[0] in needed)


def uv(*arguments: str) -> str:
    """Run uv; returns its output."""
    program = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert program is not None
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def _needed(extras: Sequence[str], more: Sequence[str]) -> set[str]:
    """The names of all distributions of an installation, found in this environment, which has all of them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: set[tuple[str, str]] = set()
    todo = [*project["dependencies"], *more]
    for extra in extras:
        todo += project["optional-dependencies"][extra]
    while todo:
        requirement = Requirement(todo.pop())
        name = canonicalize_name(requirement.name)
        for part in ("", *requirement.extras):
            if (name, part) not in found:
                found.add((name, part))
                required = map(Requirement, distribution(name).requires or ())
                todo += [str(r) for r in required if r.marker is None or r.marker.evaluate({"extra": part})]
    return {name for name, _ in found}


def _interpreter() -> str:
    """A Python of our version that every user can run: ours may be below a private home."""
    mine = Path(sys.executable).resolve()
    system = Path("/usr/bin/python3").resolve()
    is_private = any(not p.stat().st_mode & 0o001 for p in mine.parents)
    return (
        str(system) if is_private and system.name == f"python3.{sys.version_info.minor}" else sys.executable
    )


def _path() -> str:
    """The system's programs, and Java's."""
    java = shutil.which("java")
    return ":".join(["/usr/bin", "/bin", *([str(Path(java).parent)] if java else [])])


def _java_home() -> dict[str, str]:
    return {"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}
