"""Packets of a SELECT."""

from __future__ import annotations

import socket
import time

import pytest

from tailrace.sources.bounds import Deadline
from tailrace.sources.mysql.snapshot.statement import PacketReader


def test_rows_may_take_any_time_as_long_as_something_comes() -> None:
    near, far = socket.socketpair()
    with near, far:
        reader = PacketReader(near, 0.3)
        reader.restart(Deadline(0.4))
        reader.expect_rows()
        begun = time.monotonic()
        for _ in range(4):
            time.sleep(0.15)
            far.send(b"x")
            reader.receive()
        assert time.monotonic() - begun > 0.4
        with pytest.raises(TimeoutError):
            reader.receive()
