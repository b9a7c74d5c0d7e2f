"""Primaries and replicas of MySQL and MariaDB, what differs between the two; and standbys of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tailrace.private import write_private
from tailrace_dev.servers import start_mariadb, start_mysql, start_postgres
from tailrace_dev.servers.postgres import start_standby

_START = {"mysql": start_mysql, "mariadb": start_mariadb}


@contextmanager
def primary_of(product: str) -> Iterator[Any]:
    """A server with the database `shop`."""
    with _START[product](options={"server_id": "101"}) as server:
        server.execute("CREATE DATABASE shop")
        yield server


@contextmanager
def replica_of(primary, server_id: int = 102, **options: str) -> Iterator[Any]:
    """A replica whose log has other file names and other offsets."""
    mariadb = primary.product == "mariadb"
    named = {"server_id": str(server_id), "log_bin": f"other{server_id}", **options}
    if mariadb:
        named["log_slave_updates"] = "ON"
    with _START[primary.product](options=named) as server:
        share_password(server, primary)
        server.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
        if mariadb:
            server.execute(
                f"CHANGE MASTER TO MASTER_HOST = '{primary.host}', MASTER_PORT = {primary.port}, "
                f"MASTER_USER = '{primary.user}', MASTER_PASSWORD = '{primary.password}', "
                "MASTER_USE_GTID = slave_pos",
                "START SLAVE",
            )
        else:
            server.execute(
                "SET GLOBAL super_read_only = ON",
                f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{primary.host}', SOURCE_PORT = {primary.port}, "
                f"SOURCE_USER = '{primary.user}', SOURCE_PASSWORD = '{primary.password}', "
                "SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1",
                "START REPLICA",
            )
        yield server


def share_password(server, other) -> None:
    """Give `server` the password of `other`: clients find either of them behind one address."""
    server.execute("SET sql_log_bin = 0", f"ALTER USER 'root'@'localhost' IDENTIFIED BY '{other.password}'")
    write_private(server.password_file, other.password)


def catch_up(replica, primary) -> None:
    """Wait until the replica has all that the primary has now."""
    if primary.product == "mariadb":
        ((executed,),) = primary.execute("SELECT @@global.gtid_binlog_pos")
        replica.execute(f"DO MASTER_GTID_WAIT('{executed}', 60)")
    else:
        ((executed,),) = primary.execute("SELECT REPLACE(@@global.gtid_executed, '\\n', '')")
        replica.execute(f"DO WAIT_FOR_EXECUTED_GTID_SET('{executed}', 60)")


def apply_late(replica, delay_s: int) -> None:
    """Let a replica whose applier stands still apply each transaction so late."""
    if replica.product == "mariadb":
        replica.execute(f"CHANGE MASTER TO MASTER_DELAY = {delay_s}", "START SLAVE")
    else:
        replica.execute(f"CHANGE REPLICATION SOURCE TO SOURCE_DELAY = {delay_s}", "START REPLICA")


def stop_applying(replica) -> None:
    """Let the replica fall behind."""
    if replica.product == "mariadb":
        replica.execute("STOP SLAVE")
    else:
        replica.execute("STOP REPLICA SQL_THREAD")


def make_writable(replica) -> None:
    """Let clients write to the replica."""
    if replica.product == "mysql":
        replica.execute("SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF")


def promote(replica) -> None:
    """Make a primary of it."""
    if replica.product == "mariadb":
        replica.execute("STOP SLAVE", "RESET SLAVE ALL")
    else:
        replica.execute("STOP REPLICA", "RESET REPLICA ALL")
    make_writable(replica)


# ---- PostgreSQL ----


@contextmanager
def postgres_of(version: str) -> Iterator[Any]:
    """A PostgreSQL server with the database `shop`."""
    with start_postgres(version) as server:
        server.execute("CREATE DATABASE shop")
        yield server


@contextmanager
def standby_of(primary, name: str = "standby", *, copies_slots: bool = True, **options: str) -> Iterator[Any]:
    """A standby that follows by the slot `name`, and copies slots that survive a failover."""
    quick = {"wal_retrieve_retry_interval": "100ms", **options}
    if copies_slots and int(primary.version.split(".")[0]) >= 17:
        quick["sync_replication_slots"] = "on"
    with start_standby(primary, name, quick) as server:
        yield server


def alter_system(server, **settings: str) -> None:
    """Change settings of a running server, and wait until it has them."""
    server.execute(*(f"ALTER SYSTEM SET {name} = '{value}'" for name, value in settings.items()))
    server.execute("SELECT pg_reload_conf()")
    for name, value in settings.items():
        server.wait_until(f"SELECT current_setting('{name}')", lambda found, value=value: found == value)


def cut_off(standby) -> None:
    """Let it receive no more."""
    alter_system(standby, primary_conninfo="")
    standby.wait_until("SELECT count(*) FROM pg_stat_wal_receiver", lambda receivers: not receivers)


def has_slot(standby, slot: str) -> bool:
    """Whether it has copied the primary's slot so far that the copy outlives a failover."""
    query = (
        f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{slot}' AND synced AND NOT temporary"
    )
    return bool(standby.execute(query)[0][0])


def promote_standby(standby) -> None:
    """Make a primary of it."""
    standby.execute("SELECT pg_promote()")
    standby.wait_until("SELECT pg_is_in_recovery()", lambda still: not still)
