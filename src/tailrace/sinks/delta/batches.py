"""`_tailrace_batches`: which version of each table shows which batch, for consistent reads.

One row per batch, written once all targets have it:

    batch       its number
    position    its end in the source's log (the `log` of the stream offset), as JSON
    written_at  when the row was written
    current     whether every table shows the batch; if not, some have pending changes
    tables      for each target: `version`, its newest Delta version; `batch`, the batch that this version
                shows: this row's, or an earlier one while changes are pending

A batch gets one row when it is written. When pending changes are merged without a new batch, and after
maintenance, another row of the last batch follows, with the new versions. The row written last counts. Old
rows are deleted after some thousand batches.
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
from tailrace.sinks.delta.checkpoints import Checkpoints
from tailrace.sinks.delta.table import DeltaTable, TableDefinition, of_lease
from tailrace.sinks.delta.transaction import CommitMark, delta_state
from tailrace.sinks.delta.vacuum import vacuum
from tailrace.spark.checkpoint import Directory
from tailrace.spark.sql import OwnSessions

NAME = "_tailrace_batches"
#: How many batches are kept, and how often older ones are deleted and small files compacted.
_KEPT, _BATCHES_PER_CLEANING = 5000, 500

_PROPERTIES = {
    "delta.checkpointInterval": "200",
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
    """The table of batches.

    Args:
        sessions: sessions of its own.
        root: the sink's path.
        stream: the stream it belongs to.
        checkpoints: writes checkpoints of its log.
    """

    def __init__(self, sessions: OwnSessions, root: str, stream: StreamId, checkpoints: Checkpoints) -> None:
        self._table = DeltaTable(sessions, f"{root}/{NAME}", checkpoints)
        self._app = f"tailrace/{stream.query}/{NAME}"
        self._stream = stream
        #: The newest batch, None before the first.
        self.batch: int | None = None
        #: The stream offset at its end, None before this process has written one.
        self.end: object = None
        #: Whether all tables show it, by the newest row.
        self.current = True
        #: The newest version of each target.
        self.versions: dict[str, int] = {}
        self._position: str | None = None
        state = self._table.state()
        if state is None:
            own = {"tailrace.stream": stream.query, **of_lease(stream)}
            self._table.create(TableDefinition(_FIELDS, own | _PROPERTIES))
            self.versions = _versions_without_batches(sessions.current, root, stream)
        elif state.properties.get("tailrace.stream") != stream.query:
            raise StateError(
                f"`{NAME}` at `{root}` is not this stream's",
                f"found stream {state.properties.get('tailrace.stream')}, needed {stream.query}",
                "one path holds one stream's tables: use another sink path, or that stream's checkpoint",
                code="TR-6101",
            )
        else:
            self._table.claim(state, stream)
            self._read_last()

    def add(self, batch: int, end: object, versions: Mapping[str, int], pending: Mapping[str, int]) -> None:
        """Record a written batch.

        Args:
            batch: its number.
            end: the stream offset at its end.
            versions: new versions of targets.
            pending: the first batch with pending changes, for each target that has any.
        """
        position = end.get("log") if isinstance(end, Mapping) else None
        self.batch, self.end, self._position = batch, end, _json(position)
        self.versions |= versions
        self.current = not pending
        state = self._table.state()
        if state is None or state.transactions.get(self._app, -1) < batch:
            self._append(pending, self._app, batch)
        if batch % _BATCHES_PER_CLEANING == _BATCHES_PER_CLEANING - 1:
            self._clean(batch - _KEPT)

    def renew(self, versions: Mapping[str, int], pending: Mapping[str, int]) -> None:
        """Record what targets show after merges or maintenance without a new batch."""
        if self.batch is None:
            return
        self.versions |= versions
        self.current = not pending
        self._append(pending, f"{self._app}/renewed", time.time_ns() // 1000)

    def _append(self, pending: Mapping[str, int], app: str, version: int) -> None:
        assert self.batch is not None
        row = {
            "batch": self.batch,
            "position": self._position,
            "written_at": datetime.now(UTC),
            "current": not pending,
            "tables": [
                (name, {"version": v, "batch": pending.get(name, self.batch + 1) - 1})
                for name, v in sorted(self.versions.items())
            ],
        }
        metadata = _json({"batch": self.batch}) or ""
        rows = pa.RecordBatch.from_pylist([row], schema=_FIELDS)
        mark = CommitMark(app, version, self._stream.query, metadata, self._stream.lease)
        self._table.append_rows(rows, mark)

    def _read_last(self) -> None:
        last = self._table.read().orderBy(f.desc("batch"), f.desc("written_at")).first()
        if last is not None:
            self.batch, self._position, self.current = last["batch"], last["position"], last["current"]
            self.versions = {name: shown["version"] for name, shown in last["tables"].items()}

    def _clean(self, before: int) -> None:
        session = self._table.session
        session.sql(f"DELETE FROM {self._table.sql} WHERE batch < {before}")
        session.sql(f"OPTIMIZE {self._table.sql}")
        vacuum(self._table)


def _versions_without_batches(session: SparkSession, root: str, stream: StreamId) -> dict[str, int]:
    """The versions of the stream's targets, written by a Tailrace that did not have this table."""
    versions = {}
    for name in Directory(root).names():
        state = None if name.startswith("_") else delta_state(session, f"{root}/{name}")
        if state is not None and state.properties.get("tailrace.stream") == stream.query:
            versions[name] = state.version
    return versions


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value, separators=(",", ":"))
