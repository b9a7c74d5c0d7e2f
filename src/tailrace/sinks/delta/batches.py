"""`_tailrace_batches`: which version of each table shows which batch, for reads that are consistent.

One row per batch, written when all targets have it:

    batch       its number
    position    the place in the source's log up to which it reads (the `log` of the stream offset), as JSON
    written_at  when the row was written
    current     whether every table shows the batch; if not, changes of some of them wait to be merged
    tables      of each target: `version`, the Delta version that shows it; `batch`, the batch it shows:
                this row's, or an earlier one while changes wait

A row of a batch that was written comes once. When changes that waited are merged without a new batch, and
after maintenance, another row of the last batch follows, with the versions as they are then: the row that
counts is the one written last. Old rows are deleted after some thousand batches.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tailrace.errors import StateError
from tailrace.sinks.base import StreamId
from tailrace.sinks.delta.table import DeltaTable, TableDefinition
from tailrace.sinks.delta.transaction import Mark, delta_state
from tailrace.spark.checkpoint import Directory

NAME = "_tailrace_batches"
#: Batches that are kept, and how often older ones are deleted and small files joined.
_KEPT, _BATCHES_PER_CLEANING = 5000, 500

_RETENTION = {
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
}
_SHOWN = pa.struct([pa.field("version", pa.int64()), pa.field("batch", pa.int64())])
_FIELDS = pa.schema(
    [
        pa.field("batch", pa.int64()),
        pa.field("position", pa.string()),
        pa.field("written_at", pa.timestamp("us", "UTC")),
        pa.field("current", pa.bool_()),
        pa.field("tables", pa.map_(pa.string(), _SHOWN)),
    ]
)


class Batches:
    """The table.

    Args:
        session: its own.
        root: the sink's path.
        stream: whose it is.
    """

    def __init__(self, session: SparkSession, root: str, stream: StreamId) -> None:
        self._table = DeltaTable(session, f"{root}/{NAME}")
        self._app = f"tailrace/{stream.query}/{NAME}"
        self._stream = stream
        #: The newest batch, None before the first.
        self.batch: int | None = None
        #: The stream offset at its end, None before this process has written one.
        self.end: object = None
        #: Whether the newest row says that all tables show it.
        self.current = True
        #: The newest version of each target.
        self.versions: dict[str, int] = {}
        self._position: str | None = None
        state = self._table.state()
        if state is None:
            self._table.create(TableDefinition(_FIELDS, {"tailrace.stream": stream.query, **_RETENTION}))
            self.versions = _made_before(session, root, stream)
        elif state.properties.get("tailrace.stream") != stream.query:
            raise StateError(
                f"`{NAME}` at {root} is not this stream's",
                f"found stream {state.properties.get('tailrace.stream')}, needed {stream.query}",
                "one path holds one stream's tables: use another sink path, or that stream's checkpoint",
            )
        else:
            self._take_last()

    def add(self, batch: int, end: object, versions: Mapping[str, int], waiting: Mapping[str, int]) -> None:
        """Say that a batch is written.

        Args:
            batch: its number.
            end: the stream offset at its end.
            versions: of the targets that have new ones.
            waiting: the first batch that waits, of the targets that changes wait for.
        """
        position = end.get("log") if isinstance(end, Mapping) else None
        self.batch, self.end, self._position = batch, end, _json(position)
        self.versions |= versions
        self.current = not waiting
        state = self._table.state()
        if state is None or state.transactions.get(self._app, -1) < batch:
            self._append(waiting, self._app, batch)
        if batch % _BATCHES_PER_CLEANING == _BATCHES_PER_CLEANING - 1:
            self._clean(batch - _KEPT)

    def renew(self, versions: Mapping[str, int], waiting: Mapping[str, int]) -> None:
        """Say what targets show after merges or maintenance without a new batch."""
        if self.batch is None:
            return
        self.versions |= versions
        self.current = not waiting
        self._append(waiting, f"{self._app}/renewed", time.time_ns() // 1000)

    def _append(self, waiting: Mapping[str, int], app: str, version: int) -> None:
        assert self.batch is not None
        row = {
            "batch": self.batch,
            "position": self._position,
            "written_at": datetime.now(UTC),
            "current": not waiting,
            "tables": [
                (name, {"version": v, "batch": waiting.get(name, self.batch + 1) - 1})
                for name, v in sorted(self.versions.items())
            ],
        }
        said = _json({"batch": self.batch}) or ""
        rows = pa.RecordBatch.from_pylist([row], schema=_FIELDS)
        self._table.append_rows(rows, Mark(app, version, self._stream.query, said))

    def _take_last(self) -> None:
        last = self._table.read().orderBy(f.desc("batch"), f.desc("written_at")).first()
        if last is not None:
            self.batch, self._position, self.current = last["batch"], last["position"], last["current"]
            self.versions = {name: shown["version"] for name, shown in last["tables"].items()}

    def _clean(self, before: int) -> None:
        session = self._table.session
        session.sql(f"DELETE FROM {self._table.sql} WHERE batch < {before}")
        session.sql(f"OPTIMIZE {self._table.sql}")
        session.sql(f"VACUUM {self._table.sql}")


def _made_before(session: SparkSession, root: str, stream: StreamId) -> dict[str, int]:
    """The versions of the stream's targets in a path from before this table was."""
    versions = {}
    for name in Directory(root).names():
        state = None if name.startswith("_") else delta_state(session, f"{root}/{name}")
        if state is not None and state.properties.get("tailrace.stream") == stream.query:
            versions[name] = state.version
    return versions


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value, separators=(",", ":"))
