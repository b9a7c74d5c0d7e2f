"""Compile all kernels: `python -m tailrace_build DIRECTORY [TARGET ...]`."""

from __future__ import annotations

import argparse
from pathlib import Path

from tailrace.kernels.library import TARGETS
from tailrace_build.compiler import compiled_kernels
from tailrace_build.linker import link


def main() -> None:
    """Write libraries into a directory."""
    parser = argparse.ArgumentParser(prog="python -m tailrace_build")
    parser.add_argument("directory", type=Path, help="where the libraries are written")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"{', '.join(TARGETS)} (all)")
    given = parser.parse_args()
    if unknown := set(given.targets) - set(TARGETS):
        parser.error(f"unknown target: {', '.join(unknown)}")
    given.directory.mkdir(parents=True, exist_ok=True)
    code = compiled_kernels()
    for target in given.targets or TARGETS:
        link(code, target, given.directory / TARGETS[target])


if __name__ == "__main__":
    main()
