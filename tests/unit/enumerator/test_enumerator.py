"""The enumerator plans batches as pure functions of offsets: a replay covers the same keys and log."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tailrace.config.options import parse_options
from tailrace.enumerator.enumerator import Enumerator, Limits
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import ConfigError, TableGapError
from tailrace.model.split import Cursor, LogSplit, SnapshotSplit
from tailrace.sources.base import Log, LogRange, Source
from tests.support.changes import INT, table

A = table(("id", INT), key=("id",), name="shop.a")
B = table(("id", INT), key=("id",), name="shop.b")


@dataclass(frozen=True)
class At:
    pos: int

    @property
    def order(self):
        return (self.pos,)

    def to_json(self):
        return {"pos": self.pos}


@dataclass(frozen=True)
class Found:
    schema: object
    estimated_rows: int


class FakeSource(Source, Log):
    """Tables are ranges of integers; the log moves when a test says so."""

    def __init__(self, **rows):
        self.rows = {f"shop.{name}": n for name, n in rows.items()}
        self.end = At(100)
        self.caught_up = True
        self.ranges = []
        self.lost = {}

    def require(self):
        pass

    server_changed = close = require

    def position(self, value):
        return At(**value)

    def starting_position(self):
        return self.end

    log_end = starting_position

    def tables(self):
        return [Found(s, self.rows[str(s.id)]) for s in (A, B) if str(s.id) in self.rows]

    def boundary(self, schema, after, rows):
        at = 0 if after is None else after[0]
        return (at + rows,) if at + rows < self.rows[str(schema.id)] else None

    def follow(self, start, knows):
        return self

    def read_table(self, table, page_rows):
        raise NotImplementedError

    def gaps(self, ids, reading):
        return {name: why for name, why in self.lost.items() if name in ids}

    def range_after(self, start, *, upto, max_bytes, max_rows, for_rows):
        found = [r for r in self.ranges if r.end.pos > start.pos and (upto is None or r.end.pos <= upto.pos)]
        return found[0] if found else None

    def head(self):
        return self.ranges[-1].end if self.ranges else self.end

    def is_caught_up(self, position):
        return self.caught_up

    def splits(self, split, slices):
        return [split]


def enumerator(source, *, parallelism=2, clock=lambda: 0.0, **given):
    options = parse_options(
        {"url": "mysql://h", "user": "u", "tables": "shop.*", "snapshotChunkRows": "10", **given}
    )
    return Enumerator(options, source, parallelism=parallelism, clock=clock)


def ranges(splits):
    return [(str(s.table.id), s.after, s.upto) for s in splits if isinstance(s, SnapshotSplit)]


def test_first_batch_reads_the_first_chunks_as_of_the_starting_position():
    plan = enumerator(FakeSource(a=100))
    end = plan.latest(StreamOffset(), Limits())
    assert end.log == {"pos": 100}
    assert end.tables["shop.a"].cursor == (20,)
    splits = plan.splits(StreamOffset(), end)
    assert ranges(splits) == [("shop.a", None, (10,)), ("shop.a", (10,), (20,))]
    assert {tuple(s.as_of.items()) for s in splits} == {(("pos", 100),)}


def test_tables_are_read_one_after_the_other_until_all_are_finished():
    source = FakeSource(a=15, b=5)
    plan = enumerator(source, parallelism=3)
    end = plan.latest(StreamOffset(), Limits())
    assert ranges(plan.splits(StreamOffset(), end)) == [
        ("shop.a", None, (10,)),
        ("shop.a", (10,), None),
        ("shop.b", None, None),
    ]
    assert end.tables == {}
    assert set(end.done) == {"shop.a", "shop.b"}
    assert plan.latest(end, Limits()) is end


def test_replayed_batch_covers_the_same_keys_and_log_in_a_new_process():
    source = FakeSource(a=100)
    plan = enumerator(source)
    first = plan.latest(StreamOffset(), Limits())
    source.ranges = [LogRange(At(150), has_changes=True)]
    second = plan.latest(first, Limits())
    source.rows["shop.a"] = 10_000  # the table grew before the replay
    splits = enumerator(source).splits(first, second)
    assert ranges(splits) == [("shop.a", (20,), (60,))]  # twice the chunks: the first batch was short
    (log,) = [s for s in splits if isinstance(s, LogSplit)]
    assert (log.start, log.end) == ({"pos": 100}, {"pos": 150})
    assert log.cursors == {A.id: Cursor(A, (20,))}


def test_log_filter_uses_the_cursors_of_the_start_offset():
    source = FakeSource(a=25, b=5)
    plan = enumerator(source, parallelism=10)
    first = plan.latest(StreamOffset(), Limits())
    source.ranges = [LogRange(At(150), has_changes=True)]
    second = plan.latest(first, Limits())
    (log,) = plan.splits(first, second)
    assert log.cursors == {}
    assert log.finished == {"shop.a", "shop.b"}


def test_no_chunks_are_planned_while_the_log_is_far_behind():
    source = FakeSource(a=100)
    plan = enumerator(source)
    first = plan.latest(StreamOffset(), Limits())
    source.ranges, source.caught_up = [LogRange(At(150), has_changes=True)], False
    second = plan.latest(first, Limits())
    assert second.tables == first.tables
    assert second.log == {"pos": 150}


def test_no_chunks_are_planned_while_a_schema_change_is_pending():
    source = FakeSource(a=100)
    plan = enumerator(source)
    first = plan.latest(StreamOffset(), Limits())
    source.ranges = [LogRange(At(150), has_changes=True, ddl_ahead=True)]
    assert plan.latest(first, Limits()).tables == first.tables


def test_table_created_while_running_is_followed_from_its_first_row():
    source = FakeSource(a=5)
    plan = enumerator(source)
    first = plan.latest(StreamOffset(), Limits())
    source.rows["shop.b"] = 3
    source.ranges = [LogRange(At(150), has_changes=False, ddl_ahead=True, created=(B.id,))]
    second = plan.latest(first, Limits())
    assert second.done == {**first.done, "shop.b": None}


def test_table_that_starts_to_match_is_snapshotted_without_stopping_the_log():
    source = FakeSource(a=5)
    first = enumerator(source).latest(StreamOffset(), Limits())
    source.rows["shop.b"] = 3
    source.ranges = [LogRange(At(150), has_changes=True)]
    plan = enumerator(source)
    second = plan.latest(first, Limits())
    assert ranges(plan.splits(first, second)) == [("shop.b", None, None)]
    assert any(isinstance(s, LogSplit) for s in plan.splits(first, second))


def test_latest_takes_no_snapshot():
    plan = enumerator(FakeSource(a=100), startingPosition="latest")
    end = plan.latest(StreamOffset(), Limits())
    assert end.tables == {}
    assert end.done == {"shop.a": None}
    assert plan.splits(StreamOffset(), end) == []


def test_snapshot_only_stays_at_one_position_and_ends():
    source = FakeSource(a=30)
    plan = enumerator(source, startingPosition="snapshot")
    first = plan.latest(StreamOffset(), Limits())
    source.ranges = [LogRange(At(150), has_changes=True)]
    second = plan.latest(first, Limits())
    assert second.log == first.log
    assert not [s for s in plan.splits(first, second) if isinstance(s, LogSplit)]
    assert plan.latest(second, Limits()) is second


def test_available_now_reads_no_transaction_after_its_target():
    source = FakeSource(a=5)
    plan = enumerator(source)
    plan.hold()
    first = plan.latest(StreamOffset(), Limits())
    source.ranges = [LogRange(At(150), has_changes=True)]
    assert plan.latest(first, Limits()) is first


def test_log_without_captured_changes_moves_the_offset_seldom():
    now = [0.0]
    source = FakeSource(a=5)
    plan = enumerator(source, clock=lambda: now[0])
    first = plan.latest(StreamOffset(), Limits())
    source.ranges = [LogRange(At(150), has_changes=False)]
    assert plan.latest(first, Limits()) is first
    now[0] = 11.0
    assert plan.latest(first, Limits()).log == {"pos": 150}


def test_row_limit_bounds_the_chunks_of_a_batch():
    plan = enumerator(FakeSource(a=100), parallelism=8)
    end = plan.latest(StreamOffset(), Limits(max_rows=20))
    assert end.tables["shop.a"].cursor == (20,)
    end = enumerator(FakeSource(a=100)).latest(StreamOffset(), Limits(max_rows=3))
    assert end.tables["shop.a"].cursor == (3,)


def test_patterns_that_match_nothing_are_an_error():
    with pytest.raises(ConfigError, match="no table is captured"):
        enumerator(FakeSource()).latest(StreamOffset(), Limits())


def test_dropped_table_is_finished_and_its_range_reads_nothing():
    source = FakeSource(a=100, b=100)
    plan = enumerator(source)
    first = plan.latest(StreamOffset(), Limits())
    second = plan.latest(first, Limits())
    del source.rows["shop.a"]
    replay = enumerator(source)
    assert ranges(replay.splits(first, second)) == []
    third = replay.latest(replace(second), Limits())
    assert "shop.a" in third.done


def test_stream_stops_when_a_table_it_follows_was_not_in_the_log_for_a_time():
    source = FakeSource(a=5)
    plan = enumerator(source)
    end = plan.latest(StreamOffset(), Limits())
    source.lost = {"shop.a": "it was dropped and created again", "shop.other": ""}
    for plan in (lambda e: e.latest(end, Limits()), lambda e: e.splits(StreamOffset(), end)):
        with pytest.raises(TableGapError, match=r"`shop\.a` are missing from the log") as raised:
            plan(enumerator(source))
        assert raised.value.tables == ("shop.a",)
