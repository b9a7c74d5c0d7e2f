from __future__ import annotations

import sys
from pathlib import Path

import tailrace
from tailrace_dev.warm import load_kernels


def test_warming_loads_every_module_with_a_kernel_that_python_calls() -> None:
    root = Path(tailrace.__file__).parent
    with_entry = {
        ".".join(path.relative_to(root.parent).with_suffix("").parts)
        for path in root.rglob("*.py")
        if "\n@entry(" in path.read_text()
    }
    assert with_entry
    load_kernels()
    assert with_entry <= sys.modules.keys()
