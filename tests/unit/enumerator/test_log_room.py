"""How long the server keeps the log."""

from __future__ import annotations

from tailrace.enumerator.log_room import LogRoom
from tailrace.errors import TransientSourceError
from tailrace.sources.base import LogRetention, Position
from tailrace.sources.postgres.position import PostgresPosition

HERE = PostgresPosition(7)


class Server:
    """Answers with what a test sets."""

    def __init__(self, answer: LogRetention | None) -> None:
        self.now_s = 0.0
        self.answer = answer
        self.is_lost = False
        self.asked = 0
        self.room = LogRoom(self._ask, lambda: self.now_s)

    def _ask(self, _: Position) -> LogRetention | None:
        self.asked += 1
        if self.is_lost:
            raise TransientSourceError("connection lost", code="TR-4101")
        return self.answer

    def look(self, after_s: float, written: int = 0, left: int | None = None) -> None:
        self.now_s += after_s
        if self.answer is not None:
            self.answer = LogRetention(5, left, self.answer.left_s, written, self.answer.limits)
        self.room.look(HERE)


def test_room_is_asked_for_often_where_a_limit_depends_on_it() -> None:
    server = Server(LogRetention(0, None, None, 0, {}))
    server.room = LogRoom(server._ask, lambda: server.now_s, often=True)
    assert server.room.held_bytes is None
    for _ in range(5):
        server.look(2.0)
    assert server.asked == 5
    assert server.room.held_bytes == 5


def test_time_is_what_is_left_at_the_rate_of_the_last_minutes() -> None:
    server = Server(LogRetention(0, None, None, 0, {"max_slot_wal_keep_size": "1GB"}))
    server.look(0, written=1_000, left=100_000)
    assert server.room.to_json() == {
        "s": None,
        "held": 5,
        "left": 100_000,
        "rate": None,
        "limits": {"max_slot_wal_keep_size": "1GB"},
    }
    server.look(10, written=2_000, left=99_000)
    assert server.room.rate == 100
    found = server.room.to_json()
    assert found is not None
    assert found["s"] == 990


def test_limit_of_age_needs_no_rate_and_the_nearer_limit_counts() -> None:
    server = Server(LogRetention(0, None, 3600.0, 0, {}))
    server.look(0, written=0)
    assert (server.room.to_json() or {})["s"] == 3600
    server.look(10, written=1_000, left=6_000)
    assert (server.room.to_json() or {})["s"] == 60


def test_idle_log_has_no_limit_by_its_size() -> None:
    server = Server(LogRetention(0, None, None, 0, {}))
    server.look(0, written=5, left=100)
    server.look(10, written=5, left=100)
    assert server.room.rate == 0
    assert (server.room.to_json() or {})["s"] is None
    server.look(60, written=5, left=0)
    assert (server.room.to_json() or {})["s"] == 0


def test_server_is_asked_twice_a_minute_and_an_error_is_no_answer() -> None:
    server = Server(LogRetention(0, None, 1.0, 0, {}))
    for _ in range(120):
        server.look(1)
    assert 4 <= server.asked <= 7
    server.is_lost = True
    server.look(60)
    assert server.room.to_json() is None


def test_rate_begins_anew_when_files_were_removed() -> None:
    server = Server(LogRetention(0, None, 1.0, 0, {}))
    server.look(0, written=10_000)
    server.look(60, written=1_000)
    assert server.room.rate is None
