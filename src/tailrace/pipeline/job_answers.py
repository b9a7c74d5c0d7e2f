"""What becomes of the jobs of the control plane that compare tables, kept beside the checkpoint.

    <checkpoint>/_tailrace/jobs/<id>.json      what has been found so far, and whether the job has ended
                                <id>.cancel    somebody wants it to end

A job is a signal with an id of `new_id`. The process that runs the pipeline writes the answer
(`verify.outcomes`); a server reads it (`control.job_execution`), and removes both files once it has noted how
the job ended. A signal goes from its request over `verify.json` to the answer, and each of these is written
before the former is removed: it is always found if they are read in that order.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from tailrace.spark.checkpoint import Directory

_VERSION = 1
_ID = re.compile(r"job-[0-9a-f]{32}")


@dataclass(frozen=True)
class TableAnswer:
    """What a job has found of a table and its target in one sink.

    Args:
        sink: the sink's name.
        table: the table's name.
        target: the target's; several tables may share one. "": it was not compared.
        batch: number of the batch whose target was compared.
        source_rows: rows of the source, with those of other tables of the target.
        target_rows: rows of the target.
        differences: rows that differ, at least; None: it was not compared.
        found: rows that differed before the repair, where there was one.
        reads_again: whether rows are still being read again.
        code: of the error that kept it from being compared.
        reason: why it was not compared; "": it was.
    """

    sink: str
    table: str
    target: str = ""
    batch: int | None = None
    source_rows: int | None = None
    target_rows: int | None = None
    differences: int | None = None
    found: int | None = None
    reads_again: bool = False
    code: str | None = None
    reason: str = ""


@dataclass(frozen=True)
class JobAnswer:
    """What a job has found.

    Args:
        state: `running`, `done`, `cancelled`, or `refused`: the stream did not accept it.
        total: pairs of sink and table that it compares.
        tables: those that it has done with.
        reason: why it was refused.
    """

    state: str = "running"
    total: int = 0
    tables: tuple[TableAnswer, ...] = ()
    reason: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes."""
        return self.state != "running"


def new_id() -> str:
    """An id for the signal of a new job."""
    return f"job-{uuid.uuid4().hex}"


def is_job(id_: str) -> bool:
    """Whether a signal is that of a job."""
    return _ID.fullmatch(id_) is not None


class JobAnswers:
    """The answers beside a checkpoint.

    Args:
        checkpoint: its path.
    """

    def __init__(self, checkpoint: str) -> None:
        self._directory = Directory(f"{checkpoint.rstrip('/')}/_tailrace/jobs", private=True)

    def read(self, id_: str) -> JobAnswer | None:
        """The answer to a job; None: there is none yet."""
        text = self._directory.read(f"{id_}.json")
        try:
            value = json.loads(text or "null")
            if value is None or value["v"] != _VERSION:
                return None
            known = {field.name for field in fields(TableAnswer)}
            tables = tuple(
                TableAnswer(**{name: part for name, part in one.items() if name in known})
                for one in value["tables"]
            )
            return JobAnswer(value["state"], value["total"], tables, value["reason"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def write(self, id_: str, answer: JobAnswer) -> None:
        """Store the answer to a job."""
        text = json.dumps({"v": _VERSION, **asdict(answer)})
        # a reader must not find half a file
        self._directory.write(f"{id_}.new", text)
        self._directory.rename(f"{id_}.new", f"{id_}.json")

    def cancel(self, id_: str) -> None:
        """Ask that a job end."""
        self._directory.write(f"{id_}.cancel", "")

    def is_cancelled(self, id_: str) -> bool:
        """Whether somebody wants a job to end."""
        return is_job(id_) and self._directory.read(f"{id_}.cancel") is not None

    def remove(self, id_: str) -> None:
        """Forget a job."""
        for suffix in ("json", "new", "cancel"):
            self._directory.remove(f"{id_}.{suffix}")


class AnswerInProgress:
    """The answer to the job that is being done.

    Args:
        answers: where it is kept.
        id_: the job's signal.
    """

    def __init__(self, answers: JobAnswers, id_: str) -> None:
        self._answers = answers
        self.id = id_
        self._total = 0
        self._tables: dict[tuple[str, str], TableAnswer] = {}

    def begin(self, total: int) -> None:
        """It compares as many pairs of sink and table, beside those that are left out."""
        self._total = total + len(self._tables)
        self._write("running")

    def left_out(self, sink: str, table: str, reason: str, code: str | None) -> None:
        """A table could not be compared."""
        self._tables[sink, table] = TableAnswer(sink, table, code=code, reason=reason)

    def compared(self, event: Mapping[str, Any], differences: int) -> None:
        """A target was compared; see `verify.worker`."""
        for table in event["tables"]:
            former = self._tables.get((event["sink"], table))
            self._tables[event["sink"], table] = TableAnswer(
                event["sink"],
                table,
                event["target"],
                event["batch"],
                event["source_rows"],
                event["target_rows"],
                differences,
                former.differences if former is not None and event["repaired"] else None,
            )

    def requested(self, sink: str, table: str) -> None:
        """Rows of a table are read again."""
        former = self._tables.get((sink, table), TableAnswer(sink, table))
        self._tables[sink, table] = replace(former, reads_again=True)

    def ended(self) -> None:
        """A table is done with."""
        self._write("running")

    def end(self, state: str) -> None:
        """Nothing more comes."""
        self._total = max(self._total, len(self._tables))
        self._write(state)

    def _write(self, state: str) -> None:
        self._answers.write(self.id, JobAnswer(state, self._total, tuple(self._tables.values())))
