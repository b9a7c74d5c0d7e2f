"""Jars in the cache."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tailrace.spark import jars


def test_jars_are_downloaded_once_however_many_need_them_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloads: list[int] = []
    found: list[list[str]] = []

    def download(home: Path, *_: Sequence[str]) -> None:
        downloads.append(1)
        time.sleep(0.1)
        (home / "jars").mkdir(parents=True)
        (home / "jars" / "a.jar").touch()

    def need() -> None:
        found.append([path.name for path in jars.cached_jars("some-1.0", ["g:a:1"], pinned=False)])

    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path))
    monkeypatch.setattr(jars, "_download", download)
    threads = [threading.Thread(target=need) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(downloads) == 1
    assert found == [["a.jar"]] * 3
