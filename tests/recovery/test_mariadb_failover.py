"""Another MariaDB server takes over: the stream goes on by domain GTIDs."""

from __future__ import annotations

import time
from contextlib import contextmanager

import pytest

from tailrace.config.options import parse_options
from tailrace.devservers import start_mariadb
from tailrace.errors import PositionLostError, StateError
from tailrace.sources.mysql.starting import starting_position
from tests.recovery.test_failover import SUBJECT, TABLE, Replica
from tests.support.engine import Engine, options_for
from tests.support.switch import Switch
from tests.support.workload import Writers, fill


@pytest.fixture
def primary():
    with start_mariadb(options={"server_id": "101"}) as server:
        server.execute("CREATE DATABASE shop")
        yield server


@contextmanager
def replica_of(primary):
    """A replica whose log has other file names and other offsets."""
    with start_mariadb(options={"server_id": "102", "log_bin": "other", "log_slave_updates": "ON"}) as server:
        server.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
        server.execute(
            f"CHANGE MASTER TO MASTER_HOST = '{primary.host}', MASTER_PORT = {primary.port}, "
            f"MASTER_USER = '{primary.user}', MASTER_PASSWORD = '{primary.password}', "
            "MASTER_USE_GTID = slave_pos",
            "START SLAVE",
        )
        yield server


def catch_up(replica, primary):
    (((executed,),)) = primary.execute("SELECT @@global.gtid_binlog_pos")
    replica.execute(f"DO MASTER_GTID_WAIT('{executed}', 60)")


def promote(replica):
    replica.execute("STOP SLAVE", "RESET SLAVE ALL")


def test_stream_goes_on_by_gtid_on_a_promoted_replica_without_loss_or_repeat(primary):
    fill(primary, TABLE, SUBJECT, 1000)
    with replica_of(primary) as other, Switch(primary) as address:
        with Engine(options_for(address, TABLE, snapshotChunkRows=50)) as engine:
            sink = Replica(engine)
            with Writers(primary, TABLE, SUBJECT, count=4, pause_s=0.005):
                steps = 0
                while steps < 3:  # batches may have to wait for the writers
                    steps += sink.step()
            assert engine.offset.tables, "the snapshot was to be cut by the failover"
            catch_up(other, primary)
            promote(other)
            address.point(other)
            primary.kill()
            with Writers(other, TABLE, SUBJECT, count=4, pause_s=0.005):
                for _ in range(4):
                    sink.step()
                    time.sleep(0.05)
            sink.until_equal(other)
            assert engine.offset.log["epoch"] == 1
        assert sink.seqs == sorted(sink.seqs)
        assert len(set(sink.seqs)) == len(sink.seqs)


@pytest.mark.parametrize(
    ("mishap", "error", "said"),
    [
        ("own", StateError, "where `0-101-"),
        ("behind", StateError, "it lacks `0-101-"),
        ("purged", PositionLostError, "purged are"),
    ],
)
def test_server_whose_log_does_not_fit_ends_the_stream(primary, mishap, error, said):
    primary.execute(f"CREATE TABLE {TABLE} ({SUBJECT.columns})")
    with replica_of(primary) as other, Switch(primary) as address:
        catch_up(other, primary)
        with Engine(options_for(address, TABLE, retryTimeoutMs=3000)) as engine:
            sink = Replica(engine)
            sink.step()
            if mishap != "purged":
                promote(other)
            if mishap == "own":
                other.execute("CREATE DATABASE own")
            primary.execute(f"INSERT INTO {TABLE} VALUES (1, 'a', 1, 1, 'x')")
            sink.until_equal(primary)
            if mishap == "purged":
                catch_up(other, primary)
                promote(other)
            primary.kill()
            if mishap == "purged":
                other.execute(f"INSERT INTO {TABLE} VALUES (2, 'a', 1, 1, 'x')", "FLUSH BINARY LOGS")
                file = other.execute("SHOW MASTER STATUS")[0][0]
                if other.execute("SHOW GLOBAL VARIABLES LIKE 'slave_connections_needed_for_purge'"):
                    other.execute("SET GLOBAL slave_connections_needed_for_purge = 0")
                deadline = time.monotonic() + 10
                while len(other.execute("SHOW BINARY LOGS")) > 1:  # not before the file's checkpoint
                    assert time.monotonic() < deadline
                    other.execute(f"PURGE BINARY LOGS TO '{file}'")
            address.point(other)
            with pytest.raises(error, match=said):
                sink.until_equal(other, 20)


def test_stream_starts_behind_the_gtids_it_is_given(mariadb, mariadb_database):
    mariadb.execute(f"CREATE TABLE {mariadb_database}.t (id INT PRIMARY KEY)")
    places = []
    for id_ in range(4):
        mariadb.execute(
            f"SET gtid_domain_id = {90 + id_ % 2}", f"INSERT INTO {mariadb_database}.t VALUES ({id_})"
        )
        places.append(
            (
                mariadb.execute("SHOW MASTER STATUS")[0][:2],
                mariadb.execute("SELECT @@global.gtid_binlog_pos")[0][0],
            )
        )
    for (file, pos), gtids in places:
        options = parse_options(
            {
                "url": mariadb.url,
                "user": mariadb.user,
                "tables": f"{mariadb_database}.t",
                "startingPosition": f"gtid:{gtids}",
            }
        )
        found = starting_position(options)
        assert (found.file, found.pos, sorted(found.gtids.split(","))) == (
            file,
            int(pos),
            sorted(gtids.split(",")),
        )
