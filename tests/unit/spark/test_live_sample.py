"""A live sample: what tasks write while somebody looks, and what becomes of it."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tailrace.model.column_mask import column_mask
from tailrace.spark.live_sample import LOOK_S, VALUES_S, Samples, SampleWatch, Wanted, sample_path, sampled
from tests.support.changes import INT, TEXT, changes, table

T = table(("id", INT), ("name", TEXT), ("email", TEXT), key=("id",))
MASKS = [column_mask("column.mask.with.5.chars", ["shop.t.email"])]


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def row(i: int, name: str = "secret") -> dict[str, Any]:
    return {"id": i, "name": name, "email": "e@x"}


def written(directory: Path) -> dict[str, Mapping[str, Any]]:
    found = [json.loads(path.read_text()) for path in directory.glob("*.json")]
    return {one["table"]: one for one in found}


def test_last_five_changes_of_a_table_are_written_without_values(tmp_path: Path) -> None:
    batches = [
        changes(T, [("c", None, row(i)) for i in range(10)]),
        changes(T, [("u", row(1), row(1, "other")), ("d", row(2), None)], first=10),
    ]
    path = tmp_path / "sample"
    assert list(sampled(iter(batches), Wanted(str(path)), MASKS)) == batches
    (found,) = written(path).values()
    assert [(one["op"], one["key"], one["changed"]) for one in found["changes"]] == [
        ("c", {"id": "7"}, []),
        ("c", {"id": "8"}, []),
        ("c", {"id": "9"}, []),
        ("u", {"id": "1"}, ["name"]),
        ("d", {"id": "2"}, []),
    ]
    assert found["changes"][3]["pos"] == 1000
    (file,) = path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for hidden in ("secret", "other", "e@x"):
        assert hidden not in file.read_text()


def test_values_that_are_wanted_are_written_but_for_columns_with_a_mask(tmp_path: Path) -> None:
    wanted = Wanted(str(tmp_path), frozenset({"shop.t"}))
    list(sampled(iter([changes(T, [("u", row(1), row(1, "x" * 1000))])]), wanted, MASKS))
    (found,) = written(tmp_path)["shop.t"]["changes"]
    assert found["before"] == {"id": "1", "name": "secret"}
    assert found["after"] == {"id": "1", "name": "x" * 200 + "…"}
    assert found["masked"] == ["email"]


def test_of_tables_that_a_pipeline_transforms_neither_keys_nor_values_are_written(tmp_path: Path) -> None:
    wanted = Wanted(str(tmp_path), frozenset({"shop.t"}), ("shop[.].*",))
    list(sampled(iter([changes(T, [("c", None, row(1))])]), wanted, ()))
    (found,) = written(tmp_path)["shop.t"]["changes"]
    assert (found["key"], found["before"], found["after"]) == (None, None, None)


def test_a_task_writes_of_twenty_tables(tmp_path: Path) -> None:
    tables = [table(("id", INT), key=("id",), name=f"shop.t{i}") for i in range(30)]
    batches = (changes(one, [("c", None, {"id": 1})]) for one in tables)
    assert len(list(sampled(batches, Wanted(str(tmp_path)), ()))) == 30
    assert len(written(tmp_path)) == 20


def test_columns_that_the_log_omits_are_not_known(tmp_path: Path) -> None:
    batch = changes(T, [("u", None, row(1))])
    batch = replace(batch, before=None, absent_after=("email",))
    list(sampled(iter([batch]), Wanted(str(tmp_path), frozenset({"shop.t"})), ()))
    (found,) = written(tmp_path)["shop.t"]["changes"]
    assert found["changed"] is None
    assert found["after"] == {"id": "1", "name": "secret"}


def test_sample_that_cannot_be_written_stops_no_stream(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    batch = changes(T, [("c", None, row(1))])
    assert list(sampled(iter([batch]), Wanted(str(tmp_path / "file" / "sample")), ())) == [batch]


def test_stream_knows_that_somebody_looks_until_nobody_does(tmp_path: Path) -> None:
    clock = Clock()
    checkpoint = str(tmp_path)
    directory = Path(sample_path(checkpoint))
    watch = SampleWatch(str(directory), clock)
    assert watch.wanted is None
    samples = Samples(checkpoint)
    assert samples.look(["shop[.]x"]) == frozenset()
    clock.now_s += 2
    assert watch.wanted == Wanted(str(directory), frozenset(), ("shop[.]x",))
    (directory / "t.json").write_text("{}")
    clock.now_s += LOOK_S - 1
    assert watch.wanted is not None
    samples.look([])
    clock.now_s += LOOK_S - 1
    assert watch.wanted is not None
    clock.now_s += LOOK_S + 1
    assert watch.wanted is None
    assert list(directory.iterdir()) == []
    (directory / "t.json").write_text("{}")  # of a task that began before
    clock.now_s += 2
    assert watch.wanted is None
    assert list(directory.iterdir()) == []


def test_values_are_wanted_for_a_while_and_then_removed(tmp_path: Path) -> None:
    clock = Clock()
    samples, directory = Samples(str(tmp_path)), Path(sample_path(str(tmp_path)))
    watch = SampleWatch(str(directory), clock)
    assert watch.wanted is None
    assert samples.look([], ["shop.t"]) == {"shop.t"}
    clock.now_s += 2
    found = watch.wanted
    assert found is not None
    assert found.values == {"shop.t"}
    list(sampled(iter([changes(T, [("c", None, row(1))])]), found, ()))
    assert samples.found()[0]["changes"][0]["after"]["name"] == "secret"
    for _ in range(int(VALUES_S // 10) + 1):
        assert samples.look([]) == {"shop.t"}  # no longer by the clock of who looks, which stands still
        clock.now_s += 10
        found = watch.wanted
    assert found == Wanted(str(directory))
    assert samples.found() == []


def test_what_an_earlier_run_has_left_is_removed(tmp_path: Path) -> None:
    Samples(str(tmp_path)).look([], ["shop.t"])
    directory = Path(sample_path(str(tmp_path)))
    (directory / "t.json").write_text("{}")
    assert SampleWatch(str(directory), Clock()).wanted is None
    assert list(directory.iterdir()) == []
