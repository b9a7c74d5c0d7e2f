"""A pipeline's place in a process that runs several, each as queries of one Spark session."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import SparkSession
from rich.console import Console

from tailrace.pipeline.fence import Fence
from tailrace.pipeline.supervisor import Watcher


class ControlledStream(Watcher, Fence, Protocol):
    """What lets the batches of a source through, and reports on them."""


class MakeStream(Protocol):
    """Makes what belongs to the stream of a source, see `control.worker`."""

    def __call__(self, dialect: str, source: str = "") -> ControlledStream:
        """Make it."""


@dataclass(frozen=True)
class Host:
    """What the process gives to one of its pipelines.

    Args:
        session: the session that all share; each gets its own settings and functions in it.
        is_alone: whether the process runs no other pipeline.
        stop: set to stop this pipeline after its running batch.
        console: for what `tailrace run` shows in a terminal.
        stream: makes what lets batches through.
    """

    session: SparkSession
    is_alone: bool
    stop: threading.Event
    console: Console
    stream: MakeStream

    def own_session(self, pool: str) -> SparkSession:
        """A session for one stream, whose jobs take turns with those of the others."""
        if self.is_alone:
            return self.session
        own = self.session.newSession()
        own.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
        return own
