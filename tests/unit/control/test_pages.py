"""The pages of the control plane: who sees what, and what nobody's text can do to them."""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import insert, update
from starlette.testclient import TestClient

from tailrace.config.load import parse_pipelines
from tailrace.control import audit, leases, progress, servers, subscriptions
from tailrace.control.api.app import create_app
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.metadata.tables import subscriptions as table
from tailrace.control.oidc.sign_on import CALLBACK
from tailrace.control.pages import rendering
from tailrace.control.pages.site import PageRoute
from tailrace.control.pages.starts import SINKS, SOURCES, start
from tailrace.control.progress import TableReport
from tailrace.control.secrets import require_references
from tailrace.control.servers import ServerInfo
from tailrace.control.stages import Desired, Stage
from tailrace.control.tokens import Scope
from tailrace.extras import EXTRAS
from tests.support.pages import FILE as SPEC
from tests.support.pages import HOSTILE, SHOWN, browsing, control, fill, token_of

ACTIONS = ("pause", "resume", "retry", "cancel", "remove")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlDatabase]:
    """A control plane with pipelines in every state, which tests only look at."""
    database = ControlDatabase(f"sqlite:///{tmp_path_factory.mktemp('pages')}/t.db")
    database.prepare()
    fill(database)
    yield database
    database.close()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ControlDatabase]:
    """An empty control plane."""
    database = ControlDatabase(f"sqlite:///{tmp_path}/t.db")
    database.prepare()
    yield database
    database.close()


def create(database: ControlDatabase, name: str) -> None:
    with database.begin() as connection:
        subscriptions.create(connection, "ann", name, SPEC.replace("NAME", name))


# ---- signing in ----


@pytest.mark.parametrize("path", ["/", "/servers", "/audit", "/pipelines/shop?show=parked"])
def test_page_is_shown_after_signing_in_only(filled: ControlDatabase, path: str) -> None:
    with browsing(filled, None) as browser:
        refused = browser.client.get(path)
        assert refused.status_code == 303
        assert "shop" not in refused.text
        back = browser.send(refused.headers["location"], "/sign-in", token=token_of(filled, Scope.READ))
        assert html.unescape(back.headers["location"]) == path
        assert "read-" in browser.get(path)


@pytest.mark.parametrize("path", ["/live/pipelines", "/live/servers", "/live/pipelines/shop"])
def test_live_part_is_sent_to_nobody_else(filled: ControlDatabase, path: str) -> None:
    with browsing(filled, None) as browser:
        assert browser.client.get(path).status_code == 401


def test_session_is_a_cookie_that_scripts_and_other_sites_do_not_get(filled: ControlDatabase) -> None:
    with browsing(filled, None) as browser:
        cookie = browser.send("/sign-in", "/sign-in", token=token_of(filled, Scope.READ)).headers[
            "set-cookie"
        ]
        assert "httponly" in cookie.lower()
        assert "samesite=strict" in cookie.lower()
        browser.client.base_url = "https://testserver"
        of_tls = browser.send("/sign-in", "/sign-in", token=token_of(filled, Scope.READ)).headers[
            "set-cookie"
        ]
        assert of_tls.startswith("__Host-tailrace=")
        assert "secure" in of_tls.lower()


def test_session_behind_a_proxy_with_tls_is_as_private(filled: ControlDatabase) -> None:
    with browsing(filled, None) as browser:  # the proxy speaks HTTP to the server
        form = {**browser.form("/sign-in", "/sign-in"), "token": token_of(filled, Scope.READ)}
        answer = browser.client.post("/sign-in", data=form, headers={"origin": "https://testserver"})
        assert answer.status_code == 303
        set_ = answer.headers.get_list("set-cookie")
        assert any(one.startswith("__Host-tailrace=tr_") and "secure" in one.lower() for one in set_)
        assert not any(one.startswith("tailrace=tr_") for one in set_)
        token = next(one for one in set_ if one.startswith("__Host-tailrace=")).split(";")[0]
        shown = browser.client.get("/", headers={"cookie": token})
        assert "read-" in shown.text


@pytest.mark.parametrize(
    "there", ["//elsewhere.example", "/\\elsewhere.example", "https://elsewhere.example", "x"]
)
def test_signing_in_leads_to_no_other_site(filled: ControlDatabase, there: str) -> None:
    with browsing(filled, None) as browser:
        answer = browser.send("/sign-in", "/sign-in", token=token_of(filled, Scope.READ), next=there)
        assert answer.headers["location"] == "/"


def test_wrong_tokens_are_refused_and_then_slowed_down(filled: ControlDatabase) -> None:
    with browsing(filled, None) as browser:
        for _ in range(10):
            refused = browser.send("/sign-in", "/sign-in", token=HOSTILE)
            assert refused.status_code == 403
            assert "TR-8462" in refused.text
            assert HOSTILE not in refused.text
        slowed = browser.send("/sign-in", "/sign-in", token=token_of(filled, Scope.ADMIN))
        assert slowed.status_code == 429
        assert "TR-8461" in slowed.text


def test_session_ends_by_signing_out(filled: ControlDatabase) -> None:
    with browsing(filled) as browser:
        assert browser.send("/", "/sign-out").status_code == 303
        assert browser.client.get("/").status_code == 303


def test_no_page_is_shown_to_nobody_and_no_form_taken_without_its_token(filled: ControlDatabase) -> None:
    public = {("GET", "/assets/{name}"), ("GET", "/sign-in"), ("POST", "/sign-in")}
    public |= {("GET", "/sign-in/oidc"), ("GET", CALLBACK)}
    app = create_app(control(filled))
    found = set(pages_of(app.routes))
    assert len(found) > 15
    fields = {
        "name": "x",
        "spec": SPEC,
        "version": "1",
        "table": "AHNob3Aub3JkZXJz",
        "token": "x",
        "comparison": "verify",
        "job": "1",
    }
    choices = {"name": "shop", "action": "resume"}
    with TestClient(app, follow_redirects=False) as nobody, browsing(filled) as somebody:
        for method, path in sorted(found - public):
            url = path.format(**choices)
            refused = nobody.request(method, url, data=fields if method == "POST" else None)
            assert refused.status_code in (303, 401), path
            assert refused.headers.get("location", "/sign-in").startswith("/sign-in")
            if method == "POST":
                refused = somebody.client.post(url, data=fields)
                assert refused.status_code == 403, path
                assert "TR-8460" in refused.text


def pages_of(routes: Any) -> Iterator[tuple[str, str]]:
    """Method and path of each page, in whatever routers they are."""
    for route in routes:
        if isinstance(route, PageRoute):
            yield from ((method, route.path) for method in route.methods)
        elif (router := getattr(route, "original_router", None)) is not None:
            yield from pages_of(router.routes)


# ---- forms of other sites ----


@pytest.mark.parametrize("path", ["/sign-out", *(f"/pipelines/shop/{action}" for action in ACTIONS)])
def test_form_without_its_token_changes_nothing(filled: ControlDatabase, path: str) -> None:
    with browsing(filled) as browser:
        before = filled.read(lambda connection: subscriptions.get(connection, "shop"))
        for fields in ({}, {"form_token": "0" * 64}, {"form_token": "é"}):
            refused = browser.client.post(path, data=fields)
            assert refused.status_code == 403
            assert "TR-8460" in refused.text
        assert filled.read(lambda connection: subscriptions.get(connection, "shop")) == before
        browser.get("/")


@pytest.mark.parametrize(
    "headers", [{"origin": "https://elsewhere.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}]
)
def test_form_of_another_site_is_refused_with_its_token_too(
    filled: ControlDatabase, headers: dict[str, str]
) -> None:
    with browsing(filled) as browser:
        browser.client.headers.update(headers)
        refused = browser.send("/pipelines/crm", "/pipelines/crm/pause")
        assert refused.status_code == 403
        assert "TR-8460" in refused.text


# ---- what a scope may ----


def test_scope_shows_only_what_it_may_do(filled: ControlDatabase) -> None:
    with browsing(filled, Scope.READ) as browser:
        assert 'method="post" action="/pipelines' not in browser.get("/pipelines/shop")
        assert 'href="/new"' not in browser.get("/")
    with browsing(filled, Scope.OPERATE) as browser:
        page = browser.get("/pipelines/shop")
        assert 'action="/pipelines/shop/pause"' in page
        assert 'action="/pipelines/shop/tables/resume"' in page
        assert 'action="/pipelines/shop/cancel"' not in page
    with browsing(filled, Scope.ADMIN) as browser:
        assert 'action="/pipelines/shop/cancel"' in browser.get("/pipelines/shop")
        assert 'href="/new"' in browser.get("/")


# ---- headers ----


def test_nothing_is_inline_or_from_elsewhere(filled: ControlDatabase) -> None:
    with browsing(filled) as browser:
        for path in ("/", "/servers", "/audit", "/pipelines/shop", "/pipelines/billing", "/sign-in"):
            answer = browser.client.get(path)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'self'" in policy
            assert "unsafe" not in policy
            assert answer.headers["cache-control"] == "no-store"
            assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=|javascript:", answer.text)
            assert not re.search(r"(src|href)=\"(https?:)?//", answer.text)


def test_vendored_files_are_those_of_their_packages() -> None:
    lines = (rendering.ASSETS / "vendored.sha256").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split("  ") for line in lines)}
    own = {"page.css", "page.js", "icon.svg", "vendored.sha256"}
    assert {path.name for path in rendering.ASSETS.iterdir()} - own == set(listed)
    for name, digest in listed.items():
        assert hashlib.sha256((rendering.ASSETS / name).read_bytes()).hexdigest() == digest, name
        if name.endswith(".js"):
            assert (rendering.ASSETS / f"{re.split(r'-[0-9]', name)[0]}.LICENSE").exists()


def test_assets_are_kept_by_browsers_until_they_change(filled: ControlDatabase) -> None:
    with browsing(filled, None) as browser:
        for path in re.findall(r'(?:src|href)="(/assets/[^"]+)"', browser.get("/sign-in")):
            answer = browser.client.get(path)
            assert answer.status_code == 200, path
            assert "immutable" in answer.headers["cache-control"]
        for path in ("/assets/page.py", "/assets/..%2Fsite.py", "/assets/vendored.sha256"):
            assert browser.client.get(path).status_code == 404


# ---- hostile text ----


def test_hostile_text_is_shown_as_text(database: ControlDatabase) -> None:
    create(database, "shop")
    error = {"code": HOSTILE, "message": HOSTILE, "detail": HOSTILE, "hint": f"{HOSTILE}\nsecond line"}
    with database.begin() as connection:
        ((_, lease),) = leases.claim(connection, "s", leases.Room(1))
        found = [
            TableReport(HOSTILE, "failed", error=error),
            TableReport(f"a{HOSTILE}", "snapshot", rows=1, estimated=2, source=HOSTILE),
        ]
        for one in found:
            progress.report(connection, lease, Stage.SNAPSHOT, [one], one.source)
        audit.note(
            connection, HOSTILE, "subscription.change", "shop", before={"spec": HOSTILE}, after={HOSTILE: 1}
        )
        servers.seen(connection, ServerInfo(HOSTILE, HOSTILE, 1, HOSTILE, 1, 0, False, HOSTILE))
        values = {
            "name": HOSTILE.replace("/", ""),
            "spec": HOSTILE,
            "stage_reason": None,
        }
        row = connection.execute(table.select()).one()._mapping
        connection.execute(insert(table).values(**{**row, **values, "id": row["id"] + 1}))
        connection.execute(update(table).where(table.c.name == "shop").values(stage_reason=json.dumps(error)))
    with browsing(database) as browser:
        for path, times in {
            "/": 1,
            "/servers": 3,
            "/audit": 3,
            "/pipelines/shop": 8,
            f"/pipelines/{quote(HOSTILE.replace('/', ''), safe='')}": 2,
            f"/pipelines/{quote(HOSTILE.replace('/', ''), safe='')}/edit": 1,
            "/pipelines/shop?" + f"text={quote(HOSTILE)}": 2,
            f"/?text={quote(HOSTILE)}": 1,
        }.items():
            page = browser.client.get(path).text
            assert "<script>alert" not in page, path
            if path.endswith("/edit"):  # as it is, and the page says so
                assert "invisible" in page
            else:
                assert "\u202e" not in page, path
                assert "\x1b" not in page, path
            assert "49xt" not in page, path
            count = page.count(SHOWN) + page.count(SHOWN.replace("/", ""))
            assert count >= times, (path, count)
            for tag in re.findall(r"<[a-z][^<>]*>", page):  # no attribute ends early
                assert "alert" not in re.sub(r'"[^"]*"', "", tag), (path, tag)


def test_line_breaks_of_a_hint_are_kept(filled: ControlDatabase) -> None:
    with browsing(filled) as browser:
        assert "decimal(12,2);\nthen retry" in browser.get("/pipelines/billing")


# ---- lists ----


def test_list_says_how_each_pipeline_is(filled: ControlDatabase) -> None:
    with browsing(filled, Scope.READ) as browser:
        page = browser.get("/")
    health = dict(re.findall(r'href="/pipelines/([\w-]+)".*?<span class="badge \w+">([^<]+)<', page, re.S))
    assert health == {
        "billing": "failed",
        "crm": "running",
        "inventory": "running",
        "shop": "table parked",
        "shop-archive": "paused",
        "warehouse": "retrying",
        "weblog": "cancelled",
    }


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("text=sho", {"shop", "shop-archive"}),
        ("text=%25", set()),
        ("stage=snapshot", {"inventory"}),
        ("stage=nonsense&desired=cancel", {"weblog"}),
        ("attention=true", {"billing", "shop", "warehouse"}),
        ("page=2", set()),
    ],
)
def test_list_is_filtered(filled: ControlDatabase, query: str, names: set[str]) -> None:
    with browsing(filled, Scope.READ) as browser:
        assert set(re.findall(r'href="/pipelines/([\w-]+)"', browser.get(f"/?{query}"))) == names


def test_500_tables_come_by_the_page_parked_ones_first(database: ControlDatabase) -> None:
    create(database, "shop")
    found = [TableReport(f"shop.t{i:03}", "incremental_log", rows=1, changes=2) for i in range(500)]
    found[321] = TableReport(
        "shop.t321", "failed", error={"message": "m", "code": "TR-1", "detail": None, "hint": None}
    )
    with database.begin() as connection:
        ((_, lease),) = leases.claim(connection, "s", leases.Room(1))
        progress.report(connection, lease, Stage.INCREMENTAL_LOG, found)
    seen: list[str] = []
    with browsing(database, Scope.READ) as browser:
        path: str | None = "/pipelines/shop"
        while path:
            page = browser.get(path)
            assert len(page) < 60_000
            seen += re.findall(r'<th scope="row">(shop\.t\d+)', page)
            later = re.search(r'rel="next" href="([^"]+)"', page)
            path = html.unescape(later[1]) if later else None
        assert seen[0] == "shop.t321"
        assert sorted(seen) == [table.table for table in found]
        assert re.findall(r'<th scope="row">(shop\.t\d+)', browser.get("/pipelines/shop?show=parked")) == [
            "shop.t321"
        ]


def test_pipelines_come_by_the_page(database: ControlDatabase) -> None:
    create(database, "p000")
    with database.begin() as connection:  # 120 files take seconds to check
        row = dict(connection.execute(table.select()).one()._mapping)
        more = [{**row, "id": row["id"] + number, "name": f"p{number:03}"} for number in range(1, 120)]
        connection.execute(insert(table), more)
    with browsing(database, Scope.READ) as browser:
        pages = [re.findall(r'href="/pipelines/(p\d+)"', browser.get(f"/?page={page}")) for page in (1, 2, 3)]
    assert [len(names) for names in pages] == [50, 50, 20]
    assert [name for names in pages for name in names] == [f"p{number:03}" for number in range(120)]


# ---- actions ----


def test_pipeline_is_paused_resumed_cancelled_and_deleted(database: ControlDatabase) -> None:
    create(database, "shop")

    def desired() -> Desired:
        return database.read(lambda connection: subscriptions.get(connection, "shop")).desired

    with browsing(database) as browser:
        for action, after in (("pause", Desired.PAUSE), ("resume", Desired.RUN), ("cancel", Desired.CANCEL)):
            done = browser.send("/pipelines/shop", f"/pipelines/shop/{action}")
            assert done.status_code == 303
            assert 'class="notice good"' in browser.get(done.headers["location"])
            assert desired() is after
        assert browser.send("/pipelines/shop", "/pipelines/shop/remove").headers["location"] == "/"
        assert browser.client.get("/pipelines/shop").status_code == 404
        assert "subscription.delete" in browser.get("/audit?subscription=shop")
        actors = {event.actor for event in database.read(audit.read_events)}
        assert actors == {"ann", "admin-0"}


def test_pipeline_that_did_not_fail_is_not_retried(database: ControlDatabase) -> None:
    create(database, "shop")
    with browsing(database) as browser:
        token = re.search(r'name="form_token" value="(\w+)"', browser.get("/"))
        assert token
        refused = browser.client.post("/pipelines/shop/retry", data={"form_token": token[1]})
        assert refused.status_code == 409
        assert "TR-8407" in refused.text


# ---- creating and changing ----


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("source", SOURCES)
def test_file_to_begin_with_is_in_order(source: str, sink: str) -> None:
    assert parse_pipelines(start(source, sink, "shop"), default_name="shop")
    require_references(start(source, sink, "shop"))


def test_pipeline_is_created_and_changed(database: ControlDatabase) -> None:
    spec = "\n# a comment\n" + SPEC.replace("NAME", "shop")
    with browsing(database) as browser:
        made = browser.send("/new", "/new", name=" shop ", spec=spec.replace("\n", "\r\n"), paused="true")
        assert made.headers["location"] == "/pipelines/shop?done=created"
        found = database.read(lambda connection: subscriptions.get(connection, "shop"))
        assert (found.spec, found.desired) == (spec, Desired.PAUSE)
        page = browser.get("/pipelines/shop/edit")
        inside = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.S)
        assert inside
        assert html.unescape(inside[1]) == spec
        changed = browser.send("/pipelines/shop/edit", "/pipelines/shop/edit", spec=spec + "# another\n")
        assert changed.headers["location"] == "/pipelines/shop?done=changed"
        found = database.read(lambda connection: subscriptions.get(connection, "shop"))
        assert found.spec == spec + "# another\n"


def test_lost_update_is_refused_and_its_text_kept(database: ControlDatabase) -> None:
    create(database, "shop")
    with browsing(database) as browser:
        form = browser.form("/pipelines/shop/edit", "/pipelines/shop/edit")
        browser.send("/pipelines/shop", "/pipelines/shop/pause")
        refused = browser.client.post(
            "/pipelines/shop/edit", data={**form, "spec": SPEC.replace("NAME", "shop") + "# mine\n"}
        )
        assert refused.status_code == 409
        assert "TR-8414" in refused.text
        assert "# mine" in refused.text


def test_wrong_file_is_refused_and_its_text_kept(database: ControlDatabase) -> None:
    spec = SPEC.replace("${env:TAILRACE_SECRET_SHOP}", "hunter2")
    with browsing(database) as browser:
        refused = browser.send("/new", "/new", name="shop", spec=spec)
        assert refused.status_code == 400
        assert "TR-8418" in refused.text
        assert "mask e-mail addresses" in refused.text
        assert not database.read(
            lambda c: subscriptions.select_subscriptions(c, subscriptions.SubscriptionFilter())
        )


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (SPEC, "The file is valid"),
        (SPEC.replace("${env:TAILRACE_SECRET_SHOP}", "hunter2"), "TR-8418"),
        ("source: <script>alert(1)</script>", "TR-1"),
        ("{", "TR-1"),
    ],
)
def test_file_is_checked_while_it_is_typed(database: ControlDatabase, spec: str, said: str) -> None:
    with browsing(database) as browser:
        form = browser.form("/new", "/new")
        answer = browser.client.post("/check", data={**form, "spec": spec, "name": ""})
        assert answer.status_code == 200
        assert said in answer.text
        assert "hunter2" not in answer.text
        assert "<script" not in answer.text


def test_extra_that_is_missing_is_named_while_a_file_is_typed(
    database: ControlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXTRAS, "delta", ("package_that_is_not_there",))
    with browsing(database) as browser:
        form = browser.form("/new", "/new")
        answer = browser.client.post("/check", data={**form, "spec": SPEC, "name": ""})
    assert "TR-1203" in answer.text
    assert "pip install &#39;tailrace[delta]&#39;" in answer.text


@pytest.mark.parametrize("scope", [Scope.READ, Scope.OPERATE])
@pytest.mark.parametrize(
    "path", ["/new", "/check", "/pipelines/shop/edit", "/pipelines/shop/cancel", "/pipelines/shop/remove"]
)
def test_what_a_scope_may_not_do_is_refused(filled: ControlDatabase, scope: Scope, path: str) -> None:
    with browsing(filled, scope) as browser:
        form = browser.form("/", "/sign-out")
        fields = {"name": "x", "spec": SPEC, "version": "1"}
        refused = browser.client.post(path, data={**form, **fields})
        assert refused.status_code == 403
        assert "TR-8464" in refused.text
        if path.endswith(("/new", "/edit")):
            assert browser.client.get(path).status_code == 403


def test_reader_pauses_and_parks_nothing(filled: ControlDatabase) -> None:
    with browsing(filled, Scope.READ) as browser:
        form = browser.form("/", "/sign-out")
        for path in ("/pipelines/crm/pause", "/pipelines/billing/retry", "/pipelines/shop/tables/park"):
            refused = browser.client.post(path, data={**form, "table": "AHNob3Aub3JkZXJz"})
            assert refused.status_code == 403
            assert "TR-8464" in refused.text
