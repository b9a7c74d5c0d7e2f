"""What comes of comparisons: kept beside the checkpoint, told to the user and by notifications."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tailrace.config.model import Pipeline
from tailrace.config.verification import OnDifferences
from tailrace.errors import StateError, coded
from tailrace.failpoints import failpoint
from tailrace.model.signal import Answer
from tailrace.pipeline.job_answers import AnswerInProgress, JobAnswer, JobAnswers, is_job
from tailrace.pipeline.notifications import REPAIR, VERIFICATION, Notification
from tailrace.pipeline.verify_state import Asked, Comparison, VerifyState
from tailrace.spark.checkpoint import Checkpoint, absolute

#: The sink's name and the table's name of each.
Tables = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Job:
    """Tables that are compared.

    Args:
        tables: the tables.
        repair: whether what differs is repaired.
        asked: the signal that asks for it; None: it is due.
    """

    tables: Tables
    repair: bool
    asked: Asked | None = None


class Outcomes:
    """What is known of the comparisons of one source's tables.

    Args:
        pipeline: the pipeline, of one source.
        tell: tells the user something.
        notify: sends notifications: of a batch, some.
        show: receives what is known, whenever it changes.
        clock: seconds since 1970 UTC.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        tell: Callable[[str], None],
        notify: Callable[[int, Sequence[Notification]], None],
        show: Callable[[Mapping[str, Mapping[str, Comparison]]], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._pipeline = pipeline
        self._path = absolute(pipeline.checkpoint)
        self._checkpoint = Checkpoint(self._path)
        self._tell, self._notify, self._show, self._clock = tell, notify, show, clock
        self._lock = threading.RLock()
        self._state = VerifyState.read(self._path)
        self._answers = JobAnswers(self._path)
        #: The answer to the job of the control plane that is being done.
        self._answer: AnswerInProgress | None = None
        #: With what the pipeline is to end.
        self.error: StateError | None = None
        show(self._state.tables)

    # ---- what is known -------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return int(self._clock() * 1000)

    @property
    def asked(self) -> Asked | None:
        """What a signal asks for and is not done yet."""
        return next(iter(self._state.asked), None)

    def entry(self, sink: str, table: str) -> Comparison:
        """What is known of a table."""
        return self._state.tables.get(sink, {}).get(table) or Comparison(self.now_ms)

    def seen(self, sinks: Collection[str], tables: Collection[str]) -> None:
        """The pipeline has these sinks and tables: new ones are noted, others forgotten."""
        with self._lock:
            former = self._state.tables
            now = {sink: {name: self.entry(sink, name) for name in tables} for sink in sinks}
            if {s: t.keys() for s, t in now.items()} != {s: t.keys() for s, t in former.items()}:
                self._state = replace(self._state, tables=now)
                self._save()

    def accepted(self, batch: int, answers: Sequence[Answer]) -> None:
        """Note, once, what the answers of a batch say that somebody asks for."""
        with self._lock:
            if batch > self._state.batch:
                asked = tuple(Asked(a.id, a.signal, a.tables) for a in answers)
                self._state = replace(self._state, batch=batch, asked=(*self._state.asked, *asked))
                self._save()

    def refused(self, answer: Answer) -> None:
        """The stream has not accepted a signal."""
        if is_job(answer.id):
            self._answers.write(answer.id, JobAnswer("refused", reason=answer.reason))

    def cancelled(self) -> list[Asked]:
        """What is asked for, and shall not be done any more."""
        return [one for one in self._state.asked if self._answers.is_cancelled(one.id)]

    def begin(self, asked: Asked) -> None:
        """Begin with what a signal asks for."""
        self._answer = AnswerInProgress(self._answers, asked.id) if is_job(asked.id) else None

    def begun(self, job: Job) -> None:
        """The tables of a job are known."""
        if job.asked is not None and self._answer is not None:
            self._answer.begin(len(job.tables))

    def answered(self, asked: Asked, state: str = "done") -> None:
        """What a signal asked for has ended: it is `done`, or `cancelled`."""
        if is_job(asked.id):
            answer = self._answer
            if answer is None or answer.id != asked.id:
                answer = AnswerInProgress(self._answers, asked.id)
            answer.end(state)
            self._answer = None
        with self._lock:
            rest = tuple(one for one in self._state.asked if one != asked)
            self._state = replace(self._state, asked=rest)
            self._save()

    # ---- what happens --------------------------------------------------------------------------------

    def happened(self, event: Mapping[str, Any], job: Job) -> None:
        """Take an event of `verify.worker`."""
        sink, table = event["sink"], event["table"]
        match event["event"]:
            case "begun":
                entry = self.entry(sink, table)
                attempts = entry.attempts + 1 if entry.is_open else 1
                self._put(sink, [table], begun_ms=self.now_ms, ended_ms=None, attempts=attempts)
                failpoint("verify.begun")
            case "compared":
                self._compared(event, job)
            case "requested":
                self._put(sink, [table], request=event["id"])
                if job.asked is not None and self._answer is not None:
                    self._answer.requested(sink, table)
                data = {"data_collections": table, "sink": sink, "request": event["id"]}
                self.send(job.asked, REPAIR, "STARTED", data)
                failpoint("verify.requested")
            case "skipped":
                self.left_out(sink, table, event["why"], job.asked)
            case "failed":
                self.left_out(sink, table, coded(event["message"], event["code"]), job.asked, event["code"])
            case "ended":
                others = [name for name in event["tables"] if name != table]
                self._put(sink, others, begun_ms=self.now_ms)
                self._put(sink, [table, *others], ended_ms=self.now_ms, attempts=0)
                if job.asked is not None and self._answer is not None:
                    self._answer.ended()

    def _compared(self, event: Mapping[str, Any], job: Job) -> None:
        sink, table, repaired = event["sink"], event["table"], event["repaired"]
        rows = {kind: event[kind] for kind in ("missing", "extra", "different")}
        differences = 0 if event["equal"] else max(1, sum(rows.values()))
        found = self.entry(sink, table).differences if repaired else None
        self._put(
            sink,
            event["tables"],
            at_ms=self.now_ms,
            batch=event["batch"],
            source_rows=event["source_rows"],
            target_rows=event["target_rows"],
            differences=differences,
            found=found,
            request=None,
            reason="",
        )
        if job.asked is not None and self._answer is not None:
            self._answer.compared(event, differences)
        data = {
            "data_collections": ",".join(event["tables"]),
            "sink": sink,
            "status": "DIFFERENT" if differences else "EQUAL",
            "compared_batch": str(event["batch"]),
            "source_rows": str(event["source_rows"]),
            "target_rows": str(event["target_rows"]),
            **{kind: str(count) for kind, count in rows.items()},
        }
        self.send(job.asked, REPAIR if repaired else VERIFICATION, "COMPLETED", data)
        if differences:
            self._differs(event, rows, will_repair=job.repair and not repaired)
            failpoint("verify.found")

    def _differs(self, event: Mapping[str, Any], rows: Mapping[str, int], *, will_repair: bool) -> None:
        least = "at least " if event["at_least"] else ""
        found = f"{least}{', '.join(f'{count:,} {kind}' for kind, count in rows.items())}"
        what = f"table `{event['tables'][0]}` differs from its target in sink `{event['sink']}`"
        after = " after its repair" if event["repaired"] else ""
        detail = f"target `{event['target']}` after batch {event['batch']}: rows {found}"
        self._tell(coded(f"{what}{after}: {detail}", "TR-8110"))
        settings = self._pipeline.settings.verify
        if settings is not None and settings.on_differences is OnDifferences.FAIL and not will_repair:
            self.error = StateError(
                f"{what}{after}",
                detail,
                "see which rows these are: tailrace verify PIPELINE.YAML; correct them: tailrace repair"
                " PIPELINE.YAML, while the pipeline runs with `pipeline.verify.on-differences: notify`",
                code="TR-8110",
            )

    def left_out(self, sink: str, table: str, why: str, asked: Asked | None, code: str | None = None) -> None:
        """A table could not be compared: told once for each reason, and to whoever asks for it."""
        if asked is not None and self._answer is not None:
            self._answer.left_out(sink, table, why, code)
        is_new = self.entry(sink, table).reason != why
        if is_new:
            self._put(sink, [table], reason=why)
            self._tell(f"table `{table}` is not compared with its target in sink `{sink}`: {why}")
        if is_new or asked is not None:
            data = {"data_collections": table, "sink": sink, "reason": why}
            self.send(asked, VERIFICATION, "ABORTED", data)

    def send(self, asked: Asked | None, about: str, kind: str, data: Mapping[str, str]) -> None:
        """Send a notification; its id is that of the signal that asks, or a new one."""
        last = self._checkpoint.last_committed()
        number = 0 if last is None else last.id
        id_ = uuid.uuid4().hex if asked is None else asked.id
        more = {"connector_name": self._pipeline.settings.name, **data, "batch": str(number)}
        self._notify(number, [Notification(id_, about, kind, more)])

    def _put(self, sink: str, tables: Sequence[str], **values: Any) -> None:
        with self._lock:
            entries = {name: replace(self.entry(sink, name), **values) for name in tables}
            of_sink = {**self._state.tables.get(sink, {}), **entries}
            self._state = replace(self._state, tables={**self._state.tables, sink: of_sink})
            self._save()

    def _save(self) -> None:
        self._state.write(self._path)
        self._show(self._state.tables)
