"""A stream of cells from files: replaces the real source in tests of later stages.

`<directory>/<n>.pickle` holds the cell rows of batch n; batch n exists once its file does. A file
`<directory>/fail.pickle` holds an error that the next plan raises, once.
"""

# ruff: noqa: N802
from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import SparkSession

from tailrace.model.change import ChangeBatch
from tests.support.cells import CELL_SCHEMA, cell_row

NAME = "tailrace_fake"


def put_batch(directory: Path, number: int, cells: Iterable[tuple[str, ChangeBatch]]) -> None:
    rows = [cell_row(kind, batch) for kind, batch in cells]
    temporary = directory / f"{number}.tmp"
    temporary.write_bytes(pickle.dumps(rows))
    temporary.rename(directory / f"{number}.pickle")


def put_failure(directory: Path, error: Exception) -> None:
    (directory / "fail.pickle").write_bytes(pickle.dumps(error))


def register(spark: SparkSession) -> None:
    # Defined here, so that Spark's workers get them by value: they cannot import `tests`.
    import pickle
    from pathlib import Path

    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

    schema = CELL_SCHEMA

    class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def __init__(self, directory):
            self.directory = Path(directory)

        def _offset(self, number):
            if number == 0:
                return {"v": 1}
            log = {"file": "binlog.000001", "pos": number, "gtids": "", "server": "", "epoch": 0, "ts_ms": 1}
            return {"v": 1, "mode": "initial", "log": log, "tables": {}, "done": {}}

        def _number(self, offset):
            return offset["log"]["pos"] if "log" in offset else 0

        def initialOffset(self):
            return self._offset(0)

        def getDefaultReadLimit(self):
            return ReadAllAvailable()

        def prepareForTriggerAvailableNow(self):
            pass

        def latestOffset(self, start, limit):
            failure = self.directory / "fail.pickle"
            if failure.exists():
                error = pickle.loads(failure.read_bytes())
                failure.unlink()
                raise error
            number = self._number(start)
            return self._offset(number + 1) if (self.directory / f"{number}.pickle").exists() else start

        def partitions(self, start, end):
            return [InputPartition(n) for n in range(self._number(start), self._number(end))]

        def read(self, partition):
            yield from pickle.loads((self.directory / f"{partition.value}.pickle").read_bytes())

    class Source(DataSource):
        @classmethod
        def name(cls):
            return "tailrace_fake"

        def schema(self):
            return schema

        def streamReader(self, schema):
            return Reader(self.options["directory"])

    spark.dataSource.register(Source)
