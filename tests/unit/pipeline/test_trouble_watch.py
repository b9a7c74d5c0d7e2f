"""A watcher is told that a source does not answer, and that it answers again."""

from __future__ import annotations

import queue
import threading
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.config.load import parse_pipelines
from tailrace.config.model import Pipeline
from tailrace.config.options import SourceOptions
from tailrace.errors import TailraceError, TransientSourceError
from tailrace.pipeline.trouble_watch import TroubleWatch
from tailrace.pipeline.watchers import Watchers
from tailrace.sources.network import retried
from tailrace.spark.trouble import trouble_path

FILE = """\
source: {{url: "mysql://127.0.0.1:1/shop", user: u, password: p, tables: "shop[.]t"}}
sink: {{type: delta, path: {0}/lake}}
pipeline: {{checkpoint: {0}/checkpoint}}
"""


#: Which log a thread writes to is such a variable, too.
CONTEXT = ContextVar("context", default="")


class Told:
    """A watcher that keeps what it is told of trouble."""

    def __init__(self) -> None:
        self.found: queue.Queue[str | None] = queue.Queue()
        self.contexts: set[str] = set()

    def on_trouble(self, error: TailraceError | None) -> None:
        self.contexts.add(CONTEXT.get())
        self.found.put(None if error is None else error.message)


def test_watcher_is_told_once_of_each_change(tmp_path: Path) -> None:
    (pipeline,) = parse_pipelines(FILE.format(tmp_path), default_name="shop")
    options = replace(pipeline.source, trouble_path=trouble_path(pipeline.checkpoint))
    told = Told()
    CONTEXT.set("of the run")
    with TroubleWatch(pipeline, Watchers((told,))):  # type: ignore[arg-type]
        for _ in range(3):
            retried(options, "a", TransientSourceError("no connection"))
        assert told.found.get(timeout=10) == "no connection"
        retried(options, "a", TransientSourceError("no connection"))
        retried(options, "a", None)
        assert told.found.get(timeout=10) is None
    assert told.found.empty()
    assert told.contexts == {"of the run"}


def test_what_was_left_is_not_told(tmp_path: Path) -> None:
    (pipeline,) = parse_pipelines(FILE.format(tmp_path), default_name="shop")
    options = replace(pipeline.source, trouble_path=trouble_path(pipeline.checkpoint))
    told = Told()
    with TroubleWatch(pipeline, Watchers((told,))):  # type: ignore[arg-type]
        retried(options, "killed", TransientSourceError("no connection"))
        assert told.found.get(timeout=10) == "no connection"
    with TroubleWatch(pipeline, Watchers((told,))):  # type: ignore[arg-type]
        retried(options, "a", TransientSourceError("another"))
        assert told.found.get(timeout=10) == "another"
    assert told.found.empty()


class Broken:
    """A watcher with a bug."""

    def __init__(self) -> None:
        self.called = threading.Event()

    def on_trouble(self, error: TailraceError | None) -> None:
        self.called.set()
        raise ValueError


def test_watches_share_a_thread_and_no_bug(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def of(name: str) -> tuple[Pipeline, SourceOptions]:
        (pipeline,) = parse_pipelines(FILE.format(tmp_path / name), default_name=name)
        return pipeline, replace(pipeline.source, trouble_path=trouble_path(pipeline.checkpoint))

    broken, told = Broken(), [Told() for _ in range(3)]
    bad, options = of("bad")
    with TroubleWatch(bad, Watchers((broken,))), ExitStack() as stack:  # type: ignore[arg-type]
        retried(options, "a", TransientSourceError("no connection"))
        assert broken.called.wait(10)
        others = [of(f"good-{number}") for number in range(3)]
        for (pipeline, _), watcher in zip(others, told, strict=True):
            stack.enter_context(TroubleWatch(pipeline, Watchers((watcher,))))  # type: ignore[arg-type]
        assert [thread.name for thread in threading.enumerate()].count("trouble") == 1
        for _, options in others:
            retried(options, "a", TransientSourceError("no connection"))
        assert [watcher.found.get(timeout=10) for watcher in told] == ["no connection"] * 3
    assert "are not looked at any more" in caplog.text
