"""Compiled kernels on disk are used as long as no kernel's source has changed, and no longer."""

from __future__ import annotations

import importlib
import sys

from tailrace.kernels import cache

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
