"""Write a batch in a single pass over its cells, if it holds what it is expected to hold.

The contents of a batch are known only once its cells have been read; how its rows are written must be known
before. So, in general, the cells are cached, inspected and then written: three Spark jobs, and more with
several tables. But nearly all batches hold the same tables with the same schemas as the ones before. So the
sink makes a guess: tasks write rows while they read cells, for the schemas that each table had last, and
report what they found.

    expected schemas ──▶ one pass ──▶ found nothing else ───▶ commit it
                             └──────▶ found something else ─▶ discard it, then write what the batch holds

A pass that found something else leaves nothing that a reader sees: its files belong to no table, its writers
have begun no transaction.
docs/design/0005-cells-and-the-spark-source.md tells what each sink does in a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol, TypeVar

from tailrace.model.table import TableId, TableSchema
from tailrace.sinks.base import CellBatch
from tailrace.sinks.timings import COMMIT, READ
from tailrace.spark.cells import TableBatch

#: The schemas that a batch is expected to hold, by table and kind of cell.
Schemas = Mapping[tuple[str, str], TableSchema]


class Pass(Protocol):
    """What one pass over a batch has written."""

    @property
    def is_complete(self) -> bool:
        """Whether the batch held expected schemas only; if not, nothing of the pass may be used."""


Pass_ = TypeVar("Pass_", bound=Pass)
Result = TypeVar("Result")


class SinglePass:
    """Writes the batches of a sink, in one pass where it can; learns from each batch what to expect."""

    def __init__(self) -> None:
        self._expected = ExpectedSchemas()

    def write(
        self,
        batch: CellBatch,
        one_pass: Callable[[Schemas], AbstractContextManager[Pass_ | None]],
        commit: Callable[[Pass_], Result],
        write_found: Callable[[], Result],
    ) -> Result:
        """Write a batch.

        Args:
            batch: the batch.
            one_pass: writes the batch for these schemas, or gives None where that is impossible, before it
                has read anything. On exit it deletes what no commit uses.
            commit: makes a whole pass durable.
            write_found: writes the batch by what it holds (`CellBatch.table_batches`).

        Returns:
            The result of `commit` or of `write_found`.
        """
        schemas = self._expected.schemas()
        if schemas:
            with ExitStack() as stack:
                with batch.timings.step(batch.sink, READ):
                    done = stack.enter_context(one_pass(schemas))
                if done is not None and done.is_complete:
                    with batch.timings.step(batch.sink, COMMIT):
                        return commit(done)
            if done is not None:
                self._expected.was_wrong()
        found = batch.table_batches
        with batch.timings.step(batch.sink, COMMIT):
            result = write_found()
        self._expected.learn(found)
        return result

    def forget(self, tables: Iterable[TableId]) -> None:
        """Expect nothing of these tables: their targets are gone."""
        self._expected.forget(tables)


class ExpectedSchemas:
    """What the next batch is expected to hold: the schema that each table had last.

    A wrong guess costs a pass. New schemas seldom come alone: so after a wrong guess nothing is expected
    until a batch has brought nothing new.
    """

    def __init__(self) -> None:
        self._schemas: dict[tuple[str, str], TableSchema] = {}
        self._was_wrong = False

    def learn(self, parts: Iterable[TableBatch]) -> None:
        """Note what a written batch held."""
        last = {(str(part.table), part.kind): part.cell_schemas[-1] for part in parts}
        is_new = any(self._schemas.get(key) != schema for key, schema in last.items())
        self._was_wrong = self._was_wrong and is_new
        self._schemas |= last

    def forget(self, tables: Iterable[TableId]) -> None:
        """Expect nothing of these tables."""
        gone = set(map(str, tables))
        self._schemas = {key: schema for key, schema in self._schemas.items() if key[0] not in gone}

    def was_wrong(self) -> None:
        """Note that a batch held something else."""
        self._was_wrong = True

    def schemas(self) -> Schemas:
        """The schemas by table and kind of cell; empty where nothing is expected."""
        return {} if self._was_wrong else self._schemas
