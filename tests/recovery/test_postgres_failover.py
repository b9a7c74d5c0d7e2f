"""A promoted standby of PostgreSQL takes over under the same address.

The standby has what the primary's physical slot has brought it, and a copy of the stream's slot if it copies
slots. What must hold: the stream goes on without loss or repeat, or it ends with a definite error; it never
goes on past changes that the new server does not have, or past those that it has in their place.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import PositionLostError, TransientSourceError
from tailrace.sources import registry
from tailrace.sources.postgres.checks import preflight
from tailrace.sources.postgres.replication.mark import Mark
from tailrace.sources.preflight import Severity
from tests.recovery.test_kill import replayed
from tests.support.engine import Engine, Held, whole_log
from tests.support.pipelines import PipelineProcess, delta_rows
from tests.support.postgres import SUBJECTS, Writers, fill, now, options_for
from tests.support.replication import (
    alter_system,
    cut_off,
    has_slot,
    postgres_of,
    promote_standby,
    standby_of,
)
from tests.support.switch import Switch

NUMBERS = SUBJECTS[0]
SLOT = "slot_shop"
NO_SLOT = r"it does not exist.*has been promoted"
LACKS = "lacks changes that the stream has already read"


@pytest.fixture
def primary():
    with postgres_of("18") as server:
        yield server


class Target(Held):
    """Holds the table of the tests."""

    def __init__(self, engine):
        super().__init__(engine, NUMBERS.key)

    def step(self):
        """One batch; whether there was one."""
        found = self.engine.next()
        if found is None:
            return False
        self.take(*self.read(found))
        return True

    def read(self, batch):
        """The batch's parts, read again as Spark does when a task was lost."""
        deadline = time.monotonic() + 30
        while True:
            try:
                return self.engine.read(*batch)
            except TransientSourceError:
                assert time.monotonic() < deadline

    def until(self, met):
        deadline = time.monotonic() + 60
        while not met():
            if not self.step():
                time.sleep(0.02)
            assert time.monotonic() < deadline, "the stream does not get there"

    def until_equal(self, server):
        self.until(lambda: not self.engine.offset.tables and self.state == now(server, "shop", NUMBERS))

    def fail(self):
        """Go on until an error ends the stream."""
        self.until(lambda: False)


@dataclass
class Pair:
    """A primary with a stream, and the standby that is to take over from it.

    Args:
        address: leads to the primary.
        target: holds what the stream gives.
        standby: was made when the stream had begun.
        servers: further servers; removed when the stream has ended.
    """

    address: Switch
    target: Target
    standby: Any
    servers: ExitStack

    def fail_over(self, primary, standby=None):
        standby = standby or self.standby
        primary.kill()
        promote_standby(standby)
        self.address.point(standby)


def options_at(address, **given):
    return options_for(address, "shop", "public.numbers", **{"retryTimeoutMs": 20_000, **given})


@contextmanager
def following(primary, *, copies_slots=True, **given):
    with ExitStack() as servers, Switch(primary) as address, Engine(options_at(address, **given)) as engine:
        target = Target(engine)
        target.step()
        standby = servers.enter_context(standby_of(primary, copies_slots=copies_slots))
        yield Pair(address, target, standby, servers)


class DoomedWriters(Writers):
    """Those whose server is killed."""

    def stop(self):
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        assert self.errors


def until_copied(target, server, standby):
    """Go on until the standby's copy of the slot outlives a failover: which takes a slot that moves."""

    def copied():
        server.execute("SELECT pg_log_standby_snapshot()")
        server.execute("UPDATE numbers SET v = v + 1 WHERE id = 0", database="shop")
        return has_slot(standby, SLOT)

    target.until(copied)


def one_row(server):
    fill(server, "shop", NUMBERS, 1, identity="FULL")


def write(server, *ids):
    server.execute(*(f"INSERT INTO numbers VALUES ({i}, 0, '')" for i in ids), database="shop")


def until_received(pair, rows):
    """Wait until the standby has the rows, and all of the log that the stream has read.

    A stream's position may lie behind the last row: the server writes records of its own.
    """
    pair.standby.wait_until("SELECT count(*) FROM numbers", lambda found: found == rows, database="shop")
    read = pair.target.engine.offset.log["lsn"]
    pair.standby.wait_until(f"SELECT pg_last_wal_replay_lsn() >= '{read}'::pg_lsn", bool)


def test_stream_goes_on_after_two_failovers_without_loss_or_repeat(primary):
    fill(primary, "shop", NUMBERS, 2000, identity="FULL")
    with following(primary, snapshotChunkRows=10) as pair:
        target = pair.target
        alter_system(primary, synchronized_standby_slots="standby")
        with DoomedWriters(primary, "shop", NUMBERS, count=3, keys=4000, pause_s=0.005):
            until_copied(target, primary, pair.standby)
            assert target.engine.offset.tables, "the snapshot was to be cut by the failover"
            primary.kill()
        pair.fail_over(primary)
        other = pair.standby
        third = pair.servers.enter_context(standby_of(other, "third"))
        alter_system(other, synchronized_standby_slots="third")
        with DoomedWriters(other, "shop", NUMBERS, count=3, keys=4000, pause_s=0.005):
            until_copied(target, other, third)
            assert target.engine.offset.log["timeline"].startswith("2@")
            other.kill()
        pair.address.point(third)  # it is waited for until it is promoted
        promotion = threading.Timer(1, promote_standby, [third])
        promotion.start()
        target.step()
        promotion.join()
        with Writers(third, "shop", NUMBERS, count=3, keys=4000, pause_s=0.005):
            for _ in range(4):
                target.step()
        target.until_equal(third)
        assert target.engine.offset.log["timeline"].startswith("3@")
    assert len(target.seqs) > 50
    assert target.seqs == sorted(target.seqs)
    assert len(set(target.seqs)) == len(target.seqs)


@pytest.mark.slow
def test_pipeline_goes_on_after_a_failover_without_loss_or_repeat(primary, spark, tmp_path):
    fill(primary, "shop", NUMBERS, 3000, identity="FULL")
    with standby_of(primary) as other, Switch(primary) as address:
        continuous = pipeline_of(address, tmp_path, {"trigger": "interval", "interval-ms": 200})
        ended = []
        running = threading.Thread(target=lambda: ended.append(continuous.run()))
        running.start()
        with DoomedWriters(primary, "shop", NUMBERS, count=2, keys=6000, pause_s=0.05):
            primary.wait_until(f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{SLOT}'", bool)
            alter_system(primary, synchronized_standby_slots="standby")
            deadline = time.monotonic() + 60
            while not has_slot(other, SLOT):
                primary.execute("SELECT pg_log_standby_snapshot()")
                time.sleep(0.1)
                assert time.monotonic() < deadline
            primary.kill()
        promote_standby(other)
        promoted_at = other.execute("SELECT pg_current_wal_lsn()::text")[0][0]
        address.point(other)
        with Writers(other, "shop", NUMBERS, count=2, keys=6000, pause_s=0.05):
            confirmed = f"SELECT confirmed_flush_lsn > '{promoted_at}' FROM pg_replication_slots"
            other.wait_until(f"{confirmed} WHERE slot_name = '{SLOT}'", bool, timeout_s=90)
        assert not ended, continuous.output()
        continuous.kill()
        running.join()
        rest = pipeline_of(address, tmp_path, {"trigger": "available-now"})
        assert rest.run() == 0, rest.output()
        held = replayed(delta_rows(spark, rest.targets / "public.numbers"), NUMBERS.key)
        assert {(row["id"],): row for row in held} == now(other, "shop", NUMBERS)


def pipeline_of(address, directory, pipeline):
    source = {"type": "postgresql", "database": "shop", "slot-name": SLOT, "snapshot-chunk-rows": 300}
    return PipelineProcess(
        directory, address, "public.numbers", mode="changelog", pipeline=pipeline, **source
    )


def test_slot_that_was_copied_long_ago_gives_each_change_once(primary):
    one_row(primary)
    with following(primary) as pair:
        target, other = pair.target, pair.standby
        until_copied(target, primary, other)
        alter_system(other, sync_replication_slots="off")
        for id_ in range(1, 40):
            write(primary, id_)
            target.until(lambda id_=id_: (id_,) in target.state)  # those before are confirmed
        until_received(pair, 40)
        pair.fail_over(primary)
        write(other, 40)
        target.until_equal(other)
        assert len(set(target.seqs)) == len(target.seqs)
        target.engine.plan.close()
        query = f"SELECT active FROM pg_replication_slots WHERE slot_name = '{SLOT}'"
        other.wait_until(query, lambda active: not active)
        write(other, 41)
        other.execute(f"SELECT pg_replication_slot_advance('{SLOT}', pg_current_wal_lsn())", database="shop")
        with pytest.raises(PositionLostError, match="another process has read from it"):
            target.fail()


@pytest.mark.parametrize("version", ["15", pytest.param("16", marks=pytest.mark.slow)])
def test_stream_ends_where_servers_do_not_copy_slots(version):
    with postgres_of(version) as primary:
        one_row(primary)
        with following(primary) as pair:
            write(primary, 1)
            pair.target.until_equal(primary)
            until_received(pair, 2)
            pair.fail_over(primary)
            with pytest.raises(PositionLostError, match=NO_SLOT) as raised:
                pair.target.fail()
            assert "onPositionLost: refresh" in raised.value.hint


@pytest.mark.parametrize(
    "copy",
    [
        "too late",
        pytest.param("off", marks=pytest.mark.slow),
        pytest.param("slot without FAILOVER", marks=pytest.mark.slow),
    ],
)
def test_stream_ends_where_the_promoted_standby_has_no_copy_of_the_slot(primary, copy):
    one_row(primary)
    if copy == "slot without FAILOVER":  # as streams made them on servers without it
        ((system,),) = primary.execute("SELECT system_identifier::text FROM pg_control_system()")
        primary.execute(
            "CREATE PUBLICATION tailrace FOR TABLE numbers",
            f"COMMENT ON PUBLICATION tailrace IS '{Mark(system, (SLOT,)).comment}'",
            f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')",
            database="shop",
        )
    with following(primary, copies_slots=copy != "off") as pair:
        write(primary, 1)
        pair.target.until_equal(primary)
        until_received(pair, 2)
        if copy == "too late":  # the primary's begins before the standby's log does
            query = f"SELECT temporary FROM pg_replication_slots WHERE slot_name = '{SLOT}'"
            pair.standby.wait_until(f"SELECT EXISTS ({query})", bool)
            assert pair.standby.execute(query)[0][0]
        pair.fail_over(primary)
        with pytest.raises(PositionLostError, match=NO_SLOT):
            pair.target.fail()


def test_stream_that_has_read_what_the_promoted_standby_lacks_ends(primary):
    fill(primary, "shop", NUMBERS, 800, identity="FULL")
    with following(primary, snapshotChunkRows=5) as pair:
        target, other, engine = pair.target, pair.standby, pair.target.engine
        until_copied(target, primary, other)
        before = engine.offset
        cut_off(other)
        primary.execute("SELECT pg_switch_wal()")
        write(primary, -2, -1)
        target.until(lambda: (-1,) in target.state)
        assert engine.offset.tables, "the snapshot was to be cut by the failover"
        batch = None
        while batch is None or batch[0].log == batch[1].log:
            primary.execute("UPDATE numbers SET v = v + 1 WHERE id < 0", database="shop")
            batch = engine.next()
        pair.fail_over(primary)
        write(other, 2000)
        with pytest.raises(PositionLostError, match=LACKS):
            target.fail()
        options = engine.options
        assert_refused(options, batch[0])
        assert_refused(options, without_timeline(batch[0]))
        # now the server has something else up to there and beyond
        for id_ in range(3):
            other.execute("SELECT pg_switch_wal()")
            write(other, 2001 + id_)
        assert_refused(options, batch[0])
        with Engine(options) as again, pytest.raises(PositionLostError, match=LACKS):
            again.read(*batch)
        # a batch that began before the failover and ended behind it
        with pytest.raises(PositionLostError, match=LACKS):
            whole_log(options, before.log, batch[1].log)
        with Engine(options) as again, pytest.raises(PositionLostError, match=LACKS):
            again.plan.splits(before, replace(batch[1], tables=before.tables, done=before.done))
        source = registry.source(options)
        with closing(source), pytest.raises(PositionLostError, match=LACKS):
            source.as_of(source.position(batch[1].log))


def assert_refused(options, offset):
    with Engine(options) as engine:
        engine.offset = offset
        with pytest.raises(PositionLostError, match=LACKS):
            Target(engine).fail()


def without_timeline(offset):
    """The offset as it was stored before it had the timeline."""
    log = {name: value for name, value in offset.log.items() if name != "timeline"}
    return StreamOffset.from_json(replace(offset, log=log).to_json())


def test_stream_reads_nothing_that_a_standby_in_synchronized_standby_slots_lacks(primary):
    one_row(primary)
    with following(primary) as pair:
        target, other = pair.target, pair.standby
        alter_system(primary, synchronized_standby_slots="standby")
        until_copied(target, primary, other)
        target.until_equal(primary)
        cut_off(other)
        write(primary, 1)
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            target.step()
            assert (1,) not in target.state
        primary.execute("SELECT pg_switch_wal()")
        target.engine.plan.hold()
        pair.fail_over(primary)
        write(other, 2)
        while target.step():
            pass
        assert sorted(target.state) == [(0,), (2,)]


def test_check_tells_what_a_failover_would_take(primary):
    one_row(primary)
    primary.execute(f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')", database="shop")
    with Switch(primary) as address, standby_of(primary):
        options = options_at(address)
        assert warned(options) == ["created without FAILOVER: standbys do not copy it"]
        primary.execute(f"SELECT pg_drop_replication_slot('{SLOT}')")
        finding = found(options)
        assert finding.found.startswith("without standby:")
        mend(primary, finding)
        assert (found(options).found, found(options).severity) == ("standby", Severity.OK)
        alter_system(primary, synchronized_standby_slots="standby, gone")
        finding = found(options)
        assert finding.found == "standby, gone, of which no standby uses gone"
        mend(primary, finding)
        assert found(options).severity is Severity.OK


def warned(options):
    return [
        f.found for f in preflight.check(options) if f.severity is Severity.WARNING and "FAILOVER" in f.found
    ]


def found(options):
    (finding,) = (f for f in preflight.check(options) if f.check == "synchronized_standby_slots")
    return finding


def mend(server, finding):
    setting, reload, *_ = finding.remedy.split(";")
    server.execute(setting, reload)
    wanted = setting.split("'")[1]
    server.wait_until("SELECT current_setting('synchronized_standby_slots')", lambda now: now == wanted)


def test_stream_whose_server_is_gone_ends_at_once_when_it_is_told_to(primary):
    fill(primary, "postgres", NUMBERS, 10)
    with Engine(options_for(primary, "postgres", "public.*")) as engine:
        assert engine.next() is not None
        primary.kill()
        time.sleep(3)  # pauses between tries grow
        asked = time.monotonic()
    assert time.monotonic() - asked < 2
