"""Another server takes over: a promoted replica, under the same address; over MySQL and MariaDB."""

from __future__ import annotations

import time
import uuid
from itertools import chain

import pytest

from tailrace.enumerator.enumerator import Limits
from tailrace.errors import PositionLostError, StateError
from tailrace_dev.servers import start_mysql
from tests.support.databases import named_rows
from tests.support.engine import Engine, Held, options_for
from tests.support.logged import flush_and_purge
from tests.support.replication import (
    apply_late,
    catch_up,
    make_writable,
    primary_of,
    promote,
    replica_of,
    share_password,
    stop_applying,
)
from tests.support.switch import Switch
from tests.support.workload import SUBJECTS, Writers, fill

SUBJECT = SUBJECTS[2]
TABLE = "shop.busy"


@pytest.fixture(params=["mysql", "mariadb"])
def primary(request):
    with primary_of(request.param) as server:
        yield server


def table_of(server):
    with server.connect() as connection, connection.cursor() as cursor:
        rows = named_rows(cursor, f"SELECT * FROM {TABLE}")
    return {tuple(row[k] for k in SUBJECT.key): row for row in rows}


class Replica(Held):
    """Holds the table of the tests."""

    def __init__(self, engine):
        super().__init__(engine, SUBJECT.key)

    def step(self):
        """One batch; whether there was one."""
        found = self.engine.next(Limits(None, 1 << 16))
        if found is None:
            return False
        self.take(*self.engine.read(*found))
        return True

    def until_equal(self, server, timeout_s=60):
        deadline = time.monotonic() + timeout_s
        while self.step() or self.engine.offset.tables or self.state != table_of(server):
            assert time.monotonic() < deadline, "the stream does not catch up"


def test_stream_goes_on_by_gtid_on_a_promoted_replica_without_loss_or_repeat(primary):
    fill(primary, TABLE, SUBJECT, 2000)
    with replica_of(primary) as other, replica_of(other, 103) as third, Switch(primary) as address:
        options = options_for(address, TABLE, snapshotChunkRows=50)
        with Engine(options) as engine:
            sink = Replica(engine)
            with Writers(primary, TABLE, SUBJECT, count=4, pause_s=0.005):
                steps = 0
                while steps < 3:  # batches may have to wait for the writers
                    steps += sink.step()
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
            first = [[], []]
            with Writers(primary, TABLE, SUBJECT, count=2, pause_s=0.005):
                while not all(first):  # until a batch has rows and changes
                    assert engine.offset.tables, "the snapshot ended before"
                    if batch := engine.next():
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
        stop_applying(other)
        with Engine(options_for(address, TABLE)) as engine:
            sink = Replica(engine)
            sink.step()
            primary.execute(f"INSERT INTO {TABLE} VALUES (1, 'a', 1, 1, 'x')")
            sink.until_equal(primary)
            with other.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"SELECT COUNT(*) FROM {TABLE}")
                assert cursor.fetchone()[0] == 0
            address.point(other)
            apply_late(other, 3)
            sink.until_equal(primary)
            catch_up(other, primary)
            promote(other)
            other.execute(f"UPDATE {TABLE} SET v = 2")
            sink.until_equal(other)
        assert len(sink.seqs) == 2


@pytest.mark.parametrize(
    ("mishap", "error", "said"),
    [
        (
            "own",
            StateError,
            {"mysql": "come after others that are not in the set", "mariadb": "where `0-101-"},
        ),
        ("behind", StateError, {"mysql": "it lacks", "mariadb": "it lacks `0-101-"}),
        ("purged", PositionLostError, {"mysql": "purged are", "mariadb": "purged are"}),
    ],
    ids=["own", "behind", "purged"],
)
def test_server_whose_log_does_not_fit_ends_the_stream(primary, mishap, error, said):
    mariadb = primary.product == "mariadb"
    primary.execute(f"CREATE TABLE {TABLE} ({SUBJECT.columns})")
    with replica_of(primary) as other, Switch(primary) as address:
        catch_up(other, primary)
        with Engine(options_for(address, TABLE, retryTimeoutMs=3000)) as engine:
            sink = Replica(engine)
            sink.step()
            # MariaDB: own transactions can be told from the primary's by the number that both have
            early = mishap == "behind" or (mariadb and mishap == "own")
            if early:
                promote(other)
            if mishap == "own":
                make_writable(other)
                other.execute("CREATE DATABASE own")
            primary.execute(f"INSERT INTO {TABLE} VALUES (1, 'a', 1, 1, 'x')")
            sink.until_equal(primary)
            if not early:
                catch_up(other, primary)
                promote(other)
            primary.kill()
            if not (mariadb and early):  # there it would take the number of what is missing
                other.execute(f"INSERT INTO {TABLE} VALUES (2, 'a', 1, 1, 'x')")
            if mishap == "purged":
                if mariadb:  # it keeps its log for replicas that have not come yet
                    other.execute("SET GLOBAL slave_connections_needed_for_purge = 0")
                flush_and_purge(other)
            address.point(other)
            with pytest.raises(error, match=said[primary.product]):
                sink.until_equal(other, 20)


@pytest.mark.slow
def test_transactions_of_other_servers_are_neither_missed_nor_given_again():
    own, foreign = (str(uuid.uuid4()) for _ in range(2))

    def run(server, gtid, statement):
        server.execute(f"SET GTID_NEXT = '{gtid}'", statement, "SET GTID_NEXT = 'AUTOMATIC'")

    with primary_of("mysql") as first, start_mysql(options={"server_id": "102"}) as second:
        share_password(second, first)
        second.execute("CREATE DATABASE shop", "FLUSH BINARY LOGS")
        for server in (first, second):
            server.execute(f"CREATE TABLE {TABLE} ({SUBJECT.columns})")
        with Switch(first) as address:
            given = {"startingPosition": "latest", "retryTimeoutMs": 3000}
            options = options_for(address, TABLE, **given, **{"gtid.source.includes": own.upper()})
            inserts = [f"INSERT INTO {TABLE} VALUES ({n}, 'a', 1, 1, 'x')" for n in range(10)]
            with Engine(options) as engine, Engine(options_for(address, TABLE, **given)) as plain:
                sink, all_given = Replica(engine), Replica(plain)
                engine.next()
                plain.next()
                run(first, f"{own}:1", inserts[1])
                run(first, f"{foreign}:1", inserts[2])
                run(first, f"{own}:2", f"UPDATE {TABLE} SET v = 5 WHERE a = 1")
                while len(sink.seqs) < 2:
                    sink.step()
                while len(all_given.seqs) < 3:
                    all_given.step()
                # the second server has another order, and a transaction that the first one has not
                run(second, f"{foreign}:7", inserts[7])
                run(second, f"{own}:1", inserts[1])
                run(second, f"{own}:2", f"UPDATE {TABLE} SET v = 5 WHERE a = 1")
                run(second, f"{own}:3", inserts[3])
                run(second, f"{foreign}:8", inserts[8])
                address.point(second)
                first.kill()
                while len(sink.seqs) < 3:
                    sink.step()
                assert not sink.step()
                assert sorted((row["a"], row["v"]) for row in sink.state.values()) == [(1, 5), (3, 1)]
                with pytest.raises(StateError, match="lacks"):
                    all_given.step()
