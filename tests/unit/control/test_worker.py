"""A worker without Spark: what the server says, what it answers, and which of its pipelines ends."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import update

from tailrace.config import host_guard
from tailrace.config.model import Pipeline
from tailrace.control import held_leases, leases, subscriptions, worker
from tailrace.control.leases import Lease, Room
from tailrace.control.metadata.database import ControlDatabase, now_us
from tailrace.control.metadata.tables import subscriptions as table
from tailrace.control.stages import Desired, Stage
from tailrace.control.start_turns import StartTurns
from tailrace.control.worker import Worker, start_command
from tailrace.errors import SinkError, TransientSourceError
from tailrace.pipeline.host import Host
from tailrace.pipeline.log_output import LogOutput
from tests.support.control import spec

NAMES = ("a", "b", "c")


class Started:
    """A worker in a thread, the server's end of its channel, and pipelines that do what a test says."""

    def __init__(self, database: ControlDatabase, directory: Path, log: LogOutput) -> None:
        self.database, self.directory = database, directory
        self.killed: list[str] = []
        self.began: dict[str, int] = {}
        self.errors: dict[str, BaseException] = {}
        self.fails = {name: threading.Event() for name in NAMES}
        self.slow: set[str] = set()
        self.hosts: list[Host] = []
        ours, its = socket.socketpair()
        self.channel, self.its = ours, its
        self.answers = ours.makefile("r")
        self.worker = Worker(ControlDatabase(database.url), "g", its, log)
        self.thread = threading.Thread(target=self.worker.run, daemon=True)

    def pipeline(self, pipelines: Sequence[Pipeline], *_: object, host: Host) -> None:
        name = pipelines[0].settings.name if isinstance(pipelines, tuple) else pipelines.settings.name
        self.began[name] = self.began.get(name, 0) + 1
        self.hosts.append(host)
        reporting = host.stream("mysql")
        if name not in self.slow:
            reporting.on_progress({})
        logging.getLogger("tailrace").warning("this is %s", name)
        while not host.stop.wait(0.01):
            if self.fails[name].is_set():
                raise self.errors[name]

    def start(self, lease: Lease) -> None:
        home = self.directory / "subscriptions" / lease.name
        home.mkdir(parents=True, exist_ok=True)
        content = spec(lease.name) + f"pipeline: {{name: {lease.name}, group: g}}\n"
        (home / "pipeline.yaml").write_text(content)
        self.tell(start_command(lease, home))

    def tell(self, command: object) -> None:
        self.channel.sendall(json.dumps(command).encode() + b"\n")

    def ended(self) -> int:
        return int(json.loads(self.answers.readline())["ended"])

    def owner(self, name: str) -> str | None:
        return self.database.read(lambda c: subscriptions.get(c, name)).owner


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    monkeypatch.setenv("SHOP_PASSWORD", "x")
    database = ControlDatabase(f"sqlite:///{tmp_path}/tailrace.db")
    database.prepare()
    root = logging.getLogger()
    handlers = list(root.handlers)
    log = LogOutput(tmp_path / "worker.log", "", is_json=False, max_bytes=1_000_000)
    found = Started(database, tmp_path, log)
    # Spark is not what is tested
    monkeypatch.setattr(worker, "session_of", lambda *_, **__: object())
    monkeypatch.setattr(worker, "stop_session", lambda _: None)
    monkeypatch.setattr(worker, "is_stopped", lambda _: False)
    monkeypatch.setattr(worker, "run_with_view", found.pipeline)
    monkeypatch.setattr(worker, "stop_on_signals", lambda _: threading.Lock())
    monkeypatch.setattr(worker, "kill_worker", found.killed.append)
    monkeypatch.setattr(held_leases, "kill_worker", found.killed.append)
    monkeypatch.setattr(held_leases, "RENEW_S", 0.1)
    found.thread.start()
    yield found
    for host in found.hosts:
        host.stop.set()
    _wait(lambda: not any(thread.name.startswith("subscription-") for thread in threading.enumerate()))
    with suppress(OSError):
        found.channel.shutdown(socket.SHUT_WR)
    found.thread.join(20)
    for end in (found.answers, found.channel, found.its):
        end.close()
    root.handlers[:] = handlers
    database.close()


def _claimed(started: Started, *names: str) -> dict[str, Lease]:
    with started.database.begin() as connection:
        for name in names:
            subscriptions.create(connection, "ann", name, spec(name) + "pipeline: {group: g}\n")
        return {lease.name: lease for _, lease in leases.claim(connection, "s", Room(1, 9))}


def _wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_one_is_stopped_another_fails_and_the_third_goes_on(started: Started) -> None:
    held = _claimed(started, *NAMES)
    for lease in held.values():
        started.start(lease)
    _wait(lambda: len(started.began) == len(NAMES))
    started.tell({"stop": held["a"].subscription_id})
    assert started.ended() == held["a"].subscription_id
    assert started.owner("a") is None
    started.errors["b"] = SinkError("no room", code="TR-7008")
    started.fails["b"].set()
    assert started.ended() == held["b"].subscription_id
    found = started.database.read(lambda c: subscriptions.get(c, "b"))
    assert (found.owner, found.stage, found.desired) == (None, Stage.FAILED, Desired.PAUSE)
    assert found.reason is not None
    assert found.reason["code"] == "TR-7008"
    time.sleep(0.3)
    assert started.owner("c") == "s"
    with started.database.begin() as connection:
        assert leases.renew(connection, [held["c"]]) == set()
    # each has a log of its own
    logs = {name: started.directory / "subscriptions" / name / "tailrace.log" for name in NAMES}
    assert "no room" in logs["b"].read_text()
    assert [name for name in NAMES if f"this is {name}" in logs[name].read_text()] == list(NAMES)
    assert "no room" not in logs["c"].read_text()
    assert "no room" not in (started.directory / "worker.log").read_text()
    # one that is stopped is started again beside the others
    with started.database.begin() as connection:
        ((_, again),) = leases.claim(connection, "s", Room(0, 9, {"g": 1}))
    started.start(again)
    _wait(lambda: started.began["a"] == 2)
    assert not started.killed


def test_one_whose_lease_is_anothers_ends_alone(started: Started) -> None:
    held = _claimed(started, "a", "b")
    for lease in held.values():
        started.start(lease)
    _wait(lambda: len(started.began) == 2)
    with started.database.begin() as connection:
        values = {"owner": "other", "lease": 7, "lease_until_us": now_us() + 60_000_000}
        connection.execute(update(table).where(table.c.name == "a").values(**values))
    assert started.ended() == held["a"].subscription_id
    assert started.owner("a") == "other"
    assert started.owner("b") == "s"
    assert not started.killed
    # the last one: nothing is left that must go on
    with started.database.begin() as connection:
        connection.execute(update(table).where(table.c.name == "b").values(owner="other", lease=7))
    _wait(lambda: started.killed)
    assert "TR-8420" in started.killed[0]


def test_worker_ends_with_its_server_and_without_work(started: Started) -> None:
    held = _claimed(started, "a")
    started.start(held["a"])
    _wait(lambda: started.began)
    started.channel.shutdown(socket.SHUT_WR)
    _wait(lambda: started.killed)
    assert started.killed == ["the server has ended"]


def test_few_start_at_a_time(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(started.worker, "_turns", StartTurns(1, 60))
    started.slow.add("a")
    held = _claimed(started, *NAMES)
    started.start(held["a"])
    _wait(lambda: started.began)
    for name in ("b", "c"):
        started.start(held[name])
    time.sleep(0.2)
    assert list(started.began) == ["a"]
    # one that waits can be stopped
    started.tell({"stop": held["b"].subscription_id})
    assert started.ended() == held["b"].subscription_id
    assert started.owner("b") is None
    started.tell({"stop": held["a"].subscription_id})
    assert started.ended() == held["a"].subscription_id
    _wait(lambda: len(started.began) == 2)
    assert list(started.began) == ["a", "c"]


def test_worker_hears_of_hosts_that_files_name(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_guard, "_named", {"first.example"})
    held = _claimed(started, "a")
    home = started.directory / "subscriptions" / "a"
    home.mkdir(parents=True)
    (home / "pipeline.yaml").write_text(spec("a") + "pipeline: {name: a, group: g}\n")
    started.tell(start_command(held["a"], home, {"later.example"}))
    _wait(lambda: started.began)
    assert host_guard.names() == {"first.example", "later.example"}


def test_worker_without_work_ends(started: Started) -> None:
    held = _claimed(started, "a")
    started.start(held["a"])
    _wait(lambda: started.began)
    started.errors["a"] = TransientSourceError("gone", code="TR-8002")
    started.fails["a"].set()
    assert started.ended() == held["a"].subscription_id
    assert started.database.read(lambda c: subscriptions.get(c, "a")).retry_us is not None
    started.channel.shutdown(socket.SHUT_WR)
    started.thread.join(20)
    assert not started.thread.is_alive()
    assert not started.killed


def test_pipeline_with_other_settings_is_refused_by_the_worker(started: Started) -> None:
    held = _claimed(started, "a", "b")
    started.start(held["a"])
    _wait(lambda: started.began)
    home = started.directory / "subscriptions" / "b"
    home.mkdir(parents=True)
    (home / "pipeline.yaml").write_text(spec("b") + "pipeline: {name: b, group: g, parallelism: 7}\n")
    started.tell(start_command(held["b"], home))
    assert started.ended() == held["b"].subscription_id
    found = started.database.read(lambda c: subscriptions.get(c, "b"))
    assert found.reason is not None
    assert found.reason["code"] == "TR-8490"
    assert started.owner("a") == "s"
