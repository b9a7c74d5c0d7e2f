"""Live changes: who sees what, by page and API, and what is put into the audit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from tailrace.config.model import SampleMode
from tailrace.control import subscriptions
from tailrace.control.api.app import create_app
from tailrace.control.audit import read_events
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.policy import Policy
from tailrace.control.tokens import Scope
from tailrace.spark.live_sample import SampleWatch, sample_path, sampled
from tests.support.changes import INT, TEXT, changes, table
from tests.support.pages import FILE, HOSTILE, SHOWN, Browser, browsing, control, token_of

PAGE = "/pipelines/shop/changes"
API = "/api/v1/subscriptions/shop/sample"
ORDERS = table(("id", INT), ("note", TEXT), key=("id",), name="shop.orders")
CUSTOMERS = table(("id", INT), ("email", TEXT), key=("id",), name="shop.customers")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ControlDatabase]:
    database = ControlDatabase(f"sqlite:///{tmp_path}/t.db")
    database.prepare()
    with database.begin() as connection:
        subscriptions.create(connection, "ann", "shop", FILE.replace("NAME", "shop"))
    yield database
    database.close()


def begun(directory: Path) -> str:
    """The checkpoint of a stream that has begun."""
    checkpoint = directory / "lake/shop/_checkpoint"
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id": "a"}')
    return str(checkpoint)


class Stream:
    """What a pipeline that runs does about samples."""

    def __init__(self, directory: Path) -> None:
        self._now_s = 0.0
        self._watch = SampleWatch(sample_path(begun(directory)), lambda: self._now_s)
        assert self._watch.wanted is None

    def reads(self) -> None:
        """A batch with a change of each table."""
        self._now_s += 2
        found = self._watch.wanted
        assert found is not None
        batches = [
            changes(ORDERS, [("u", {"id": 4711, "note": "private"}, {"id": 4711, "note": HOSTILE})]),
            changes(CUSTOMERS, [("c", None, {"id": 4712, "email": "hidden@example.com"})]),
        ]
        list(sampled(iter(batches), found, ()))


def app(database: ControlDatabase, directory: Path, sample: SampleMode = SampleMode.VALUES) -> FastAPI:
    made = control(database, directory)
    made.policy = replace(made.policy, sample=sample)
    return create_app(made)


def client(of: FastAPI, database: ControlDatabase, scope: Scope) -> TestClient:
    return TestClient(of, headers={"authorization": f"Bearer {token_of(database, scope)}"})


def by_table(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {one["table"]: one for one in found}


def test_values_are_shown_on_demand_to_who_may_operate_and_that_is_audited(
    database: ControlDatabase, tmp_path: Path
) -> None:
    stream, of = Stream(tmp_path), app(database, tmp_path)
    reader, operator = (client(of, database, scope) for scope in (Scope.READ, Scope.OPERATE))
    assert reader.get(API).json() == []
    stream.reads()
    found = by_table(reader.get(API).json())
    change = found["shop.orders"]["changes"][0]
    assert (change["op"], change["changed"], change["key"]) == ("u", ["note"], None)
    assert change["position"] == "binlog.000001:0"
    assert "4711" not in reader.get(API).text
    change = by_table(operator.get(API).json())["shop.orders"]["changes"][0]
    assert (change["key"], change["before"], change["after"]) == ({"id": "4711"}, None, None)

    assert reader.post(f"{API}/values", json={"tables": ["shop.orders"]}).status_code == 403
    assert operator.post(f"{API}/values", json={"tables": ["shop.orders"]}).status_code == 202
    assert "private" not in operator.get(API).text  # from the next changes on
    stream.reads()
    change = by_table(operator.get(API).json())["shop.orders"]["changes"][0]
    assert (change["before"]["note"], change["after"]["note"]) == ("private", HOSTILE)
    for hidden in ("private", "4711"):
        assert hidden not in reader.get(API).text
    (event, *_) = database.read(lambda c: read_events(c, "shop"))
    assert (event.kind, event.after) == ("subscription.show_values", {"tables": ["shop.orders"]})


def test_nothing_of_a_table_with_a_transform_is_shown(database: ControlDatabase, tmp_path: Path) -> None:
    stream, of = Stream(tmp_path), app(database, tmp_path)
    admin = client(of, database, Scope.ADMIN)
    admin.get(API)
    refused = admin.post(f"{API}/values", json={"tables": ["shop.customers"]})
    assert refused.json()["code"] == "TR-8467"
    stream.reads()
    found = by_table(admin.get(API).json())["shop.customers"]
    assert found["why_no_values"]
    assert found["changes"][0]["key"] is None
    assert "4712" not in admin.get(API).text


@pytest.mark.parametrize(("mode", "who"), [(SampleMode.NONE, "file"), (SampleMode.KEYS, "server")])
def test_file_and_server_say_what_is_shown_at_most(
    database: ControlDatabase, tmp_path: Path, mode: SampleMode, who: str
) -> None:
    if who == "file":
        with database.begin() as connection:
            spec = FILE.replace("NAME", "shop") + f"  sample: {mode}\n"
            subscriptions.change_spec(connection, "ann", "shop", spec)
    of = app(database, tmp_path, mode if who == "server" else SampleMode.VALUES)
    admin = client(of, database, Scope.ADMIN)
    checkpoint = begun(tmp_path)
    refused = admin.post(f"{API}/values", json={"tables": ["shop.orders"]}).json()
    assert refused["code"] == "TR-8466"
    assert ("pipeline.sample" if who == "file" else "--sample") in refused["detail"]
    answer = admin.get(API)
    assert answer.status_code == (422 if mode is SampleMode.NONE else 200)
    assert Path(sample_path(checkpoint)).exists() == (mode is SampleMode.KEYS)


def test_looking_at_a_pipeline_that_never_ran_leaves_nothing(
    database: ControlDatabase, tmp_path: Path
) -> None:
    with browsing(database, Scope.READ, tmp_path / "data") as browser:
        assert "No change since somebody looks" in browser.get(PAGE)
    assert not (tmp_path / "data").exists()


def test_page_shows_changes_and_asks_before_values(database: ControlDatabase, tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    with browsing(database, Scope.OPERATE, tmp_path) as browser:
        assert "No change since somebody looks" in browser.get(PAGE)
        stream.reads()
        page = browser.get(PAGE)
        assert "id&nbsp;4711" in page
        assert "4712" not in page
        assert page.count("Show values</button>") == 1
        form = browser.form(PAGE, f"{PAGE}/values")
        answer = browser.client.post(f"{PAGE}/values", data=form)
        assert answer.status_code == 303
        stream.reads()
        page = browser.get(answer.headers["location"])
        assert "shown for a minute" in page
        assert SHOWN in page
        assert HOSTILE not in page
    with browsing(database, Scope.READ, tmp_path) as reader:
        page = reader.get(PAGE)
        assert not re.search("4711|private|Show values</button>", page)
        refused = reader.client.post(f"{PAGE}/values", data={**form, **reader.form("/", "/sign-out")})
        assert "TR-8464" in refused.text
    with browsing(database, None, tmp_path) as nobody:
        assert nobody.client.get(PAGE).status_code == 303


def test_page_says_why_there_is_no_sample(database: ControlDatabase, tmp_path: Path) -> None:
    assert Policy().sample is SampleMode.VALUES
    with TestClient(app(database, tmp_path, SampleMode.NONE), follow_redirects=False) as found:
        browser = Browser(found).sign_in(token_of(database, Scope.ADMIN))
        assert "TR-8466" in browser.get(PAGE)
