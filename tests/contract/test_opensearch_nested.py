"""Rows of a table nested in the documents of another: in any order, after replays, with late tasks."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.load import parse_pipeline
from tailrace.config.model import RouteRule
from tailrace.config.sink_settings import RefusedRow
from tailrace.config.sinks import NestedTable
from tailrace.errors import ConfigError, SinkError
from tailrace.failpoints import VARIABLE, InjectedError
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableSchema
from tailrace.sinks.base import CellBatch
from tailrace.sinks.opensearch import parents, state
from tailrace.sinks.opensearch.sink import OpenSearchSink
from tailrace.sinks.opensearch.writer import Attempt, Writer
from tailrace.sinks.route import Router
from tests.contract.test_sinks import reread
from tests.support.cells import cell_batch
from tests.support.changes import INT, TEXT, Change, changes, table
from tests.support.sinks.opensearch import Cluster, cluster

ORDERS = table(("id", INT), ("name", TEXT), ("v", INT), key=("id",), name="shop.orders")
LINES = table(("order_id", INT), ("n", INT), ("item", TEXT), key=("order_id", "n"), name="shop.lines")
NESTED = NestedTable("shop.orders", "shop.lines", {"order_id": "ID"}, "lines")


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Cluster:
    return cluster(request)


def opened(target: Cluster, *rules: RouteRule, **given: Any) -> OpenSearchSink:
    settings = {"number_of_replicas": "0", "number_of_shards": "3"}
    settings_ = replace(target.settings, index_settings=settings, nested=(NESTED,), **given)
    sink = OpenSearchSink(settings_, Router(rules))
    sink.claim([ORDERS.id, LINES.id])
    return sink


@pytest.fixture
def sink(target: Cluster) -> Iterator[OpenSearchSink]:
    yield (found := opened(target))
    found.close()


def order(id_: int, name: str = "a", v: int = 0) -> dict[str, Any]:
    return {"id": id_, "name": name, "v": v}


def line(order_id: int, n: int, item: str = "x") -> dict[str, Any]:
    return {"order_id": order_id, "n": n, "item": item}


def log(schema: TableSchema, *found: Change, first: int) -> tuple[str, ChangeBatch]:
    return "log", changes(schema, found, first)


def read_again(batch: CellBatch, *tables: str, done: bool = True) -> CellBatch:
    entry = {"id": f"at-{batch.id}", "c": None, "n": 0, "e": 0, "done": done}
    end = {"v": 2, "mode": "initial", "log": {}, "done": {"shop.orders": 1, "shop.lines": 1}}
    return replace(batch, end={**end, "again": dict.fromkeys(tables, entry)})


def nested(orders: Mapping[int, dict[str, Any]], lines: Mapping[tuple[int, int], dict[str, Any]]) -> Any:
    """The documents of orders, by id."""
    return {
        id_: {**row, "lines": [lines[key] for key in sorted(lines) if key[0] == id_]}
        for id_, row in orders.items()
    }


def held(target: Cluster) -> Any:
    return target.by_id("shop.orders")


def everything(target: Cluster) -> list[Any]:
    """All documents with their versions."""
    target.client.request("POST", "/shop.orders,shop.lines/_refresh")
    answer = target.client.request("POST", "/shop.orders,shop.lines/_search?size=1000&version=true", {})
    return sorted(
        (h["_index"], h["_id"], h["_version"], str(h["_source"])) for h in answer.body["hits"]["hits"]
    )


def test_lines_are_in_their_orders_whichever_comes_first_and_wherever_they_go(
    spark: SparkSession,
    target: Cluster,
    sink: OpenSearchSink,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    first = [line(1, 2), line(1, 1), line(2, 1), line(9, 1)]
    sink.write(cell_batch(spark, 0, [("snapshot", changes(LINES, [("r", None, r) for r in first]))]))
    orders = {i: order(i) for i in (1, 2, 3)}
    sink.write(
        cell_batch(spark, 1, [("snapshot", changes(ORDERS, [("r", None, r) for r in orders.values()]))])
    )
    lines = {(r["order_id"], r["n"]): r for r in first}
    assert held(target) == nested(orders, lines)

    # a line changes, one moves, one goes, one is new; an order changes in part, one is new, one goes
    changed = [
        log(
            LINES,
            ("u", line(1, 1), line(1, 1, "new")),
            ("d", line(2, 1), None),
            ("c", None, line(3, 7)),
            ("d", line(1, 2), None),
            first=100,
        ),
        log(ORDERS, ("c", None, order(9, "late")), ("d", order(2), None), first=200),
        ("log", replace(changes(ORDERS, [("u", None, order(1, "", 5))], 300), absent_after=("name",))),
    ]
    lines = {(1, 1): line(1, 1, "new"), (3, 7): line(3, 7), (9, 1): line(9, 1)}
    orders = {1: order(1, "a", 5), 3: order(3), 9: order(9, "late")}
    monkeypatch.setenv(VARIABLE, f"sink.nested=raise@{tmp_path / 'token'}")
    with pytest.raises(InjectedError):
        sink.write(cell_batch(spark, 2, changed))
    monkeypatch.delenv(VARIABLE)
    opened(target).write(cell_batch(spark, 2, changed))
    assert held(target) == nested(orders, lines)
    versions = {hit["_id"]: hit["_version"] for hit in target.hits("shop.orders")}
    assert versions == {"1": 5, "3": 5, "9": 5}
    before = everything(target)
    target.client.request("DELETE", f"/{state.INDEX}")
    again = opened(target)
    again.write(cell_batch(spark, 2, changed))
    assert everything(target) == before
    query = {"nested": {"path": "lines", "query": {"term": {"lines.item": "new"}}}}
    answer = target.client.request("POST", "/shop.orders/_search", {"query": query})
    assert [hit["_id"] for hit in answer.body["hits"]["hits"]] == ["1"]

    # lines get a column; and are read again: one is gone without a log, as if a batch had lost its delete
    wide = table(*((c.name, c.type) for c in LINES.columns), ("w", INT), key=LINES.key, name="shop.lines")
    more = {**line(3, 8), "w": 1}
    again.write(cell_batch(spark, 3, [log(wide, ("c", None, more), first=400)]))
    lines[3, 8] = more
    assert held(target) == nested(orders, lines)
    target.client.request("DELETE", "/shop.lines/_doc/%5B9,1%5D?version=6&version_type=external")
    kept = [{**line(1, 1, "new"), "w": None}, more]
    cells = [("reread", reread(changes(wide, [("r", None, r) for r in kept], 500)))]
    again.write(read_again(cell_batch(spark, 4, cells), "shop.lines"))
    lines = {(r["order_id"], r["n"]): r for r in kept}
    assert held(target) == nested(orders, lines)
    # orders are read again: one is gone, whose lines have changed meanwhile
    again.write(
        read_again(
            cell_batch(spark, 5, [log(wide, ("c", None, {**more, "n": 9}), first=600)]),
            "shop.orders",
            done=False,
        )
    )
    cells = [("reread", reread(changes(ORDERS, [("r", None, orders[i]) for i in (1, 9)], 700)))]
    batch = read_again(cell_batch(spark, 6, [*cells, log(wide, ("d", more, None), first=690)]), "shop.orders")
    end = dict(batch.end or {})
    end["again"] = {"shop.orders": {**end["again"]["shop.orders"], "id": "at-5"}}
    again.write(replace(batch, end=end))
    del orders[3], lines[3, 8]
    assert held(target) == nested(orders, lines)
    assert set(target.documents("shop.lines")) == {"[1,1]", "[3,9]"}
    # all lines are gone, as after TRUNCATE
    again.write(
        read_again(cell_batch(spark, 7, [log(ORDERS, ("c", None, order(4)), first=800)]), "shop.lines")
    )
    assert held(target) == nested({**orders, 4: order(4)}, {})
    again.close()


def test_late_tasks_and_parked_tables_leave_no_old_lines(
    spark: SparkSession,
    target: Cluster,
    sink: OpenSearchSink,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    rows = [
        ("snapshot", changes(ORDERS, [("r", None, order(i)) for i in (1, 2)])),
        ("snapshot", changes(LINES, [("r", None, line(i, 1)) for i in (1, 2)])),
    ]
    sink.write(cell_batch(spark, 0, rows))
    held_ = {name: sink._indices[name] for name in ("shop.orders", "shop.lines")}
    sink.write(cell_batch(spark, 1, [log(LINES, ("d", line(1, 1), None), ("c", None, line(2, 2)), first=50)]))
    wanted = nested({1: order(1), 2: order(2)}, {(2, 1): line(2, 1), (2, 2): line(2, 2)})
    assert held(target) == wanted
    # a task of batch 0, and one of batch 1 that has read documents before they were written
    epoch = state.read(target.client, ["shop.orders"], cell_batch(spark, 0, rows).stream)["shop.orders"].epoch
    stale = [parents._Document(str(i), None, {**order(i), "lines": [line(i, 1, "old")]}) for i in (1, 2)]
    for number in (0, 1):
        attempt = Attempt(target.client, held_, number, epoch, children=held_)
        assert not list(parents._existing(attempt, held_["shop.orders"], ["1", "2"], None))
        monkeypatch.setattr("tailrace.sinks.opensearch.composing.Composer.fields_of_sources", _as_they_are)
        parents._write(Writer(attempt, "shop.orders"), stale)
        monkeypatch.undo()
    assert held(target) == wanted
    # the batch's deletion reaches the lines, then their table is parked: the order keeps its line for now
    lost = [log(LINES, ("d", line(2, 1), None), first=60)]
    monkeypatch.setenv(VARIABLE, f"sink.nested=raise@{tmp_path / 'token'}")
    with pytest.raises(InjectedError):
        sink.write(cell_batch(spark, 2, lost))
    monkeypatch.delenv(VARIABLE)
    parked = cell_batch(spark, 2, [log(ORDERS, ("c", None, order(3)), first=70)])
    sink.write(replace(parked, left_out=frozenset({"shop.lines"})))
    # read again, it has lines of other orders only
    cells = [("reread", reread(changes(LINES, [("r", None, line(3, 1))], 100)))]
    sink.write(read_again(cell_batch(spark, 3, cells), "shop.lines"))
    assert held(target) == nested({i: order(i) for i in (1, 2, 3)}, {(3, 1): line(3, 1)})
    # while orders are parked, nothing of them is written
    before = held(target)
    batch = cell_batch(spark, 4, [log(LINES, ("c", None, line(1, 5)), first=200)])
    sink.write(replace(batch, left_out=frozenset({"shop.orders"})))
    assert held(target) == before


def _as_they_are(_: object, sources: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{} for _ in sources]


def test_what_cannot_be_exact_is_refused(spark: SparkSession, target: Cluster, sink: OpenSearchSink) -> None:
    by_id = table(("id", INT), ("order_id", INT), key=("id",), name="shop.lines")
    text = table(("order_id", TEXT), ("n", INT), key=("order_id", "n"), name="shop.lines")
    two = table(("id", INT), ("shard", INT), key=("id", "shard"), name="shop.orders")
    clash = table(("id", INT), ("Lines", INT), key=("id",), name="shop.orders")
    orders = ("log", changes(ORDERS, [("c", None, order(1))]))
    cases: list[tuple[str, str, list[tuple[str, ChangeBatch]]]] = [
        (
            "primary-keys: [order_id, id]",
            "shop.lines",
            [("log", changes(by_id, [("c", None, {"id": 1, "order_id": 1})]))],
        ),
        (
            "each column of the parent's key",
            "shop.orders",
            [("log", changes(two, [("c", None, {"id": 1, "shard": 1})]))],
        ),
        ("another `field`", "shop.orders", [("log", changes(clash, [("c", None, {"id": 1, "Lines": 1})]))]),
        (
            "one type",
            "shop.orders",
            [orders, ("log", changes(text, [("c", None, {"order_id": "1", "n": 1})]))],
        ),
    ]
    for hint, table_, cells in cases:
        target.clear()
        with pytest.raises(SinkError, match="cannot be nested") as raised:
            opened(target).write(cell_batch(spark, 0, cells))
        assert (raised.value.code, raised.value.table) == ("TR-7323", table_)
        assert hint in (raised.value.hint or "")
    target.clear()
    plain = OpenSearchSink(target.settings, Router([]))
    plain.write(cell_batch(spark, 0, [orders]))
    with pytest.raises(SinkError, match="nested otherwise") as other:
        sink.write(cell_batch(spark, 1, [orders]))
    assert other.value.code == "TR-7324"
    target.clear()
    # too many, on both ways; with a quarantine, too, since no row of the order's table has changed
    few = opened(target, max_nested=2, on_refused_row=RefusedRow.QUARANTINE)
    few.write(cell_batch(spark, 0, [orders, log(LINES, *(("c", None, line(1, n)) for n in (1, 2)), first=9)]))
    for number, cells in (
        (1, [log(LINES, ("c", None, line(1, 3)), first=50)]),
        (2, [log(ORDERS, ("u", order(1), order(1, "b")), first=60)]),
    ):
        with pytest.raises(SinkError, match=r"too many rows of `shop\.lines`") as many:
            few.write(cell_batch(spark, number, cells))
        assert (many.value.code, many.value.table) == ("TR-7325", "shop.orders")
    for wrong in (
        "[{parent: a, child: a, columns: {x: y}, field: f}]",
        "[{parent: a, child: b, columns: {}, field: f}]",
        "[{parent: a, child: b, columns: {x: y}, field: f.g}]",
        (
            "[{parent: a, child: b, columns: {x: y}, field: f},"
            " {parent: b, child: c, columns: {x: y}, field: f}]"
        ),
        (
            "[{parent: a, child: b, columns: {x: y}, field: f},"
            " {parent: a, child: c, columns: {x: y}, field: f}]"
        ),
        "[{parent: a, child: b, columns: {x: y}, field: f}], max-nested: 10001",
    ):
        with pytest.raises(ConfigError) as config:
            parse_pipeline(
                "source: {url: 'mysql://h', user: u, tables: 'a.b'}\n"
                f"sink: {{type: opensearch, url: 'http://h', nested: {wrong}}}\n"
                "pipeline: {checkpoint: /tmp/c}\n"
            )
        assert config.value.code == "TR-1010"
    few.close()


@dataclass
class Shop:
    """Orders and lines as they are, and batches of random changes."""

    draw: random.Random
    orders: dict[int, dict[str, Any]] = field(default_factory=dict)
    lines: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    seq: int = 0

    def batch(self) -> list[tuple[str, ChangeBatch]]:
        cells = []
        for _ in range(self.draw.randrange(1, 4)):
            orders, lines = self._orders(), self._lines()
            for schema, found in ((ORDERS, orders), (LINES, lines)):
                if found:
                    cells.append(log(schema, *found, first=self.seq))
                    self.seq += len(found)
        return cells

    def _orders(self) -> list[Change]:
        found: list[Change] = []
        for _ in range(self.draw.randrange(5)):
            id_ = self.draw.randrange(12)
            old = self.orders.get(id_)
            if old is not None and self.draw.random() < 0.4:
                found.append(("d", self.orders.pop(id_), None))
                continue
            new = order(id_, self.draw.choice("abc"), self.seq + len(found))
            self.orders[id_] = new
            found.append(("c", None, new) if old is None else ("u", old, new))
        return found

    def _lines(self) -> list[Change]:
        found: list[Change] = []
        for _ in range(self.draw.randrange(8)):
            key = (self.draw.randrange(12), self.draw.randrange(4))
            old = self.lines.get(key)
            dice = self.draw.random()
            if old is not None and dice < 0.5:
                found.append(("d", self.lines.pop(key), None))
                moved = (self.draw.randrange(12), key[1])
                if dice < 0.25 and moved not in self.lines:
                    self.lines[moved] = line(*moved, item=old["item"])
                    found.append(("c", None, self.lines[moved]))
                continue
            new = line(*key, item=f"i{self.seq + len(found)}")
            self.lines[key] = new
            found.append(("c", None, new) if old is None else ("u", old, new))
        return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_orders_have_their_lines_after_random_changes_interruptions_and_parked_tables(
    spark: SparkSession, target: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    shop, draw, sink = Shop(random.Random(seed)), random.Random(seed + 100), opened(target)
    shop.orders[0] = order(0)
    sink.write(cell_batch(spark, 0, [log(ORDERS, ("c", None, order(0)), first=0)]))
    shop.seq = 1
    parked: set[str] = set()
    missed: list[tuple[str, ChangeBatch]] = []
    was_being_read = False
    for number in range(1, 20):
        cells = shop.batch()
        back = ""
        if parked and not was_being_read and draw.random() < 0.2:  # what it has missed comes now
            parked.clear()
            cells = [*missed, *cells]
        elif parked and draw.random() < 0.3:  # it is read again, whole
            back = parked.pop()
            cells = [cell for cell in cells if str(cell[1].table.id) != back]
            rows = shop.orders if back == "shop.orders" else shop.lines
            schema = ORDERS if back == "shop.orders" else LINES
            if rows:
                found = [("r", None, row) for row in rows.values()]
                cells.append(("reread", reread(changes(schema, found, shop.seq))))
                shop.seq += len(found)

        def given(
            left_out: set[str], cells: Any = cells, number: int = number, back: str = back
        ) -> CellBatch:
            kept = [cell for cell in cells if str(cell[1].table.id) not in left_out]
            batch = cell_batch(spark, number, kept or [log(OTHER, ("c", None, {"id": number}), first=number)])
            batch = read_again(batch, back) if back and back not in left_out else batch
            return replace(batch, left_out=frozenset(left_out))

        for attempt in range(draw.randrange(3)):
            point = draw.choice(["sink.nested", "sink.table", "sink.table", "sink.seen", "sink.reread"])
            monkeypatch.setenv(VARIABLE, f"{point}=raise@{tmp_path / f'{number}-{attempt}'}")
            try:
                sink.write(given(parked))
            except InjectedError:
                sink = opened(target)
            monkeypatch.delenv(VARIABLE)
            if draw.random() < 0.2:
                target.client.request("DELETE", f"/{state.INDEX}", accepted=(404,))
                sink = opened(target)
        if draw.random() < 0.15 and not parked:  # between two attempts at the batch
            parked, missed = {draw.choice(["shop.orders", "shop.lines"])}, []
            was_being_read = back in parked
        missed += [cell for cell in cells if str(cell[1].table.id) in parked]
        sink.write(given(parked))
        if not parked:
            assert held(target) == nested(shop.orders, shop.lines), number
    sink.close()


OTHER = table(("id", INT), key=("id",), name="shop.other")
