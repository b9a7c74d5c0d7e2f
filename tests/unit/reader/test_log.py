"""The log reader emits exactly what lies at or below the cursor, with key updates in two halves."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.change import OP_LETTERS
from tailrace.model.split import Cursor, LogSplit
from tailrace.model.types import ColumnType, Kind
from tailrace.reader.log import read_log, split_key_updates, without_unchanged
from tests.support.changes import INT, changes, table

T = table(("id", INT), ("v", INT), key=("id",))


def row(i, v=0):
    return {"id": i, "v": v}


class FakeSession:
    def __init__(self, *batches):
        self._batches = batches

    def changes(self, split):
        return (b for b in self._batches if split.concerns(b.table.id))

    def at_or_below(self, table_, keys, cursor):
        return pc.less_equal(keys.field(0), pa.scalar(cursor[0], pa.int32()))


def read(split, *batches):
    out = []
    for batch in read_log(split, FakeSession(*batches)):
        for op, before, after in zip(
            batch.op.to_pylist(),
            batch.image("before").to_pylist(),
            batch.image("after").to_pylist(),
            strict=True,
        ):
            out.append((OP_LETTERS[op], before and before["id"], after and after["id"]))
    return out


def split(**kw):
    return LogSplit({}, {}, **kw)


LOG = changes(T, [("c", None, row(1)), ("u", row(5), row(5, 1)), ("d", row(9), None), ("u", row(2), row(8))])


def test_log_reader_emits_every_change_of_a_finished_table():
    assert read(split(finished=frozenset({"shop.t"})), LOG) == [
        ("c", None, 1),
        ("u", 5, 5),
        ("d", 9, None),
        ("d", 2, None),
        ("c", None, 8),
    ]


def test_log_reader_drops_changes_above_the_cursor():
    assert read(split(cursors={T.id: Cursor(T, (5,))}, finished=frozenset()), LOG) == [
        ("c", None, 1),
        ("u", 5, 5),
        ("d", 2, None),
    ]


def test_log_reader_drops_all_changes_before_the_first_chunk_was_read():
    assert read(split(finished=frozenset()), LOG) == []


def test_log_reader_drops_changes_of_tables_the_stream_does_not_know():
    assert read(split(finished=frozenset({"shop.other"})), LOG) == []


def test_log_reader_emits_every_captured_table_when_no_snapshot_was_asked_for():
    assert len(read(split(finished=None), LOG)) == 5


def test_key_update_becomes_delete_and_create_with_adjacent_seqs():
    halves = split_key_updates(changes(T, [("u", row(2), row(8))], first=3))
    assert [OP_LETTERS[o] for o in halves.op.to_pylist()] == ["d", "c"]
    assert halves.image("before").to_pylist() == [row(2), None]
    assert halves.image("after").to_pylist() == [None, row(8)]
    assert halves.origin.column("seq").to_pylist() == [f"{6:032x}", f"{7:032x}"]


def test_update_that_keeps_the_key_is_left_alone():
    batch = changes(T, [("u", row(2), row(2, 7))])
    assert split_key_updates(batch) is batch


WIDE = table(
    ("id", INT),
    ("v", ColumnType(Kind.DOUBLE, "double")),
    ("n", ColumnType(Kind.LIST, "_int4", element=INT)),
    key=("id",),
)


def wide(id_, v, n):
    return {"id": id_, "v": v, "n": n}


SAME = [("u", wide(1, 1.5, [1]), wide(1, 1.5, [1])), ("u", wide(2, None, None), wide(2, None, None))]


def test_updates_that_change_nothing_are_left_out():
    others = [
        ("u", wide(3, 1.5, [1]), wide(3, 2.5, [1])),
        ("u", wide(4, 1.5, [1]), wide(4, 1.5, [1, 2])),
        ("u", wide(5, None, [1]), wide(5, 1.5, [1])),
        ("u", wide(6, 1.5, [1]), wide(6, 1.5, None)),
        ("u", wide(7, 0.0, [1]), wide(7, -0.0, [1])),
        ("c", None, wide(8, None, None)),
    ]
    found = without_unchanged(changes(WIDE, [SAME[0], *others, SAME[1]]))
    assert found.image("after").field("id").to_pylist() == [3, 4, 5, 6, 7, 8]
    assert len(without_unchanged(changes(WIDE, SAME))) == 0


def test_updates_that_the_log_shows_in_part_are_kept():
    same = changes(WIDE, SAME)
    assert len(without_unchanged(replace(same, absent_before=("v",)))) == 2
    assert len(without_unchanged(replace(same, absent_after=("v",)))) == 2
    assert len(without_unchanged(replace(same, before=None))) == 2
