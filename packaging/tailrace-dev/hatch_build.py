"""Finds the package: in the repository it is in `src/`, in a source distribution next to this file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PackageHook(BuildHookInterface):  # type: ignore[misc]
    """Puts `tailrace_dev` into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """See hatchling's documentation, "Build hooks"."""
        here = Path(self.root)
        if not (here / "tailrace_dev").exists():
            build_data["force_include"][str(here.parents[1] / "src" / "tailrace_dev")] = "tailrace_dev"
