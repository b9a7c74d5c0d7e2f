"""A live sample of a real stream: tasks write the last changes of its log while somebody looks."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.enumerator.enumerator import Limits
from tailrace.spark.limited_reader import LimitedReader
from tailrace.spark.live_sample import Samples, sample_path
from tailrace.spark.row_layouts import row_layout
from tests.support.engine import options_for
from tests.support.wait import wait_until

Reads = Callable[[], int]


@pytest.fixture
def reads(mysql: Any, database: str, tmp_path: Path) -> Iterator[Reads]:
    """Reads one batch as Spark does, in tasks that got a copy of the reader; returns the rows."""
    mysql.execute(
        f"CREATE TABLE {database}.people (id INT PRIMARY KEY, name VARCHAR(20), email VARCHAR(20))",
        f"INSERT INTO {database}.people VALUES (1, 'ann', 'a@example')",
    )
    mask = {"column.mask.with.5.chars": f"{database}.people.email"}
    options = options_for(
        mysql, rf"{database}\..*", shape="cells", samplePath=sample_path(str(tmp_path)), **mask
    )
    reader = LimitedReader(options, row_layout(options, None), compares=False)
    offset = reader.initialOffset()

    def read() -> int:
        nonlocal offset
        end = wait_until(lambda: (found := reader._next(offset, Limits())) != offset and found)
        partitions = pickle.loads(pickle.dumps(reader.partitions(offset, end)))
        task = pickle.loads(pickle.dumps(reader))
        offset = end
        return sum(rows.num_rows for partition in partitions for rows in task.read(partition))

    yield read
    reader.stop()


def test_last_changes_of_the_log_are_sampled_while_somebody_looks(
    reads: Reads, mysql: Any, database: str, tmp_path: Path
) -> None:
    samples, table = Samples(str(tmp_path)), f"{database}.people"
    assert reads() == 1  # the rows
    mysql.execute(f"UPDATE {table} SET name = 'bob' WHERE id = 1")
    assert reads() == 1
    assert samples.found() == []
    samples.look([])
    wait_until(lambda: _is_sampled(reads, mysql, table, samples))
    (found,) = samples.found()
    change = found["changes"][-1]
    assert found["table"] == table
    assert (change["op"], change["key"], change["changed"]) == ("u", {"id": "1"}, ["name"])
    assert change["file"].startswith("binlog.")
    assert change["before"] is change["after"] is None
    samples.look([], [table])
    wait_until(lambda: _is_sampled(reads, mysql, table, samples, values=True))
    change = samples.found()[0]["changes"][-1]
    assert set(change["after"]) == {"id", "name"}
    assert change["masked"] == ["email"]


def _is_sampled(reads: Reads, mysql: Any, table: str, samples: Samples, *, values: bool = False) -> bool:
    mysql.execute(f"UPDATE {table} SET name = UUID_SHORT() WHERE id = 1")
    reads()
    found = samples.found()
    return bool(found) and (not values or found[0]["changes"][-1]["after"] is not None)
