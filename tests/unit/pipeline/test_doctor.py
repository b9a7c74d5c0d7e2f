"""What a pipeline runs on."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tailrace.config.load import load_pipeline
from tailrace.config.model import Pipeline
from tailrace.pipeline import doctor
from tailrace.pipeline.doctor import diagnose
from tailrace.sources.preflight import Finding, Severity, errors


def pipeline(directory: Path, *, sink_port: int, metrics_port: int) -> Pipeline:
    file = directory / "p.yaml"
    file.write_text(
        "source: {type: mysql, hostname: 127.0.0.1, port: 1, username: u, password: p, tables: 'shop.*',"
        " connect-timeout-ms: 1000, retry-timeout-ms: 1}\n"
        f"sink: {{type: mysql, url: 'mysql://127.0.0.1:{sink_port}/x', user: u, password: p}}\n"
        f"pipeline: {{checkpoint: {directory / 'checkpoint'}, metrics: '127.0.0.1:{metrics_port}'}}\n"
    )
    return load_pipeline(file)


def by_check(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings}


def test_this_machine_is_in_order() -> None:
    found = list(diagnose(None))
    assert not errors(found), found
    assert {"tailrace", "Python", "PySpark", "Java", "machine"} <= by_check(found).keys()


def test_taken_port_and_silent_servers_are_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = by_check(list(diagnose(pipeline(tmp_path, sink_port=1, metrics_port=port))))
    assert found[f"port {port} (pipeline.metrics)"].code == "TR-1274"
    assert found["sink mysql 127.0.0.1:1"].code == "TR-7074"
    assert found["source"].severity is Severity.ERROR
    free = by_check(list(diagnose(pipeline(tmp_path, sink_port=1, metrics_port=port))))
    assert free[f"port {port} (pipeline.metrics)"].severity is Severity.OK


def test_sink_that_listens_has_a_round_trip(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = by_check(list(diagnose(pipeline(tmp_path, sink_port=port, metrics_port=0))))
    assert found[f"sink mysql 127.0.0.1:{port}"].found.startswith("answers within ")


@pytest.mark.parametrize(
    ("skew_s", "trip_s", "code"),
    [(0.5, 0.01, None), (3600, 0.01, "TR-1275"), (-3600, 0.01, "TR-1275"), (2.0, 3.0, None)],
)
def test_clocks_may_differ_by_a_second_beyond_the_round_trip(
    skew_s: float, trip_s: float, code: str | None
) -> None:
    assert doctor._clock(skew_s, trip_s).code == code


@pytest.mark.parametrize(("trip_s", "code"), [(0.02, None), (0.2, "TR-1276")])
def test_long_way_is_a_warning(trip_s: float, code: str | None) -> None:
    assert doctor._round_trip("source", [trip_s, 9.0, trip_s]).code == code
