"""Memory and cores that this process may use: the machine's, or fewer in a container or a unit of systemd.

Source: Linux, "Control Group v2" (memory.max, cpu.max), and "CFS Bandwidth Control" for version 1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
#: Of version 1, where a container shows its own groups.
_MEMORY_1 = "memory/memory.limit_in_bytes"
_CORES_1 = ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")


def memory_bytes(cgroups: Path = _CGROUPS, own: str | None = None) -> int:
    """Memory, bytes.

    Args:
        cgroups: where the kernel shows control groups.
        own: the group of this process there; None: what the kernel says.
    """
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in (cgroups / _MEMORY_1, *(group / "memory.max" for group in _groups(cgroups, own))):
        with suppress(OSError, ValueError):  # "max": no limit
            found = min(found, int(limit.read_text(encoding="ascii")))
    return found


def cores(cgroups: Path = _CGROUPS, own: str | None = None) -> int:
    """Cores, at least one; a share of a core counts as one.

    Args:
        cgroups: see `memory_bytes`.
        own: likewise.
    """
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    version_1 = [cgroups / file for file in _CORES_1]
    for files in (version_1, *([group / "cpu.max"] for group in _groups(cgroups, own))):
        with suppress(OSError, ValueError):  # "max": no limit, and so is -1
            text = " ".join(file.read_text(encoding="ascii").strip() for file in files)
            quota_us, period_us = map(int, text.split())
            if quota_us > 0:
                found = min(found, max(1, -(-quota_us // period_us)))
    return found


def _groups(cgroups: Path, own: str | None) -> Iterator[Path]:
    """The directories of this process's group and of those above it, version 2; a limit of each counts."""
    if own is None:
        own = "/"
        with suppress(OSError):
            for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
                if line.startswith("0::"):
                    own = line.removeprefix("0::")
    group = cgroups / own.strip("/")
    yield group
    while group != cgroups:
        group = group.parent
        yield group
