"""The other side of a comparison is reached directly, and by its own log-in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.config.options import RouteOptions, SourceOptions, parse_options
from tailrace.config.secret import Secret
from tailrace.config.sinks import MySqlSettings
from tailrace.verify import replica


class _OpenedError(Exception):
    def __init__(self, options: SourceOptions) -> None:
        self.options = options


@pytest.mark.parametrize(
    "way",
    [
        {"sshTunnel": "bastion"},
        {"proxy": "socks5://proxy"},
        {"authentication": "aws-rds-iam", "awsRegion": "eu-west-1", "tlsMode": "verify-ca"},
    ],
)
def test_replica_is_not_reached_by_the_way_of_its_source(
    monkeypatch: pytest.MonkeyPatch, way: dict[str, str]
) -> None:
    def source(options: SourceOptions) -> Any:
        raise _OpenedError(options)

    session = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(replica, "open_dialect", lambda *_: SimpleNamespace(connect=lambda: session))
    monkeypatch.setattr(replica, "Ledger", lambda _: None)
    monkeypatch.setattr(replica.registry, "source", source)
    options = parse_options({"url": "mysql://source", "user": "u", "tables": "a.b", **way})
    sink = MySqlSettings("mysql://replica", "w", password=Secret("of-the-replica"))
    with pytest.raises(_OpenedError) as opened:
        replica.ReplicaTargets.open(options, sink, lambda: (0, ()), 0, 1)
    found = opened.value.options
    assert (found.host, found.user, found.password.resolve()) == ("replica", "w", "of-the-replica")
    assert (found.route, found.authentication, found.aws_region) == (RouteOptions(), "password", None)
