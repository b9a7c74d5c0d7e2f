"""Jobs from the request to their end: servers and streams, without Spark and comparison."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from tailrace.config.model import Pipeline
from tailrace.control import jobs, leases, subscriptions
from tailrace.control.audit import read_events
from tailrace.control.comparisons import compare
from tailrace.control.job_execution import MOST_ATTEMPTS, JobExecutor
from tailrace.control.jobs import JobKind, JobState, TableJob
from tailrace.control.metadata.database import ControlDatabase, now_us
from tailrace.control.metadata.tables import subscriptions as table
from tailrace.control.operations import Control
from tailrace.control.policy import Policy
from tailrace.control.stages import Desired
from tailrace.enumerator.offset import StreamOffset
from tailrace.enumerator.signals import Context, answered
from tailrace.errors import ConfigError
from tailrace.model.table import TableId, TableSchema
from tailrace.pipeline.verify_state import VerifyState
from tailrace.spark.requests import RequestDirectory, requests_path
from tailrace.verify.schedule import Verifications
from tailrace.verify.worker import Task

SPEC = """\
source:
  url: mysql://127.0.0.1:1/shop
  user: reader
  password: ${env:TAILRACE_SECRET_SHOP}
  tables: shop\\..*
sink: {type: delta, path: lake}
"""
_SOURCE = """\
  - name: NAME
    url: mysql://127.0.0.1:1/shop
    user: reader
    password: ${env:TAILRACE_SECRET_SHOP}
    tables: shop\\..*
"""
SEVERAL = f"""\
sources:
{_SOURCE.replace("NAME", "north")}{_SOURCE.replace("NAME", "south")}\
sink: {{type: delta, path: lake}}
"""
TABLES = ("shop.a", "shop.b")


class Stream:
    """The process that runs the subscription, as far as jobs are concerned."""

    def __init__(self, control: Control, pipeline: Pipeline | None = None) -> None:
        (self.pipeline,) = control.pipelines(SPEC, "shop") if pipeline is None else (pipeline,)
        self.path = Path(self.pipeline.checkpoint)
        self.batch = -1
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.begun = threading.Event()
        self.go_on: threading.Event | None = None
        self.commit(StreamOffset("initial", {"pos": 100}, done=dict.fromkeys(TABLES, 1)))
        self.start()

    def start(self) -> None:
        """Start the process (again)."""
        quiet: Any = lambda *_: None  # noqa: E731
        self.verifications = Verifications(
            self.pipeline, quiet, quiet, quiet, threading.Event(), start=lambda task: _Compared(self, task)
        )

    def plan(self, end: StreamOffset) -> None:
        self.batch += 1
        (self.path / "offsets").mkdir(parents=True, exist_ok=True)
        (self.path / "offsets" / str(self.batch)).write_text(f"v1\n{{}}\n{json.dumps(end.to_json())}")

    def commit(self, end: StreamOffset) -> None:
        self.plan(end)
        (self.path / "commits").mkdir(exist_ok=True)
        (self.path / "commits" / str(self.batch)).write_text("v1\n{}")

    def requests(self) -> RequestDirectory:
        return RequestDirectory(requests_path(str(self.path)))

    def accept(self, *tables: str) -> int:
        """A batch that answers what is asked for; returns how many signals there were."""
        end = StreamOffset("initial", {"pos": 100}, done=dict.fromkeys(TABLES, 1))
        known = {name: TableSchema(TableId.parse(name), ()) for name in tables or TABLES}
        pending = self.requests().pending()
        for request in pending:
            end = answered(end, request, Context(known, "mysql", compares=True))
        self.plan(end)
        self.verifications.on_written(self.batch, [])
        (self.path / "commits" / str(self.batch)).write_text("v1\n{}")
        self.requests().remove([request.id for request in pending])
        return len(pending)

    def work(self) -> bool:
        """Do what is to be done; False: nothing is."""
        job = self.verifications._next()
        if job is not None:
            self.verifications._do(job)
        return job is not None


class _Compared:
    """A process that compares."""

    def __init__(self, stream: Stream, task: Task) -> None:
        self.stream, self.task = stream, task
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for sink, name in self.task.tables:
            more = self.stream.events.get(name, [_found(name)])
            for event in [{"event": "begun"}, *more, {"event": "ended", "tables": [name]}]:
                yield {"sink": sink, "table": name, **event}
                if event["event"] == "begun" and self.stream.go_on is not None:
                    self.stream.begun.set()
                    while not self.stream.go_on.wait(0.01):
                        if self.closed.is_set():
                            return

    def close(self) -> None:
        self.closed.set()


def _found(name: str, different: int = 0, *, repaired: bool = False) -> dict[str, Any]:
    counts = {"missing": 0, "extra": 0, "different": different, "equal": not different, "at_least": False}
    rows = {"batch": 1, "source_rows": 5, "target_rows": 5, "left_out": [], "repaired": repaired}
    return {"event": "compared", "tables": [name], "target": name, **counts, **rows}


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    database = ControlDatabase(f"sqlite:///{tmp_path}/tailrace.db")
    database.prepare()
    found = Control(database, tmp_path, Policy(hosts=["127.0.0.1"]))
    found.create("ann", "shop", SPEC)
    yield found
    database.close()


def own(control: Control, server: str = "s1", most: int = 1) -> JobExecutor:
    """The server, which now owns the subscription."""
    with control.database.begin() as connection:
        connection.execute(update(table).values(lease_until_us=now_us() - 1))
        assert len(leases.claim(connection, server, leases.Room(most))) == most
    return JobExecutor(control, server)


def ask(control: Control, kind: str = "verify", *tables: str) -> TableJob:
    return compare(control, "ann", "shop", JobKind(kind), tables)[0]


def job(control: Control, id_: int) -> TableJob:
    return control.database.read(lambda c: jobs.get(c, "shop", id_))


def test_job_goes_from_the_request_to_its_result(control: Control) -> None:
    stream, server = Stream(control), own(control)
    asked = ask(control, "verify")
    server.look()
    assert job(control, asked.id).state is JobState.RUNNING
    server.look()
    assert stream.accept() == 1, "it is sent once"
    server.look()
    stream.events["shop.b"] = [_found("shop.b", 3)]
    assert stream.work()
    server.look()
    found = job(control, asked.id)
    assert (found.state, found.done, found.total, found.differences) == (JobState.DONE, 2, 2, 3)
    assert found.result is not None
    assert [(t["table"], t["differences"]) for t in found.result["tables"]] == [("shop.a", 0), ("shop.b", 3)]
    assert found.started_us is not None
    assert found.ended_us is not None
    events = control.database.read(lambda c: read_events(c, "shop"))
    assert [(e.kind, e.actor) for e in events[:2]] == [("job.done", "s1"), ("job.create", "ann")]
    assert list((stream.path / "_tailrace/jobs").iterdir()) == []
    assert stream.accept() == 0


def test_job_about_several_sources_is_done_once_all_have_answered(control: Control) -> None:
    control.create("ann", "both", SEVERAL)
    north, south = (Stream(control, pipeline) for pipeline in control.pipelines(SEVERAL, "both"))
    server = own(control, most=2)
    asked = compare(control, "ann", "both", JobKind.VERIFY, ())[0]

    def found() -> TableJob:
        return control.database.read(lambda c: jobs.get(c, "both", asked.id))

    server.look()
    assert (north.accept(), south.accept()) == (1, 1)
    north.events["shop.b"] = [_found("shop.b", 3)]
    assert north.work()
    server.look()
    assert (found().state, found().done) == (JobState.RUNNING, 2)
    assert south.work()
    server.look()
    assert (found().state, found().done, found().total) == (JobState.DONE, 4, 4)
    result = found().result
    assert result is not None
    assert [(t["source"], t["table"], t["differences"]) for t in result["tables"]] == [
        ("north", "shop.a", 0),
        ("north", "shop.b", 3),
        ("south", "shop.a", 0),
        ("south", "shop.b", 0),
    ]
    # of one of them alone
    again = compare(control, "ann", "both", JobKind.VERIFY, source="south")[0]
    server.look()
    assert (north.accept(), south.accept()) == (0, 1)
    assert again.source == "south"


def test_repair_says_what_it_found_before(control: Control) -> None:
    stream, server = Stream(control), own(control)
    asked = ask(control, "repair", "shop.a")
    server.look()
    stream.accept()
    again = [{"event": "requested", "id": "r"}, _found("shop.a", repaired=True)]
    stream.events["shop.a"] = [_found("shop.a", 4), *again]
    stream.work()
    server.look()
    found = job(control, asked.id)
    assert found.result is not None
    (result,) = found.result["tables"]
    assert (found.state, result["found"], result["differences"]) == (JobState.DONE, 4, 0)
    assert result["reads_again"] is False


@pytest.mark.parametrize("moment", ["taken", "sent", "accepted", "begun", "answered"])
def test_next_owner_goes_on_wherever_the_last_one_ended(control: Control, moment: str) -> None:
    stream, server = Stream(control), own(control)
    asked = ask(control)
    if moment == "taken":  # it died before it sent the signal
        (each,) = control.database.read(lambda c: jobs.open_jobs(c, "s1"))
        with control.database.begin() as connection:
            assert each.lease is not None
            assert jobs.take(connection, asked, each.lease) is not None
    else:
        server.look()
    if moment in ("accepted", "begun", "answered"):
        stream.accept()
    if moment == "begun":
        killed = stream.verifications._next()
        assert killed is not None
        stream.verifications._outcomes.begun(killed)
    if moment == "answered":
        stream.work()
    stream.start()
    following = own(control, "s2")
    server.look()  # the former owner, which does not know yet
    following.look()
    found = job(control, asked.id)
    assert found.attempts == 2
    if moment in ("taken", "sent"):
        assert stream.accept() == 1
    if moment != "answered":
        assert stream.work()
    following.look()
    found = job(control, asked.id)
    assert (found.state, found.done, found.total) == (JobState.DONE, 2, 2)
    assert not stream.work()
    assert VerifyState.read(str(stream.path)).asked == ()


def test_job_that_ends_its_owners_is_given_up_with_a_reason(control: Control) -> None:
    stream = Stream(control)
    asked = ask(control)
    for number in range(MOST_ATTEMPTS):
        own(control, f"s{number}").look()
    stream.accept()
    own(control, "last").look()
    found = job(control, asked.id)
    assert found.state is JobState.FAILED
    assert found.result is not None
    assert found.result["error"]["code"] == "TR-8484"
    assert not stream.work(), "the next worker must not begin with it again"
    assert VerifyState.read(str(stream.path)).asked == ()


def test_job_is_cancelled_before_anybody_has_taken_it(control: Control) -> None:
    stream, server = Stream(control), own(control)
    asked = ask(control)
    with control.database.begin() as connection:
        assert jobs.cancel(connection, "bob", "shop", asked.id).state is JobState.CANCELLED
    server.look()
    assert stream.accept() == 0


@pytest.mark.parametrize("is_planned", [False, True])
def test_job_is_cancelled_before_the_stream_has_noted_it(control: Control, is_planned: bool) -> None:
    stream, server = Stream(control), own(control)
    asked = ask(control)
    server.look()
    before = stream.requests()
    pending = list(before.pending())
    with control.database.begin() as connection:
        assert jobs.cancel(connection, "bob", "shop", asked.id).state is JobState.RUNNING
    server.look()
    server.look()
    assert job(control, asked.id).state is JobState.CANCELLED
    assert stream.requests().pending() == []
    if is_planned:  # a batch had accepted it already
        for request in pending:
            assert request.signal is not None
            stream.requests().add_signal(request.signal.to_json())
        assert stream.accept() == 1
        assert not stream.work()
        assert VerifyState.read(str(stream.path)).asked == ()


def test_comparison_ends_when_its_job_is_cancelled(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.verify.schedule._POLL_S", {True: 0.02})
    stream, server = Stream(control), own(control)
    stream.go_on = threading.Event()
    asked = ask(control)
    server.look()
    stream.accept()
    working = threading.Thread(target=stream.work)
    working.start()
    assert stream.begun.wait(10)
    with control.database.begin() as connection:
        jobs.cancel(connection, "bob", "shop", asked.id)
    server.look()
    working.join(10)
    assert not working.is_alive()
    server.look()
    found = job(control, asked.id)
    assert found.state is JobState.CANCELLED
    known = VerifyState.read(str(stream.path))
    assert known.asked == ()
    assert {one.reason for of in known.tables.values() for one in of.values()} == {""}
    assert not any(one.is_open for of in known.tables.values() for one in of.values())
    kinds = [event.kind for event in control.database.read(lambda c: read_events(c, "shop"))]
    assert kinds[:2] == ["job.cancelled", "job.cancel"]


def test_tables_that_are_not_compared_fail_the_job_with_their_reasons(control: Control) -> None:
    stream, server = Stream(control), own(control)
    asked = ask(control)
    server.look()
    stream.accept()
    stream.events["shop.a"] = [{"event": "failed", "code": "TR-2001", "message": "no answer"}]
    stream.work()
    server.look()
    found = job(control, asked.id)
    assert found.result is not None
    assert (found.state, found.result["error"]["code"]) == (JobState.FAILED, "TR-8486")
    reasons = {t["table"]: (t["code"], t["differences"]) for t in found.result["tables"]}
    assert reasons == {"shop.a": ("TR-2001", None), "shop.b": (None, 0)}


def test_job_that_the_stream_refuses_has_failed(control: Control) -> None:
    stream, server = Stream(control), own(control)
    asked = ask(control, "verify", "shop.gone")
    server.look()
    stream.accept()
    server.look()
    found = job(control, asked.id)
    assert found.result is not None
    assert (found.state, found.result["error"]["code"]) == (JobState.FAILED, "TR-8485")
    assert "no captured table matches" in found.result["error"]["detail"]


def test_job_of_a_paused_subscription_waits_and_its_end_is_noted_after_the_run(control: Control) -> None:
    stream = Stream(control)
    with control.database.begin() as connection:
        subscriptions.set_desired(connection, "ann", "shop", Desired.PAUSE)
    asked = ask(control)
    other = JobExecutor(control, "other")
    other.look()
    assert job(control, asked.id).state is JobState.QUEUED
    with control.database.begin() as connection:
        subscriptions.set_desired(connection, "ann", "shop", Desired.RUN)
    server = own(control)
    server.look()
    stream.accept()
    stream.work()
    with control.database.begin() as connection:  # the run is over: nobody owns it
        connection.execute(update(table).values(owner=None, lease_until_us=0))
    other.look()
    assert job(control, asked.id).state is JobState.DONE


def test_jobs_of_a_cancelled_subscription_end(control: Control) -> None:
    Stream(control)
    server = own(control)
    running = ask(control)
    server.look()
    waiting = ask(control)
    with control.database.begin() as connection:
        subscriptions.set_desired(connection, "ann", "shop", Desired.CANCEL)
        connection.execute(update(table).values(owner=None, lease_until_us=0))
    server.look()
    assert {job(control, each.id).state for each in (running, waiting)} == {JobState.CANCELLED}


def test_file_that_no_longer_allows_it_fails_the_job(control: Control) -> None:
    Stream(control)
    server = own(control)
    asked = ask(control)
    control.change("ann", "shop", SPEC.replace("{type: delta, path: lake}", "{type: json, path: lake}"))
    server.look()
    found = job(control, asked.id)
    assert found.result is not None
    assert (found.state, found.result["error"]["code"]) == (JobState.FAILED, "TR-8103")


def test_wrong_jobs_are_refused_at_once(control: Control) -> None:
    with pytest.raises(ConfigError) as refused:
        ask(control, "verify", "other.a")
    assert refused.value.code == "TR-1302"


def test_checkpoint_out_of_reach_is_tried_again(control: Control) -> None:
    stream, server = Stream(control), own(control)
    asked = ask(control)
    hidden = stream.path / "_tailrace/requests"
    hidden.parent.mkdir(exist_ok=True)
    hidden.write_text("no directory")
    server.look()
    assert job(control, asked.id).state is JobState.RUNNING
    hidden.unlink()
    server.look()
    assert stream.accept() == 1
