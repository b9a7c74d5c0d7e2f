"""Memory and cores that this process may use: the machine's, or fewer where a container limits them.

Source: Linux, "Control Group v2" (memory.max, cpu.max), and "CFS Bandwidth Control" for version 1.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def memory_bytes(cgroups: Path = _CGROUPS) -> int:
    """Memory, bytes.

    Args:
        cgroups: where the kernel shows the limits of this container.
    """
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # "max": no limit
            found = min(found, int((cgroups / limit).read_text(encoding="ascii")))
    return found


def cores(cgroups: Path = _CGROUPS) -> int:
    """Cores, at least one; a share of a core counts as one.

    Args:
        cgroups: see `memory_bytes`.
    """
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for quota in _quotas(cgroups):
        found = min(found, max(1, quota))
    return found


def _quotas(cgroups: Path) -> list[int]:
    """The limits of cores that there are, rounded up."""
    found = []
    for files in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):
        with suppress(OSError, ValueError):  # "max": no limit, and so is -1
            text = " ".join((cgroups / file).read_text(encoding="ascii").strip() for file in files)
            quota_us, period_us = map(int, text.split())
            if quota_us > 0:
                found.append(-(-quota_us // period_us))
    return found
