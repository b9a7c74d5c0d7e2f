"""Compiled kernels on disk are used as long as no kernel's source has changed, and no longer."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import tailrace
from tailrace.kernels import cache

PACKAGE = Path(tailrace.__file__).parent

PROBE = """
from tailrace.kernels.memory import entry

@entry("int64(int64)")
def twice(x):
    return 2 * x
"""


def test_change_of_another_kernels_file_makes_compiled_code_stale(tmp_path, monkeypatch):
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "probe_of_cache.py").write_text(PROBE)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()

    def found() -> int:
        sys.modules.pop("probe_of_cache", None)
        kernel = importlib.import_module("probe_of_cache").twice
        assert kernel(21) == 42
        return sum(kernel.stats.cache_hits.values())

    assert [found(), found()] == [0, 1]
    monkeypatch.setattr(cache, "_key", lambda: "another digest")
    assert [found(), found()] == [0, 1]
    sys.modules.pop("probe_of_cache")


#: The codes of operations are part of the cells in checkpoints, so they do not change.
STORED = {"OP_CREATE", "OP_UPDATE", "OP_DELETE"}


def test_compiled_code_takes_no_number_from_a_file_outside_the_digest():
    files = sorted(PACKAGE.glob("**/kernels/*.py"))
    found = {f"{path.relative_to(PACKAGE)}: {name}" for path in files for name in _from_outside(path)}
    assert len(files) > 40
    assert not found


def _from_outside(path: Path) -> set[str]:
    """Names of other files of ours, without kernels, that a file's kernels or their tables use."""
    module = ast.parse(path.read_text())
    imported = {
        alias.asname or alias.name
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and node.module
        if node.module.startswith("tailrace.") and "kernels" not in node.module.split(".")
        for alias in node.names
    }
    used = {
        node.id
        for statement in module.body
        if not isinstance(statement, ast.ClassDef)
        and (not isinstance(statement, ast.FunctionDef) or _is_kernel(statement))
        for node in ast.walk(statement)
        if isinstance(node, ast.Name)
    }
    return (imported & used) - STORED


def _is_kernel(function: ast.FunctionDef) -> bool:
    decorators = (d.func if isinstance(d, ast.Call) else d for d in function.decorator_list)
    return any(isinstance(d, ast.Name) and d.id in ("entry", "inline") for d in decorators)
