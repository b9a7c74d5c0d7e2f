"""A Python of Linux on ARM64, run by qemu-user, with what Tailrace and its tests import."""

from __future__ import annotations

import hashlib
import os
from importlib.util import find_spec
from pathlib import Path

from tailrace.cache import cache_dir, locked
from tailrace_dev.servers import debian
from tests.support import wheels

#: A release of Debian, its Python, and the platform of wheels that its libc can load.
_SUITE, _PYTHON, _PLATFORM = "bookworm", "3.11", "aarch64-manylinux_2_34"
#: What tests of bytes import besides.
_TESTS = ("fastavro", "grpcio-tools", "hypothesis", "protobuf", "pytest", "pytest-timeout", "confluent-kafka")
#: Large, and the same on every machine.
_PURE = ("py4j", "pyspark")


def command() -> tuple[list[str], dict[str, str]]:
    """The beginning of a command line, and the environment: this checkout's sources, tests and cache."""
    emulator = debian.unpack(_SUITE, ("qemu-user-static",))
    system = debian.unpack(_SUITE, (f"python{_PYTHON}", "libstdc++6"), architecture="arm64")
    assert emulator is not None
    assert system is not None
    program = [str(emulator.path / "usr/bin/qemu-aarch64-static"), "-L", str(system.path)]
    env = {
        "HOME": os.environ.get("HOME", "/nonexistent"),
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": os.pathsep.join(map(str, (wheels.ROOT / "src", _packages()))),
        "TAILRACE_CACHE": str(cache_dir()),
    }
    return [*program, str(system.path / f"usr/bin/python{_PYTHON}")], env


def _packages() -> Path:
    """A directory with packages for ARM64, in the versions of `requirements.lock`."""
    requirements = wheels.locked(("postgres",), _TESTS)
    version = hashlib.sha256(requirements.encode()).hexdigest()[:16]
    target = cache_dir("arm64", version)
    with locked(f"arm64-{version}"):
        if not (target / ".installed").exists():
            listed = target / "requirements.txt"
            blocks = requirements.split("\n")
            listed.write_text("\n".join(_without(blocks, _PURE)))
            where = ("--python-platform", _PLATFORM, "--python-version", _PYTHON, "--target", str(target))
            wheels.uv("pip", "install", "--no-deps", "--only-binary", ":all:", *where, "-r", str(listed))
            for name in _PURE:
                spec = find_spec(name)
                assert spec is not None
                assert spec.origin is not None
                (target / name).symlink_to(Path(spec.origin).parent)
            (target / ".installed").touch()
    return target


def _without(lines: list[str], names: tuple[str, ...]) -> list[str]:
    """Lines of requirements without those of some distributions, each of which goes on in indented lines."""
    kept, leave_out = [], False
    for line in lines:
        if not line.startswith(" "):
            leave_out = line.partition("==")[0] in names
        if not leave_out:
            kept.append(line)
    return kept
