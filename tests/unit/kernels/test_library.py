"""Which library of kernels a machine loads, and what it says where there is none."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.errors import ConfigError
from tailrace.kernels import checkout, library

V2 = {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3", "fpu"}
V3 = V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}


def _machine(
    monkeypatch: pytest.MonkeyPatch, system: str, processor: str, features: set[str] | None = None
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: processor)
    monkeypatch.setattr(library, "_features", lambda: features)


@pytest.mark.parametrize(
    ("system", "processor", "features", "target"),
    [
        ("Linux", "x86_64", V3, "linux-x86_64-v3"),
        ("Linux", "x86_64", V3 - {"bmi2"}, "linux-x86_64-v2"),
        ("Linux", "x86_64", V2, "linux-x86_64-v2"),
        ("Linux", "aarch64", None, "linux-aarch64"),
        ("Darwin", "arm64", None, "darwin-arm64"),
    ],
)
def test_machine_gets_the_best_library_that_it_can_run(
    monkeypatch: pytest.MonkeyPatch, system: str, processor: str, features: set[str] | None, target: str
) -> None:
    _machine(monkeypatch, system, processor, features)
    assert library.target() == target
    assert target in library.TARGETS


@pytest.mark.parametrize(
    ("system", "processor", "features", "found"),
    [
        ("Windows", "AMD64", None, "this is Windows on AMD64"),
        ("Darwin", "x86_64", None, "this is Darwin on x86_64"),
        ("Linux", "x86_64", V2 - {"popcnt"}, "this processor lacks popcnt, which x86-64-v2 has"),
    ],
)
def test_other_machines_are_told_what_there_is(
    monkeypatch: pytest.MonkeyPatch, system: str, processor: str, features: set[str] | None, found: str
) -> None:
    _machine(monkeypatch, system, processor, features)
    with pytest.raises(ConfigError) as raised:
        library.target()
    assert str(raised.value) == (
        "Tailrace has no compiled kernels for this machine [TR-1215]\n"
        f"Detail: {found}\n"
        "Hint: use one of: darwin-arm64, linux-aarch64, linux-x86_64-v2, linux-x86_64-v3"
    )


def test_installation_without_its_library_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checkout, "is_one", lambda: False)
    monkeypatch.setattr(library, "_SHIPPED", tmp_path)
    with pytest.raises(ConfigError, match=r"has no compiled kernels for .* \[TR-1215\]") as raised:
        library._path()
    assert str(tmp_path) in raised.value.detail
    assert "pip install tailrace" in raised.value.hint


def test_features_of_this_processor_are_read() -> None:
    if platform.machine() != "x86_64":
        pytest.skip("other processors have one library")
    assert library._features() >= V2


def test_kernels_run_without_the_gil() -> None:
    """As functions of a library of C do, unlike those of Python's own interface."""
    python_api = 4
    found = library.function("tailrace_kernels_floats__write_all", 6, has_result=True)
    assert not type(found)._flags_ & python_api


def test_only_kernels_call_what_is_not_an_entry() -> None:
    from tailrace.kernels.memory import copy, ld64

    for function in (copy, ld64):
        with pytest.raises(TypeError, match="not callable"):
            function(0, 0, 0)


def test_kernels_load_no_compiler() -> None:
    code = (
        "import sys; from tailrace_dev.warm import load_kernels; load_kernels();"
        "print({'numba', 'llvmlite', 'tailrace_build', 'ziglang'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout == b"set()\n"
