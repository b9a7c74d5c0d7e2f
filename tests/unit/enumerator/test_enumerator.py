"""The enumerator plans batches as pure functions of offsets: a replay covers the same keys and log."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tailrace.config.options import parse_options
from tailrace.enumerator.enumerator import Enumerator, Limits
from tailrace.enumerator.offset import StreamOffset
from tailrace.enumerator.request import Request
from tailrace.errors import ConfigError, PositionLostError, SchemaMismatchError, TableGapError
from tailrace.model.split import Cursor, LogSplit, SnapshotSplit
from tailrace.sources.base import Activity, Log, LogClock, LogRange, Source
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
    key_in: str = "log"
    left_out: tuple[str, ...] = ()

    @property
    def whole(self):
        return self.schema

    @property
    def keys(self):
        return (self.schema.key,)


class FakeSource(Source, Log):
    """Tables are ranges of integers; the log moves when a test says so."""

    def __init__(self, **rows):
        self.rows = {f"shop.{name}": n for name, n in rows.items()}
        self.end = At(100)
        self.caught_up = True
        self.ranges = []
        self.missing = {}
        self.lost = False
        self.now_us = 1

    def require(self):
        return {}

    def close(self):
        pass

    server_changed = close

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

    def condition_problem(self, table, condition):
        return "refused" if "refused" in condition else None

    def follow(self, start, knows):
        return self

    def read_table(self, table, page_rows):
        raise NotImplementedError

    def ending_position(self, text, position):
        raise NotImplementedError

    def frozen(self, connections):
        raise NotImplementedError

    def gaps(self, ids, reading):
        return {name: why for name, why in self.missing.items() if name in ids}

    def rejoin(self, lost):
        return At(500)

    def range_after(self, start, *, upto, max_bytes, max_rows, for_rows, before_us):
        if self.lost:
            raise PositionLostError("the log is purged")
        found = [r for r in self.ranges if r.end.pos > start.pos and (upto is None or r.end.pos <= upto.pos)]
        return found[0] if found else None

    def head(self):
        return self.ranges[-1].end if self.ranges else self.end

    read_upto = head

    def wait(self, timeout_s):
        self.waits = getattr(self, "waits", 0) + 1

    def log_retention(self, position):
        return None

    def activity(self):
        return Activity(getattr(self, "sessions", 0), getattr(self, "replica_lag_s", None))

    def row_bytes(self, table):
        return 100

    def heartbeat(self, statement):
        self.beats = [*getattr(self, "beats", []), statement]

    def log_clock(self, position):
        return LogClock(self.now_us, self.head())

    def is_caught_up(self, position):
        return self.caught_up

    def splits(self, split, slices):
        return [split]


def enumerator(source, *, parallelism=2, clock=lambda: 0.0, requests=None, compares=False, **given):
    options = parse_options(
        {"url": "mysql://h", "user": "u", "tables": "shop.*", "snapshotChunkRows": "10", **given}
    )
    return Enumerator(
        options, source, parallelism=parallelism, requests=requests, compares=compares, clock=clock
    )


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


def test_stream_is_complete_up_to_the_time_of_the_newest_position_that_it_has_reached():
    now = [0.0]
    source = FakeSource(a=5)
    plan = enumerator(source, clock=lambda: now[0])
    offset = plan.latest(StreamOffset(), Limits())
    assert plan.complete_us is None
    for second in range(1, 4):  # idle: the offset stays, the time does not
        now[0], source.now_us = second, second * 1_000_000
        offset = plan.latest(offset, Limits())
        assert plan.complete_us == second * 1_000_000
    source.ranges = [LogRange(At(150), has_changes=True), LogRange(At(170), has_changes=True)]
    now[0], source.now_us = 4.0, 4_000_000
    offset = plan.latest(offset, Limits())
    assert (offset.log, plan.complete_us) == ({"pos": 150}, 3_000_000)
    offset = plan.latest(offset, Limits())
    assert (offset.log, plan.complete_us) == ({"pos": 170}, 4_000_000)


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


def rereads(splits):
    return [(str(s.table.id), s.after, s.upto) for s in splits if isinstance(s, SnapshotSplit) and s.reread]


def finished(source, **given):
    """The offset of a stream whose first snapshots are finished."""
    end = enumerator(source, parallelism=100, **given).latest(StreamOffset(), Limits())
    assert not end.tables
    return end


def test_rewritten_table_is_read_again_in_chunks_while_its_log_is_followed():
    source = FakeSource(a=35, b=5)
    first = finished(source)
    source.ranges = [LogRange(At(150), has_changes=True, rewritten=(A.id,))]
    plan = enumerator(source)
    second = plan.latest(first, Limits())
    assert second.done == first.done
    splits = plan.splits(first, second)
    assert ranges(splits) == rereads(splits) == [("shop.a", None, (10,)), ("shop.a", (10,), (20,))]
    (log,) = [s for s in splits if isinstance(s, LogSplit)]
    assert log.finished == {"shop.a", "shop.b"}
    third = plan.latest(second, Limits())
    assert rereads(plan.splits(second, third)) == [("shop.a", (20,), (30,)), ("shop.a", (30,), None)]
    assert third.again["shop.a"].done
    assert plan.latest(third, Limits()) is third
    source.ranges.append(LogRange(At(160), has_changes=True))
    assert plan.latest(third, Limits()).again == {}


def test_replayed_batch_reads_the_same_ranges_again():
    source = FakeSource(a=35)
    first = finished(source)
    source.ranges = [LogRange(At(150), has_changes=True, rewritten=(A.id,))]
    plan = enumerator(source)
    second = plan.latest(first, Limits())
    third = plan.latest(second, Limits())
    stored = [StreamOffset.from_json(offset.to_json()) for offset in (first, second, third)]
    replay = enumerator(source)
    assert rereads(replay.splits(*stored[:2])) == [("shop.a", None, (20,))]
    assert rereads(replay.splits(*stored[1:])) == [("shop.a", (20,), None)]


def test_table_rewritten_during_its_first_snapshot_is_read_from_its_begin():
    source = FakeSource(a=100)
    plan = enumerator(source)
    first = plan.latest(StreamOffset(), Limits())
    source.ranges = [LogRange(At(150), has_changes=True, rewritten=(A.id,))]
    second = plan.latest(first, Limits())
    assert second.tables == {}
    for planner in (plan, enumerator(source)):
        splits = planner.splits(first, second)
        assert ranges(splits) == rereads(splits)
        assert splits[-1].after is None or splits[1].after is None
        (log,) = [s for s in splits if isinstance(s, LogSplit)]
        assert log.cursors == {}  # by then the cursor may mean nothing
        assert "shop.a" in log.finished


def test_second_rewrite_begins_again_under_another_id():
    source = FakeSource(a=100)
    first = finished(source)
    source.ranges = [
        LogRange(At(150), has_changes=True, rewritten=(A.id,)),
        LogRange(At(160), has_changes=True, rewritten=(A.id,)),
    ]
    plan = enumerator(source)
    second = plan.latest(first, Limits())
    third = plan.latest(second, Limits())
    assert second.again["shop.a"].id != third.again["shop.a"].id
    assert rereads(enumerator(source).splits(second, third))[0][1] is None


def test_table_that_was_dropped_is_forgotten_and_read_again_when_it_returns():
    source = FakeSource(a=5, b=5)
    first = finished(source)
    del source.rows["shop.a"]
    source.ranges = [LogRange(At(150), has_changes=False, rewritten=(A.id,))]
    plan = enumerator(source)
    second = plan.latest(first, Limits())
    assert not second.knows("shop.a")
    assert plan.latest(second, Limits()) is second
    source.rows["shop.a"] = 3
    source.ranges.append(LogRange(At(160), has_changes=False, ddl_ahead=True, created=(A.id,)))
    created = plan.latest(second, Limits())
    source.ranges.append(LogRange(At(170), has_changes=True))
    third = plan.latest(created, Limits())
    assert rereads(plan.splits(created, third)) == [("shop.a", None, None)]


def test_tables_of_a_dropped_database_are_read_again():
    source = FakeSource(a=5, b=5)
    first = finished(source)
    source.ranges = [LogRange(At(150), has_changes=False, dropped_databases=("shop",))]
    assert set(enumerator(source).latest(first, Limits()).again) == {"shop.a", "shop.b"}


@pytest.mark.parametrize(("policy", "again"), [("refresh", {"shop.a"}), ("ignore", set())])
def test_policy_decides_whether_rewritten_tables_are_read_again(policy, again):
    source = FakeSource(a=5)
    first = finished(source)
    source.ranges = [LogRange(At(150), has_changes=True, rewritten=(A.id, B.id))]
    assert set(enumerator(source, onRewrite=policy).latest(first, Limits()).again) == again


def test_policy_fail_stops_at_a_rewritten_table():
    source = FakeSource(a=5)
    first = finished(source)
    source.ranges = [LogRange(At(150), has_changes=True, rewritten=(A.id,))]
    with pytest.raises(SchemaMismatchError, match=r"rows of `shop\.a` changed without being logged"):
        enumerator(source, onRewrite="fail").latest(first, Limits())


def test_table_that_was_missing_from_the_log_for_a_time_is_read_again():
    source = FakeSource(a=5)
    end = enumerator(source).latest(StreamOffset(), Limits())
    source.missing = {"shop.a": "it was dropped"}
    with pytest.raises(TableGapError, match=r"changes of `shop\.a` are missing") as caught:
        enumerator(source, onRewrite="ignore").latest(end, Limits())
    assert caught.value.tables == ("shop.a",)
    assert set(enumerator(source).latest(end, Limits()).again) == {"shop.a"}


class FakeRequests:
    def __init__(self, *waiting):
        self.waiting = list(waiting)

    def pending(self):
        return list(self.waiting)

    def remove(self, ids):
        self.waiting = [request for request in self.waiting if request.id not in ids]


def test_request_takes_effect_once():
    source = FakeSource(a=5, b=5)
    first = finished(source)
    requests = FakeRequests(Request("r1", ("shop.b", "shop.unknown")))
    plan = enumerator(source, requests=requests)
    second = plan.latest(first, Limits())
    assert rereads(plan.splits(first, second)) == [("shop.b", None, None)]
    assert second.requests == ("r1",)
    restarted = enumerator(source, requests=requests)
    assert restarted.latest(second, Limits()) is second
    restarted.commit(second)
    assert requests.waiting == []


def test_request_waits_until_the_log_is_read_up_to_where_it_was_found():
    """A row that was changed, then deleted without the log saying so, must not count as present."""
    source = FakeSource(a=5, b=5)
    first = finished(source)
    source.end = At(160)
    source.ranges = [LogRange(At(150), has_changes=True), LogRange(At(160), has_changes=False)]
    plan = enumerator(source, requests=FakeRequests(Request("r1", ("shop.b",))))
    second = plan.latest(first, Limits())
    third = plan.latest(second, Limits())  # at once, though nothing changed
    assert (second.again, third.log, third.again) == ({}, {"pos": 160}, {})
    assert set(plan.latest(third, Limits()).again) == {"shop.b"}


def test_lost_position_stops_the_stream_unless_told_to_refresh():
    source = FakeSource(a=25, b=5)
    first = finished(source)
    source.lost = True
    with pytest.raises(PositionLostError):
        enumerator(source).latest(first, Limits())
    plan = enumerator(source, onPositionLost="refresh")
    second = plan.latest(first, Limits())
    assert (second.log, second.gaps) == ({"pos": 500}, 1)
    assert set(second.again) == {"shop.a", "shop.b"}
    for planner in (plan, enumerator(source)):
        assert planner.splits(first, second) == []  # the log between is lost
    source.lost = False
    third = plan.latest(second, Limits())
    assert rereads(plan.splits(second, third))[0] == ("shop.a", None, (10,))


def test_table_dropped_in_a_lost_part_of_the_log_is_read_again_when_it_returns():
    source = FakeSource(a=5, b=5)
    first = finished(source)
    source.lost = True
    del source.rows["shop.b"]
    plan = enumerator(source, onPositionLost="refresh")
    second = plan.latest(first, Limits())
    assert not second.knows("shop.b")
    source.lost = False
    source.rows["shop.b"] = 3
    source.ranges = [LogRange(At(510), has_changes=False, ddl_ahead=True, created=(B.id,))]
    assert "shop.b" in plan.latest(second, Limits()).again


def test_busy_server_is_left_alone_while_the_log_goes_on():
    source, now = FakeSource(a=100), [0.0]
    source.sessions = 9
    plan = enumerator(source, clock=lambda: now[0], snapshotMaxActiveSessions="8")
    first = plan.latest(StreamOffset(), Limits())
    assert first.tables["shop.a"].cursor is None
    assert "9 active sessions" in plan.held_by
    source.ranges = [LogRange(At(150), has_changes=True)]
    second = plan.latest(first, Limits())
    assert (second.log, second.tables) == ({"pos": 150}, first.tables)
    now[0], source.sessions = 5.0, 8
    third = plan.latest(second, Limits())
    assert third.tables["shop.a"].cursor == (20,)
    assert plan.held_by == ""
    # a replay reads what was planned, however busy the server is
    source.sessions = 100
    assert ranges(enumerator(source, snapshotMaxActiveSessions="8").splits(second, third)) == [
        ("shop.a", None, (20,))
    ]


class Crowd:
    """Others that use the server; a watch of it."""

    def __init__(self):
        self.sessions = 0.0

    def others(self):
        return self.sessions

    def close(self):
        pass


def test_rows_have_a_share_of_the_time_while_others_use_the_server_and_a_batch_stays_the_same():
    source, crowd = FakeSource(a=100), Crowd()
    source.load_watch = lambda: crowd
    crowd.sessions = 4.0
    plan = enumerator(source, parallelism=2)
    first = plan.latest(StreamOffset(), Limits())
    (split,) = plan.splits(StreamOffset(), first)
    assert split.time_share == pytest.approx(0.2)
    assert plan.slowed_by.startswith("others run 4.0 statements at a time")
    # a replay by a process that knows nothing of it reads the same rows
    (again,) = enumerator(FakeSource(a=100)).splits(StreamOffset(), first)
    assert again == replace(split, time_share=None)
    plan.close()
    unprotected = enumerator(source, parallelism=2, snapshotProtection="none")
    end = unprotected.latest(StreamOffset(), Limits())
    assert len(ranges(unprotected.splits(StreamOffset(), end))) > 1
    assert {split.time_share for split in unprotected.splits(StreamOffset(), end)} == {None}
    assert unprotected.slowed_by == ""


def test_table_is_not_read_again_while_the_server_is_busy():
    source, now = FakeSource(a=30), [0.0]
    source.sessions = 1
    requests = FakeRequests()
    plan = enumerator(
        source, parallelism=10, clock=lambda: now[0], requests=requests, snapshotMaxActiveSessions="8"
    )
    first = plan.latest(StreamOffset(), Limits())
    assert first.done
    source.sessions, now[0] = 9, 5.0
    assert plan.latest(first, Limits()) is first
    assert plan.held_by == ""  # nothing is to be read
    requests.waiting = [Request("r1", ("shop.a",))]
    now[0] = 10.0
    second = plan.latest(first, Limits())
    assert second.again["shop.a"].progress.cursor is None
    assert ranges(plan.splits(first, second)) == []
    assert "9 active sessions" in plan.held_by
    source.sessions, now[0] = 1, 20.0
    third = plan.latest(second, Limits())
    assert third.again["shop.a"].done


def test_rate_holds_for_rows_that_are_planned():
    source, now = FakeSource(a=1000), [0.0]
    plan = enumerator(source, clock=lambda: now[0], snapshotMaxRowsPerSecond="100")
    offset, planned = StreamOffset(), []
    while not offset.done:
        end = plan.latest(offset, Limits())
        read = ranges(plan.splits(offset, end)) if end is not offset else []
        planned += [now[0]] * len(read)
        offset = end
        now[0] += 0.1
    assert 8.5 <= now[0] <= 11
    for second in range(1, 9):
        assert sum(10 for at in planned if at < second) <= 100 * (second + 1)


def test_only_what_concerns_the_stream_is_news():
    source = FakeSource(a=5)
    start = enumerator(source).latest(StreamOffset(), Limits())

    def has_news(*ranges, end=150):
        source.ranges, source.end = list(ranges), At(end)
        plan = enumerator(source)
        plan.hold()
        return plan.has_news(start, Limits())

    assert not has_news(end=100)
    assert not has_news(LogRange(At(150), has_changes=False))
    assert has_news(LogRange(At(150), has_changes=True))
    assert has_news(LogRange(At(150), has_changes=False, ddl_ahead=True))
    assert has_news(LogRange(At(150), has_changes=False), end=160), "there is more log than was looked at"
    source.rows["shop.b"] = 3
    assert has_news(end=100)
