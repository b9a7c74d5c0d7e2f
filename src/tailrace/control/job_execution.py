"""What a server does about jobs: a thread that looks at those of its subscriptions every two seconds.

    take, under the lease ─▶ a signal beside each checkpoint ─▶ verify.json ─▶ the job's answer ─▶ end

The comparisons themselves are the worker's business (`verify.schedule`), and survive it: whoever takes over
finds the signal, what was noted of it, or its answer, and goes on. What is in none of these places was never
sent, so it is sent now. All of it may be done twice: the same signal is sent once, and the database takes one
end of a job only.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from tailrace.config.model import Pipeline
from tailrace.control import jobs
from tailrace.control.comparisons import require_comparable
from tailrace.control.jobs import JobState, OpenJob, TableJob
from tailrace.control.operations import Control
from tailrace.control.streams import pipelines_of, reaching, reading
from tailrace.errors import ConfigError, ControlError, LeaseLostError, TailraceError
from tailrace.pipeline import table_requests
from tailrace.pipeline.job_answers import JobAnswer, JobAnswers, TableAnswer
from tailrace.pipeline.verify_state import VerifyState
from tailrace.spark.checkpoint import is_local
from tailrace.spark.requests import RequestDirectory, requests_path

_log = logging.getLogger(__name__)
#: Time between two looks, and between two at checkpoints in object stores, seconds.
_LOOK_S = 2.0
_REMOTE_LOOK_S = 10.0
#: How many owners may try a job: one that ends its worker each time must not do so for ever.
MOST_ATTEMPTS = 5


class JobExecutor:
    """Sees to the jobs of a server's subscriptions; a context manager round the server's run.

    Args:
        control: the control plane.
        server: the server's name.
    """

    def __init__(self, control: Control, server: str) -> None:
        self._control = control
        self._server = server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="jobs", daemon=True)
        #: When a job whose checkpoint is far away is looked at again, by its id.
        self._next_s: dict[int, float] = {}
        #: What was said last about a job that waits for its checkpoint.
        self._told: dict[int, str] = {}

    def __enter__(self) -> JobExecutor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def look(self) -> None:
        """See to each job once.

        Raises:
            TransientControlError: the database does not answer.
        """
        found = self._control.database.read(lambda connection: jobs.open_jobs(connection, self._server))
        known = {each.job.id for each in found}
        self._next_s = {id_: at for id_, at in self._next_s.items() if id_ in known}
        self._told = {id_: text for id_, text in self._told.items() if id_ in known}
        for each in found:
            if time.monotonic() < self._next_s.get(each.job.id, 0):
                continue
            try:
                self._see_to(each)
            except LeaseLostError:
                continue  # the next owner does
            except ConfigError as error:  # the file has changed: nothing of it can be compared any more
                self._end(each.job, JobState.FAILED, error)
            except TailraceError as error:  # a checkpoint out of reach: tried again
                if self._told.get(each.job.id) != str(error):
                    self._told[each.job.id] = str(error)
                    _log.warning("job %d of `%s` waits: %s", each.job.id, each.job.subscription, error)

    def _loop(self) -> None:
        while not self._ended.wait(_LOOK_S):
            try:
                self.look()
            except TailraceError as error:
                _log.warning("jobs could not be looked at: %s", error.message)
            except Exception:  # noqa: BLE001 - a bug in one job must not end those of all others
                _log.exception("jobs could not be looked at")

    def _see_to(self, open_: OpenJob) -> None:
        job, lease = open_.job, open_.lease
        every = require_comparable(pipelines_of(self._control, open_.subscription), job.tables, job.source)
        streams = [_JobOfStream(pipeline, job) for pipeline in every]
        if not all(is_local(pipeline.checkpoint) for pipeline in every):
            self._next_s[job.id] = time.monotonic() + _REMOTE_LOOK_S
        if lease is not None and job.lease != lease.number:
            if job.attempts >= MOST_ATTEMPTS:
                for stream in streams:
                    stream.cancel()
                self._end(job, JobState.FAILED, _tried_too_often(job))
                return
            with self._control.database.begin() as connection:
                taken = jobs.take(connection, job, lease)
            if taken is None:
                return
            job = taken
        answers = [stream.answer() for stream in streams]
        if job.is_cancelled:
            for stream, answer in zip(streams, answers, strict=True):
                if answer is None or not answer.has_ended:
                    stream.cancel()
            if lease is None or all(answer is None or answer.has_ended for answer in answers):
                self._finish(job, streams, answers)
            return
        found = [answer for answer in answers if answer is not None]
        if len(found) == len(answers) and all(answer.has_ended for answer in found):
            self._finish(job, streams, answers)
        elif lease is not None:
            for stream, answer in zip(streams, answers, strict=True):
                if answer is None:
                    stream.send()
            self._report(job, found)

    def _report(self, job: TableJob, answers: Sequence[JobAnswer]) -> None:
        done, total = sum(len(a.tables) for a in answers), sum(a.total for a in answers)
        if (done, total) != (job.done, job.total):
            with self._control.database.begin() as connection:
                jobs.report(connection, job, done, max(done, total))

    def _finish(
        self, job: TableJob, streams: Sequence[_JobOfStream], answers: Sequence[JobAnswer | None]
    ) -> None:
        known = [(stream, a) for stream, a in zip(streams, answers, strict=True) if a is not None]
        tables = [(stream.source, table) for stream, answer in known for table in answer.tables]
        refused = next((answer for _, answer in known if answer.state == "refused"), None)
        failed = [table for _, table in tables if table.reason]
        if len(known) < len(answers) or any(a.state in ("cancelled", "running") for _, a in known):
            ended = self._end(job, JobState.CANCELLED, None, tables)
        elif refused is not None:
            ended = self._end(job, JobState.FAILED, _refused(job, refused.reason), tables)
        elif failed or not tables:
            ended = self._end(job, JobState.FAILED, _not_compared(job, failed), tables)
        else:
            ended = self._end(job, JobState.DONE, None, tables)
        # a stream may yet accept what was taken back in time: it is cancelled then
        if ended and len(known) == len(answers) and all(answer.has_ended for _, answer in known):
            for stream in streams:
                stream.forget()

    def _end(
        self,
        job: TableJob,
        state: JobState,
        error: TailraceError | None,
        tables: Sequence[tuple[str, TableAnswer]] = (),
    ) -> bool:
        result: Mapping[str, Any] = {
            "error": None if error is None else error.json_values(),
            "tables": [{"source": source, **asdict(table)} for source, table in tables],
        }
        with self._control.database.begin() as connection:
            return jobs.end(connection, self._server, job, state, result)


class _JobOfStream:
    """A job in one of the streams that it is about."""

    def __init__(self, pipeline: Pipeline, job: TableJob) -> None:
        self.source = pipeline.source_name
        self._pipeline = pipeline
        self._job = job
        with self._reached():
            self._answers = JobAnswers(pipeline.checkpoint)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        with reaching(self._pipeline), reading(self._pipeline):
            yield

    def answer(self) -> JobAnswer | None:
        """What is known of it; None: it was not sent yet. In this order: see `pipeline.job_answers`."""
        with self._reached():
            is_sent = any(True for _ in self._sent())
            state = VerifyState.read(self._pipeline.checkpoint)
            is_noted = any(asked.id == self._job.signal for asked in state.asked)
            found = self._answers.read(self._job.signal)
        return found or (JobAnswer() if is_sent or is_noted else None)

    def send(self) -> None:
        """Ask the stream for it."""
        # by a pattern each: it may not begin or end with a space, as a name may
        names = [f"(?:{re.escape(table)})" for table in self._job.tables]
        data = {"data-collections": names} if names else {}
        with self._reached():
            table_requests.send_signal(self._pipeline, self._job.kind, data, self._job.signal)

    def cancel(self) -> None:
        """Have it end: before it is accepted, or by the process that compares."""
        with self._reached():
            self._answers.cancel(self._job.signal)
            self._requests().remove(list(self._sent()))

    def forget(self) -> None:
        """Remove what is kept of it."""
        with self._reached():
            self._answers.remove(self._job.signal)

    def _requests(self) -> RequestDirectory:
        return RequestDirectory(requests_path(self._pipeline.checkpoint))

    def _sent(self) -> Iterator[str]:
        """The ids of its requests that wait."""
        for request in self._requests().pending():
            if request.signal is not None and request.signal.id == self._job.signal:
                yield request.id


def _tried_too_often(job: TableJob) -> ControlError:
    return ControlError(
        f"job {job.id} of subscription `{job.subscription}` was given up",
        f"{job.attempts} owners of the subscription began with it, and lost the subscription",
        "see why its workers end: tailrace logs NAME, and the server's output; then create another job",
        code="TR-8484",
    )


def _refused(job: TableJob, reason: str) -> ControlError:
    return ControlError(
        f"the stream has refused job {job.id} of subscription `{job.subscription}`", reason, code="TR-8485"
    )


def _not_compared(job: TableJob, failed: Sequence[TableAnswer]) -> ControlError:
    if not failed:
        return ControlError(
            f"job {job.id} of subscription `{job.subscription}` has compared nothing",
            "the stream captures no table yet",
            "wait for its first snapshot, and create another job",
            code="TR-8486",
        )
    first = failed[0]
    return ControlError(
        f"job {job.id} of subscription `{job.subscription}` could not compare all tables",
        f"{len(failed)} are left; first `{first.table}` in sink `{first.sink}`: {first.reason}",
        "the job's result says the reason of each",
        code="TR-8486",
    )
