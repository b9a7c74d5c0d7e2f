"""Columns that are left out are nowhere, and come and go with the option, whatever is killed when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tailrace.enumerator import captured_tables
from tailrace.enumerator.enumerator import Enumerator
from tailrace.enumerator.rereading import unfinished
from tailrace.errors import PreflightError, StateError
from tailrace.sources import registry
from tests.recovery.test_signals import ROWS, Place
from tests.support.engine import Engine, changes_of, multiset
from tests.support.rereading import Target
from tests.support.wait import wait_until

pytestmark = pytest.mark.usefixtures("_soon", "_at_every_batch")

EXCLUDED = {"column.exclude.list": r".*[.]T[.]secret.*"}


class Stream:
    """A stream of table `t` that is killed all the time, and its target."""

    def __init__(self, place: Place, **given: Any) -> None:
        self.place = place
        self.engine = Engine(place.options(shape="cells", **given), parallelism=1)
        self.target = Target(self.engine, place.table)
        self.seen: set[str] = set()
        self.events: list[dict[str, Any]] = []
        #: The changes of the log: operation and key.
        self.log: list[tuple[str, int]] = []

    @property
    def changes(self) -> list[dict[str, Any]]:
        """The schema changes that the batches told."""
        return [change for event in self.events for change in event["changes"]]

    def start(self, **given: Any) -> None:
        """Another process takes over, perhaps with other options."""
        self.engine.plan.close()
        if given:
            self.engine.options = self.place.options(shape="cells", **given)
        options = self.engine.options
        self.engine.plan = Enumerator(options, registry.source(options), parallelism=1)

    def step(self, **given: Any) -> bool:
        """Read a batch twice, the second time by another process, with other options if they are given."""
        batch = self.engine.next()
        if batch is None:
            return False
        first = self.engine.read(*batch)
        if given or any(first):  # else PostgreSQL's log, of which a start writes some, would never be read
            self.start(**given)
        again = self.engine.read(*batch)
        assert [multiset(part) for part in first] == [multiset(part) for part in again]
        self.target.apply(*first, end=batch[1].to_json())
        for part in first:
            self.seen.update(c.name for changes in part for c in changes.table.columns)
        self.log += [(op, after["id"]) for op, _, after, _ in changes_of(first[1]) if after is not None]
        self.events += [event.to_json() for event in batch[1].schema]
        self.engine.plan.commit(batch[1])
        return True

    def until_equal(self, **given: Any) -> None:
        """Read until the target has the table's rows; other options, if given, come after the first batch."""
        self.place.execute(f"UPDATE {self.place.table} SET v = v + 1 WHERE id = {ROWS - 1}")
        if given:
            wait_until(lambda: self.step(**given), 60, "a batch")

        why = ["the tables have not been read"]

        def is_equal() -> bool:
            self.step()
            if unfinished(self.engine.offset) or self.engine.offset.tables:
                return False
            try:
                self.target.equals(self.place.server, **self.place.of)
            except AssertionError as error:
                why[0] = str(error)
                return False
            return True

        wait_until(is_equal, 20, lambda: why[0])


@pytest.fixture
def _at_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog is read at every batch: PostgreSQL's log does not have schema changes."""
    monkeypatch.setattr(captured_tables, "CATALOG_REFRESH_S", 0)


@pytest.fixture(params=["mysql", pytest.param("mariadb", marks=pytest.mark.slow), "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    place = Place(request, request.param)
    place.execute(
        f"ALTER TABLE {place.table} ADD secret VARCHAR(20), ADD note VARCHAR(20)",
        f"UPDATE {place.table} SET secret = CONCAT('s', id), note = CONCAT('n', id)",
    )
    if place.product == "postgres":  # else replays are not identical
        place.execute(f"ALTER TABLE {place.table} REPLICA IDENTITY FULL")
    return place


@pytest.fixture
def stream(place: Place) -> Iterator[Stream]:
    stream = Stream(place, **EXCLUDED)
    with closing(stream.engine):
        yield stream


def test_column_that_is_left_out_is_in_no_batch_and_no_schema_event(place: Place, stream: Stream) -> None:
    table = place.table
    assert stream.step()
    place.execute(
        f"UPDATE {table} SET v = v + 1, secret = 'x' WHERE id < 50", f"DELETE FROM {table} WHERE id = 7"
    )
    stream.until_equal()
    place.execute(
        f"ALTER TABLE {table} ADD secret_too INT, ADD open INT",
        f"INSERT INTO {table} VALUES (1000, 1, 'a', 'b', 2, 3)",
        f"ALTER TABLE {table} DROP COLUMN secret_too",
        f"INSERT INTO {table} VALUES (1001, 1, 'a', 'b', 3)",
    )
    stream.until_equal()
    dropped = {"kind": "drop.column", "name": "note"}
    place.execute(f"ALTER TABLE {table} DROP COLUMN note")
    stream.until_equal()
    wait_until(lambda: (stream.step(), dropped in stream.changes)[1], 20, "the event")
    stream.until_equal()
    assert stream.seen == {"id", "v", "note", "open"}
    assert "secret" not in json.dumps(stream.changes)
    assert "secret" not in json.dumps([event.get("after") for event in stream.events])


@pytest.mark.parametrize("moment", ["in the snapshot", "running"])
def test_column_that_is_taken_in_is_read_again_and_one_that_is_left_out_is_gone(
    stream: Stream, moment: str
) -> None:
    if moment == "running":
        stream.until_equal()
    else:
        assert stream.step()
    # the last batch with the old option is read again by a process that has the new one
    stream.until_equal(**{"column.exclude.list": r".*[.]t[.]note"})
    assert all(row["secret"] == f"s{row['id']}" and "note" not in row for row in stream.target.rows)
    kinds = [(c["kind"], c.get("name") or c["column"]["name"]) for e in stream.events for c in e["changes"]]
    assert kinds == [("drop.column", "note"), ("add.column", "secret")]
    stream.until_equal(**{"column.include.list": r".*[.]t[.](id|v|note)"})
    assert all(row["note"] == f"n{row['id']}" and "secret" not in row for row in stream.target.rows)


def test_column_that_gets_a_captured_name_is_read_again(place: Place, stream: Stream) -> None:
    stream.until_equal()
    place.execute(f"ALTER TABLE {place.table} RENAME COLUMN secret TO open")
    stream.until_equal()
    assert all(row["open"] == f"s{row['id']}" for row in stream.target.rows)


def test_column_cannot_be_taken_in_where_tables_are_not_read_again(place: Place) -> None:
    stream = Stream(place, startingPosition="latest", **EXCLUDED)
    with closing(stream.engine):
        assert stream.step()
        stream.start(startingPosition="latest", **{"column.exclude.list": r".*[.]t[.](secret|note)"})
        assert stream.step()
        stream.start(startingPosition="latest", **EXCLUDED)
        with pytest.raises(
            StateError, match=r"column `note` of `.*` cannot be captured from now on"
        ) as error:
            stream.engine.next()
    assert error.value.code == "TR-6008"


def test_key_cannot_be_left_out(place: Place) -> None:
    with closing(Engine(place.options(**{"column.exclude.list": r".*[.]t[.]ID"}))) as engine:
        with pytest.raises(PreflightError) as error:
            engine.next()
        assert "TR-5014" in str(error.value)
        assert "`column.exclude.list`" in str(error.value)


def test_update_of_other_columns_is_left_out_and_a_replay_has_the_same(place: Place) -> None:
    skips = {"skip.messages.without.change": "true"}
    stream = Stream(place, **EXCLUDED, **skips)
    with closing(stream.engine):
        stream.until_equal()
        place.execute(
            f"UPDATE {place.table} SET secret = 'x' WHERE id < 50",
            f"UPDATE {place.table} SET secret = 'y', v = v + 1 WHERE id IN (2, 3)",
            f"INSERT INTO {place.table} VALUES (1000, 1, 'a', 'b')",
        )
        stream.log.clear()
        # the first batch is planned with the option, and read again without it
        stream.until_equal(**EXCLUDED)
        assert sorted(stream.log) == [("c", 1000), ("u", 2), ("u", 3), ("u", ROWS - 1)]
        place.execute(f"UPDATE {place.table} SET secret = 'z' WHERE id = 2")
        stream.log.clear()
        stream.until_equal()
        assert sorted(stream.log) == [("u", 2), ("u", ROWS - 1)]
