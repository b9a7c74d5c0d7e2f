"""libfaketime from Debian's package: a process with a clock of its own."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from tailrace_dev.servers.debian import available, unpack


def skewed(hours: int) -> dict[str, str]:
    """Variables of a process whose clock is off by some hours, and goes on from there.

    Its monotonic clock is off as much: with FAKETIME_DONT_FAKE_MONOTONIC, each sleep fails (0.9.10, EINVAL).
    """
    assert available(), "this machine cannot download Debian's package `libfaketime`"
    found = re.search(r"VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(encoding="utf-8"))
    # of the machine's own suite: the library is loaded into the machine's own programs
    root = unpack(found[1] if found else "bookworm", ("libfaketime",))
    assert root is not None, f"no package `libfaketime` for {platform.machine()}"
    (library,) = root.path.glob("usr/lib/*/faketime/libfaketime.so.1")
    return {"LD_PRELOAD": str(library), "FAKETIME": f"{hours:+d}h"}
