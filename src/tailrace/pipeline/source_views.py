"""`tailrace run` of several sources: what the terminal, metrics, notifications and the log show of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from tailrace.cache import cache_dir
from tailrace.config.model import Pipeline
from tailrace.model.paths import file_name
from tailrace.pipeline.fence import Fence
from tailrace.pipeline.host import Host
from tailrace.pipeline.log_output import LogOutput
from tailrace.pipeline.metrics import Metrics, MetricsServer
from tailrace.pipeline.run import make_directories
from tailrace.pipeline.run_sources import run_sources
from tailrace.pipeline.signals import stop_on_signals
from tailrace.pipeline.stream_watchers import MakeBeside, console_of, notices_of
from tailrace.pipeline.supervisor import Watcher
from tailrace.pipeline.view import ProgressView
from tailrace.pipeline.watchers import Watchers
from tailrace.spark.checkpoint import absolute, is_local


def run_with_views(
    pipelines: Sequence[Pipeline],
    log_file: Path | None,
    beside: MakeBeside,
    *,
    is_json: bool = False,
    log_max_size: int = 0,
    host: Host | None = None,
) -> None:
    """Run a pipeline with several sources, and show what it does.

    Args:
        pipelines: the pipeline, as it is for each source.
        log_file: the log file; None: `tailrace.log` next to the checkpoint.
        beside: makes what compares the tables of each source.
        is_json: whether the log is JSON.
        log_max_size: the size from which on the log file is emptied, bytes.
        host: the process that runs it beside others, and has a log of its own; None: this process is for it.

    Raises:
        TailraceError: see `run_sources`.
    """
    first, named = pipelines[0], pipelines[0].named
    assert named is not None
    for pipeline in pipelines:
        make_directories(pipeline)
    with ExitStack() as stack:
        log, console = None, console_of(first, host)
        if host is None:
            file = log_file or _log_file(named.checkpoint, named.pipeline)
            log = stack.enter_context(
                LogOutput(file, named.pipeline, is_json=is_json, max_bytes=log_max_size)
            )
        metrics = {p.source_name: Metrics(named.pipeline, p.source.dialect) for p in pipelines}
        if (address := first.metrics_address) is not None:
            stack.enter_context(MetricsServer(address, MetricsOfSources(named.pipeline, metrics)))
        views = {
            p.source_name: stack.enter_context(
                ProgressView(console, p.source.dialect, source=p.source_name, has_lines=True)
            )
            for p in pipelines
        }
        if host is None:
            stop = stack.enter_context(stop_on_signals(views[first.source_name].stopping))
        else:
            stop = host.stop
        watchers, comparisons = {}, []
        fences: dict[str, Fence] = {}
        for pipeline in pipelines:
            name = pipeline.source_name
            view = views[name]
            notifier, events = notices_of(stack, pipeline, view, is_json=is_json)
            tell = Watchers((view, events)).on_notice
            each = beside(pipeline, tell, notifier.send, metrics[name].on_comparisons, stop)
            comparisons.append(stack.enter_context(each))
            watching: list[Watcher] = [view, metrics[name], notifier, events, each]
            if host is not None:
                stream = host.stream(pipeline.source.dialect, name)
                fences[name] = stream
                watching.append(stream)
            watchers[name] = Watchers(watching)
        session = None if host is None else host.session
        run_sources(pipelines, watchers, stop, None if log is None else log.file, session, fences=fences)
        for each in comparisons:
            each.finish()


def _log_file(checkpoint: str, pipeline: str) -> Path:
    if not is_local(checkpoint):
        return cache_dir("log") / f"{file_name(pipeline)}.log"
    return Path(absolute(checkpoint)).parent / "tailrace.log"


class MetricsOfSources(Collector):
    """The metrics of several sources: each series has a label `source`.

    Args:
        pipeline: the pipeline's name.
        metrics: the metrics of each source, by its name.
    """

    def __init__(self, pipeline: str, metrics: Mapping[str, Metrics]) -> None:
        self._pipeline = pipeline
        self._metrics = metrics

    @property
    def registry(self) -> Collector:
        """What `/metrics` serves."""
        return self

    def collect(self) -> Iterator[Metric]:
        """All series, for prometheus_client."""
        found: dict[str, Metric] = {}
        for source, metrics in self._metrics.items():
            for metric in metrics.registry.collect():
                held = found.setdefault(
                    metric.name, Metric(metric.name, metric.documentation, metric.type, metric.unit)
                )
                held.samples += _with_label(metric.samples, source)
        return iter(found.values())

    def health(self) -> dict[str, Any]:
        """What the sources do; ready if each is."""
        sources = {source: metrics.health() for source, metrics in self._metrics.items()}
        ready = all(health["ready"] for health in sources.values())
        return {"pipeline": self._pipeline, "ready": ready, "sources": sources}


def _with_label(samples: Iterable[Sample], source: str) -> list[Sample]:
    return [sample._replace(labels={**sample.labels, "source": source}) for sample in samples]
