"""Iceberg's sink in catalogs that are servers: commits, conflicts, upkeep, names and failures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.config.sinks import IcebergSettings, WriteMode
from tailrace.errors import ConfigError, SinkError, StateError, TransientSinkError
from tailrace.model.schema_change import ColumnDropped, SchemaEvent
from tailrace.model.schema_policy import SchemaPolicy
from tailrace.model.table import TableId
from tailrace.sinks.iceberg import sink as sink_module
from tailrace.sinks.iceberg.compaction import compact
from tailrace.sinks.iceberg.maintenance import expire
from tailrace.sinks.iceberg.sink import IcebergSink
from tailrace.sinks.iceberg.standing import targets
from tailrace.sinks.route import Router
from tailrace_dev.servers.server import free_port
from tests.support.cells import STREAM, cell_batch
from tests.support.changes import BIGINT, INT, TEXT, changes, table
from tests.support.iceberg_catalogs import CatalogServer, hive_metastore
from tests.support.sinks.iceberg import settings_in
from tests.support.token_gate import token_gate

SCHEMA = table(("id", INT), ("name", TEXT), key=("id",))
WIDER = table(("id", BIGINT), ("name", TEXT), ("note", TEXT), key=("id",))
EVERYTHING = Router([])
DAY = 86_400
TOKEN = "token-of-the-catalog"

slow = pytest.mark.slow


@pytest.fixture(params=["rest", "hive", "glue"])
def server(request: pytest.FixtureRequest) -> CatalogServer:
    found: CatalogServer = request.getfixturevalue(f"iceberg_{request.param}")
    return found


@pytest.fixture
def settings(server: CatalogServer) -> Iterator[IcebergSettings]:
    yield settings_in(server)
    server.clear()


def row(id_: int, name: str) -> dict[str, Any]:
    return {"id": id_, "name": name}


def log(*made: Any, first: int, schema: Any = SCHEMA) -> list[tuple[str, Any]]:
    return [("log", changes(schema, made, first=first))]


def write(settings: IcebergSettings, *batches: Any) -> None:
    with closing(IcebergSink(settings, EVERYTHING)) as sink:
        for batch in batches:
            sink.write(batch)


def rows(server: CatalogServer, name: str = "t") -> list[dict[str, Any]]:
    with server.opened() as catalog:
        found = catalog.load_table(("shop", name)).scan().to_arrow()
    return sorted(found.to_pylist(), key=lambda held: held["id"])


@slow
def test_catalog_has_each_batch_once_and_keeps_foreign_commits(
    spark: SparkSession, server: CatalogServer, settings: IcebergSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cell_batch(spark, 0, log(("c", None, row(1, "a")), ("c", None, row(2, "b")), first=0))
    write(settings, first, first)
    second = cell_batch(spark, 1, log(("u", row(1, "a"), row(1, "A")), ("d", row(2, "b"), None), first=10))
    commit = sink_module._Target._commit

    def after_another(self: Any, *given: Any) -> None:
        with server.opened() as catalog:
            held = catalog.load_table(("shop", "t"))
            held.append(pa.Table.from_pylist([row(9, "foreign")], held.schema().as_arrow()))
        commit(self, *given)

    monkeypatch.setattr(sink_module._Target, "_commit", after_another)
    with pytest.raises(TransientSinkError, match="was not committed") as conflict:
        write(settings, second)
    assert conflict.value.code == "TR-7204"
    monkeypatch.undo()
    write(settings, second, second)
    write(
        settings, cell_batch(spark, 2, log(("c", None, {**row(3, "c"), "note": "n"}), first=20, schema=WIDER))
    )
    assert [tuple(held.values()) for held in rows(server)] == [
        (1, "A", None),
        (3, "c", "n"),
        (9, "foreign", None),
    ]
    found = targets(settings, EVERYTHING, [SCHEMA.id], STREAM.query)
    assert [standing.batch for standing in found.values()] == [2]
    with pytest.raises(StateError, match="is not this stream's"):
        write(settings, replace(first, stream=replace(STREAM, query="another")))


@slow
def test_catalog_holds_a_change_log_and_tables_are_kept_up(
    spark: SparkSession, server: CatalogServer, settings: IcebergSettings
) -> None:
    logged = replace(settings, mode=WriteMode.CHANGELOG)
    for number in range(6):
        write(logged, cell_batch(spark, number, log(("c", None, row(number, "x")), first=10 * number)))
    with server.opened() as catalog:
        before, now = rows(server), time.time()
        assert compact(spark, catalog.load_table(("shop", "t")), DAY, now + 2 * DAY, nullcontext()) == 6
        held = catalog.load_table(("shop", "t"))
        assert expire(held, DAY, 1, now + 4 * DAY)
        held = catalog.load_table(("shop", "t"))
        assert (len(held.snapshots()), len(list(held.scan().plan_files()))) == (1, 1)
    assert rows(server) == before
    write(logged, *[cell_batch(spark, 6, log(("d", row(0, "x"), None), first=100))] * 2)
    assert {held["_op"] for held in rows(server) if held["id"] == 0} == {"c", "d"}
    assert len(rows(server)) == 7


@slow
def test_metastore_that_compares_columns_says_which_setting_lets_them_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    with hive_metastore(tmp_path, compares=True) as server:
        held = settings_in(server)
        former = table(("id", INT), ("gone", TEXT), ("v", INT), key=("id",))
        present = table(("id", INT), ("v", INT), key=("id",))
        first = [("snapshot", changes(former, [("r", None, {"id": 1, "gone": "a", "v": 7})]))]
        write(held, cell_batch(spark, 0, first))
        event = SchemaEvent(str(present.id), (ColumnDropped("gone"),), after=present)
        made = log(("c", None, {"id": 2, "v": 8}), first=10, schema=present)
        second = cell_batch(spark, 1, made)
        end = {"v": 1, "log": {"pos": 1}, "schema": [event.to_json()]}
        policy = SchemaPolicy()
        second = replace(second, end=end, policy=policy, following=policy.following)
        with pytest.raises(SinkError, match="lets no column change") as refused:
            write(held, second)
        assert (refused.value.code, refused.value.table) == ("TR-7930", None)


@pytest.mark.parametrize(
    "catalog",
    [
        {"type": "glue"},
        {"uri": "thrift://metastore:9083"},
        {"type": "rest", "uri": "https://glue", "rest.signing-name": "glue"},
    ],
)
def test_names_that_a_catalog_mixes_or_rejects_are_errors_before_the_first_row(
    catalog: dict[str, str],
) -> None:
    def claim(*names: str) -> None:
        settings = IcebergSettings("/lake", catalog=catalog)
        with closing(IcebergSink(settings, EVERYTHING)) as sink:
            sink.claim([TableId(*name.split(".", 1)) for name in names])

    with pytest.raises(ConfigError, match=r"`shop`\.`Orders` and `shop`\.`orders`") as mixed:
        claim("shop.Orders", "shop.orders")
    assert mixed.value.code == "TR-1506"
    with pytest.raises(ConfigError, match=r"takes no table named `shop\.a\.b`") as nested:
        claim("shop.a.b")
    assert nested.value.code == "TR-7208"
    claim("shop.Orders", "shop.order_items")
    if "uri" in catalog and catalog["uri"].startswith("thrift"):
        with pytest.raises(ConfigError, match="needed letters, digits and `_`"):
            claim("shop.order items")
    with closing(IcebergSink(IcebergSettings("/lake", catalog={"type": "rest"}), EVERYTHING)) as sink:
        sink.claim([TableId("shop", "Orders"), TableId("shop", "orders"), TableId("shop", "a.b")])


@pytest.mark.parametrize(
    "catalog",
    [
        {"type": "rest", "uri": "http://127.0.0.1:{port}"},
        {"type": "hive", "uri": "thrift://127.0.0.1:{port}"},
        pytest.param(
            {
                "type": "glue",
                "glue.endpoint": "http://127.0.0.1:{port}",
                "glue.region": "eu-central-1",
                "glue.access-key-id": "k",
                "glue.secret-access-key": TOKEN,
                "glue.max-retries": "0",
            },
            id="glue",
        ),
    ],
)
def test_catalog_that_is_out_of_reach_is_asked_again(spark: SparkSession, catalog: dict[str, str]) -> None:
    port = free_port()
    settings = IcebergSettings("/lake", catalog={k: v.format(port=port) for k, v in catalog.items()})
    with pytest.raises(TransientSinkError, match=f"catalog at `127.0.0.1:{port}` does not answer") as error:
        write(settings, cell_batch(spark, 0, log(("c", None, row(1, "a")), first=0)))
    assert error.value.code == "TR-7206"
    assert TOKEN not in f"{error.value}{error.value.__cause__}{error.value.detail}"


def test_catalog_that_refuses_the_token_is_an_error_that_does_not_show_it(
    spark: SparkSession, iceberg_rest: CatalogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = cell_batch(spark, 0, log(("c", None, row(1, "a")), first=0))
    with token_gate(iceberg_rest.properties["uri"], TOKEN) as uri:
        gated = settings_in(iceberg_rest)
        gated = replace(gated, catalog={"type": "rest", "uri": uri, "token": "${env:CATALOG_TOKEN}"})
        for token in (f"wrong-{TOKEN}", TOKEN):
            monkeypatch.setenv("CATALOG_TOKEN", token)
            if token == TOKEN:
                write(gated, batch)
                continue
            for ask in (
                lambda: write(gated, batch),
                lambda: targets(gated, EVERYTHING, [SCHEMA.id], STREAM.query),
            ):
                with pytest.raises(SinkError, match="refuses what the sink asks for") as refused:
                    ask()
                assert refused.value.code == "TR-7207"
                assert TOKEN not in f"{refused.value}{refused.value.__cause__}{refused.value.detail}"
        assert TOKEN not in repr(gated)
    assert rows(iceberg_rest) == [row(1, "a")]
