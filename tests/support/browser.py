"""Debian's headless Chromium, from a private root, driven by Playwright."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tailrace_dev.servers import debian

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_PROGRAM = "usr/lib/chromium/chromium-headless-shell"


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window.

    The packages are those of this machine's release: its own loader starts the program, which starts itself
    again for each page, and finds its files beside itself.
    """
    from playwright.sync_api import sync_playwright

    root = debian.unpack("bookworm", ("chromium-headless-shell",))
    assert root is not None
    names = ("*.so", "*.so.*")
    libraries = sorted({str(p.parent) for name in names for p in root.path.glob(f"**/lib/**/{name}")})
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join(libraries),
        "FONTCONFIG_SYSROOT": str(root.path),
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(root.path / _PROGRAM), args=["--no-sandbox"], env=environment
        )
        try:
            yield browser
        finally:
            browser.close()
