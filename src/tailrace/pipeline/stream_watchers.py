"""What `tailrace run` shows of a stream, and what runs beside it: the same for one source and for several."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Protocol, Self

from rich.console import Console

from tailrace.config.model import Pipeline
from tailrace.config.sinks import ConsoleSettings
from tailrace.pipeline.event_log import EventLog
from tailrace.pipeline.host import Host
from tailrace.pipeline.notifications import Notification
from tailrace.pipeline.notifier import Notifier
from tailrace.pipeline.signal_topic import SignalTopic
from tailrace.pipeline.supervisor import Watcher
from tailrace.pipeline.verify_state import Comparison
from tailrace.pipeline.view import ProgressView


class Beside(Watcher, Protocol):
    """What runs beside the stream of a source; a context manager round the run."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def finish(self) -> None:
        """The streams have ended; do what is left. May raise an error."""


class MakeBeside(Protocol):
    """Makes what runs beside the stream of a source, see `verify.schedule.Verifications`."""

    def __call__(
        self,
        pipeline: Pipeline,
        tell: Callable[[str], None],
        notify: Callable[[int, Sequence[Notification]], None],
        show: Callable[[Mapping[str, Mapping[str, Comparison]]], None],
        stop: threading.Event,
    ) -> Beside:
        """Make it."""


def console_of(pipeline: Pipeline, host: Host | None) -> Console:
    """The console for progress: the host's, or the terminal; stderr if a sink prints changes to stdout."""
    if host is not None:
        return host.console
    return Console(stderr=any(isinstance(sink, ConsoleSettings) for sink in pipeline.sinks))


def notices_of(
    stack: ExitStack, pipeline: Pipeline, view: ProgressView, *, is_json: bool
) -> tuple[Notifier, EventLog]:
    """What sends notifications of a stream, and what logs its events; it then takes signals from its topic.

    Args:
        stack: ends what is begun.
        pipeline: the pipeline, as it is for one source.
        view: shows notices.
        is_json: whether the log is JSON.
    """
    if pipeline.signals.topic is not None:
        stack.enter_context(SignalTopic(pipeline, view.on_notice))
    return stack.enter_context(Notifier(pipeline, view.on_notice)), EventLog(batches=is_json)
