"""A checkout compiles its kernels once for their sources. The compiler here is a stand-in."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tailrace
from tailrace.errors import ConfigError
from tailrace.kernels import checkout

PACKAGE = Path(tailrace.__file__).parent
#: Notes each start beside the sources, and writes a library for each target.
COMPILER = """
import sys, time
from pathlib import Path

directory, *targets = sys.argv[1:]
with Path(__file__).parents[1].with_name("starts").open("a") as starts:
    starts.write(" ".join(targets) + "\\n")
time.sleep(0.2)
for target in targets:
    Path(directory, target + ".so").write_text(target)
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources with one kernel and the stand-in."""
    sources = tmp_path / "src"
    for package in ("tailrace/kernels", "tailrace/formats/kernels", "tailrace_build"):
        (sources / package).mkdir(parents=True)
    (sources / "tailrace/formats/kernels/text.py").write_text("ONE = 1\n")
    (sources / "tailrace_build/__init__.py").touch()
    (sources / "tailrace_build/__main__.py").write_text(COMPILER)
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(checkout, "_PACKAGE", sources / "tailrace")
    monkeypatch.setattr(checkout, "_COMPILER", sources / "tailrace_build")
    return sources


def _made(*targets: str) -> Path:
    return checkout.compiled({target: f"{target}.so" for target in targets})


def _starts(sources: Path) -> list[str]:
    return sources.with_name("starts").read_text().splitlines()


def test_libraries_are_compiled_once_and_for_the_targets_that_are_missing(sources: Path) -> None:
    first = _made("a")
    assert (first / "a.so").read_text() == "a"
    assert [_made("a"), _made("a", "b")] == [first, first]
    assert sorted(path.name for path in first.iterdir()) == ["a.so", "b.so"]
    assert _starts(sources) == ["a", "b"]


@pytest.mark.parametrize("changed", ["tailrace/formats/kernels/text.py", "tailrace_build/__main__.py"])
def test_change_of_any_kernel_or_of_the_compiler_makes_libraries_stale(sources: Path, changed: str) -> None:
    first = _made("a")
    with (sources / changed).open("a") as file:
        file.write("# changed\n")
    assert _made("a") != first
    assert _starts(sources) == ["a", "a"]


def test_processes_that_start_together_compile_once(sources: Path) -> None:
    code = f"""
from pathlib import Path
from tailrace.kernels import checkout
checkout._PACKAGE = Path({str(sources / "tailrace")!r})
checkout._COMPILER = Path({str(sources / "tailrace_build")!r})
print((checkout.compiled({{"a": "a.so"}}) / "a.so").read_text())
"""
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    processes = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate(timeout=60)[0] for process in processes] == ["a\n"] * 3
    assert _starts(sources) == ["a"]


def test_compiler_that_fails_is_reported_by_its_last_line_and_leaves_nothing(sources: Path) -> None:
    (sources / "tailrace_build/__main__.py").write_text("import nowhere_to_be_found\n")
    with pytest.raises(ConfigError) as raised:
        _made("a")
    assert str(raised.value) == (
        "the kernels of this checkout cannot be compiled [TR-1216]\n"
        "Detail: ModuleNotFoundError: No module named 'nowhere_to_be_found'\n"
        "Hint: run `make setup`, and Tailrace by `.venv/bin/tailrace`"
    )
    assert not list(sources.parent.rglob("*.so"))
    (sources / "tailrace_build/__main__.py").write_text(COMPILER)
    assert (_made("a") / "a.so").exists()


def test_libraries_that_nobody_has_loaded_for_a_month_are_deleted(sources: Path) -> None:
    old = _made("a")
    for file in old.iterdir():
        os.utime(file, (0, 0))
    (sources / "tailrace/formats/kernels/text.py").write_text("ONE = 11\n")
    recent = _made("a")
    (sources / "tailrace/formats/kernels/text.py").write_text("ONE = 111\n")
    assert _made("a").exists()
    assert (old.exists(), recent.exists()) == (False, True)


#: The codes of operations are part of the cells in checkpoints, so they do not change.
STORED = {"OP_CREATE", "OP_UPDATE", "OP_DELETE"}


def test_compiled_code_takes_no_number_from_a_file_outside_the_digest() -> None:
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
