"""A point of the stream on another server."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.config.options import parse_options
from tailrace.errors import StateError
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.mysql.start import failover

GTIDS = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7"
OPTIONS = parse_options({"url": "mysql://h:1", "user": "u", "tables": "d.t"})
BEFORE = MySqlPosition("binlog.000009", 400, GTIDS, "a", epoch=2)


class ReplicaInTest:
    """A replica that lacks transactions, and may apply them while it is asked."""

    def __init__(self, *, applies: bool) -> None:
        self.applies, self.lacks = applies, True

    def is_behind(self, *_: Any) -> bool:
        return self.applies and self.lacks

    def position(self, *_: Any) -> MySqlPosition:
        if self.lacks:
            self.lacks = not self.applies
            raise StateError("the server has not executed all requested GTIDs", "it lacks some", "wait")
        return MySqlPosition("binlog.000001", 150, GTIDS, "b")


@pytest.fixture
def replica(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ReplicaInTest:
    made = ReplicaInTest(applies=request.param)
    for name, stand_in in {
        "_POLL_S": 0.0,
        "_is_behind": made.is_behind,
        "position_by_gtids": made.position,
        "prepared_again": lambda *_: (),
    }.items():
        monkeypatch.setattr(failover, name, stand_in)
    monkeypatch.setattr(failover.preflight, "require", lambda _: None)
    return made


@pytest.mark.parametrize("replica", [True], indirect=True)
def test_replica_that_catches_up_while_it_is_asked_is_followed(replica: ReplicaInTest) -> None:
    found = failover._find(OPTIONS, BEFORE, "b")
    assert (found.file, found.pos, found.server, found.epoch) == ("binlog.000001", 150, "b", 3)
    assert not replica.lacks


@pytest.mark.parametrize("replica", [False], indirect=True)
@pytest.mark.usefixtures("replica")
def test_server_that_lacks_transactions_and_applies_none_is_refused() -> None:
    with pytest.raises(StateError) as found:
        failover._find(OPTIONS, BEFORE, "b")
    assert found.value.code == "TR-4105"
