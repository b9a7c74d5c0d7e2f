"""Events of OpenLineage, sent to a real HTTP server by OpenLineage's own client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tailrace.config.load import parse_pipeline
from tailrace.errors import ConfigError, SinkError, TransientSourceError
from tailrace.model.table import TableId, TableSchema
from tailrace.pipeline import lineage as module
from tailrace.pipeline.lineage import Lineage
from tailrace.sinks.base import Written
from tests.support.changes import INT, TEXT, table
from tests.support.http_receiver import Receiver, http_receiver
from tests.support.wait import wait_until

ORDERS = table(("id", INT), ("name", TEXT), key=("id",), name="shop.orders")
ITEMS = table(("id", INT), key=("id",), name="shop.items")
CHANGED = {"sources": [{"endOffset": {"schema": [{"changes": [{"kind": "add.column"}]}]}}]}


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Receiver]:
    monkeypatch.chdir(tmp_path)  # without an openlineage.yml
    monkeypatch.setattr(module, "_LOOK_S", 0.01)
    with http_receiver() as server:
        yield server


class Told(list[str]):
    pass


def lineage(section: str, ask: Callable[[], list[TableSchema]], more: str = "", told: Any = None) -> Lineage:
    pipeline = parse_pipeline(
        "source: {url: 'mysql://db:3306', user: u, tables: 'shop.*'}\n"
        "sink: [{type: delta, path: /lake}, {type: console}]\n"
        "pipeline: {name: shop, checkpoint: /tmp/c}\n"
        f"lineage: {section}\n{more}"
    )
    return Lineage(pipeline, (told if told is not None else Told()).append, ask)


def events(received: Receiver) -> list[dict[str, Any]]:
    return [json.loads(body) for body in received.bodies("/api/v1/lineage")]


def test_events_tell_inputs_outputs_columns_and_rows(receiver: Receiver) -> None:
    held = [ORDERS]
    with lineage(f"{{url: '{receiver.url}', namespace: prod}}", lambda: held) as sent:
        wait_until(lambda: len(receiver.posts) == 1, 10, "START")
        held.append(ITEMS)
        sent.on_written(7, [Written(ITEMS.id, "shop.items", 0, 3)])
        wait_until(lambda: len(receiver.posts) == 2, 10, "RUNNING")
        sent.on_written(8, [Written(ORDERS.id, "shop.orders", 0, 2)])
        sent.on_written(9, [Written(ORDERS.id, "shop.orders", 5, 0)])
    start, running, complete = events(receiver)
    assert [e["eventType"] for e in (start, running, complete)] == ["START", "RUNNING", "COMPLETE"]
    assert len({e["run"]["runId"] for e in (start, running, complete)}) == 1
    assert (start["job"]["namespace"], start["job"]["name"]) == ("prod", "shop")
    assert start["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert start["producer"].startswith("urn:tailrace:")
    (source,) = start["inputs"]
    assert (source["namespace"], source["name"]) == ("mysql://db:3306", "shop.orders")
    assert [(f["name"], f["type"]) for f in source["facets"]["schema"]["fields"]] == [
        ("id", INT.native),
        ("name", TEXT.native),
    ]
    (target,) = start["outputs"]
    assert (target["namespace"], target["name"]) == ("file", "/lake/shop.orders")
    (origin,) = target["facets"]["columnLineage"]["fields"]["name"]["inputFields"]
    assert (origin["name"], origin["field"]) == ("shop.orders", "name")
    assert {d["name"] for d in running["inputs"]} == {"shop.orders", "shop.items"}
    counts = {
        d["name"]: d["outputFacets"]["outputStatistics"]["rowCount"]
        for d in complete["outputs"]
        if d.get("outputFacets")
    }
    assert counts == {"/lake/shop.orders": 7}


def test_changed_columns_are_sent_and_unchanged_ones_are_not(receiver: Receiver) -> None:
    held = [ORDERS]
    with lineage(f"{{url: '{receiver.url}'}}", lambda: held) as sent:
        wait_until(lambda: len(receiver.posts) == 1, 10, "START")
        sent.on_progress(CHANGED)  # of a table that looks the same
        sent.on_progress({"sources": []})
        held[0] = table(("id", INT), ("name", TEXT), ("new", INT), key=("id",), name="shop.orders")
        sent.on_progress(CHANGED)
        wait_until(lambda: len(receiver.posts) == 2, 10, "RUNNING")
    (_, running, _) = events(receiver)
    assert [f["name"] for f in running["inputs"][0]["facets"]["schema"]["fields"]] == ["id", "name", "new"]


def test_failure_has_its_message_and_code(receiver: Receiver) -> None:
    with suppress(SinkError), lineage(f"{{url: '{receiver.url}'}}", lambda: [ORDERS]):
        raise SinkError("target is full", "detail", code="TR-7007")
    (*_, failed) = events(receiver)
    assert failed["eventType"] == "FAIL"
    assert failed["run"]["facets"]["errorMessage"]["message"] == "target is full [TR-7007]"


def test_columns_of_a_transformed_table_are_not_claimed_for_its_target(receiver: Receiver) -> None:
    more = "transform: [{source-table: 'shop\\.orders', projection: 'id'}]\n"
    with lineage(f"{{url: '{receiver.url}'}}", lambda: [ORDERS, ITEMS], more):
        pass
    (start, *_) = events(receiver)
    facets = {d["name"]: set(d.get("facets") or {}) for d in start["outputs"]}
    assert facets == {"/lake/shop.orders": set(), "/lake/shop.items": {"schema", "columnLineage"}}


def test_tables_of_one_target_are_one_dataset(receiver: Receiver) -> None:
    more = "route: [{source-table: 'shop\\..*', sink-table: all}]\n"
    with lineage(f"{{url: '{receiver.url}'}}", lambda: [ORDERS, ITEMS], more) as sent:
        wait_until(lambda: len(receiver.posts) == 1, 10, "START")
        sent.on_written(7, [Written(ORDERS.id, "all", 0, 2), Written(ITEMS.id, "all", 0, 3)])
    (*_, complete) = events(receiver)
    (target,) = complete["outputs"]
    assert target["outputFacets"]["outputStatistics"]["rowCount"] == 5
    origins = target["facets"]["columnLineage"]["fields"]["id"]["inputFields"]
    assert {origin["name"] for origin in origins} == {"shop.orders", "shop.items"}


def test_source_out_of_reach_costs_columns_only(receiver: Receiver) -> None:
    def ask() -> list[TableSchema]:
        raise TransientSourceError("connection lost", code="TR-3001")

    with lineage(f"{{url: '{receiver.url}'}}", ask) as sent:
        sent.on_written(7, [Written(TableId("shop", "orders"), "shop.orders", 0, 3)])
    (*_, complete) = events(receiver)
    assert [d["name"] for d in complete["inputs"]] == ["shop.orders"]


def test_refused_events_are_reported_once(receiver: Receiver) -> None:
    receiver.status, told = 404, Told()
    with lineage(f"{{url: '{receiver.url}'}}", lambda: [ORDERS], told=told):
        pass
    assert len(told) == 1
    assert told[0].startswith("lineage is lost: HTTPError: 404")


def test_standard_variables_name_the_receiver(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "staging")
    with lineage("", lambda: [ORDERS]):
        pass
    assert {event["job"]["namespace"] for event in events(receiver)} == {"staging"}


def test_key_is_sent_as_a_bearer_token(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINEAGE_KEY", "geheim")
    with lineage(f"{{url: '{receiver.url}', api-key: '${{env:LINEAGE_KEY}}'}}", lambda: [ORDERS]):
        pass
    assert {post.headers["authorization"] for post in receiver.posts} == {"Bearer geheim"}


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({}, "TR-1231"),
        ({"OPENLINEAGE__TRANSPORT__TYPE": "http"}, "TR-1230"),  # without its address
    ],
)
def test_configuration_without_a_receiver_is_refused(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], code: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as raised:
        lineage("", lambda: [ORDERS])
    assert raised.value.code == code
