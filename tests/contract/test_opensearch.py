"""What is OpenSearch's own: ids, fields, versions that outlive tasks, indices of others, deleted indices."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.config.model import RouteRule
from tailrace.config.secret import Secret
from tailrace.config.sink_settings import RefusedRow
from tailrace.config.sinks import OpenSearchSettings
from tailrace.errors import ConfigError, SinkError, StateError, TransientSinkError
from tailrace.failpoints import VARIABLE, InjectedError
from tailrace.model.change import ChangeBatch
from tailrace.model.schema_change import ColumnDropped, ColumnRenamed, SchemaEvent
from tailrace.model.schema_policy import SchemaPolicy
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.base import CellBatch, StreamId
from tailrace.sinks.opensearch import bulk, indices, state
from tailrace.sinks.opensearch.bulk import Portion, portions, send
from tailrace.sinks.opensearch.client import PAUSES_S, OpenSearchClient
from tailrace.sinks.opensearch.quarantine import OpenSearchQuarantine
from tailrace.sinks.opensearch.sink import OpenSearchSink
from tailrace.sinks.opensearch.writer import Attempt, Writer
from tailrace.sinks.replica.changes import split_by_bucket
from tailrace.sinks.route import Router
from tailrace.sinks.written_tables import WrittenTables
from tailrace.spark.requests import RequestDirectory
from tailrace.verify.opensearch import OpenSearchTargets
from tailrace_dev.servers.server import wait_until
from tests.contract.test_far_dates import BY_DAY, ROWS, SHAPE
from tests.contract.test_sinks import reread
from tests.support.cells import STREAM, cell_batch
from tests.support.changes import INT, TEXT, changes, table
from tests.support.http_receiver import http_receiver
from tests.support.sinks.opensearch import Cluster, cluster
from tests.support.tls_proxy import tls_proxy

SCHEMA = table(("id", INT), ("name", TEXT), key=("id",))


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Cluster:
    return cluster(request)


@pytest.fixture
def sink(target: Cluster) -> Iterator[OpenSearchSink]:
    yield (opened := OpenSearchSink(target.settings, Router([])))
    opened.close()


def row(id_: int, name: str) -> dict[str, Any]:
    return {"id": id_, "name": name}


def log(*found: tuple[str, Any, Any], first: int = 0) -> ChangeBatch:
    return changes(SCHEMA, found, first)


def created(spark: SparkSession, *rows: dict[str, Any], batch: int = 0) -> CellBatch:
    return cell_batch(spark, batch, [("log", log(*(("c", None, r) for r in rows)))])


# ---- documents ----


def test_values_of_each_type_are_whole_in_the_document_and_found_by_searches(
    spark: SparkSession, target: Cluster, sink: OpenSearchSink
) -> None:
    types = {
        "i": ColumnType(Kind.INTEGER, "bigint", bits=64),
        "u": ColumnType(Kind.INTEGER, "bigint", bits=64, unsigned=True),
        "d": ColumnType(Kind.DECIMAL, "decimal", precision=38, scale=4),
        "f": ColumnType(Kind.FLOAT, "float"),
        "g": ColumnType(Kind.DOUBLE, "double"),
        "b": ColumnType(Kind.BOOLEAN, "bit", bits=1),
        "x": ColumnType(Kind.BYTES, "blob"),
        "day": ColumnType(Kind.DATE, "date"),
        "wall": ColumnType(Kind.DATETIME, "datetime", fraction=6),
        "at": ColumnType(Kind.INSTANT, "timestamp", fraction=6),
        "t": ColumnType(Kind.TIME, "time", fraction=6),
        "e": ColumnType(Kind.ENUM, "enum", labels=("a", "b c")),
        "v": ColumnType(Kind.VECTOR, "vector", length=3),
        "l": ColumnType(Kind.LIST, "_text", element=TEXT),
        "r": ColumnType(Kind.LIST, "_float8", element=ColumnType(Kind.DOUBLE, "float8")),
        "dotted.name": TEXT,
    }
    schema = table(("id", INT), *types.items(), key=("id",))
    some = {
        "i": -(1 << 63),
        "u": Decimal((1 << 64) - 1),
        "d": Decimal("-1234567890123456789012345678901234.5600"),
        "f": 0.1,
        "g": 1e-300,
        "b": True,
        "x": b"\x00\xff\n",
        "day": date(2024, 2, 29),
        "wall": datetime(2024, 2, 29, 23, 59, 59, 999_999),  # noqa: DTZ001 - wall clock
        "at": datetime(2024, 2, 29, 12, 0, 0, 250_000, UTC),
        "t": -timedelta(hours=838, seconds=1, microseconds=5),
        "e": "b c",
        "v": [0.5, -1.5, 3.0],
        "l": ["a,\"'\\", None, ""],
        "r": [float("nan"), float("-inf"), 0.25],
        "dotted.name": "\u0000\u2028ü🐟",
    }
    rows = [
        {"id": 1, **some},
        {"id": 2, **dict.fromkeys(types)},
        {"id": 3, **dict.fromkeys(types), "g": float("nan"), "v": [], "l": []},
    ]
    sink.write(cell_batch(spark, 0, [("snapshot", changes(schema, [("r", None, r) for r in rows]))]))
    found = target.documents("shop.t")
    assert found["1"] == {
        "id": 1,
        "i": -(1 << 63),
        "u": "18446744073709551615",
        "d": "-1234567890123456789012345678901234.5600",
        "f": 0.1,
        "g": 1e-300,
        "b": True,
        "x": "AP8K",
        "day": "2024-02-29",
        "wall": "2024-02-29T23:59:59.999999",
        "at": "2024-02-29T12:00:00.25Z",
        "t": -(838 * 3_600_000_000 + 1_000_005),
        "e": "b c",
        "v": [0.5, -1.5, 3.0],
        "l": ["a,\"'\\", None, ""],
        "r": ["NaN", "-Infinity", 0.25],
        "dotted.name": "\u0000\u2028ü🐟",
    }
    assert found["2"] == {"id": 2, **dict.fromkeys(types)}
    assert found["3"] == {"id": 3, **dict.fromkeys(types), "g": "NaN", "v": [], "l": []}

    def hits(query: dict[str, Any]) -> list[str]:
        answer = target.client.request("POST", "/shop.t/_search", {"query": query, "_source": False})
        return [hit["_id"] for hit in answer.body["hits"]["hits"]]

    for query in (
        {"term": {"i": -(1 << 63)}},
        {"range": {"d": {"lt": -1e33}}},
        {"term": {"b": True}},
        {"range": {"wall": {"gte": "2024-02-29T23:59:59.999", "lt": "2024-03-01"}}},
        {"term": {"at": "2024-02-29T12:00:00.250Z"}},
        {"term": {"e": "b c"}},
        {"term": {"r": 0.25}},
        {"term": {"l.keyword": "a,\"'\\"}},
    ):
        assert hits(query) == ["1"], query


def test_dates_of_any_year_are_found_as_what_they_are(
    spark: SparkSession, target: Cluster, sink: OpenSearchSink
) -> None:
    """PostgreSQL's infinities, years B.C. and after 9999."""
    sink.write(cell_batch(spark, 0, [("snapshot", changes(SHAPE, [("r", None, r) for r in ROWS]))]))
    far = {
        "1": ("+5881580-07-11", "+294247-01-10T04:00:54.775807"),
        "2": ("-5877641-06-23", "-290308-12-21T19:59:05.224192"),
        "3": ("-0043-03-15", "-0043-03-15T00:00:00"),
        "4": ("+12024-03-15", "+12024-03-15T00:00:00"),
    }
    found = target.documents("shop.t")
    for id_, (day, wall) in far.items():
        assert (found[id_]["day"], found[id_]["wall"], found[id_]["instant"]) == (day, wall, f"{wall}Z")
    assert (found["5"]["day"], found["5"]["wall"]) == ("2024-02-29", "2024-02-29T12:34:56")
    body = {"sort": ["day"], "_source": False}
    hits = target.client.request("POST", "/shop.t/_search", body).body["hits"]["hits"]
    days = [r["day"] * 86_400_000 for r in sorted(ROWS, key=lambda r: r["day"])]
    assert [hit["sort"] for hit in hits] == [[ms] for ms in days]
    body = {"sort": ["wall"], "_source": False}
    hits = target.client.request("POST", "/shop.t/_search", body).body["hits"]["hits"]
    assert [hit["_id"] for hit in hits] == ["2", "3", "5", "4", "1"]
    by_day = cell_batch(spark, 1, [("snapshot", changes(BY_DAY, [("r", None, r) for r in ROWS]))])
    sink.write(by_day)
    assert set(target.documents("shop.by_day")) == {day for day, _ in far.values()} | {"2024-02-29"}


def test_ids_are_the_keys_and_too_long_ones_are_digests(
    spark: SparkSession, target: Cluster, sink: OpenSearchSink
) -> None:
    schema = table(("id", TEXT), key=("id",))
    limit, long = "ü" * 256, "ü" * 256 + "x"
    digest = sorted_digests(spark, target, sink, long)
    keys = ["", "a", "A", 'a\nb"\\', limit, long, long + "y", digest]
    sink.write(cell_batch(spark, 1, [("log", changes(schema, [("c", None, {"id": k}) for k in keys]))]))
    found = target.documents("shop.t")
    assert sorted(source["id"] for source in found.values()) == sorted(keys)
    assert {k for k in keys if k in found and found[k]["id"] == k} == {"a", "A", 'a\nb"\\', limit}
    gone = changes(schema, [("d", {"id": k}, None) for k in keys if k != "a"])
    sink.write(cell_batch(spark, 2, [("log", gone)]))
    assert target.documents("shop.t") == {"a": {"id": "a"}}


def sorted_digests(spark: SparkSession, target: Cluster, sink: OpenSearchSink, long: str) -> str:
    """The id of a key that is too long."""
    schema = table(("id", TEXT), key=("id",))
    sink.write(cell_batch(spark, 0, [("log", changes(schema, [("c", None, {"id": long})]))]))
    (found,) = target.documents("shop.t")
    assert found.startswith("sha256:")
    return found


def refusing(spark: SparkSession, target: Cluster, sink: OpenSearchSink) -> None:
    """Write row 1, then make the field `name` one that holds numbers alone, as somebody else might."""
    sink.write(created(spark, row(1, "x")))
    index = indices.find(target.client, "shop.t", STREAM)
    assert index is not None
    target.drop("shop.t")
    fields = {name: {"type": "long"} for name in ("id", "name", "_tailrace_version")}
    mappings = {"dynamic": "strict", "_meta": index.meta, "properties": fields}
    settings = {"gc_deletes": "15m"}
    body = {"aliases": {index.alias: {}}, "mappings": mappings, "settings": {"index": settings}}
    target.client.request("PUT", f"/{index.name}", body)


def test_document_that_a_field_refuses_is_an_error_without_its_value(
    spark: SparkSession, target: Cluster, sink: OpenSearchSink
) -> None:
    refusing(spark, target, sink)
    with pytest.raises(SinkError, match=r"column `name` of target `shop\.t`") as raised:
        sink.write(created(spark, row(2, "secret"), batch=1))
    assert raised.value.code == "TR-7006"
    assert "secret" not in str(raised.value)
    assert raised.value.table == "shop.t"


def test_rows_that_a_field_refuses_are_put_aside_once_and_counted(
    spark: SparkSession, target: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(target.settings, on_refused_row=RefusedRow.QUARANTINE, max_quarantined=2)
    sink = OpenSearchSink(settings, Router([]))
    refusing(spark, target, sink)
    aside = OpenSearchQuarantine(settings, STREAM.query)
    assert aside.rows() == []
    batch = created(spark, row(2, "12"), row(3, "secret"), row(4, "13"), batch=1)
    monkeypatch.setenv(VARIABLE, f"sink.table=raise@{tmp_path / 'token'}")
    with pytest.raises(InjectedError):
        sink.write(batch)
    monkeypatch.delenv(VARIABLE)
    target.client.request("DELETE", f"/{state.INDEX}")  # the replay tries all rows again
    sink = OpenSearchSink(settings, Router([]))
    batch = created(spark, row(2, "12"), row(3, "secret"), row(4, "13"), batch=1)
    sink.write(batch)
    assert target.documents("shop.t") == {"2": row(2, "12"), "4": row(4, "13")}
    (found,) = aside.rows()
    assert (found.table, found.target, found.batch, found.op) == ("shop.t", "shop.t", 1, "u")
    assert (found.key, found.row, found.column) == ({"id": 3}, row(3, "secret"), "name")
    assert "secret" not in found.reason
    assert batch.quarantined == {("", "shop.t"): 1}

    more = created(spark, row(5, "a"), row(6, "b"), row(7, "1"), batch=2)
    with pytest.raises(SinkError, match="more refused rows than") as raised:
        sink.write(more)
    assert (raised.value.code, raised.value.table) == ("TR-7040", "shop.t")
    assert len(aside.rows()) == 1
    assert OpenSearchQuarantine(settings, "another").rows() == []
    assert aside.clear("shop.u") == 0
    assert aside.clear("shop.t") == 1
    sink.write(more)
    assert [found.key for found in aside.rows()] == [{"id": 5}, {"id": 6}]
    sink.close()


# ---- versions ----


def stale(target: Cluster, batch: int, epoch: str | None = None) -> Writer:
    """A task of an attempt at a batch, which is the one that counts if no other epoch is given."""
    index = indices.find(target.client, "shop.t", STREAM)
    assert index is not None
    noted = state.read(target.client, ["shop.t"], STREAM)["shop.t"]
    attempt = Attempt(target.client, {"shop.t": index}, batch, epoch or noted.epoch)
    return Writer(attempt, "shop.t")


def bucket(target: Cluster, batch: ChangeBatch) -> list[Any]:
    index = indices.find(target.client, "shop.t", STREAM)
    assert index is not None
    return [rows for _, rows in split_by_bucket(batch, index.schema, 1)]


def test_tasks_of_earlier_batches_and_attempts_write_nothing_old(
    spark: SparkSession, target: Cluster, sink: OpenSearchSink
) -> None:
    """With the epoch that counts, so that versions alone must refuse them."""
    sink.write(created(spark, row(1, "a"), row(2, "a"), row(3, "a")))
    first = bucket(target, log(*(("c", None, row(i, "a")) for i in (1, 2, 3))))
    second = log(("u", row(1, "a"), row(1, "b")), ("d", row(2, "a"), None), first=50)
    sink.write(cell_batch(spark, 1, [("log", second)]))
    wanted = {"1": row(1, "b"), "3": row(3, "a")}
    target.client.request("POST", "/shop.t/_refresh")
    stale(target, 0).write_changes(first)  # the key that was deleted, too
    assert target.documents("shop.t") == wanted
    again = bucket(target, second)
    stale(target, 1).write_changes(again)
    assert target.documents("shop.t") == wanted
    partial = replace(log(("u", row(3, ""), row(3, "")), first=60), absent_after=("name",))
    stale(target, 0).write_changes(bucket(target, partial))
    assert target.documents("shop.t") == wanted


def test_task_of_an_attempt_that_counts_no_more_stops(
    spark: SparkSession, target: Cluster, sink: OpenSearchSink
) -> None:
    sink.write(created(spark, row(1, "a")))
    late = stale(target, 5, uuid.uuid4().hex)
    rows = bucket(target, log(("c", None, row(9, "late"))))
    with pytest.raises(TransientSinkError, match="written by another run") as raised:
        late.write_changes(rows)
    assert raised.value.code == "TR-7010"
    assert set(target.documents("shop.t")) == {"1"}


def test_index_remembers_deleted_documents_longer_than_any_task_lives(
    spark: SparkSession, target: Cluster, sink: OpenSearchSink
) -> None:
    sink.write(created(spark, row(1, "a")))
    found = target.client.request("GET", "/shop.t/_settings?flat_settings=true").body
    assert found["shop.t-tailrace"]["settings"]["index.gc_deletes"] == "15m"


def test_index_that_forgets_deleted_documents_early_is_refused_as_a_late_write_would_bring_one_back(
    spark: SparkSession, target: Cluster, sink: OpenSearchSink
) -> None:
    sink.write(created(spark, row(1, "a"), row(2, "a")))
    first = bucket(target, log(("c", None, row(2, "a"))))
    late = stale(target, 0)
    target.client.request("PUT", "/shop.t-tailrace/_settings", {"index.gc_deletes": "1ms"})
    sink.write(cell_batch(spark, 1, [("log", log(("d", row(2, "a"), None), first=50))]))
    epoch = state.read(target.client, ["shop.t"], STREAM)["shop.t"].epoch
    late.attempt = replace(late.attempt, epoch=epoch)  # the one that counts: this is about versions

    def comes_back() -> bool:
        target.client.request("POST", "/shop.t-tailrace/_refresh")  # which forgets
        late.write_changes(first)
        return "2" in target.documents("shop.t")

    wait_until(comes_back, 30)
    sink.close()
    with pytest.raises(SinkError, match="forgets deleted documents too early") as raised:
        sink.write(created(spark, row(3, "a"), batch=2))
    assert raised.value.code == "TR-7307"
    request, _, body = (raised.value.hint or "").partition(" {")
    text = "{" + body.partition("}")[0] + "}"
    target.client.request("PUT", request.split()[1], json.loads(text))
    sink.write(created(spark, row(3, "a"), batch=2))
    short = replace(target.settings, index_settings={"gc_deletes": "10s"})
    other = OpenSearchSink(short, Router([RouteRule("shop.t", "shop.other")]))
    with pytest.raises(SinkError, match="forgets deleted documents too early"):
        other.write(created(spark, row(1, "a")))


def test_each_attempt_at_a_request_asks_first_whether_its_run_still_counts() -> None:
    asked = []

    def before() -> None:
        asked.append(True)
        if len(asked) == 3:
            raise TransientSinkError("another run has begun", code="TR-7010")

    nobody = OpenSearchClient(("http://127.0.0.1:9",), sleep=lambda _: None)
    with pytest.raises(TransientSinkError, match="another run has begun"):
        send(nobody, "x", Portion(0, 1, b"{}"), before=before)
    assert len(asked) == 3


@pytest.mark.parametrize("kind", ["user", "api-key"])
def test_cluster_behind_tls_is_written_and_verified_with_credentials(
    spark: SparkSession, target: Cluster, tmp_path: Path, kind: str
) -> None:
    """The node of the tests has no security plugin: a proxy has TLS, and asks for credentials."""
    basic = base64.b64encode("söme:pass:word".encode()).decode()
    needed = f"Basic {basic}" if kind == "user" else "ApiKey a2V5OnNlY3JldA=="
    given: dict[str, Any] = {"user": "söme", "password": Secret("pass:word")}
    given = given if kind == "user" else {"api_key": Secret("a2V5OnNlY3JldA==")}
    with tls_proxy(target.url, tmp_path, needed) as proxy:
        settings = replace(target.settings, url=proxy.url, tls_ca=proxy.ca, **given)
        sink = OpenSearchSink(settings, Router([]))
        sink.write(created(spark, row(1, "a"), row(2, "b")))
        assert set(target.documents("shop.t")) == {"1", "2"}
        assert set(proxy.asked) == {needed}
        targets, _ = OpenSearchTargets.open(settings, lambda: (0, {"shop.t"}), 5, 3)
        found = targets.target("shop.t", SCHEMA, None)
        assert found is not None
        assert found.checksums(["id", "name"], ["id"]).rows == 2
        targets.close()
        batch = created(spark, row(3, "c"), batch=1)
        wrong = {"user": "other"} if kind == "user" else {"api_key": Secret("x")}
        with pytest.raises(SinkError, match="rejects the client") as rejected:
            OpenSearchSink(replace(settings, **wrong), Router([])).write(batch)
        assert rejected.value.code == "TR-7302"
        assert "pass:word" not in str(rejected.value)
        with pytest.raises(SinkError, match="is not trusted") as untrusted:
            OpenSearchSink(replace(settings, tls_ca=None), Router([])).write(batch)
        assert untrusted.value.code == "TR-7305"
    with pytest.raises(ConfigError, match="api-key"):
        OpenSearchSettings(target.url, user="a", api_key=Secret("x"))


def test_stream_with_a_new_checkpoint_does_not_lose_its_batches_in_an_old_index(
    spark: SparkSession, target: Cluster, sink: OpenSearchSink
) -> None:
    """Its batches begin at 0 again: all would be refused as old, which counts as done."""
    sink.write(created(spark, row(1, "a"), batch=7))
    new = StreamId("test", "22222222-2222-3333-4444-555555555555")
    batch = cell_batch(spark, 0, [("log", log(("c", None, row(1, "new"))))], new)
    for notes in (True, False):
        if not notes:  # what says whose an index is is in the index itself
            target.client.request("DELETE", f"/{state.INDEX}")
        with pytest.raises(StateError, match="is not this stream's") as raised:
            OpenSearchSink(target.settings, Router([])).write(batch)
        assert raised.value.code == "TR-6101"
        assert target.documents("shop.t") == {"1": row(1, "a")}
    target.drop("shop.t")
    OpenSearchSink(target.settings, Router([])).write(batch)
    assert target.documents("shop.t") == {"1": row(1, "new")}


# ---- routing ----

BY_TENANT = table(("id", INT), ("tenant", TEXT), ("name", TEXT), ("n", INT), key=("id", "tenant"))


def of_tenant(id_: int, tenant: str, name: str = "a", n: int = 0) -> dict[str, Any]:
    return {"id": id_, "tenant": tenant, "name": name, "n": n}


@pytest.fixture
def routed(target: Cluster) -> Iterator[OpenSearchSink]:
    settings = replace(
        target.settings,
        index_settings={"number_of_replicas": "0", "number_of_shards": "4", "routing_partition_size": "1"},
        routing={"shop.t": "TENANT"},
    )
    yield (opened := OpenSearchSink(settings, Router([])))
    opened.close()


def test_documents_are_stored_found_and_deleted_by_a_column_of_the_key(
    spark: SparkSession, target: Cluster, routed: OpenSearchSink
) -> None:
    tenants = ["", "a", "b,c", 'ü"\\', "d", "x" * 200]
    rows = [of_tenant(i, tenant) for i, tenant in enumerate(tenants * 3)]
    routed.write(cell_batch(spark, 0, [("snapshot", changes(BY_TENANT, [("r", None, r) for r in rows]))]))
    found = target.hits("shop.t")
    assert sorted(hit["_source"]["id"] for hit in found) == list(range(18))
    shards: dict[str, set[str]] = {}
    for hit in found:
        tenant = hit["_source"]["tenant"]
        assert hit["_routing"] == tenant or (not tenant and hit["_routing"].startswith("sha256:"))
        shards.setdefault(hit["_routing"], set()).add(hit["_shard"])
    assert all(len(used) == 1 for used in shards.values())
    assert len(set.union(*shards.values())) > 1
    # whole rows, an update that lacks a column, another value of the column, deletes
    full = changes(
        BY_TENANT,
        [
            ("u", of_tenant(1, "a"), of_tenant(1, "a", "new")),
            ("d", of_tenant(2, "b,c"), None),
            ("c", None, of_tenant(2, "d")),
            *(("d", row_, None) for row_ in rows[3:6]),
        ],
        100,
    )
    partial = changes(BY_TENANT, [("u", None, of_tenant(i, tenants[i % 6], "", 5)) for i in (6, 7, 8)], 200)
    partial = replace(partial, absent_after=("name",))
    batch = cell_batch(spark, 1, [("log", full), ("log", partial)])
    routed.write(batch)
    wanted = {i: of_tenant(i, tenant) for i, tenant in enumerate(tenants * 3) if i not in (3, 4, 5)}
    wanted |= {1: of_tenant(1, "a", "new"), 2: of_tenant(2, "d")}
    wanted |= {i: of_tenant(i, tenants[i % 6], n=5) for i in (6, 7, 8)}
    assert target.by_id("shop.t") == wanted
    assert {hit["_version"] for hit in target.hits("shop.t") if hit["_source"]["id"] in (1, 6, 7, 8)} == {3}
    # the batch comes again, whatever is noted of it
    target.client.request("DELETE", f"/{state.INDEX}")
    before = target.hits("shop.t")
    again_ = OpenSearchSink(routed._settings, Router([]))
    again_.write(cell_batch(spark, 1, [("log", full), ("log", partial)]))
    assert target.hits("shop.t") == before
    # a new column leaves the mapping's routing as it is
    wider = table(*((c.name, c.type) for c in BY_TENANT.columns), ("more", INT), key=("id", "tenant"))
    more = {**of_tenant(50, "a"), "more": 1}
    again_.write(cell_batch(spark, 2, [("log", changes(wider, [("c", None, more)], 300))]))
    mapping = target.client.request("GET", "/shop.t/_mapping").body["shop.t-tailrace"]["mappings"]
    assert mapping["_routing"] == {"required": True}
    again_.close()


def test_table_that_is_read_again_loses_documents_under_their_own_routing(
    spark: SparkSession, target: Cluster, routed: OpenSearchSink
) -> None:
    rows = [of_tenant(i, tenant) for i, tenant in enumerate("abcdefgh")]
    routed.write(cell_batch(spark, 0, [("snapshot", changes(BY_TENANT, [("r", None, r) for r in rows]))]))
    body = {**target.hits("shop.t")[0]["_source"], "id": 99}
    stray = "/shop.t/_doc/99?routing=elsewhere&version=1&version_type=external"
    target.client.request("PUT", stray, body)
    targets, _ = OpenSearchTargets.open(routed._settings, lambda: (0, {"shop.t"}), 5, 3)
    compared = targets.target("shop.t", BY_TENANT, None)
    assert compared is not None
    with pytest.raises(SinkError, match="routing of its own") as raised:
        compared.checksums(["id", "tenant", "name", "n"], ["id", "tenant"])
    assert raised.value.code == "TR-7322"
    targets.close()
    kept = [of_tenant(i, tenant, "again") for i, tenant in enumerate("abcd")]
    cells = [("reread", reread(changes(BY_TENANT, [("r", None, r) for r in kept], 100)))]
    batch = cell_batch(spark, 1, cells)
    again_ = {"id": "one", "c": None, "n": 0, "e": 0, "done": True}
    end = {"v": 2, "mode": "initial", "log": {}, "done": {"shop.t": 1}, "again": {"shop.t": again_}}
    routed.claim([BY_TENANT.id])
    routed.write(replace(batch, end=end))
    assert [hit["_source"] for hit in target.hits("shop.t")] == [
        {**row_, "_tailrace_version": 3} for row_ in kept
    ]


def test_column_outside_of_the_key_and_another_routing_are_refused(
    spark: SparkSession, target: Cluster, sink: OpenSearchSink, routed: OpenSearchSink
) -> None:
    other = OpenSearchSink(replace(target.settings, routing={"shop.t": "name"}), Router([]))
    with pytest.raises(SinkError, match="cannot be routed by column `name`") as refused:
        other.write(created(spark, row(1, "a")))
    assert (refused.value.code, refused.value.table) == ("TR-7320", "shop.t")
    assert "primary-keys: [name, id]" in (refused.value.hint or "")
    first = cell_batch(spark, 0, [("log", changes(BY_TENANT, [("c", None, of_tenant(1, "a"))]))])
    second = cell_batch(spark, 1, [("log", changes(BY_TENANT, [("c", None, of_tenant(2, "a"))]))])
    routed.write(first)
    with pytest.raises(SinkError, match="have another routing") as changed:
        sink.write(second)
    assert changed.value.code == "TR-7321"
    assert set(target.by_id("shop.t")) == {1}
    target.drop("shop.t")
    sink.write(first)
    routed.close()
    with pytest.raises(SinkError, match="have another routing"):
        routed.write(second)


# ---- indices ----


@pytest.mark.parametrize("made", ["index", "alias"])
def test_index_that_tailrace_did_not_make_is_not_touched(
    spark: SparkSession, target: Cluster, sink: OpenSearchSink, made: str
) -> None:
    name, body = ("shop.t", {}) if made == "index" else ("other", {"aliases": {"shop.t": {}}})
    target.client.request("PUT", f"/{name}", body)
    with pytest.raises(StateError, match="is not this stream's"):
        sink.write(created(spark, row(1, "a")))
    assert target.documents("shop.t") == {}


def test_index_without_its_alias_is_not_touched(
    spark: SparkSession, target: Cluster, sink: OpenSearchSink
) -> None:
    sink.write(created(spark, row(1, "a")))
    target.client.request("DELETE", "/shop.t-tailrace/_alias/shop.t")
    with pytest.raises(StateError, match="without the alias"):
        sink.write(created(spark, row(2, "b"), batch=1))
    assert set(target.documents("shop.t-tailrace")) == {"1"}


@pytest.mark.parametrize(
    ("is_known", "change"),
    [
        (True, ("c", None, row(2, "b"))),
        (True, ("d", row(1, "a"), None)),  # deletes alone would make an index under the alias' name
        (False, ("c", None, row(2, "b"))),
    ],
    ids=["insert", "delete", "new sink"],
)
def test_index_that_was_deleted_is_made_again_and_its_table_read_again(
    spark: SparkSession, target: Cluster, sink: OpenSearchSink, tmp_path: Any, change: Any, *, is_known: bool
) -> None:
    """By the sink that has written it, which finds out in a task, and by a new one."""
    tables = WrittenTables(str(tmp_path), str(tmp_path / "requests"), lambda _: None)
    tables.note(0, [SCHEMA.id], [str(SCHEMA.id)])

    def given(batch: CellBatch) -> CellBatch:
        end = {"v": 2, "mode": "initial", "log": {}, "done": {"shop.t": 1}}
        return replace(batch, written_tables=tables, end=end)

    sink.write(given(created(spark, row(1, "a"))))
    target.drop("shop.t")
    opened = sink if is_known else OpenSearchSink(target.settings, Router([]))
    opened.write(given(cell_batch(spark, 1, [("log", log(change, first=50))])))
    assert set(target.documents("shop.t")) == ({"2"} if change[0] == "c" else set())
    mapping = target.client.request("GET", "/shop.t/_mapping").body["shop.t-tailrace"]["mappings"]
    assert mapping["dynamic"] == "strict"
    (request,) = RequestDirectory(str(tmp_path / "requests")).pending()
    assert list(request.tables) == ["shop.t"]


@pytest.mark.parametrize("name", ["-x", "a b", "a*", "x" * 260])
def test_name_that_no_index_can_have_is_refused(target: Cluster, name: str) -> None:
    sink = OpenSearchSink(target.settings, Router([RouteRule("shop.t", name)]))
    with pytest.raises(ConfigError, match="cannot be the name of an index") as raised:
        sink.claim([SCHEMA.id])
    assert raised.value.code == "TR-1507"


def test_names_that_differ_in_case_only_are_not_mixed(target: Cluster) -> None:
    sink = OpenSearchSink(target.settings, Router([]))
    upper = replace(SCHEMA.id, table="T")
    with pytest.raises(ConfigError, match="would be mixed"):
        sink.claim([SCHEMA.id, upper])


@pytest.mark.parametrize("key", ["other", "type"])
def test_key_that_would_give_other_ids_is_refused(
    spark: SparkSession, target: Cluster, sink: OpenSearchSink, key: str
) -> None:
    sink.write(created(spark, row(1, "a")))
    type_, named, value = (INT, "name", 1) if key == "other" else (TEXT, "id", "1")
    other = table(("id", type_), ("name", TEXT), key=(named,))
    batch = cell_batch(spark, 1, [("log", changes(other, [("c", None, {"id": value, "name": "a"})]))])
    with pytest.raises(SinkError, match="cannot follow its source"):
        sink.write(batch)
    assert target.documents("shop.t") == {"1": row(1, "a")}


# ---- schema changes ----


def test_documents_have_the_columns_of_a_table_that_was_read_again(
    spark: SparkSession, target: Cluster, sink: OpenSearchSink, tmp_path: Any
) -> None:
    """Column `a` becomes `n`, `b` is dropped; a field keeps its type for good."""
    policy = SchemaPolicy()
    tables = WrittenTables(str(tmp_path), str(tmp_path / "requests"), lambda _: None)
    tables.note(0, [SCHEMA.id], [str(SCHEMA.id)])
    before = table(("id", INT), ("a", INT), ("b", INT), key=("id",))
    after = table(("id", INT), ("n", INT), key=("id",))

    def write(number: int, cells: list[tuple[str, ChangeBatch]], end: dict[str, Any]) -> None:
        batch = cell_batch(spark, number, cells)
        end = {"v": 2, "mode": "initial", "log": {}, "done": {"shop.t": 1}, **end}
        sink.claim([SCHEMA.id])
        sink.write(replace(batch, end=end, policy=policy, following=policy.following, written_tables=tables))

    rows = [("r", None, {"id": i, "a": 10 * i, "b": i}) for i in (1, 2)]
    write(0, [("snapshot", changes(before, rows))], {})
    event = SchemaEvent("shop.t", (ColumnRenamed("a", "n"), ColumnDropped("b")), after=after)
    log_ = changes(after, [("c", None, {"id": 3, "n": 30})], first=100)
    write(1, [("log", log_)], {"schema": [event.to_json()]})
    (request,) = RequestDirectory(str(tmp_path / "requests")).pending()
    assert list(request.tables) == ["shop.t"]
    found = reread(changes(after, [("r", None, {"id": i, "n": 10 * i}) for i in (1, 2, 3)], first=200))
    again_ = {"id": "one", "c": None, "n": 0, "e": 0, "done": True}
    write(2, [("reread", found)], {"again": {"shop.t": again_}})
    assert target.documents("shop.t") == {str(i): {"id": i, "n": 10 * i} for i in (1, 2, 3)}
    text = table(("id", INT), ("n", INT), ("b", TEXT), key=("id",))
    back = changes(text, [("u", {"id": 1, "n": 1, "b": None}, {"id": 1, "n": 1, "b": "x"})], first=300)
    with pytest.raises(SinkError, match="cannot have the columns of its source") as raised:
        write(3, [("log", back)], {})
    assert raised.value.code == "TR-7001"
    assert raised.value.table == "shop.t"
    assert target.documents("shop.t")["1"] == {"id": 1, "n": 10}


# ---- a cluster that is overloaded, or away ----


def test_request_is_repeated_while_the_cluster_is_overloaded(target: Cluster) -> None:
    """A bulk request as a whole, or single actions of it; then the error is one for another attempt."""
    pauses: list[float] = []
    (portion,) = portions(pa.array([b"{}\n"]))
    with http_receiver() as server:
        server.status = 429
        client = replace(target.client, urls=(server.url,), sleep=pauses.append)
        with pytest.raises(TransientSinkError, match="OpenSearch does not answer") as raised:
            send(client, "shop.t", portion)
        assert raised.value.code == "TR-7301"
        assert pauses == list(PAUSES_S)
        assert len(server.posts) == len(PAUSES_S) + 1
        # another node answers
        nodes = replace(target.client, urls=(server.url, target.url))
        assert nodes.request("GET", "/").body["version"]["distribution"] == "opensearch"


def test_actions_that_are_rejected_for_lack_of_room_are_sent_again(target: Cluster) -> None:
    statuses = [429, 200]

    class Busy(OpenSearchClient):
        def request(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
            answer = super().request(method, path, body, **more)
            if "status" not in path:
                return replace(answer, body={"errors": True})
            status = statuses.pop(0)
            assert [next(iter(item.values()))["status"] for item in answer.body["items"]] == [409]
            if status == 200:
                return answer
            error = {"type": "rejected_execution_exception", "reason": "queue is full"}
            return replace(answer, body={"items": [{"index": {"status": status, "error": error}}]})

    pauses: list[float] = []
    client = Busy((target.url,), sleep=pauses.append)
    line = b'{"index":{"_id":"1","version":3,"version_type":"external"}}\n{"a":1}\n'
    target.client.request("PUT", "/x", {"aliases": {"shop.t": {}}})
    (portion,) = portions(pa.array([line]))
    assert send(client, "shop.t", portion) == []
    assert (pauses, statuses) == ([PAUSES_S[0]], [])


def test_lines_are_sent_in_portions_of_a_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_MOST_BYTES", 10)
    monkeypatch.setattr(bulk, "_MOST_ACTIONS", 3)
    texts = [b"-", b"x" * 25, b"12345", b"12345", b"1", b"", b"2", b"3", b"x" * 11]
    found = [(p.first, p.count, p.body) for p in portions(pa.array(texts, pa.binary()).slice(1))]
    assert found == [
        (0, 1, b"x" * 25),
        (1, 2, b"12345" * 2),
        (3, 3, b"12"),
        (6, 1, b"3"),
        (7, 1, b"x" * 11),
    ]
    assert list(portions(pa.array([], pa.binary()))) == []
