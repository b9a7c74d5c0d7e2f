"""Another server takes over: a promoted replica, under the same address."""

from __future__ import annotations

import time
from contextlib import contextmanager
from itertools import chain

import pytest

from tailrace.devservers import start_mysql
from tailrace.enumerator.enumerator import Limits
from tailrace.errors import PositionLostError, StateError
from tests.support.engine import Engine, apply, changes_of, options_for, rows_of
from tests.support.switch import Switch
from tests.support.workload import SUBJECTS, Writers, fill

SUBJECT = SUBJECTS[2]
TABLE = "shop.busy"


@pytest.fixture
def primary():
    with start_mysql(options={"server_id": "101"}) as server:
        server.execute("CREATE DATABASE shop")
        yield server


@contextmanager
def replica_of(primary, server_id=102, **options):
    """A replica whose log has other file names and other offsets."""
    named = {"server_id": str(server_id), "log_bin": f"other{server_id}", **options}
    with start_mysql(options=named) as server:
        server.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS", "SET GLOBAL super_read_only = ON")
        server.execute(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{primary.host}', SOURCE_PORT = {primary.port}, "
            f"SOURCE_USER = '{primary.user}', SOURCE_PASSWORD = '{primary.password}', "
            "SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1",
            "START REPLICA",
        )
        yield server


def executed(server):
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@global.gtid_executed")
        return cursor.fetchone()[0].replace("\n", "")


def catch_up(replica, primary):
    replica.execute(f"DO WAIT_FOR_EXECUTED_GTID_SET('{executed(primary)}', 60)")


def promote(replica):
    replica.execute("STOP REPLICA", "RESET REPLICA ALL")
    replica.execute("SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF")


def table_of(server):
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {TABLE}")
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return {tuple(row[k] for k in SUBJECT.key): row for row in rows}


class Replica:
    """What a sink would hold; fails as soon as a change does not fit."""

    def __init__(self, engine):
        self.engine = engine
        self.state = {}
        self.seqs = []

    def step(self):
        """One batch; whether there was one."""
        found = self.engine.next(Limits(None, 1 << 16))
        if found is None:
            return False
        self.take(*self.engine.read(*found))
        return True

    def take(self, snapshot, log):
        changes = changes_of(log)
        apply(self.state, changes, SUBJECT.key)
        self.seqs += [seq for *_, seq in changes]
        for row in rows_of(snapshot):
            key = tuple(row[k] for k in SUBJECT.key)
            assert key not in self.state, f"snapshot row that is there: {key}"
            self.state[key] = row

    def until_equal(self, server, timeout_s=60):
        deadline = time.monotonic() + timeout_s
        while self.step() or self.engine.offset.tables or self.state != table_of(server):
            assert time.monotonic() < deadline, "the stream does not catch up"


def test_stream_goes_on_by_gtid_on_a_promoted_replica_without_loss_or_repeat(primary):
    fill(primary, TABLE, SUBJECT, 4000)
    with replica_of(primary) as other, replica_of(other, 103) as third, Switch(primary) as address:
        options = options_for(address, TABLE, snapshotChunkRows=50)
        with Engine(options) as engine:
            sink = Replica(engine)
            with Writers(primary, TABLE, SUBJECT, count=4, pause_s=0.005):
                for _ in range(4):
                    assert sink.step()
            assert engine.offset.tables, "the snapshot was to be cut by the failover"
            for old, new in ((primary, other), (other, third)):
                catch_up(new, old)
                promote(new)
                if new is third:
                    sink.until_equal(other)
                address.point(new)
                old.kill()
                with Writers(new, TABLE, SUBJECT, count=4, pause_s=0.005):
                    for _ in range(4):
                        sink.step()
                        time.sleep(0.05)
            sink.until_equal(third)
            assert engine.offset.log["epoch"] == 2
        assert sink.seqs == sorted(sink.seqs)
        assert len(set(sink.seqs)) == len(sink.seqs)


def test_batch_planned_on_the_old_server_is_replayed_from_the_new_one(primary):
    fill(primary, TABLE, SUBJECT, 10_000)
    with replica_of(primary) as other, Switch(primary) as address:
        options = options_for(address, TABLE, snapshotChunkRows=20)
        with Engine(options) as engine:
            assert engine.next() is not None
            with Writers(primary, TABLE, SUBJECT, count=2, pause_s=0.005):
                time.sleep(0.5)
            batch = engine.next()
            while batch is None or batch[0].log == batch[1].log:
                batch = engine.next()
            first = [[b.image("after").to_pylist() for b in part] for part in engine.read(*batch)]
        catch_up(other, primary)
        promote(other)
        address.point(other)
        primary.kill()
        with Engine(options) as engine, Writers(other, TABLE, SUBJECT, count=2, pause_s=0.005):
            again = [[b.image("after").to_pylist() for b in part] for part in engine.read(*batch)]
        for before, after in zip(first, again, strict=True):
            assert before
            assert sorted(map(repr, chain(*before))) == sorted(map(repr, chain(*after)))


def test_replica_that_has_not_applied_all_yet_is_waited_for(primary):
    primary.execute(f"CREATE TABLE {TABLE} ({SUBJECT.columns})")
    with replica_of(primary) as other, Switch(primary) as address:
        catch_up(other, primary)
        other.execute("STOP REPLICA SQL_THREAD")
        with Engine(options_for(address, TABLE)) as engine:
            sink = Replica(engine)
            sink.step()
            primary.execute(f"INSERT INTO {TABLE} VALUES (1, 'a', 1, 1, 'x')")
            sink.until_equal(primary)
            other.execute(  # the applier is on, and late
                "CHANGE REPLICATION SOURCE TO SOURCE_DELAY = 3", "START REPLICA"
            )
            address.point(other)
            with other.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"SELECT COUNT(*) FROM {TABLE}")
                assert cursor.fetchone()[0] == 0
            sink.until_equal(primary)
            catch_up(other, primary)
            promote(other)
            other.execute(f"UPDATE {TABLE} SET v = 2")
            sink.until_equal(other)
        assert len(sink.seqs) == 2


@pytest.mark.parametrize(
    ("mishap", "error", "said"),
    [
        ("own", StateError, "come after others that are not in the set"),
        ("behind", StateError, "it lacks"),
        ("purged", PositionLostError, "purged are"),
    ],
)
def test_server_whose_log_does_not_fit_ends_the_stream(primary, mishap, error, said):
    primary.execute(f"CREATE TABLE {TABLE} ({SUBJECT.columns})")
    with replica_of(primary) as other, Switch(primary) as address:
        catch_up(other, primary)
        with Engine(options_for(address, TABLE)) as engine:
            sink = Replica(engine)
            sink.step()
            if mishap == "own":
                other.execute("SET GLOBAL super_read_only = OFF", "CREATE DATABASE own")
            if mishap == "behind":
                promote(other)
            primary.execute(f"INSERT INTO {TABLE} VALUES (1, 'a', 1, 1, 'x')")
            sink.until_equal(primary)
            if mishap != "behind":
                catch_up(other, primary)
                promote(other)
            primary.kill()
            other.execute(f"INSERT INTO {TABLE} VALUES (2, 'a', 1, 1, 'x')")
            if mishap == "purged":
                other.execute("FLUSH BINARY LOGS")
                with other.connect() as connection, connection.cursor() as cursor:
                    cursor.execute("SHOW BINARY LOG STATUS")
                    other.execute(f"PURGE BINARY LOGS TO '{cursor.fetchone()[0]}'")
            address.point(other)
            with pytest.raises(error, match=said):
                sink.until_equal(other, 20)
