"""The progress of the demo's pipeline, read from Spark's checkpoint and the Delta tables' logs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailrace.enumerator.offset import StreamOffset
from tailrace.spark.checkpoint import Checkpoint


@dataclass(frozen=True)
class BatchTimes:
    """When a batch was planned and committed, in seconds since 1970, and its end."""

    planned: float
    committed: float
    end: StreamOffset

    @property
    def lag_ms(self) -> float | None:
        """Age of the batch's newest transaction when the batch was committed."""
        at = (self.end.log or {}).get("ts_ms")
        return self.committed * 1000 - at if at else None


@dataclass
class WrittenRows:
    """The numbers of rows in the Delta tables, from their logs.

    Args:
        snapshot: rows appended by snapshot parts, by batch.
        changes: rows written by merges of log parts, by batch.
    """

    snapshot: Counter[int] = field(default_factory=Counter)
    changes: Counter[int] = field(default_factory=Counter)


class StreamFiles:
    """A pipeline's local files.

    Args:
        checkpoint: Spark's checkpoint.
        tables: directory of the Delta tables.
    """

    def __init__(self, checkpoint: Path, tables: Path) -> None:
        self._checkpoint = checkpoint
        self._tables = tables
        self.batches: dict[int, BatchTimes] = {}

    def running_batch(self) -> tuple[int, StreamOffset] | None:
        """The batch that is planned and not committed, and its end."""
        last = Checkpoint(str(self._checkpoint)).last()
        return None if last is None or last.committed else (last.id, StreamOffset.from_json(last.end))

    def committed(self) -> StreamOffset | None:
        """The end of the newest committed batch. Records the times of batches, as Spark deletes old files."""
        for number in self._numbers("commits"):
            if number not in self.batches:
                self._note(number)
        return self.batches[max(self.batches)].end if self.batches else None

    def data_files(self) -> int:
        """Parquet files of the tables, committed or not."""
        return sum(1 for _ in self._tables.glob("*/*.parquet"))

    def written(self) -> WrittenRows:
        """The rows of the tables' commits."""
        found = WrittenRows()
        for file in sorted(self._tables.glob("*/_delta_log/*.json")):
            actions = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            info: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
            if "userMetadata" not in info:
                continue
            metadata = json.loads(info["userMetadata"])
            if "part" not in metadata:
                continue  # `_tailrace_batches`, the table of batches
            if metadata["part"] == "snapshot":
                stats = (json.loads(a["add"]["stats"]) for a in actions if "add" in a)
                found.snapshot[metadata["batch"]] += sum(s["numRecords"] for s in stats)
            else:
                found.changes[metadata["batch"]] += int(info["operationMetrics"].get("numOutputRows", 0))
        return found

    def snapshot_rate(self, excluded: set[int]) -> tuple[float, int]:
        """Snapshot rows per second, while batches with such rows ran, and the total of snapshot rows.

        Args:
            excluded: batches that do not count for the rate.
        """
        rows = self.written().snapshot
        timed = {b: t for b, t in self.batches.items() if rows[b] and b not in excluded}
        seconds = sum(t.committed - t.planned for t in timed.values())
        return sum(rows[b] for b in timed) / max(seconds, 1e-9), rows.total()

    def lags_ms(self, first: int) -> list[float]:
        """The lags of batch `first` and all later ones, ascending."""
        lags = (t.lag_ms for b, t in self.batches.items() if b >= first)
        return sorted(lag for lag in lags if lag is not None)

    def _note(self, number: int) -> None:
        offset, commit = (
            self._checkpoint / "offsets" / str(number),
            self._checkpoint / "commits" / str(number),
        )
        try:
            planned, committed = offset.stat().st_mtime, commit.stat().st_mtime
        except FileNotFoundError:
            return  # an old one, deleted by Spark
        end = Checkpoint(str(self._checkpoint)).end_of(number)
        if end is not None:
            self.batches[number] = BatchTimes(planned, committed, StreamOffset.from_json(end))

    def _numbers(self, name: str) -> list[int]:
        directory = self._checkpoint / name
        if not directory.exists():
            return []
        return sorted(int(f.name) for f in directory.iterdir() if f.name.isdigit())
