"""A module of LLVM as a library of a target, by LLVM and the linker of Zig, which knows every target's."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import llvmlite.binding as llvm


@dataclass(frozen=True)
class Target:
    """What code is made for.

    Args:
        triple: the target as LLVM names it.
        processor: the least processor, as LLVM names it.
        linked: the target as Zig names it.
    """

    triple: str
    processor: str
    linked: str


#: By their names in `kernels.library`.
_TARGETS = {
    "linux-x86_64-v3": Target("x86_64-unknown-linux-gnu", "x86-64-v3", "x86_64-linux-gnu"),
    "linux-x86_64-v2": Target("x86_64-unknown-linux-gnu", "x86-64-v2", "x86_64-linux-gnu"),
    "linux-aarch64": Target("aarch64-unknown-linux-gnu", "generic", "aarch64-linux-gnu"),
    "darwin-arm64": Target("arm64-apple-macosx11.0.0", "apple-m1", "aarch64-macos.11.0"),
}


def link(code: str, name: str, library: Path) -> None:
    """Write the library of a target.

    Args:
        code: a module of LLVM, not optimised.
        name: the target's.
        library: the file.
    """
    target = _TARGETS[name]
    with tempfile.TemporaryDirectory() as scratch:
        machine_code = Path(scratch, "kernels.o")
        machine_code.write_bytes(_optimised(code, target))
        # Kernels need nothing of other libraries: what is missing is an error now, not where they are loaded.
        options = ["-shared", "-nostdlib", "-s", "-Wl,-z,defs"]
        zig = [sys.executable, "-m", "ziglang", "cc", "-target", target.linked]
        subprocess.run(
            [*zig, *options, "-o", str(library), str(machine_code)],
            env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": scratch, "ZIG_LOCAL_CACHE_DIR": scratch},
            check=True,
        )


def _optimised(code: str, target: Target) -> bytes:
    """Machine code."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.processor, opt=3, reloc="pic", codemodel="default"
    )
    module = llvm.parse_assembly(code)
    module.triple = target.triple
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    emitted: bytes = machine.emit_object(module)
    return emitted
