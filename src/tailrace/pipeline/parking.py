"""Parking of tables by a running pipeline: a definite error of one table does not stop the others.

    error with a table ─▶ request beside the checkpoint ─▶ the stream starts again without the table

The request says how to park the table: with the position up to which its changes are in the targets, and with
the error. From then on the planned batch, whoever repeats it, leaves the table out (`enumerator.parked`), and
the next offset has it parked. docs/design/0008-parking.md says why the other tables stay exact.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tailrace.config.model import Pipeline
from tailrace.enumerator.offset import StreamOffset
from tailrace.enumerator.parked import left_out, parked_at
from tailrace.errors import ConfigError, PositionLostError, TablesParkedError, TailraceError, coded
from tailrace.failpoints import failpoint
from tailrace.model.parked import Parked, Reason
from tailrace.pipeline.parked_sinks import parked_sinks
from tailrace.spark.checkpoint import Checkpoint, absolute
from tailrace.spark.requests import RequestDirectory, requests_path


class Parking:
    """Parks tables of a pipeline.

    Args:
        pipeline: the pipeline.
        tell: tells the user something.
    """

    def __init__(self, pipeline: Pipeline, tell: Callable[[str], None]) -> None:
        self._pipeline = pipeline
        self._tell = tell
        self._checkpoint = Checkpoint(pipeline.checkpoint)
        self._path = requests_path(absolute(pipeline.checkpoint))
        #: The parked tables that have been told of, with the reasons.
        self._told: dict[str, Reason] = {}
        #: Those of them that an offset had parked: a request takes effect with the next batch.
        self._seen: set[str] = set()

    def park(self, error: TailraceError) -> bool:
        """Park the table that ended the stream, which stands still; whether the pipeline can go on so."""
        last = self._checkpoint.last()
        if error.table is None or error.retryable or isinstance(error, PositionLostError) or last is None:
            return False
        end = StreamOffset.from_json(last.end)
        former = {} if last.id == 0 else self._checkpoint.end_of(last.id - 1) or {}
        start = end if last.committed else StreamOffset.from_json(former or {"v": 1})
        parked = left_out(end, RequestDirectory(self._path).pending())
        flowing = (end.tables.keys() | end.done.keys()) - parked - {error.table}
        if isinstance(error, ConfigError) and start.is_new:
            return False  # nothing has been written yet: a wrong file is to be corrected
        if error.table in parked or not flowing:
            return False
        most = self._pipeline.settings.max_parked
        if len(parked) + len(parked_sinks(self._pipeline.checkpoint)) >= most:
            if most:
                named = ", ".join(f"`{name}`" for name in sorted(parked))
                self._tell(f"nothing more is parked (max-parked: {most}); parked are {named}")
            return False
        entry = parked_at(error.table, start, end, Reason.of(error))
        RequestDirectory(self._path).add([error.table], "park", parked=entry)
        failpoint("park.requested")
        self._told[error.table] = entry.reason
        self._tell(_parked(error.table, entry))
        return True

    def left_out(self, end: Mapping[str, Any]) -> frozenset[str]:
        """The tables that the batch with the end offset `end` is written without."""
        return left_out(StreamOffset.from_json(end), RequestDirectory(self._path).pending())

    def look(self, progress: Mapping[str, Any]) -> None:
        """Tell the user of tables that are parked or resumed, by a report of Spark."""
        sources = progress.get("sources") or [{}]
        end = sources[0].get("endOffset")
        offset = json.loads(end) if isinstance(end, str) else end
        if not offset or not offset.get("log"):
            return
        now = {name: Parked.from_json(entry) for name, entry in offset.get("parked", {}).items()}
        for name, entry in now.items():
            if self._told.get(name) != entry.reason:
                self._tell(_parked(name, entry))
        for name in self._seen - now.keys():
            del self._told[name]
            if name in _followed(offset):
                self._tell(f"table `{name}` is resumed")
        self._seen = set(now)
        self._told |= {name: entry.reason for name, entry in now.items()}

    def at_end(self, *, stopped: bool) -> None:
        """Tell the user of parked tables at the end of a run.

        Args:
            stopped: whether it ended because a user wished so, rather than because everything is read.

        Raises:
            TablesParkedError: everything is read, but for them.
        """
        last = self._checkpoint.last()
        parked = {} if last is None else StreamOffset.from_json(last.end).parked
        if not parked:
            return
        if stopped:
            for name, entry in parked.items():
                self._tell(_parked(name, entry))
            return
        names = ", ".join(f"`{name}`" for name in parked)
        raise TablesParkedError(
            f"{'table' if len(parked) == 1 else 'tables'} {names} {'is' if len(parked) == 1 else 'are'} "
            "parked; everything else is read",
            "; ".join(f"`{n}`: {coded(p.reason.message, p.reason.code)}" for n, p in parked.items()),
            "\n".join([*(p.reason.hint for p in parked.values() if p.reason.hint), resume_hint(parked)]),
            code="TR-8041",
        )


def resume_hint(tables: Mapping[str, Parked]) -> str:
    """How to go on with parked tables."""
    return f"once that is fixed: tailrace resume PIPELINE.YAML {' '.join(tables)}"


def _parked(name: str, entry: Parked) -> str:
    return f"table `{name}` is parked, the others go on: {entry.reason}\n{resume_hint({name: entry})}"


def _followed(offset: Mapping[str, Any]) -> set[str]:
    return {*offset.get("tables", {}), *offset.get("done", {})}
