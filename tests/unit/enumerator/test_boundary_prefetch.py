"""Chunk ends asked for ahead."""

from __future__ import annotations

from tailrace.enumerator.boundary_prefetch import BoundaryPrefetch
from tailrace.errors import TransientSourceError
from tailrace.model.split import Key
from tailrace.model.table import TableId, TableSchema

TABLE = TableSchema(TableId("shop", "orders"), (), ("id",))


class Server:
    """A table with the keys 1 to `last`; remembers what it was asked."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.asked: list[Key | None] = []
        self.down = False

    def boundary(self, table: TableSchema, after: Key | None, rows: int) -> Key | None:
        self.asked.append(after)
        if self.down:
            raise TransientSourceError("the server is away")
        end = (after[0] if after else 0) + rows
        return (end,) if end < self.last else None


def test_chunk_end_that_was_prepared_is_not_asked_for_again() -> None:
    server = Server(100)
    lookahead = BoundaryPrefetch(server.boundary)
    lookahead.prepare(TABLE, (10,), 10, 2)
    assert [lookahead(TABLE, (10,), 10), lookahead(TABLE, (20,), 10)] == [(20,), (30,)]
    assert server.asked == [(10,), (20,)]


def test_last_chunk_is_always_asked_for_when_it_is_planned() -> None:
    server = Server(25)
    lookahead = BoundaryPrefetch(server.boundary)
    lookahead.prepare(TABLE, (10,), 10, 5)
    assert lookahead(TABLE, (10,), 10) == (20,)
    server.last = 100  # rows came meanwhile
    assert lookahead(TABLE, (20,), 10) == (30,)


def test_answer_for_other_chunk_size_is_not_used() -> None:
    server = Server(100)
    lookahead = BoundaryPrefetch(server.boundary)
    lookahead.prepare(TABLE, (10,), 10, 1)
    assert lookahead(TABLE, (10,), 5) == (15,)


def test_failure_of_the_guess_is_left_to_who_needs_the_answer() -> None:
    server = Server(100)
    lookahead = BoundaryPrefetch(server.boundary)
    server.down = True
    lookahead.prepare(TABLE, None, 10, 1)
    lookahead.prepare(TABLE, (10,), 10, 1)
    server.down = False
    assert lookahead(TABLE, (10,), 10) == (20,)
