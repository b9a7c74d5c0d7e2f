"""Environments with another PySpark than that of the tests, or with more of it, for this tree's Tailrace."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from bench.peers.toolkit import python

ROOT = Path(__file__).parents[2]


def environment(name: str, pyspark: str) -> tuple[Path, dict[str, str]]:
    """The interpreter of an environment, and the variables of its processes.

    Args:
        name: its directory in the cache.
        pyspark: the requirement of PySpark.

    Raises:
        UnavailableError: it cannot be installed.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["delta"]]
    others = [each for each in needed if Requirement(each).name != "pyspark"]
    interpreter = python(name, pyspark, *others)
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    variables = {**kept, "PYTHONPATH": str(ROOT / "src"), "PYSPARK_PYTHON": str(interpreter)}
    return interpreter, variables
