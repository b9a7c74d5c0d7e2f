"""The signal `set-tables` on each database: tables come and go while the stream is killed all the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.enumerator.enumerator import Enumerator
from tailrace.enumerator.offset import StreamOffset
from tailrace.model.signal import Answer
from tailrace.sources import registry
from tailrace.spark.requests import RequestDirectory
from tests.recovery.test_signals import ROWS, Place
from tests.support.engine import Engine, multiset
from tests.support.rereading import Target
from tests.support.wait import wait_until

pytestmark = pytest.mark.usefixtures("_soon")


class Stream:
    """A stream of tables `t` and `u` that is killed all the time, and what it answers."""

    def __init__(self, place: Place, requests: Path, tables: str) -> None:
        self.place = place
        self.requests = RequestDirectory(str(requests))
        self.engine = Engine(place.options(tables=tables, shape="cells"), parallelism=1)
        self.engine.plan._requests._requests = self.requests
        self.names = (place.table, f"{place.table[:-1]}u")
        self.targets = {name: Target(self.engine, name) for name in self.names}
        self.answers: dict[str, Answer] = {}
        self.kills = True

    @property
    def offset(self) -> StreamOffset:
        return self.engine.offset

    def start(self, tables: str | None = None) -> None:
        """Another process takes over, perhaps with another pipeline file."""
        self.engine.plan.close()
        if tables is not None:
            self.engine.options = self.place.options(tables=tables, shape="cells")
        options = self.engine.options
        self.engine.plan = Enumerator(
            options, registry.source(options), parallelism=1, requests=self.requests
        )

    def step(self) -> bool:
        start = self.offset
        batch = self.engine.next()
        if batch is None:
            return False
        if self.kills:
            self.engine.offset = start  # the process ended before Spark stored the offset
            self.start()
            batch = wait_until(self.engine.next, 30, "the batch to be planned again")
        first = self.engine.read(*batch)
        if self.kills:
            self.start()
            again = self.engine.read(*batch)
            assert [multiset(part) for part in first] == [multiset(part) for part in again]
        for target in self.targets.values():
            target.apply(*first, end=batch[1].to_json())
        for answer in batch[1].answers:
            assert answer.id not in self.answers, "obeyed twice"
            self.answers[answer.id] = answer
        self.engine.plan.commit(batch[1])
        return True

    def until(self, is_so: Any, what: str) -> None:
        wait_until(lambda: self.step() is None or is_so(), 60, what)

    def answered(self, id_: str) -> Answer:
        self.until(lambda: id_ in self.answers, f"an answer to {id_}")
        return self.answers[id_]

    def equals(self, *names: str) -> None:
        """The targets equal these tables, in the end."""
        for name in names:
            self.place.execute(f"UPDATE {name} SET v = v + 1 WHERE id = {ROWS - 1}")

        def are_equal() -> bool:
            if self.offset.again or self.offset.tables:
                return False
            try:
                for name in names:
                    self.targets[name].equals(self.place.server, **self.place.of)
            except AssertionError:
                return False
            return True

        self.until(are_equal, f"the targets to equal {', '.join(names)}")


@pytest.fixture(params=["mysql", pytest.param("mariadb", marks=pytest.mark.slow), "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    place = Place(request, request.param)
    other = f"{place.table[:-1]}u"
    values = ", ".join(f"({n}, {n})" for n in range(ROWS))
    place.execute(f"CREATE TABLE {other} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {other} VALUES {values}")
    return place


@pytest.fixture
def mysql_place(request: pytest.FixtureRequest) -> Place:
    place = Place(request, "mysql")
    place.execute(f"CREATE TABLE {place.table[:-1]}u (id INT PRIMARY KEY, v INT)")
    return place


def _pattern(place: Place, letters: str) -> str:
    return f"{place.table[:-2]}[.][{letters}]"


@pytest.fixture
def stream(place: Place, tmp_path: Path) -> Iterator[Stream]:
    stream = Stream(place, tmp_path / "requests", _pattern(place, "t"))
    with closing(stream.engine):
        yield stream


def test_tables_are_taken_in_and_left_out_while_the_stream_runs(place: Place, stream: Stream) -> None:
    t, u = stream.names
    stream.until(lambda: stream.offset.tables, "the snapshot to begin")
    place.execute(f"UPDATE {u} SET v = -1 WHERE id = 3", f"DELETE FROM {u} WHERE id = 4")
    place.send("set-tables", "in", {"tables": _pattern(place, "tu")})
    place.execute(f"UPDATE {u} SET v = -2 WHERE id = 5", f"DELETE FROM {t} WHERE id = 6")
    assert stream.answered("in").tables == (u,)
    stream.equals(t, u)
    assert stream.engine.plan._options.tables != stream.engine.options.tables

    stream.requests.add_signal(
        {"id": "out", "type": "set-tables", "data": {"tables": [_pattern(place, "u")]}}
    )
    assert stream.answered("out").reason == f"left out: {t}"
    held = list(stream.targets[t].rows)
    place.execute(
        f"UPDATE {t} SET v = -3 WHERE id = 7",
        f"DELETE FROM {t} WHERE id = 8",
        f"DELETE FROM {u} WHERE id = 9",
    )
    stream.equals(u)
    assert stream.targets[t].rows == held
    assert t not in stream.offset.names()

    place.send("set-tables", "again", {"tables": _pattern(place, "tu")})
    place.execute(f"DELETE FROM {t} WHERE id = 10")
    assert stream.answered("again").tables == (t,)
    stream.equals(t, u)
    assert stream.targets[t].readings == 1


def test_tables_of_a_signal_hold_until_the_option_changes(mysql_place: Place, tmp_path: Path) -> None:
    place = mysql_place
    one, both = _pattern(place, "t"), _pattern(place, "tu")
    stream = Stream(place, tmp_path / "requests", one)
    t, u = stream.names
    with closing(stream.engine):
        stream.until(lambda: t in stream.offset.done, "the snapshot")
        place.send("set-tables", "in", {"tables": both})
        stream.answered("in")
        stream.start(one)
        place.execute(f"INSERT INTO {u} VALUES ({ROWS - 1}, 1)")
        stream.equals(t, u)
        stream.start(f"{one},no[.]such")  # the file has changed: it wins
        place.execute(f"INSERT INTO {t} VALUES (1000, 1)")
        stream.equals(t)
        assert stream.offset.setting is None
        assert u not in stream.offset.names()
        stream.start(one)  # and the signal's tables do not come back
        stream.equals(t)
        assert u not in stream.offset.names()


def test_signal_with_the_tables_of_the_option_ends_an_earlier_one(mysql_place: Place, tmp_path: Path) -> None:
    place = mysql_place
    stream = Stream(place, tmp_path / "requests", _pattern(place, "t"))
    with closing(stream.engine):
        stream.until(lambda: place.table in stream.offset.done, "the snapshot")
        place.send("set-tables", "one", {"tables": _pattern(place, "tu")})
        place.send("set-tables", "two", {"tables": _pattern(place, "t")})
        assert stream.answered("one").status == stream.answered("two").status == "COMPLETED"
        assert stream.offset.setting is None
        stream.equals(place.table)


WRONG = [
    ("none", {}, "names no tables"),
    ("unmatched", {"tables": "no[.]such"}, "TR-1401"),
    ("no regex", {"tables": ["a.("]}, "no regular expression"),
    ("slow", {"tables": ["a.(x+)+"]}, "repeats a group"),
    ("number", {"tables": 7}, "names no tables"),
]


def test_tables_that_cannot_be_captured_are_refused_and_the_stream_goes_on(
    place: Place, stream: Stream
) -> None:
    t, _ = stream.names
    stream.kills = False
    stream.until(lambda: t in stream.offset.done, "the snapshot")
    # PostgreSQL: no key; MySQL: one over a type without ranges
    key = "INT" if place.product == "postgres" else "DOUBLE PRIMARY KEY"
    place.execute(f"CREATE TABLE {place.table[:-1]}w (v {key})")
    wrong = [*WRONG, ("no key", {"tables": _pattern(place, "tw")}, "key")]
    for id_, data, _ in wrong:
        stream.requests.add_signal({"id": id_, "type": "set-tables", "data": data})
    for id_, _, reason in wrong:
        answer = stream.answered(id_)
        assert answer.status == "ABORTED"
        assert reason in answer.reason
    assert stream.offset.setting is None
    stream.equals(t)
