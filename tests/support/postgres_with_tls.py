"""A PostgreSQL server that is built with TLS, which the development servers' is not: Debian's package."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tailrace_dev.servers import PostgresServer, debian, start_postgres

#: The package by the release of this machine: its programs run each other, and so by the machine's libc.
_PACKAGES = {"bookworm": "postgresql-15", "trixie": "postgresql-17"}


def postgres_with_tls() -> PostgresServer:
    """A new server; TLS is off until a certificate is set."""
    release = Path("/etc/os-release")
    codename = re.search(r"^VERSION_CODENAME=(\w+)", release.read_text() if release.exists() else "", re.M)
    package = _PACKAGES.get(codename[1]) if codename else None
    if package is None or not debian.available():
        pytest.skip("Debian has no PostgreSQL for this machine")
    assert codename is not None
    root = debian.unpack(codename[1], (package,))
    assert root is not None
    version = package.partition("-")[2]
    libraries = next(root.path.glob("usr/lib/*/libpq.so.5")).parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{root.path}/usr/lib/postgresql/{version}/bin{os.pathsep}{os.environ['PATH']}")
        patch.setenv("LD_LIBRARY_PATH", str(libraries))
        return start_postgres(version)
