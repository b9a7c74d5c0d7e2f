"""Which pipelines may share a Spark session, and what servers take of groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from sqlalchemy import update

from tailrace.config.load import parse_pipelines
from tailrace.control import leases, servers, subscriptions
from tailrace.control.groups import require_same
from tailrace.control.leases import Lease, Room
from tailrace.control.metadata.database import ControlDatabase, now_us
from tailrace.control.metadata.tables import servers as servers_table
from tailrace.control.metadata.tables import subscriptions as table
from tailrace.control.servers import ServerInfo
from tailrace.control.stages import Desired
from tailrace.control.subscriptions import SubscriptionFilter, select_subscriptions
from tailrace.errors import ConfigError
from tests.support.control import spec


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ControlDatabase]:
    found = ControlDatabase(f"sqlite:///{tmp_path}/tailrace.db")
    found.prepare()
    yield found
    found.close()


def _spec(name: str, group: str | None = None, sink: str = "delta", **settings: object) -> str:
    document = yaml.safe_load(spec(name))
    document["sink"]["type"] = sink
    document["pipeline"] = {**({"group": group} if group else {}), **settings}
    return yaml.safe_dump(document)


def _create(database: ControlDatabase, group: str | None, *names: str) -> None:
    with database.begin() as connection:
        for name in names:
            subscriptions.create(connection, "ann", name, _spec(name, group))


def _claim(database: ControlDatabase, server: str, room: Room) -> list[Lease]:
    with database.begin() as connection:
        return [lease for _, lease in leases.claim(connection, server, room)]


def _expire(database: ControlDatabase, server: str) -> None:
    with database.begin() as connection:
        connection.execute(update(table).where(table.c.owner == server).values(lease_until_us=now_us() - 1))


def _seen(database: ControlDatabase, name: str, *, draining: bool = False) -> None:
    with database.begin() as connection:
        servers.seen(connection, ServerInfo(name, "host", 1, "", 4, 0, draining, "1"))


def test_pipelines_of_a_group_need_the_same_session() -> None:
    def pipeline(name: str, **settings: object):
        return parse_pipelines(_spec(name, "g", **settings), default_name=name)[0]

    one = pipeline("one", parallelism=2, restarts=1)
    require_same("g", pipeline("two", parallelism=2, restarts=7), one)
    for settings, named in (
        ({"parallelism": 3}, "pipeline.parallelism"),
        ({"parallelism": 2, "spark": {"spark.locality.wait": "0"}}, "pipeline.spark"),
        ({"parallelism": 2, "master": "spark://host:7077"}, "pipeline.master"),
        ({"parallelism": 2, "sink": "parquet"}, "`delta`"),
        ({"parallelism": 2, "checkpoint": "s3://bucket/checkpoint"}, "object stores"),
    ):
        with pytest.raises(ConfigError, match=named) as raised:
            require_same("g", pipeline("two", **settings), one)
        assert raised.value.code == "TR-8490"
        assert "`one`" in str(raised.value)


def test_file_that_does_not_fit_its_group_is_refused(database: ControlDatabase) -> None:
    _create(database, "g", "a")
    with database.begin() as connection:
        with pytest.raises(ConfigError, match="parallelism"):
            subscriptions.create(connection, "ann", "b", _spec("b", "g", parallelism=2))
        subscriptions.create(connection, "ann", "b", _spec("b", "other", parallelism=2))
        with pytest.raises(ConfigError, match="parallelism"):
            subscriptions.change_spec(connection, "ann", "b", _spec("b", "g", parallelism=2))
        assert subscriptions.change_spec(connection, "ann", "b", _spec("b", "g")).group == "g"
        # the settings of a pipeline that is alone in its group are its own business
        subscriptions.change_spec(connection, "ann", "b", _spec("b"))
        subscriptions.change_spec(connection, "ann", "a", _spec("a", "g", parallelism=4))
        found = select_subscriptions(connection, SubscriptionFilter(group="g"))
    assert [(one.name, one.group) for one in found] == [("a", "g")]


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "x" * 65])
def test_name_of_a_group_is_a_name(name: str) -> None:
    with pytest.raises(ConfigError, match=r"pipeline\.group"):
        parse_pipelines(spec("a") + f"pipeline: {{group: {name!r}}}\n", default_name="a")


def test_capacity_counts_workers(database: ControlDatabase) -> None:
    _create(database, "g", *(f"g{i}" for i in range(5)))
    _create(database, None, "one", "two", "three")
    room = Room(2, group_size=3)
    taken = _claim(database, "s1", room)
    grouped = [lease.name for lease in taken if lease.name.startswith("g")]
    alone = len(taken) - len(grouped)
    # two workers: each runs one that is in no group, or up to three of the group
    assert -(-len(grouped) // 3) + alone == 2
    assert room.workers == 0
    rest = _claim(database, "s1", Room(0, 3, room.groups, held={lease.subscription_id for lease in taken}))
    assert all(lease.name.startswith("g") for lease in rest)


def test_group_stays_together_where_there_is_room(database: ControlDatabase) -> None:
    for server in ("s1", "s2"):
        _seen(database, server)
    _create(database, "g", "a", "b")
    assert len(_claim(database, "s1", Room(1, 3))) == 2
    _create(database, "g", "c", "d")
    assert _claim(database, "s2", Room(1, 3)) == []  # s1 has room for one more
    assert len(_claim(database, "s1", Room(0, 3, {"g": 1}))) == 1
    assert len(_claim(database, "s2", Room(1, 3))) == 1  # s1 has none left
    _expire(database, "s1")
    assert len(_claim(database, "s2", Room(0, 3, {"g": 2}))) == 2
    assert len(_claim(database, "s2", Room(1, 3))) == 1


def _left_to_s1(database: ControlDatabase) -> leases.Lease:
    """A member of a group that nobody runs, while `s1` runs the other one: `s2` leaves it to it."""
    _create(database, "g", "a", "b")
    _seen(database, "s1")
    (first, _) = _claim(database, "s1", Room(1, 3))
    with database.begin() as connection:
        leases.release(connection, first)
    assert _claim(database, "s2", Room(1, 3)) == []
    return first


def test_group_leaves_a_server_that_ends(database: ControlDatabase) -> None:
    first = _left_to_s1(database)
    _seen(database, "s1", draining=True)
    assert [lease.subscription_id for lease in _claim(database, "s2", Room(1, 3))] == [first.subscription_id]


def test_group_is_not_left_to_a_server_that_hangs(database: ControlDatabase) -> None:
    _left_to_s1(database)
    with database.begin() as connection:
        connection.execute(update(servers_table).values(seen_us=now_us() - 11_000_000))
    assert len(_claim(database, "s2", Room(1, 3))) == 1


def test_what_still_ends_here_is_not_taken_again(database: ControlDatabase) -> None:
    _create(database, "g", "a", "b")
    (first, second) = _claim(database, "s1", Room(1, 3))
    _expire(database, "s1")
    again = _claim(database, "s1", Room(0, 3, {"g": 3}, held={first.subscription_id}))
    assert [lease.subscription_id for lease in again] == [second.subscription_id]


def test_leases_are_renewed_together_and_lost_alone(database: ControlDatabase) -> None:
    _create(database, "g", "a", "b", "c")
    held = _claim(database, "s1", Room(1, 3))
    with database.begin() as connection:
        subscriptions.set_desired(connection, "ann", "a", Desired.PAUSE)
        assert leases.renew(connection, held) == set()
        leases.release(connection, held[0])
        assert leases.renew(connection, held) == {held[0]}
        assert leases.renew(connection, held[1:]) == set()
        assert leases.renew(connection, []) == set()
    _expire(database, "s1")
    with database.begin() as connection:
        assert leases.renew(connection, held) == set(held)
