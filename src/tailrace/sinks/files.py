"""Change logs as plain files: Parquet, or JSON lines.

    path/<target>/tailrace_batch=<number>/part-*

The directory of a batch is written as a whole and replaces what was there: a batch that comes again leaves
the same rows. They are those of Delta's `mode: changelog`. `spark.read.parquet(path/<target>)` reads a
target, with the batch's number as a column (option `mergeSchema` where the table's columns have changed).

A file `path/<target>/_tailrace.json` says which stream a target belongs to; another stream's is not touched.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tailrace.config.model import JsonSettings, ParquetSettings
from tailrace.errors import StateError
from tailrace.sinks.base import CellBatch, StreamId, Written
from tailrace.sinks.columns import merged_schema
from tailrace.sinks.parts import Part, parts_of
from tailrace.sinks.unpack import log_fields, log_rows, unpacked
from tailrace.spark.checkpoint import Directory
from tailrace.transform.route import Router

_OWNER = "_tailrace.json"


class FileSink:
    """Writes each table's changes to files below `path/<target>`.

    Args:
        settings: where; their type is the format.
        router: names the targets.
    """

    def __init__(self, settings: ParquetSettings | JsonSettings, router: Router) -> None:
        self._settings = settings
        self._router = router
        self._pool = ThreadPoolExecutor(settings.parallelism, "file-sink")
        self._opened: set[str] = set()

    def write(self, batch: CellBatch) -> list[Written]:
        """See `Sink.write`."""
        frame = batch.frame.persist()
        try:
            work: dict[str, list[Part]] = {}
            for part in parts_of(frame):
                work.setdefault(self._router.target(part.table), []).append(part)
            jobs = [
                self._pool.submit(self._write, frame, batch, target, parts) for target, parts in work.items()
            ]
            failures = [e for e in (job.exception() for job in jobs) if e is not None]
            if failures:
                raise failures[0]
        finally:
            frame.unpersist()
        return [Written.of(part, target) for target, parts in work.items() for part in parts]

    def close(self) -> None:
        """See `Sink.close`."""
        self._pool.shutdown()

    def _write(self, frame: DataFrame, batch: CellBatch, target: str, parts: list[Part]) -> None:
        path = f"{self._settings.path.rstrip('/')}/{target}"
        if target not in self._opened:
            _own(target, path, batch.stream)
            self._opened.add(target)
        columns = merged_schema(target, (shape for part in parts for shape in part.shapes))
        tables = sorted({str(part.table) for part in parts})
        cells = frame.where(f.col("table").isin(tables)).select("cell")
        rows = unpacked(cells, log_rows(columns), log_fields(columns))
        writer = rows.write.format(self._settings.type).mode("overwrite")
        writer.save(f"{path}/tailrace_batch={batch.id}")


def _own(target: str, path: str, stream: StreamId) -> None:
    directory = Directory(path)
    said = directory.read(_OWNER)
    if said is None:
        if directory.names():
            raise StateError(
                f"target `{target}` at {path} is not this stream's",
                "the directory holds files that Tailrace did not write",
                "use another sink path",
            )
        owner = {"v": 1, "stream": stream.query, "pipeline": stream.pipeline}
        directory.write(_OWNER, json.dumps(owner))
    elif json.loads(said)["stream"] != stream.query:
        raise StateError(
            f"target `{target}` at {path} is not this stream's",
            f"it belongs to stream {json.loads(said)['stream']}, this one is {stream.query}",
            "use another sink path, or go on with that stream's checkpoint",
        )
