"""Compiles the kernels for every platform, and puts the libraries into the wheel."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelsHook(BuildHookInterface):  # type: ignore[misc]
    """Puts the libraries of `tailrace.kernels.library` into `tailrace/kernels/libraries`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See hatchling's documentation, "Build hooks"."""
        if self.target_name != "wheel" or version == "editable":  # a checkout compiles when it needs to
            return
        sys.path.insert(0, str(Path(self.root, "src")))
        from tailrace.kernels import checkout, library  # noqa: PLC0415 - found only now

        directory = checkout.compiled(library.TARGETS)
        for file in library.TARGETS.values():
            build_data["force_include"][str(directory / file)] = f"tailrace/kernels/libraries/{file}"
