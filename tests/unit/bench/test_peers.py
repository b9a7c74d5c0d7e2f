"""How peers are run and what is made of what they print."""

from __future__ import annotations

import sys
import time
from xml.etree import ElementTree as ET

import pytest

from bench import plot
from bench.peers import peers, toolkit
from bench.peers.compare import Message, differences
from bench.peers.peers import Peer
from bench.peers.watch import PeerFailedError, run
from bench.report import Figure
from tailrace.errors import ConfigError

#: Reads its task, then prints events: 1000 at once, 1000 a moment later, and then all the rest.
PROGRAM = """
import json, sys, time
task = dict(line.rstrip("\\n").split("=", 1) for line in iter(sys.stdin.readline, "\\n"))
total = int(task["expected"])
for n, (events, seconds) in enumerate([(1000, 0.0), (2000, 0.1), (total, 0.2)]):
    print(json.dumps({"events": events, "seconds": seconds, "done": events == total}), flush=True)
sys.stdin.read()
"""


def peer(program: str) -> Peer:
    return Peer("peer", "1", lambda: [sys.executable, "-c", program])


def test_rate_is_that_of_the_later_half_when_it_is_the_better_one():
    found = run(peer(PROGRAM), {"expected": "52000"}, 10)
    assert found.complete
    assert found.events == 52_000
    assert found.rate == pytest.approx(51_000 / 0.2)
    assert found.best_rate == found.warm_rate == pytest.approx(50_000 / 0.1)
    assert found.peak_rss_mb > 1


def test_peer_is_ended_when_its_seconds_are_over():
    begin = time.monotonic()
    found = run(peer(PROGRAM), {"expected": "52000"}, 0.1)
    assert not found.complete
    assert found.events == 2000
    assert time.monotonic() - begin < 10


def test_peer_that_ends_without_events_fails_with_what_it_said():
    with pytest.raises(PeerFailedError, match="no way to the server"):
        run(peer("raise SystemExit('no way to the server')"), {}, 1)


def test_java_without_a_compiler_leaves_peers_out_and_says_so(monkeypatch, tmp_path):
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho java.base\n", encoding="utf-8")
    java.chmod(0o755)
    monkeypatch.setattr(toolkit, "java", lambda: str(java))
    monkeypatch.setattr(toolkit, "cached_jars", lambda *_, **__: [])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(toolkit.UnavailableError, match=r"no compiler.*JDK 17"):
        peers.DEBEZIUM.command()


def test_jars_that_cannot_be_had_leave_a_peer_out(monkeypatch):
    def fail(*_, **__):
        raise ConfigError("jars could not be downloaded: a", "no way out", None)

    monkeypatch.setattr(toolkit, "cached_jars", fail)
    with pytest.raises(toolkit.UnavailableError, match="could not be downloaded: a: no way out"):
        peers.FLINK_CDC.command()


def test_plot_has_a_bar_for_each_system_of_each_section():
    figures = [
        Figure("a", "x", 10.0, "rows/s", system="Tailrace cells"),
        Figure("a", "y <&>", 5.0, "rows/s", system="P <&>"),
        Figure("a", "drain", 5.0, "rows/s"),
        Figure("b", "x", 1.0, "rows/s", system="Tailrace cells"),
    ]
    root = ET.fromstring(plot.svg("rates", plot.rates(figures)))
    bars = [e for e in root.iter() if e.tag.endswith("rect") and e.get("rx")]
    assert [float(bar.get("width", 0)) for bar in bars] == [460.0, 230.0, 460.0]


def message(**value: object) -> Message:
    return Message("t.d.x", {"id": 1}, {"op": "c", "after": value}, [], None)


def test_equal_messages_have_no_differences():
    assert differences([message(a=1)], [message(a=1)]) == []


def test_unequal_field_is_found_by_its_path():
    (found,) = differences([message(a=1, b=2)], [message(a=1, b=3)])
    assert (found.topic, found.op, found.path, found.theirs, found.ours) == ("x", "c", "value.after.b", 2, 3)


def test_missing_message_and_order_of_fields_are_differences():
    found = differences([message(a=1, b=2), message(a=1)], [message(b=2, a=1)])
    assert [difference.path for difference in found] == ["value.after (order of fields)", "(message)"]


def test_number_and_true_are_not_equal():
    assert len(differences([message(a=1)], [message(a=True)])) == 1
