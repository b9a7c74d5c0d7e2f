"""What a service manager is told, on a real socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.errors import TransientSourceError
from tailrace.pipeline.service_manager import ServiceManager


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    name = f"tailrace-test-{os.getpid()}-{id(request)}"
    address = f"\0{name}" if request.param == "abstract" else f"/tmp/{name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(address)
        listening.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", address.replace("\0", "@"))
        yield listening
    if request.param == "path":
        Path(address).unlink()


def received(manager: socket.socket) -> list[str]:
    lines: list[str] = []
    while True:
        try:
            lines += manager.recv(4096).decode().splitlines()
        except BlockingIOError:
            return lines


def test_unit_is_ready_with_the_first_report_and_says_when_it_stops(manager: socket.socket) -> None:
    state = ["batch 1"]
    service = ServiceManager(lambda: state[0])
    service.on_step("starting Spark")
    assert received(manager) == ["STATUS=starting Spark"]
    service.on_progress({})
    assert received(manager) == ["READY=1", "STATUS=batch 1"]
    service.on_step("writing batch 2")
    service.on_progress({})
    assert received(manager) == []
    state[0] = "batch 2\nREADY=0"
    service.on_progress({})
    assert received(manager) == ["STATUS=batch 2\\nREADY=0"]
    service.on_restart(TransientSourceError("connection lost", code="TR-3001"), 2, 4.0)
    service.stopping()
    assert received(manager) == [
        "STATUS=start 2 in 4 s: connection lost",
        "STOPPING=1",
        "STATUS=stopping after the running batch",
    ]


def test_other_processes_do_not_learn_the_address(manager: socket.socket) -> None:
    ServiceManager(str)
    assert "NOTIFY_SOCKET" not in os.environ


def test_manager_that_is_gone_costs_nothing(manager: socket.socket) -> None:
    service = ServiceManager(lambda: "x")
    manager.close()
    service.on_progress({})
    service.stopping()


def test_nothing_is_sent_without_a_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    ServiceManager(lambda: "x").on_progress({})
