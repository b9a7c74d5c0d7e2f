"""Java 21, which some servers need and Spark does not.

The `java` that Spark runs, the one on PATH and those below /usr/lib/jvm are tried, else Debian's package is
unpacked.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from tailrace.errors import TailraceError
from tailrace.java import java, java_version
from tailrace_dev.servers import debian

_JAVA_VERSION = 21
_PACKAGES = ("openjdk-21-jre-headless",)
_JVMS = Path("/usr/lib/jvm")


def java_21(product: str, substitute: str) -> tuple[list[str], str]:
    """The command of a Java that is new enough, and a name for its version.

    Args:
        product: name and version of what needs it, for the error.
        substitute: what may run elsewhere instead, with its article, for the error.

    Raises:
        TailraceError: there is none.
    """
    seen = []
    for program in _javas():
        version = java_version(program)
        if version is not None and version[0] >= _JAVA_VERSION:
            return [program], version[1]
        seen.append(f"`{program}` is {version[1] if version else 'no Java'}")
    if debian.available():
        root = debian.unpack("sid", _PACKAGES)
        if root is not None:
            _fix_links(root.path)
            for path in sorted(root.path.glob("usr/lib/jvm/*/bin/java")):
                return root.command(str(path.relative_to(root.path))), root.version
        seen.append(f"Debian's sid has no {_PACKAGES[0]}")
    raise TailraceError(
        f"{product} needs Java {_JAVA_VERSION}",
        "; ".join(seen),
        f"install one and put it on PATH or under {_JVMS}, or use {substitute} that runs elsewhere",
        code="TR-9004",
    )


def _fix_links(root: Path) -> None:
    """Redirect links below a private root's Java from the machine's /etc to the root's own."""
    for link in root.glob("usr/lib/jvm/*/**/*"):
        target = root / str(link.readlink()).lstrip("/") if link.is_symlink() else link
        if not link.exists() and target.exists():
            link.unlink()
            link.symlink_to(target)


def _javas() -> Iterator[str]:
    """Programs called `java` on this machine: Spark's, the one on PATH, and those below `_JVMS`."""
    for program in (shutil.which(java()), shutil.which("java")):
        if program is not None:
            yield program
    yield from map(str, sorted(_JVMS.glob("*/bin/java")))
