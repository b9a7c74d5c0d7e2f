"""Limits of a container, as the kernel shows them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tailrace.machine import cores, memory_bytes


def _write(directory: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text + "\n")
    return directory


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "100000 100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
    ],
)
def test_cores_are_those_of_the_container(files: dict[str, str], expected: int, tmp_path: Path) -> None:
    assert cores(_write(tmp_path, files), "/") == expected


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"cpu.max": "max 100000"},
        {"cpu.max": "99900001 100000"},
        {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"},
    ],
)
def test_cores_are_the_machines_where_a_container_has_no_lower_limit(
    files: dict[str, str], tmp_path: Path
) -> None:
    assert cores(_write(tmp_path, files), "/") == len(os.sched_getaffinity(0))


def test_shares_of_a_core_are_rounded_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert cores(_write(tmp_path, {"cpu.max": "150000 100000"}), "/") == 2


def test_memory_is_the_containers_if_that_is_less(tmp_path: Path) -> None:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory_bytes(tmp_path, "/") == machine
    assert memory_bytes(_write(tmp_path, {"memory.max": "max"}), "/") == machine
    assert memory_bytes(_write(tmp_path, {"memory.max": "1073741824"}), "/") == 1 << 30
    # version 1 without a limit
    (tmp_path / "memory.max").unlink()
    none = {"memory/memory.limit_in_bytes": "9223372036854771712"}
    assert memory_bytes(_write(tmp_path, none), "/") == machine


def test_limits_of_a_unit_and_of_what_it_is_in_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    for group, memory, share in (("a.slice", "2147483648", "400000"), ("a.slice/b.service", "max", "max")):
        (tmp_path / group).mkdir()
        _write(tmp_path / group, {"memory.max": memory, "cpu.max": f"{share} 100000"})
    assert memory_bytes(tmp_path, "/a.slice/b.service") == 2 << 30
    assert cores(tmp_path, "/a.slice/b.service") == 4
    assert memory_bytes(tmp_path, "/none") > 2 << 30
