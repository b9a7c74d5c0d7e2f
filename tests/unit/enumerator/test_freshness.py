"""The time up to which a stream is complete."""

from __future__ import annotations

from tailrace.enumerator.freshness import Freshness
from tailrace.errors import TransientSourceError
from tailrace.sources.base import LogClock, Position
from tailrace.sources.postgres.position import PostgresPosition


def at(lsn: int) -> PostgresPosition:
    return PostgresPosition(lsn)


class Server:
    """Answers with what a test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.answer: LogClock | None = None
        self.is_lost = False
        self.asked = 0
        self.freshness = Freshness(self._ask, lambda: self.now_s)

    def _ask(self, _: Position) -> LogClock | None:
        self.asked += 1
        if self.is_lost:
            raise TransientSourceError("connection lost", code="TR-4101")
        return self.answer

    def look(self, ts_us: int, lsn: int) -> None:
        self.now_s += 1.0
        self.answer = LogClock(ts_us, at(lsn))
        self.freshness.look(at(0))


def test_stream_is_complete_up_to_the_newest_answer_that_it_has_reached() -> None:
    server = Server()
    for second in range(1, 5):
        server.look(second * 1_000_000, second * 100)
    server.freshness.reached(at(99))
    assert server.freshness.complete_us is None
    server.freshness.reached(at(250))
    assert server.freshness.complete_us == 2_000_000
    server.freshness.reached(at(400))
    assert server.freshness.complete_us == 4_000_000


def test_idle_stream_moves_on() -> None:
    server = Server()
    for second in range(1, 4):
        server.look(second, 100)
        server.freshness.reached(at(100))
        assert server.freshness.complete_us == second


def test_time_stands_still_without_answers() -> None:
    server = Server()
    server.look(1, 100)
    server.freshness.reached(at(100))
    server.is_lost = True
    server.look(2, 100)
    server.freshness.reached(at(100))
    assert server.freshness.complete_us == 1


def test_server_is_asked_once_a_second_and_less_often_while_it_is_lost() -> None:
    server = Server()
    server.look(1, 100)
    server.freshness.look(at(0))
    assert server.asked == 1
    server.is_lost = True
    for _ in range(5):
        server.look(2, 100)
    assert server.asked == 2
    server.look(2, 100)
    assert server.asked == 3


def test_time_never_goes_back() -> None:
    server = Server()
    server.look(9, 100)
    server.look(5, 200)  # the server's clock was set
    server.freshness.reached(at(300))
    assert server.freshness.complete_us == 9


def test_positions_of_another_server_do_not_count() -> None:
    server = Server()
    server.look(1, 100)
    server.freshness.forget()
    server.freshness.reached(at(1000))
    assert server.freshness.complete_us is None


def test_few_answers_are_kept_while_the_stream_is_behind() -> None:
    server = Server()
    for second in range(1, 100_000):
        server.look(second, second)
    kept = server.freshness._answers
    assert len(kept) <= 1024
    server.freshness.reached(at(50_000))
    assert 45_000 < (server.freshness.complete_us or 0) <= 50_000
