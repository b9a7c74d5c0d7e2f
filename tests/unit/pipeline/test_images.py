"""Changes to row images and back: with nothing done to the rows, nothing changes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import SinkError
from tailrace.model.change import OP_LETTERS, ChangeBatch
from tailrace.pipeline.images import KEEP, SALT, Repack, to_images
from tests.support.changes import INT, TEXT, Change, changes, table

SCHEMA = table(("id", INT), ("name", TEXT), key=("id",))
SAME = {"id": "id", "name": "name"}


def listed(batches: list[ChangeBatch]) -> list[Change]:
    out = []
    for batch in batches:
        out.extend(
            zip(
                [OP_LETTERS[o] for o in batch.op.to_pylist()],
                batch.image("before").to_pylist(),
                batch.image("after").to_pylist(),
                strict=True,
            )
        )
    return out


def through(
    rows: list[Change], keep: Any = None, sizes: tuple[int, ...] = (), **given_: Any
) -> list[ChangeBatch]:
    repack = Repack(
        given_.pop("table", SCHEMA),
        frozenset(),
        given_.pop("soft_delete", False),
        given_.pop("sources", SAME),
    )
    images = to_images(changes(SCHEMA, rows), 0, None)
    kept = np.ones(images.num_rows, bool) if keep is None else np.array([keep(r) for r in images.to_pylist()])
    images = images.append_column(KEEP, pa.array(kept)).drop_columns([SALT.name])
    cuts = [0, *np.cumsum(sizes).tolist(), images.num_rows]
    pieces = [images.slice(a, b - a) for a, b in pairwise(cuts) if a < images.num_rows]
    return list(repack(iter(pieces)))


def row(id_: int, name: str | None) -> dict[str, Any]:
    return {"id": id_, "name": name}


_ROWS = st.builds(row, st.integers(0, 3), st.none() | st.text(max_size=3))
_CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("c"), st.none(), _ROWS),
        st.tuples(st.just("d"), _ROWS, st.none()),
        st.builds(lambda a, b: ("u", a, {**b, "id": a["id"]}), _ROWS, _ROWS),
    ),
    min_size=1,
    max_size=20,
)


@given(rows=_CHANGES, sizes=st.lists(st.integers(1, 5), max_size=5))
def test_images_become_the_changes_they_were_wherever_batches_end(
    rows: list[Change], sizes: list[int]
) -> None:
    assert listed(through(rows, sizes=tuple(sizes))) == rows


@given(rows=_CHANGES)
def test_filtered_changes_leave_the_table_that_filtered_rows_make(rows: list[Change]) -> None:
    def wanted(row_: dict[str, Any]) -> bool:
        return (row_["name"] or "") < "b"

    whole: dict[int, Any] = {}
    for op, _before, after in rows:
        # a history that could be: what is changed is there
        if op == "c" and after is not None:
            whole[after["id"]] = after
    history = [("c", None, r) for r in whole.values()]
    for op, _, after in rows:
        if op == "u" and after is not None and after["id"] in whole:
            history.append(("u", whole[after["id"]], after))
            whole[after["id"]] = after
    kept: dict[int, Any] = {}
    for op, before, after in listed(through(history, keep=wanted)) if history else []:
        if op == "d":
            assert kept.pop(before["id"]) == before
        else:
            assert (before is None) == (after["id"] not in kept)
            kept[after["id"]] = after
    assert kept == {k: r for k, r in whole.items() if wanted(r)}


def test_rows_that_enter_and_leave_a_filter_are_creates_and_deletes() -> None:
    rows: list[Change] = [
        ("u", row(1, "in"), row(1, "out")),
        ("u", row(2, "out"), row(2, "in")),
        ("d", row(3, "out"), None),
        ("u", row(4, "out"), row(4, "out")),
    ]
    kept = listed(through(rows, keep=lambda r: r["name"] == "in"))
    assert kept == [("d", row(1, "in"), None), ("c", None, row(2, "in"))]


def test_update_of_what_became_the_key_is_a_delete_and_a_create_in_order() -> None:
    by_name = table(("id", INT), ("name", TEXT), key=("name",))
    (batch,) = through([("u", row(1, "a"), row(1, "b")), ("u", row(1, "b"), row(2, "b"))], table=by_name)
    assert listed([batch]) == [
        ("d", row(1, "a"), None),
        ("c", None, row(1, "b")),
        ("u", row(1, "b"), row(2, "b")),
    ]
    seq = batch.origin.column("seq").to_pylist()
    assert seq == sorted(seq)
    assert len(set(seq)) == 3


def test_soft_delete_keeps_the_row() -> None:
    assert listed(through([("d", row(1, "a"), None)], soft_delete=True)) == [("u", row(1, "a"), row(1, "a"))]


def test_columns_the_log_left_out_stay_named_unless_something_is_computed() -> None:
    whole = changes(SCHEMA, [("u", row(1, None), row(1, "b"))])
    batch = ChangeBatch(SCHEMA, whole.op, whole.before, whole.after, whole.origin, ("name",), ())
    images = to_images(batch, 0, None).append_column(KEEP, pa.array([True, True]))
    (kept,) = Repack(SCHEMA, frozenset(), soft_delete=False, sources=SAME)(iter([images]))
    assert (kept.absent_before, kept.absent_after) == (("name",), ())
    computed = Repack(SCHEMA, frozenset(), soft_delete=False, sources={"id": "id", "name": None})
    with pytest.raises(SinkError, match="needs whole rows"):
        list(computed(iter([images])))


def test_shard_column_needs_no_other_column() -> None:
    """So shards of PostgreSQL need no REPLICA IDENTITY FULL."""
    whole = changes(SCHEMA, [("d", row(1, None), None)])
    batch = ChangeBatch(SCHEMA, whole.op, whole.before, whole.after, whole.origin, ("name",), ())
    sharded = table(("id", INT), ("name", TEXT), ("_shard", TEXT), key=("id", "_shard"))
    images = to_images(batch, 0, None).append_column(KEEP, pa.array([True]))
    images = images.append_column("_shard", pa.array(["east.shop.t"]))
    repack = Repack(sharded, frozenset(), soft_delete=False, sources={**SAME, "_shard": None}, shard="_shard")
    (kept,) = repack(iter([images]))
    assert (kept.absent_before, kept.absent_after) == (("name",), ())
    assert kept.image("before").to_pylist() == [{"id": 1, "name": None, "_shard": "east.shop.t"}]


@pytest.mark.parametrize("op", ["u", "d"])
def test_key_that_the_source_lets_change_needs_the_former_row(op: str) -> None:
    """Else the row under its former key would stay in a target."""
    keyed = table(("id", INT), ("name", TEXT), key=("name", "id"))
    repack = Repack(keyed, frozenset(), soft_delete=False, sources=SAME, moving=frozenset({"name"}))

    def through_log(before: dict[str, Any] | None, absent: tuple[str, ...] = ()) -> list[Change]:
        whole = changes(SCHEMA, [(op, before, row(1, "b") if op == "u" else None)])
        image = None if before is None else whole.before
        batch = ChangeBatch(SCHEMA, whole.op, image, whole.after, whole.origin, absent, ())
        images = to_images(batch, 0, None)
        return listed(list(repack(iter([images.append_column(KEEP, pa.array([True] * images.num_rows))]))))

    moved = [("d", row(1, "a"), None), ("c", None, row(1, "b"))]
    assert through_log(row(1, "a")) == moved[: 2 if op == "u" else 1]
    lacking: list[dict[str, Any] | None] = [None, row(1, None)] if op == "u" else [row(1, None)]
    for before in lacking:
        with pytest.raises(
            SinkError, match=r"the key of `shop\.t` in its transform needs whole rows"
        ) as raised:
            through_log(before, ("name",))
        assert raised.value.code == "TR-4405"
    kept = Repack(SCHEMA, frozenset(), soft_delete=False, sources=SAME)
    whole = changes(SCHEMA, [("u", None, row(1, "b"))])
    batch = ChangeBatch(SCHEMA, whole.op, None, whole.after, whole.origin)
    images = to_images(batch, 0, None).append_column(KEEP, pa.array([True]))
    assert listed(list(kept(iter([images])))) == [("u", None, row(1, "b"))]
