"""What is shown of a comparison while it runs."""

from __future__ import annotations

import io

from rich.console import Console

from tailrace.enumerator.snapshot import KeyRange
from tailrace.verify.progress import ComparisonView
from tailrace.verify.range_reader import SourceTable
from tailrace.verify.source import by_table
from tests.support.changes import INT, table

TABLE = SourceTable(table(("id", INT), key=("id",)), 4000)
NAME = str(TABLE.schema.id)


def shown(view: ComparisonView) -> str:
    file = io.StringIO()
    Console(file=file, width=200).print(view._render())
    return file.getvalue()


def test_rows_that_are_read_are_shown_of_the_estimate_with_rate_and_time_left() -> None:
    view = ComparisonView(Console(file=io.StringIO(), force_terminal=True))
    assert "opening" in shown(view)
    parts = [(TABLE, KeyRange(None, (2,))), (TABLE, KeyRange((2,), None))]
    with view:
        view.begin(by_table(parts))
        view.read(NAME, 1000)
        view.ended(NAME)
        assert "1,000 of ~4,000 rows" in shown(view)
        assert "1,000 source rows read, 3,000 left" in shown(view)
        assert "0:00:0" in shown(view)
        view.read(NAME, 3500)
        view.ended(NAME)
        assert "all 4,500 source rows are read" in shown(view)
        view.begin(by_table(parts))
        assert "0 of ~4,000 rows" in shown(view)


def test_nothing_is_printed_where_there_is_no_terminal() -> None:
    file = io.StringIO()
    with ComparisonView(Console(file=file)) as view:
        view.begin(by_table([(TABLE, KeyRange(None, None))]))
        view.read(NAME, 1)
    assert not file.getvalue()
