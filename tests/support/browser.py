"""Debian's headless Chromium, from a private root, driven by Playwright."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tailrace_dev.servers import debian

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

#: How pages are looked at.
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 800}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 800}},
    "narrow": {"color_scheme": "light", "viewport": {"width": 390, "height": 800}},
}
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


def signed_in(browser: Browser, url: str, token: str, said: list[str], look: str = "light") -> Page:
    """A page of somebody who has signed in by hand.

    Args:
        browser: the browser.
        url: where the pages are.
        token: to sign in with.
        said: gets what the browser says about the pages.
        look: one of LOOKS.
    """
    page = browser.new_context(**LOOKS[look], locale="en-GB").new_page()
    page.on("console", lambda message: said.append(f"{page.url}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"{page.url}: {error}"))
    page.goto(url + "/")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_selector("h1:has-text('Pipelines')")
    return page
