"""How many tables and chunks a batch takes."""

from __future__ import annotations

from tailrace.enumerator.offset import StreamOffset, TableProgress
from tailrace.enumerator.snapshot import SMALL_TABLES, KeyRange, advance
from tailrace.model.split import Key
from tailrace.model.table import TableSchema
from tests.support.changes import INT, table

CHUNK = 160


class _Server:
    """Tables by their numbers of rows; their keys count from 1."""

    def __init__(self, **rows: int) -> None:
        self.rows = {f"shop.{name}": n for name, n in rows.items()}
        self.schemas = {name: table(("id", INT), key=("id",), name=name) for name in self.rows}

    def boundary(self, schema: TableSchema, after: Key | None, rows: int) -> Key | None:
        end = (0 if after is None else after[0]) + rows
        return (end,) if end < self.rows[str(schema.id)] else None

    def planned(self, offset: StreamOffset, splits: int) -> tuple[StreamOffset, dict[str, list[KeyRange]]]:
        return advance(offset, self.schemas, self.boundary, splits=splits, chunk_rows=CHUNK)

    def offset(self, **estimates: int) -> StreamOffset:
        tables = {name: TableProgress(estimated=estimates.get(name[5:], n)) for name, n in self.rows.items()}
        return StreamOffset(mode="initial", log={}, tables=tables)


def test_batch_takes_as_many_small_tables_as_their_rows_allow() -> None:
    server = _Server(**{f"t{i:03d}": 1 for i in range(100)})
    offset, planned = server.planned(server.offset(), splits=2)
    assert len(planned) == 2 * SMALL_TABLES
    assert len(offset.done) == 2 * SMALL_TABLES
    assert set(map(len, planned.values())) == {1}


def test_batch_never_takes_more_rows_than_its_chunks_have() -> None:
    server = _Server(a=9, b=1000, c=9, d=1000, e=9)
    _, planned = server.planned(server.offset(), splits=3)
    assert {name: len(ranges) for name, ranges in planned.items()} == {
        "shop.a": 1,
        "shop.b": 2,  # what is left of the third chunk takes small tables
        "shop.c": 1,
        "shop.e": 1,
    }


def test_table_that_is_larger_than_its_estimate_counts_as_what_it_is() -> None:
    server = _Server(a=1000, b=1000)
    _, planned = server.planned(server.offset(a=0, b=0), splits=3)
    assert {name: len(ranges) for name, ranges in planned.items()} == {"shop.a": 3}


def test_every_table_is_finished_whatever_their_sizes() -> None:
    server = _Server(a=9, b=1000, c=10, d=11, e=159, f=160, g=161, h=0)
    offset, batches = server.offset(), 0
    while offset.tables:
        offset, planned = server.planned(offset, splits=1)
        assert planned
        batches += 1
    assert offset.done.keys() == server.rows.keys()
    assert batches < 20
