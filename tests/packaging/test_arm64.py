"""The library for Linux on ARM64 decodes and encodes as the others do: golden tests, emulated."""

from __future__ import annotations

import subprocess

import pytest

from tailrace.kernels import checkout, library
from tailrace_dev.servers import debian
from tests.support import arm64
from tests.support.wheels import ROOT

_TARGET = "linux-aarch64"
_TESTS = ("tests/golden", "tests/unit/kernels/test_lines.py", "tests/unit/formats/encodings")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_golden_tests_pass_on_arm64() -> None:
    if not debian.available():
        pytest.skip("this machine has no apt-get with a Debian mirror")
    checkout.compiled({_TARGET: library.TARGETS[_TARGET]})  # here: the emulated one would take an hour
    command, env = arm64.command()
    tested = subprocess.run(
        [*command, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=1800", *_TESTS],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout
    assert " passed" in tested.stdout
