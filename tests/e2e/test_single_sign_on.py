"""Signing in through Keycloak, with a real browser; and its access tokens at the API."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.control import audit
from tailrace.control.api.app import create_app
from tailrace.control.http import HttpServer
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.oidc import provider as provider_module
from tailrace.control.oidc.settings import read_settings
from tailrace.control.oidc.sign_on import SignOn
from tailrace.control.operations import Control
from tests.support.browser import chromium
from tests.support.keycloak import AUDIENCE, REALM, SECRET, Keycloak, keycloak

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Control]:
    directory = tmp_path_factory.mktemp("control")
    database = ControlDatabase(f"sqlite:///{directory}/t.db")
    database.prepare()
    yield Control(database, directory)
    database.close()


@pytest.fixture(scope="module")
def server(control: Control) -> Iterator[HttpServer]:
    with HttpServer(create_app(control), "127.0.0.1:0") as found:
        yield found


@pytest.fixture(scope="module")
def real(server: HttpServer, control: Control) -> Iterator[Keycloak]:
    file = control.data_dir / "oidc.yaml"
    (control.data_dir / "secret").write_text(SECRET)
    with keycloak(server.url + "/") as found:
        file.write_text(
            f"issuer: {found.issuer}\n"
            "client-id: tailrace\n"
            f"client-secret: ${{file:{control.data_dir}/secret}}\n"
            "name: Keycloak\n"
            "read: {groups: [staff]}\n"
            "admin: {groups: [data]}\n"
            f"api-audience: {AUDIENCE}\n"
        )
        control.sign_on = SignOn(read_settings(file), server.url)
        yield found


def sign_in(page: Page, server: HttpServer, user: str, password: str | None = None) -> None:
    page.goto(f"{server.url}/audit")
    page.get_by_role("link", name="Sign in with Keycloak").click()
    page.locator("#username").fill(user)
    page.locator("#password").fill(password or user)
    page.locator("#kc-login").click()


def test_people_sign_in_with_a_browser(real: Keycloak, server: HttpServer, control: Control) -> None:
    with chromium() as browser:
        context = browser.new_context()
        page = context.new_page()
        sign_in(page, server, "ann")
        page.wait_for_url(f"{server.url}/audit")
        assert "oidc:ann@example.com (admin)" in page.locator("form.who").inner_text()
        (cookie,) = [each for each in context.cookies(server.url) if each["name"] == "tailrace"]
        assert cookie["httpOnly"]
        assert cookie["sameSite"] == "Strict"
        assert not [each for each in context.cookies(server.url) if "under-way" in each["name"]]
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url(f"{server.url}/sign-in?out=1")
        context.add_cookies([cookie])  # a copy of the session has ended, too
        other = context.new_page()
        other.goto(f"{server.url}/audit")
        assert "/sign-in" in other.url
        other.get_by_role("link", name="Sign in with Keycloak").click()
        other.wait_for_url(f"{server.url}/audit")  # without a question
        page.get_by_role("link", name="Sign out there, too").click()
        page.locator("#kc-logout").click()
        page.wait_for_url(f"{server.url}/sign-in")
        page.get_by_role("link", name="Sign in with Keycloak").click()
        page.locator("#password").wait_for()
        context.close()

        real.rotate()  # the next ID token has a key that was not there when keys were read
        page = browser.new_context().new_page()
        provider_module._AGAIN_S, before = 0.0, provider_module._AGAIN_S
        try:
            sign_in(page, server, "bob")
            page.wait_for_url(f"{server.url}/audit")
        finally:
            provider_module._AGAIN_S = before
        assert "oidc:bob@example.com (read)" in page.locator("form.who").inner_text()

        page = browser.new_context().new_page()
        sign_in(page, server, "eve")
        page.get_by_role("alert").wait_for()
        assert "TR-8475" in page.get_by_role("alert").inner_text()
        assert page.goto(f"{server.url}/") is not None
        assert "/sign-in" in page.url
    told = [(event.actor, event.kind) for event in reversed(control.database.read(audit.read_events))]
    assert told == [
        ("oidc:ann@example.com", "session.begin"),
        ("oidc:ann@example.com", "session.end"),
        ("oidc:ann@example.com", "session.begin"),
        ("oidc:bob@example.com", "session.begin"),
    ]


def test_programs_send_access_tokens(real: Keycloak, server: HttpServer, tmp_path: Path) -> None:
    client = {"client_id": "tailrace", "client_secret": SECRET, "grant_type": "password"}
    ann = real.token(REALM, **client, username="ann", password="ann", scope="openid email")
    assert ask(server, ann, "/me") == (200, {"name": "oidc:ann@example.com", "scope": "admin"})
    bob = real.token(REALM, **client, username="bob", password="bob", scope="openid email")
    assert ask(server, bob, "/tokens")[0] == 403
    eve = real.token(REALM, **client, username="eve", password="eve", scope="openid email")
    assert ask(server, eve, "/me")[0] == 403
    other = real.token(
        "master", grant_type="password", client_id="admin-cli", username="admin", password=real.password
    )
    assert ask(server, other, "/me")[0] == 401


def ask(server: HttpServer, token: str, path: str) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"{server.url}/api/v1{path}", headers={"authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            found = json.load(answer)
            return answer.status, {name: found[name] for name in ("name", "scope")}
    except urllib.error.HTTPError as error:
        return error.code, None
