"""A Spark source that yields batches made beforehand: what Spark itself takes in of a schema at most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

TASKS = 2


@dataclass
class Share(InputPartition):
    """How many batches a task yields."""

    batches: int


class PremadeDataSource(DataSource):
    """Options: `file` with one batch as an Arrow IPC stream, `batches` how often it is yielded in all."""

    @classmethod
    def name(cls) -> str:
        return "premade"

    def schema(self) -> StructType:
        return from_arrow_schema(_batch(self.options["file"]).schema)

    def streamReader(self, schema: StructType) -> PremadeReader:  # noqa: ARG002, N802
        return PremadeReader(self.options["file"], int(self.options["batches"]))


class PremadeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One micro-batch with everything."""

    def __init__(self, file: str, batches: int) -> None:
        self._file = file
        self._batches = batches

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"batches": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """All is there from the start."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        return start if start["batches"] == self._batches else {"batches": self._batches}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        count = end["batches"] - start["batches"]
        return [Share(count // TASKS) for _ in range(TASKS)] if count else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        batch = _batch(self._file)
        for _ in range(partition.batches):
            yield batch


def _batch(file: str) -> pa.RecordBatch:
    with pa.ipc.open_stream(file) as reader:
        return reader.read_next_batch()
