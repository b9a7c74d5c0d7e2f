"""Checksums of downloads from Maven repositories: whichever the mirror, the files are those of the build.

`pinned.sha256`, which `make lock` writes, has a line for each file: `<SHA-256>  <collection>/<file>`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from tailrace.errors import ConfigError

LIST = Path(__file__).with_name("pinned.sha256")


def lines(collection: str, files: Sequence[Path]) -> list[str]:
    """The lines of `files` in the list."""
    return [f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {collection}/{f.name}" for f in files]


def verify(collection: str, files: Sequence[Path]) -> None:
    """Compare downloaded files with the list.

    Args:
        collection: name of the collection, with its version.
        files: all files of the collection.

    Raises:
        ConfigError: a file differs, is missing or is not listed.
    """
    listed = LIST.read_text(encoding="utf-8").splitlines()
    expected = {line for line in listed if line.partition("  ")[2].startswith(f"{collection}/")}
    differing = sorted(
        {line.partition("  ")[2] for line in expected.symmetric_difference(lines(collection, files))}
    )
    if differing:
        raise ConfigError(
            f"the files of {collection} are not those that Tailrace was built with",
            f"SHA-256 differs, or file missing or not listed: {', '.join(differing)}",
            "check what the repository or its mirror serves, then try again: the files are downloaded again",
            code="TR-1209",
        )
