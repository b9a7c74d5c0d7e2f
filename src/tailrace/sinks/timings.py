"""When the steps of writing a batch began and ended, sink by sink.

write    a sink, from the batch's first row until it is durable; consists of
read     the Spark job that reads the rows; in a single pass (`sinks.single_pass`) it stages them, too, or
         writes them where tasks commit for themselves (Kafka, replicas)
commit   what is left to make them durable
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

WRITE, READ, COMMIT = "write", "read", "commit"


@dataclass(frozen=True)
class Step:
    """A step that has ended.

    Args:
        sink: the sink's name in its pipeline; "" for what is done for all.
        name: WRITE, READ or COMMIT.
        start_ns: nanoseconds since 1970 UTC.
        end_ns: likewise; never before the start, even if the clock was set back.
    """

    sink: str
    name: str
    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """The duration."""
        return (self.end_ns - self.start_ns) / 1e9


class Timings:
    """Collects the steps of one batch. Sinks write one after the other, on one thread."""

    def __init__(self) -> None:
        #: The steps in the order in which they ended.
        self.steps: list[Step] = []

    @contextmanager
    def step(self, sink: str, name: str) -> Iterator[None]:
        """A step lasts as long as this context, whether it fails or not."""
        start_ns, began = time.time_ns(), time.monotonic_ns()
        try:
            yield
        finally:
            self.steps.append(Step(sink, name, start_ns, start_ns + time.monotonic_ns() - began))
