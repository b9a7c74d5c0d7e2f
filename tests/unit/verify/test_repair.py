"""Repair without servers: which tables are read again, and when a request has taken effect."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline
from tailrace.errors import StateError
from tailrace.spark.requests import RequestDirectory, requests_path
from tailrace.verify.compare import DifferenceKind, Differences, RowDifference
from tailrace.verify.repair import (
    request,
    request_rows,
    require_compared,
    rows_to_read,
    tables_to_read,
    wait,
)
from tailrace.verify.report import Report, TargetReport


def pipeline_of(path: Path, mode: str = "upsert") -> Pipeline:
    return parse_pipeline(
        "source: {type: mysql, hostname: h, username: u, password: p, tables: 'shop.*'}\n"
        f"sink: {{type: delta, path: {path}/lake, mode: {mode}}}\n"
        f"pipeline: {{checkpoint: {path}/checkpoint}}\n"
    )


def report(*targets: TargetReport) -> Report:
    return Report(3, "p", targets, (), 1.0)


def compared(name: str, *tables: str, missing: int = 0, extra: int = 0, examined: int = 1) -> TargetReport:
    differing = 1 if missing or extra else 0
    found = Differences(missing, extra, 0, ()) if differing else None
    return TargetReport(name, tables, 1, 9, 9, False, differing, examined, found, ())


def add_batch(path: Path, number: int, *, committed: bool = True, **given: Any) -> None:
    end = {"v": 2, "mode": "initial", "log": {}, "tables": {}, "done": {"shop.t": 2}, **given}
    for name in ("offsets", "commits"):
        (path / "checkpoint" / name).mkdir(parents=True, exist_ok=True)
    (path / "checkpoint" / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(end)}")
    if committed:
        (path / "checkpoint" / "commits" / str(number)).write_text("v1\n{}")


def reading(*, done: bool) -> dict[str, Any]:
    return {"again": {"shop.t": {"id": "a", "c": [1], "n": 1, "e": 2, "done": done}}}


def play(*steps: Callable[[], None]) -> tuple[Callable[[float], None], Callable[[], float]]:
    """A `sleep` that takes the next step, and a clock that it moves."""
    left, now = list(steps), [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if left:
            left.pop(0)()

    return sleep, lambda: now[0]


def test_all_tables_of_targets_that_differ_are_read_again() -> None:
    targets = compared("u", "shop.u"), compared("t", "shop.t2", "shop.t1", missing=1)
    assert tables_to_read(report(*targets)) == ["shop.t1", "shop.t2"]


def few(*rows: tuple[str, tuple[Any, ...]], key: tuple[str, ...] = ("id",), **given: Any) -> Report:
    """A report of one target that differs in some rows: kinds and keys."""
    shown = tuple(RowDifference(DifferenceKind(kind), values, (), {}, {}) for kind, values in rows)
    kinds = [kind for kind, _ in rows]
    found = Differences(kinds.count("missing"), kinds.count("extra"), kinds.count("different"), shown)
    target = TargetReport("t", ("shop.t",), 1, 9, 9, False, 2, 2, found, (), key)
    return report(replace(target, **given))


def test_few_rows_are_read_again_by_their_keys() -> None:
    rows = few(("missing", (1,)), ("different", (-2,)))
    assert rows_to_read(rows, "mysql") == {"shop.t": "`id` IN (1, -2)"}
    rows = few(("different", ("it's", date(2026, 1, 2), Decimal("1.50"))), key=("a", 'B"', "c"))
    assert rows_to_read(rows, "postgresql") == {
        "shop.t": '("a" = \'it\'\'s\' AND "B""" = DATE \'2026-01-02\' AND "c" = 1.50)'
    }


@pytest.mark.parametrize(
    "rows",
    [
        few(("missing", (1,)), ("extra", (2,))),
        few(("missing", (1,)), tables=("shop.t", "shop.u")),
        few(("missing", (1,)), examined=1),
        few(("missing", (1,)), unfinished=True),
        few(("missing", (1,)), key=()),
        few(("missing", (b"1",))),
        few(("missing", (1.5,))),
        few(("missing", (True,))),
        few(("missing", ("back\\slash",))),
        few(*(("missing", (10**30 + i,)) for i in range(90))),
        few(("missing", (1,)), differences=Differences(2, 0, 0, ())),
        report(compared("equal", "shop.t")),
    ],
)
def test_rows_that_no_condition_names_are_read_with_their_tables(rows: Report) -> None:
    assert rows_to_read(rows, "mysql") == {}


def test_request_for_rows_that_waits_is_not_repeated(tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path)
    first = request_rows(pipeline, {"shop.t": "id IN (1)"})
    assert request_rows(pipeline, {"shop.t": "id IN (1)"}) == first
    assert request_rows(pipeline, {"shop.t": "id IN (2)"}) != first
    add_batch(tmp_path, 0, requests=[first])
    assert request_rows(pipeline, {"shop.t": "id IN (1)"}) != first


def test_request_that_waits_is_not_repeated_and_one_that_is_accepted_is(tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path)
    first = request(pipeline, ["shop.t"])
    assert request(pipeline, ["shop.t"]) == first
    assert request(pipeline, ["shop.t", "shop.u"]) != first
    parking = RequestDirectory(requests_path(pipeline.checkpoint)).add(["shop.v"], "park")
    assert request(pipeline, ["shop.v"]) != parking
    add_batch(tmp_path, 0, requests=[first])
    assert request(pipeline, ["shop.t"]) != first


def test_request_has_taken_effect_once_the_last_batch_of_the_reading_is_committed(tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path)
    add_batch(tmp_path, 4)
    id_ = request(pipeline, ["shop.t"])
    said: list[str] = []
    sleep, clock = play(
        lambda: add_batch(tmp_path, 5),
        lambda: add_batch(tmp_path, 6, requests=[id_], **reading(done=False)),
        lambda: RequestDirectory(requests_path(pipeline.checkpoint)).remove([id_]),
        lambda: add_batch(tmp_path, 7, committed=False, **reading(done=True)),
        lambda: add_batch(tmp_path, 7, **reading(done=True)),
    )
    found = wait(pipeline, id_, ["shop.t"], after=4, patience_s=3, say=said.append, clock=clock, sleep=sleep)
    assert (found, clock()) == (7, 5.0)
    assert said == ["batch 6: the pipeline has begun to read them again"]


def test_request_that_nobody_accepts_is_an_error_and_stays(tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path)
    id_ = request(pipeline, ["shop.t"])
    sleep, clock = play(lambda: add_batch(tmp_path, 0))
    with pytest.raises(StateError, match="has not taken up the request") as ended:
        wait(pipeline, id_, ["shop.t"], after=-1, patience_s=5, clock=clock, sleep=sleep)
    assert ended.value.code == "TR-6045"
    assert [r.id for r in RequestDirectory(requests_path(pipeline.checkpoint)).pending()] == [id_]


def test_table_that_was_left_out_does_not_count_as_repaired() -> None:
    both = compared("t", "shop.t"), compared("u", "shop.u")
    require_compared(report(*both), ["shop.t", "shop.u"])
    parked = Report(3, "p", both[:1], (("shop.u", "it is parked"),), 1.0)
    with pytest.raises(StateError, match=r"`shop\.u` could not be compared") as refused:
        require_compared(parked, ["shop.t", "shop.u"])
    assert refused.value.code == "TR-8146"
    assert refused.value.detail == "`shop.u`: it is parked"
