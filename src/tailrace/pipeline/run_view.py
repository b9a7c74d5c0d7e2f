"""`tailrace run` of one source: the stream with its terminal, log, metrics, notifications and comparisons."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tailrace.config.model import Pipeline
from tailrace.pipeline.host import Host
from tailrace.pipeline.log_output import LogOutput
from tailrace.pipeline.metrics import Metrics, MetricsServer
from tailrace.pipeline.run import default_log_file, make_directories, run
from tailrace.pipeline.service_manager import ServiceManager
from tailrace.pipeline.signals import stop_on_signals
from tailrace.pipeline.stream_watchers import MakeBeside, console_of, notices_of
from tailrace.pipeline.supervisor import Watcher
from tailrace.pipeline.view import ProgressView
from tailrace.pipeline.watchers import Watchers


def run_with_view(
    pipeline: Pipeline,
    log_file: Path | None,
    beside: MakeBeside,
    *,
    is_json: bool = False,
    log_max_size: int = 0,
    host: Host | None = None,
) -> None:
    """Run a pipeline, and show what it does.

    Args:
        pipeline: the pipeline.
        log_file: the log file; None: `tailrace.log` next to the checkpoint.
        beside: makes what compares the tables.
        is_json: whether the log is JSON.
        log_max_size: the size from which on the log file is emptied, bytes.
        host: the process that runs it beside others, and has a log of its own; None: this process is for it.

    Raises:
        TailraceError: see `run`.
    """
    make_directories(pipeline)
    with ExitStack() as stack:
        log, console = None, console_of(pipeline, host)
        if host is None:
            file, name = log_file or default_log_file(pipeline), pipeline.settings.name
            log = stack.enter_context(LogOutput(file, name, is_json=is_json, max_bytes=log_max_size))
        metrics = Metrics(pipeline.settings.name, pipeline.source.dialect)
        if (address := pipeline.metrics_address) is not None:
            stack.enter_context(MetricsServer(address, metrics))
        view = stack.enter_context(ProgressView(console, pipeline.source.dialect))
        watchers: list[Watcher] = [view, metrics]
        if host is None:
            service = ServiceManager(view.summary)
            watchers.append(service)

            def stopping() -> None:
                service.stopping()
                view.stopping()

            stop = stack.enter_context(stop_on_signals(stopping))
        else:
            stop = host.stop
        notifier, events = notices_of(stack, pipeline, view, is_json=is_json)
        tell = Watchers((view, events)).on_notice
        verifications = beside(pipeline, tell, notifier.send, metrics.on_comparisons, stop)
        watchers += [notifier, events, verifications]
        if pipeline.telemetry is not None:
            from tailrace.pipeline.telemetry import Telemetry  # noqa: PLC0415 - needs an extra

            watchers.append(stack.enter_context(Telemetry(pipeline, metrics)))
        if pipeline.lineage is not None:
            from tailrace.pipeline.lineage import Lineage  # noqa: PLC0415 - needs an extra

            watchers.append(stack.enter_context(Lineage(pipeline, view.on_notice)))
        fence = None
        if host is not None:
            watchers.append(fence := host.stream(pipeline.source.dialect))
        session = None if host is None else host.own_session(pipeline.settings.name)
        with verifications:
            spark_log = None if log is None else log.file
            is_alone = host is None or host.is_alone
            run(
                pipeline, Watchers(watchers), stop, spark_log, fence=fence, session=session, is_alone=is_alone
            )
            verifications.finish()
