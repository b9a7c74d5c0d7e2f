"""Change logs as plain files: Parquet, or JSON lines.

    path/<target>/tailrace_batch=<number>/part-*           <target>: its name by `model.paths`

The directory of a batch is replaced as a whole, so a batch that comes again leaves the same rows. The rows
are those of Delta's `mode: changelog`. `spark.read.parquet(path/<target>)` reads a target, with the batch's
number as a column (use option `mergeSchema` if the table's columns have changed).

The file `path/<target>/_tailrace.json` names the stream that a target belongs to. Targets of other streams
are not touched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial

import pyarrow as pa
from pyspark.sql import functions as f

from tailrace.config.sinks import JsonSettings, ParquetSettings
from tailrace.errors import StateError
from tailrace.failpoints import failpoint
from tailrace.model.table import TableId
from tailrace.sinks.base import (
    Capabilities,
    CellBatch,
    Delivery,
    Order,
    StreamId,
    Unit,
    Written,
)
from tailrace.sinks.claims import Claims
from tailrace.sinks.paths import below, one_place, path_in_use, place
from tailrace.sinks.route import Router
from tailrace.sinks.tables.columns import merged_schema, require_free
from tailrace.sinks.tables.rows import log_fields, log_rows
from tailrace.sinks.tables.targets import TargetPool
from tailrace.spark.cells import TableBatch, unpacked
from tailrace.spark.checkpoint import Directory

_OWNER = "_tailrace.json"
#: The column that readers derive from the name of a batch's directory.
_BATCH = "tailrace_batch"
#: By default Spark's JSON has milliseconds only. Parquet ignores these options.
_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class FileSink:
    """Writes each table's changes to files below `path/<target>`.

    Args:
        settings: the path; their type is the format.
        router: names the targets.
    """

    def __init__(self, settings: ParquetSettings | JsonSettings, router: Router) -> None:
        self._settings = settings
        self._router = router
        self._claims = Claims(router, lambda table: [place(router, table)])
        self._pool = TargetPool(self._claims, settings.parallelism)
        #: The directories of opened targets.
        self._opened: dict[str, str] = {}

    @property
    def capabilities(self) -> Capabilities:
        """See `Sink.capabilities`."""
        return Capabilities(
            Delivery.EXACTLY_ONCE, Order.BY_SEQ, Unit.TARGET, holds_rows=False, follows_schema=True
        )

    def claim(self, tables: Iterable[TableId]) -> None:
        """See `Sink.claim`."""
        self._claims.add(tables)

    def write(self, batch: CellBatch) -> list[Written]:
        """See `Sink.write`."""
        return self._pool.write(batch.parts, lambda target, parts: self._write(batch, target, parts))

    def close(self) -> None:
        """See `Sink.close`."""
        self._pool.close()

    def _write(self, batch: CellBatch, target: str, parts: list[TableBatch]) -> None:
        if target not in self._opened:
            self._opened[target] = self._open(target, parts[0].table, batch.stream)
        path = self._opened[target]
        schemas = [schema for part in parts for schema in part.shapes]
        columns = merged_schema(target, schemas)
        for schema in schemas:
            require_free(schema, [*log_fields(pa.schema([])).names, _BATCH], f"a {self._settings.type} sink")
        tables = sorted({str(part.table) for part in parts})
        cells = batch.frame.where(f.col("table").isin(tables)).select("cell")
        rows = unpacked(cells, log_rows(columns), log_fields(columns))
        writer = rows.write.format(self._settings.type).mode("overwrite").options(**_OPTIONS)
        writer.save(f"{path}/{_BATCH}={batch.id}")
        failpoint("sink.table")

    def _open(self, target: str, table: TableId, stream: StreamId) -> str:
        """The directory of a target; it belongs to this stream from now on."""
        root = self._settings.path
        path = path_in_use(place(self._router, table), target, partial(_is_of, root, stream))
        directory = below(root, path)
        _own(target, directory, stream)
        return directory


def _is_of(root: str, stream: StreamId, path: str) -> bool:
    """Whether a target of `stream` is at `path`."""
    owner = Directory(root).read(f"{path}/{_OWNER}")
    return owner is not None and json.loads(owner)["stream"] == stream.query


def _own(target: str, path: str, stream: StreamId) -> None:
    """Make the directory of a target this stream's.

    Raises:
        StateError: it belongs to another stream, or to another target.
    """
    directory = Directory(path)
    text = directory.read(_OWNER)
    if text is None:
        if directory.names():
            raise StateError(
                f"target `{target}` at `{path}` is not this stream's",
                "the directory holds files that Tailrace did not write",
                "use another sink path",
                code="TR-6101",
            )
        new = {"v": 1, "stream": stream.query, "pipeline": stream.pipeline, "target": target}
        directory.write(_OWNER, json.dumps(new))
        return
    owner = json.loads(text)
    if owner["stream"] != stream.query:
        raise StateError(
            f"target `{target}` at `{path}` is not this stream's",
            f"it belongs to stream {owner['stream']}, this one is {stream.query}",
            "use another sink path, or continue with that stream's checkpoint",
            code="TR-6101",
        )
    if owner.get("target", target) != target:
        raise one_place(target, owner["target"], path)
