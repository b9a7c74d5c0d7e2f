"""The pace of reading tables while others use the server."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tailrace.enumerator.snapshot_load import (
    FIRST_ROWS,
    LEAST_ROWS,
    LEAST_SHARE,
    MOST_ROWS,
    MOST_SHARE,
    WINDOW_S,
    Load,
    SnapshotLoad,
)
from tailrace.errors import SourceError, TransientSourceError
from tests.support.wait import wait_until


def loaded(*others: float, start: Load | None = None, at: float = 0.0) -> Load:
    load = start or Load()
    for n, value in enumerate(others):
        load.add(at + 0.2 * n, value)
    return load


@pytest.mark.parametrize(
    ("others", "share"),
    [(0.0, None), (0.9, None), (1.0, LEAST_SHARE), (4.0, 0.2), (8.0, 0.4), (300.0, MOST_SHARE)],
)
def test_share_grows_with_the_sessions_of_others_and_has_limits(others: float, share: float | None) -> None:
    found = loaded(*[others] * 25).share
    assert found == (None if share is None else pytest.approx(share))


def test_nothing_is_slowed_before_anything_is_known() -> None:
    assert Load().share is None


def test_one_long_statement_among_idle_looks_makes_no_busy_server() -> None:
    assert not loaded(*[0.0] * 20, 4.0, 0.0).is_busy


def test_busy_server_is_busy_until_clearly_fewer_run() -> None:
    load = loaded(*[1.2] * 25)
    assert load.is_busy
    loaded(*[0.6] * 30, start=load, at=10.0)
    assert load.is_busy
    assert load.share == LEAST_SHARE
    loaded(*[0.4] * 30, start=load, at=20.0)
    assert not load.is_busy
    loaded(*[0.6] * 30, start=load, at=30.0)
    assert not load.is_busy


def test_only_the_last_seconds_count() -> None:
    load = loaded(*[9.0] * 10)
    load.add(2 + WINDOW_S, 0.0)
    assert load.mean == 0


class Server:
    """A server that others use, as a stream's thread sees it."""

    def __init__(self, others: float | Callable[[], float] | None) -> None:
        self.found = others
        self.seconds = 0.0
        self.looks = 0
        self.closed = threading.Event()
        self.load = SnapshotLoad(lambda: self, lambda: self.seconds)

    def others(self) -> float | None:
        self.looks += 1
        return self.found() if callable(self.found) else self.found

    def close(self) -> None:
        self.closed.set()


def test_busy_server_is_read_in_chunks_that_grow_while_batches_are_short_and_shrink_when_long() -> None:
    server = Server(4.0)
    server.load.look(wanted=True)
    assert server.load.chunks(250_000, 16) == (FIRST_ROWS, 1)
    assert server.load.share == pytest.approx(0.2)
    assert server.load.slowed_by == (
        "others run 4.0 statements at a time, and rows have 20% of the time (snapshotProtection)"
    )
    sizes = []
    for took in [0.5] * 4 + [2.0] + [5.0] * 7:
        server.seconds += took
        sizes.append(server.load.chunks(250_000, 16)[0])
    assert sizes == [16_000, 32_000, MOST_ROWS, MOST_ROWS, MOST_ROWS, *[25_000, 12_500, 6_250, 3_125, 1562],
                     LEAST_ROWS, LEAST_ROWS]  # fmt: skip
    assert server.load.chunks(500, 16) == (500, 1)
    server.load.close()
    assert server.load.share is None
    assert server.load.slowed_by == ""


@pytest.mark.parametrize("others", [0.0, None])
def test_server_that_is_not_busy_or_hides_it_is_read_at_full_speed(others: float | None) -> None:
    server = Server(others)
    server.load.look(wanted=True)
    assert server.load.chunks(250_000, 16) == (250_000, 16)
    assert (server.load.share, server.load.slowed_by) == (None, "")
    server.load.close()


def test_nobody_looks_while_there_is_nothing_to_read() -> None:
    server = Server(4.0)
    server.load.look(wanted=False)
    server.load.look(wanted=True)
    wait_until(lambda: server.looks > 2, 5, "some looks")
    server.load.look(wanted=False)
    assert server.closed.is_set()
    looks = server.looks
    assert server.load.chunks(250_000, 16) == (250_000, 16)
    assert server.looks == looks


def test_server_that_cannot_be_known_is_read_at_full_speed() -> None:
    assert SnapshotLoad(lambda: None, lambda: 0.0).chunks(9, 2) == (9, 2)


def test_server_that_refuses_to_be_looked_at_is_read_and_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> float:
        raise SourceError("a privilege is missing", code="TR-3102")

    server = Server(refuse)
    server.load.look(wanted=True)
    assert server.load.chunks(9, 2) == (9, 2)
    wait_until(server.closed.is_set, 5, "the thread's end")
    assert "what others do on the server is not known: a privilege is missing" in caplog.text
    server.load.close()


def test_busy_server_that_stops_answering_stays_slowed_and_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tailrace.enumerator.snapshot_load._RETRY_S", 0.01)
    server = Server(4.0)
    server.load.look(wanted=True)
    assert server.load.chunks(250_000, 16) == (FIRST_ROWS, 1)

    def lose() -> float:
        raise TransientSourceError("lost", code="TR-3001")

    server.found = lose
    looks = server.looks
    wait_until(lambda: server.looks > looks + 2, 5, "further looks")
    server.seconds = 60.0
    assert server.load.chunks(250_000, 16)[1] == 1
    server.found = 0.0
    wait_until(lambda: server.load.chunks(250_000, 16) == (250_000, 16), 5, "full speed")
    server.load.close()
