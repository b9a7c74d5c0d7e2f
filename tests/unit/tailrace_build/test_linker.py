"""Libraries of every target that the linker makes here."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from tailrace.kernels import library
from tailrace_build.linker import link

_ADDS = """
define i64 @sum_of(i64 %a, i64 %b) {
  %sum = add i64 %a, %b
  ret i64 %sum
}
"""
_NEEDS_ANOTHER = """
declare i64 @strange(i64)
define i64 @twice(i64 %a) {
  %b = call i64 @strange(i64 %a)
  ret i64 %b
}
"""
#: The formats' first bytes, up to the processor in a header of ELF.
_ELF, _X86, _ARM64, _MACH_O_ARM64 = (
    b"\x7fELF\x02\x01",
    b"\x3e\x00",
    b"\xb7\x00",
    b"\xcf\xfa\xed\xfe\x0c\x00\x00\x01",
)


@pytest.mark.parametrize("target", library.TARGETS)
def test_library_is_made_for_its_target(tmp_path: Path, target: str) -> None:
    file = tmp_path / library.TARGETS[target]
    link(_ADDS, target, file)
    begin = file.read_bytes()[:20]
    if target.startswith("darwin"):
        assert begin.startswith(_MACH_O_ARM64)
    else:
        assert begin.startswith(_ELF)
        assert begin.endswith(_X86 if "x86" in target else _ARM64)
    if target == library.target():
        assert ctypes.CDLL(str(file)).sum_of(40, 2) == 42


@pytest.mark.parametrize("target", library.TARGETS)
def test_library_that_needs_another_one_is_refused(tmp_path: Path, target: str) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        link(_NEEDS_ANOTHER, target, tmp_path / "library")
