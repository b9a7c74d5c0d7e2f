"""A batch is written in one pass if it holds what is expected; else by what it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tailrace.model.change import LOG, SNAPSHOT
from tailrace.model.table import TableSchema
from tailrace.sinks.single_pass import ExpectedSchemas, Schemas, SinglePass
from tailrace.sinks.timings import Timings
from tailrace.spark.cells import TableBatch
from tests.support.changes import INT, TEXT, table


def schema(name: str, *more: str) -> TableSchema:
    return table(("id", INT), *((column, TEXT) for column in more), key=("id",), name=f"shop.{name}")


def part(held: TableSchema, kind: str = LOG) -> TableBatch:
    return TableBatch(held.id, kind, 1, 1, (held,), (held,))


def keys(*names: str) -> set[tuple[str, str]]:
    return {(f"shop.{name}", LOG) for name in names}


@dataclass
class Batch:
    """A batch that notes whether it was inspected."""

    held: Sequence[TableSchema]
    inspected: bool = False
    sink: str = "lake"
    timings: Timings = field(default_factory=Timings)

    @property
    def table_batches(self) -> list[TableBatch]:
        self.inspected = True
        return [part(schema) for schema in self.held]


@dataclass
class Done:
    is_complete: bool


class Recorder:
    """A sink that records what it is asked to do, in order."""

    def __init__(self) -> None:
        self.single_pass = SinglePass()
        self.steps: list[str] = []
        self.can_pass = True
        self.commit_fails = False

    def write(self, *held: TableSchema) -> tuple[list[str], bool]:
        """The steps that wrote a batch; whether it was inspected."""
        batch: Any = Batch(held)
        self.steps = []

        @contextmanager
        def one_pass(schemas: Schemas) -> Iterator[Done | None]:
            if not self.can_pass:
                yield None
                return
            self.steps.append("pass")
            try:
                yield Done(all(s in schemas.values() for s in held))
            finally:
                self.steps.append("discard")

        def commit(_: Done) -> list[str]:
            self.steps.append("commit")
            if self.commit_fails:
                raise ConnectionError
            return self.steps

        def write_found() -> list[str]:
            self.steps.append("found")
            if self.commit_fails:
                raise ConnectionError
            return self.steps

        return self.single_pass.write(batch, one_pass, commit, write_found), batch.inspected


LONG = (["found"], True)
ONE_PASS = (["pass", "commit", "discard"], False)
IN_VAIN = (["pass", "discard", "found"], True)


def test_first_batch_is_inspected_and_the_next_one_like_it_is_not() -> None:
    sink = Recorder()
    assert sink.write(schema("t")) == LONG
    assert sink.write(schema("t")) == ONE_PASS
    assert sink.write() == ONE_PASS


def test_pass_in_vain_is_discarded_before_the_batch_is_written() -> None:
    sink = Recorder()
    sink.write(schema("t"))
    assert sink.write(schema("t", "name")) == IN_VAIN
    assert sink.write(schema("t", "name")) == LONG, "nothing is expected until a batch brings nothing new"
    assert sink.write(schema("t", "name")) == ONE_PASS


def test_sink_that_cannot_pass_learns_all_the_same() -> None:
    sink = Recorder()
    sink.write(schema("t"))
    sink.can_pass = False
    assert sink.write(schema("t"), schema("u")) == LONG
    sink.can_pass = True
    assert sink.write(schema("u")) == ONE_PASS


def test_failed_commit_is_cleaned_up_and_failed_batch_teaches_nothing() -> None:
    sink = Recorder()
    sink.commit_fails = True
    with pytest.raises(ConnectionError):
        sink.write(schema("t"))
    sink.commit_fails = False
    assert sink.write(schema("t")) == LONG
    sink.commit_fails = True
    with pytest.raises(ConnectionError):
        sink.write(schema("t"))
    assert sink.steps == ["pass", "commit", "discard"]


def test_nothing_is_expected_of_a_table_that_is_forgotten() -> None:
    sink = Recorder()
    sink.write(schema("t"))
    sink.single_pass.forget([schema("t").id])
    assert sink.write(schema("t")) == LONG


def test_nothing_is_expected_after_a_wrong_guess_until_a_batch_brings_nothing_new() -> None:
    one, two, three = (part(schema(name)) for name in "abc")
    expected = ExpectedSchemas()
    assert not expected.schemas()
    expected.learn([one])
    assert set(expected.schemas()) == keys("a")
    expected.was_wrong()
    assert not expected.schemas()
    expected.learn([one, two])
    assert not expected.schemas()
    expected.learn([two, three])
    assert not expected.schemas()
    expected.learn([])
    assert set(expected.schemas()) == keys("a", "b", "c")
    expected.learn([part(schema("a"), SNAPSHOT)])
    assert ("shop.a", SNAPSHOT) in expected.schemas()
