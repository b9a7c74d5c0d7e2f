"""The API and the pages on each kind of database, what they ask of real sources, and who waits for whom."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import Connection, text
from starlette.testclient import TestClient

from tailrace.control import servers, tokens
from tailrace.control.api.app import create_app
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.operations import Control
from tailrace.control.policy import Policy
from tailrace.control.tokens import Scope
from tests.support import control
from tests.support.control_servers import ControlServer
from tests.support.databases import fresh_database
from tests.support.pages import browsing, fill, token_of
from tests.support.wait import wait_until

API = "/api/v1"
#: Connections of the API to the control plane's database.
_CONNECTIONS = 8


@pytest.fixture(params=control.KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlDatabase]:
    with control.database(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture
def mysql_database(mysql: Any) -> Iterator[str]:
    with fresh_database(mysql) as name:
        yield name


def _client(database: ControlDatabase, directory: Path, *, policy: Policy | None = None) -> TestClient:
    found = Control(database, directory, policy or Policy(hosts=["*"]))
    headers = {"authorization": f"Bearer {token_of(database, Scope.ADMIN)}"}
    return TestClient(create_app(found), headers=headers, raise_server_exceptions=False)


def test_lists_tokens_events_and_pages_are_the_same_on_each_database(
    database: ControlDatabase, tmp_path: Path
) -> None:
    fill(database)
    client = _client(database, tmp_path)

    def names(**query: object) -> list[str]:
        found: list[str] = []
        while True:
            page = client.get(f"{API}/subscriptions", params={"limit": 3, **query}).json()
            found += [one["name"] for one in page["items"]]
            if page["next"] is None:
                return found
            query["after"] = page["next"]

    assert names() == ["billing", "crm", "inventory", "shop", "shop-archive", "warehouse", "weblog"]
    assert names(text="shop") == ["shop", "shop-archive"]
    assert names(text="%") == names(text="_") == []
    assert names(text="SHOP") in ([], names(text="shop")), "SQLite finds letters of either case"
    assert names(desired="pause", text="arch") == ["shop-archive"]
    assert names(stage="cancelled") == ["weblog"]
    assert "shop" in names(stage="incremental_log")
    owned = names(owner="server-1") + names(owner="server-2")
    assert len(owned) == len(set(owned)) > 0
    # tokens
    made = client.post(f"{API}/tokens", json={"name": "Ci", "scope": "read", "days": 0.5}).json()
    assert client.post(f"{API}/tokens", json={"name": "ci", "scope": "read"}).status_code == 201
    assert client.post(f"{API}/tokens", json={"name": "Ci", "scope": "read"}).json()["code"] == "TR-8432"
    assert made["expires_us"] - made["created_us"] == pytest.approx(43_200e6, abs=5e6)
    assert sorted(t["name"] for t in client.get(f"{API}/tokens").json()) == ["Ci", "admin-0", "ci"]
    assert database.read(lambda c: tokens.find(c, made["token"])) is not None
    assert client.delete(f"{API}/tokens/Ci").status_code == 204
    assert client.delete(f"{API}/tokens/admin-0").json()["code"] == "TR-8434"
    assert database.read(lambda c: tokens.find(c, made["token"])) is None
    # the audit, in pages
    whole = client.get(f"{API}/events", params={"limit": 1000}).json()["items"]
    assert [e["kind"] for e in whole[:3]] == ["token.revoke", "token.create", "token.create"]
    found: list[dict[str, Any]] = []
    query: dict[str, int] | None = {}
    while query is not None:
        page = client.get(f"{API}/events", params={"limit": 7, **query}).json()
        found += page["items"]
        query = None if page["next"] is None else {"before": page["next"]}
    assert found == whole
    of_shop = client.get(f"{API}/subscriptions/shop/events", params={"limit": 1000}).json()["items"]
    assert of_shop == [event for event in whole if event["subscription"] == "shop"]
    # tables, servers, metrics
    tables = client.get(f"{API}/subscriptions/shop/tables").json()
    assert [one["table"] for one in tables] == sorted(one["table"] for one in tables) != []
    assert {one["name"] for one in client.get(f"{API}/servers").json()} == {
        one.name for one in database.read(servers.all_servers)
    }
    assert 'tailrace_subscriptions{stage="cancelled"} 1.0' in client.get("/metrics").text
    with browsing(database, Scope.ADMIN, tmp_path) as browser:
        listed = browser.get("/")
        assert all(f"/pipelines/{name}" in listed for name in names())
        assert "/pipelines/shop-archive" in browser.get("/?text=arch")
        assert "/pipelines/crm" not in browser.get("/?text=arch")
        for path in ("/pipelines/shop", "/pipelines/shop/comparisons", "/pipelines/inventory"):
            browser.get(path)


@pytest.mark.parametrize("kind", ["mysql", "postgresql"])
def test_sources_are_checked_and_discovered(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = [
        "CREATE TABLE {}.orders (id INT PRIMARY KEY, note VARCHAR(20))",
        "INSERT INTO {}.orders VALUES (1, 'a'), (2, 'b')",
        "CREATE TABLE {}.other (id INT PRIMARY KEY)",
    ]
    if kind == "mysql":
        server, name = request.getfixturevalue("mysql"), request.getfixturevalue("mysql_database")
        server.execute(*(one.format(name) for one in statements))
        url = f"mysql://{server.host}:{server.port}/{name}"
    else:
        server, name = request.getfixturevalue("postgres"), "public"
        where = request.getfixturevalue("postgres_database")
        server.execute(*(one.format(name) for one in statements), database=where)
        url = f"postgresql://{server.host}:{server.port}/{where}"
    monkeypatch.setenv("TAILRACE_SECRET_SHOP", server.password)
    source = {"url": url, "user": server.user, "password": "${env:TAILRACE_SECRET_SHOP}"}
    source["tables"] = rf"{name}\.o.*"
    with control.database("sqlite", request, tmp_path) as database:
        client = _client(database, tmp_path, policy=Policy(hosts=["127.0.0.1", "localhost"]))
        found = client.post(f"{API}/discover", json={"spec": yaml.safe_dump({"source": source})})
        assert found.status_code == 200, found.text
        assert [(one["name"], one["key"]) for one in found.json()[""]] == [
            (f"{name}.orders", ["id"]),
            (f"{name}.other", ["id"]),
        ]
        assert found.json()[""][0]["columns"] == ["id", "note"]
        spec = yaml.safe_dump({"source": source, "sink": {"type": "delta", "path": "lake"}})
        body = {"name": "shop", "spec": spec, "whole": False, "estimate_seconds": 1}
        (checked,) = client.post(f"{API}/check", json=body).json()
        assert checked["in_order"], checked["findings"]
        assert checked["estimate"] is not None
        monkeypatch.setenv("TAILRACE_SECRET_SHOP", "geheim7")
        for path, given in (("check", body), ("discover", {"spec": spec})):
            wrong = client.post(f"{API}/{path}", json=given)
            assert "geheim7" not in wrong.text
            assert wrong.status_code == 502 or not wrong.json()[0]["in_order"], wrong.text
        assert client.get(f"{API}/subscriptions").json()["items"] == [], "nothing was created"


def _waiting(connection: Connection) -> int:
    """How many connections wait for the table of tokens."""
    query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'tokens'::regclass"
    return int(connection.execute(text(query)).scalar_one())


@pytest.mark.slow
def test_requests_that_wait_do_not_keep_a_server_from_its_subscriptions(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with control.database("postgresql", request, tmp_path) as database:
        token = token_of(database, Scope.READ)
        server = ControlServer("s1", database, tmp_path, {}, capacity=1)
        ended = threading.Event()
        try:
            url = server.url()
            wait_until(lambda: bool(database.read(servers.all_servers)), 30)

            def ask() -> None:
                asked = urllib.request.Request(f"{url}{API}/me", headers={"authorization": f"Bearer {token}"})
                while not ended.is_set():
                    with suppress(OSError), urllib.request.urlopen(asked, timeout=20) as answer:
                        json.load(answer)

            with ThreadPoolExecutor(24) as pool, ExitStack() as stack:
                stack.callback(ended.set)  # or the pool would wait for them
                with database.begin() as connection:
                    connection.execute(text("LOCK TABLE tokens IN ACCESS EXCLUSIVE MODE"))
                    connection.execute(text("SET idle_in_transaction_session_timeout = 0"))
                    for _ in range(24):
                        pool.submit(ask)
                    # they hold all connections of the API
                    wait_until(lambda: database.read(_waiting) == _CONNECTIONS, 3.5)
                    with pytest.raises(TimeoutError):
                        urllib.request.urlopen(f"{url}/readyz", timeout=1.5)
                    begun_us = database.now_us()
                    deadline = time.monotonic() + 8
                    while (seen := database.read(servers.all_servers)[0].seen_us) < begun_us + 2_000_000:
                        assert time.monotonic() < deadline, f"last seen {begun_us - seen} us before"
                        time.sleep(0.1)
        finally:
            server.close()
