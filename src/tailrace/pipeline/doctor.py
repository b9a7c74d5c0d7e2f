"""What `tailrace doctor` finds out: about this machine, and about its way to source and sinks.

`tailrace check` asks whether a pipeline *may* capture; this asks what it runs on: versions, jars, space,
ports, clocks, round trips. Nothing is written but what the cache needs, and no Spark is started.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from importlib import metadata
from pathlib import Path
from statistics import median

from tailrace import __version__, extras
from tailrace.cache import cache_dir, temporary_dir
from tailrace.config.kafka import KafkaSettings
from tailrace.config.message_sinks import NatsSettings, RedisSettings, RocketMqSettings, WebhookSettings
from tailrace.config.model import Pipeline
from tailrace.config.options import SourceOptions
from tailrace.config.rabbitmq import RabbitMqSettings
from tailrace.config.sinks import DeltaSettings, ReplicaSettings
from tailrace.errors import TailraceError
from tailrace.java import java_version, require_java
from tailrace.machine import cores, memory_bytes
from tailrace.pipeline.run_state import RunState
from tailrace.sources import registry
from tailrace.sources.preflight import Finding, Severity
from tailrace.spark import RELEASES
from tailrace.spark.checkpoint import absolute, is_local
from tailrace.spark.session import DELTA_JARS, prefetch_jars

#: Oldest and first unsupported versions.
_PYTHON = ((3, 11), (3, 15))
#: Less free space than this is reported, bytes.
_LEAST_FREE = 1 << 30
#: Clocks may differ by this, beyond what the round trip leaves open, seconds.
_SKEW_S = 1.0
#: A longer round trip is reported, seconds: a batch's plan takes several.
_SLOW_S = 0.1
_TRIES = 5
_TIMEOUT_S = 5.0


def diagnose(pipeline: Pipeline | None) -> Iterator[Finding]:
    """All findings.

    Args:
        pipeline: also its ports, source and sinks; None: this machine alone.
    """
    yield from _versions()
    yield from _extras(pipeline)
    yield from _guarded("Delta's jars", lambda: _jars(pipeline))
    yield from _guarded("directory for temporary files", lambda: _space(temporary_dir()))
    yield from _guarded("cache", lambda: _space(cache_dir()))
    yield _memory()
    if pipeline is None:
        return
    if is_local(pipeline.checkpoint):
        yield from _guarded("checkpoint", lambda: _space(Path(absolute(pipeline.checkpoint))))
    if pipeline.metrics_address is not None:
        yield _port("pipeline.metrics", pipeline.metrics_address, pipeline)
    yield from _guarded("source", lambda: _source(pipeline.source))
    for name, host, port in _addresses(pipeline):
        yield from _guarded(name, partial(_way, name, host, port))


def _guarded(check: str, findings: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Findings; an error of ours is one, too."""
    try:
        yield from findings()
    except TailraceError as error:
        found = error.message + (f" ({error.detail})" if error.detail else "")
        yield Finding(check, found, "what is named there", error.hint or "", Severity.ERROR, code=error.code)


# ---- this machine ----


def _versions() -> Iterator[Finding]:
    yield Finding("tailrace", __version__, "")
    yield Finding("system", f"{platform.system()} {platform.release()} {platform.machine()}", "")
    oldest, newest = _PYTHON
    python = f"{platform.python_version()} ({sys.executable})"
    if oldest <= sys.version_info[:2] < newest:
        yield Finding("Python", python, "")
    else:
        needed = f"{oldest[0]}.{oldest[1]} or newer, below {newest[0]}.{newest[1]}"
        yield Finding("Python", python, needed, "", Severity.WARNING, code="TR-1273")
    spark = metadata.version("pyspark")
    if spark.startswith(tuple(f"{release}." for release in RELEASES)):
        yield Finding("PySpark", spark, "")
    else:
        needed = " or ".join(f"{release}.*" for release in RELEASES)
        remedy = f"pip install 'pyspark=={RELEASES[-1]}.*'"
        yield Finding("PySpark", spark, needed, remedy, Severity.ERROR, code="TR-1273")
    yield from _guarded("Java", _java)


def _java() -> Iterator[Finding]:
    program = require_java()
    version = java_version(program)
    yield Finding("Java", f"{'unknown' if version is None else version[1]} ({program})", "")


def _extras(pipeline: Pipeline | None) -> Iterator[Finding]:
    """Which extras are there; one that the pipeline needs must be."""
    needed = set()
    if pipeline is not None:
        needed = {*pipeline.source.extras, *(sink.extra for sink in pipeline.sinks)}
    there = []
    for extra in extras.EXTRAS:
        try:
            extras.require(extra, "the pipeline")
        except TailraceError as error:
            if extra in needed:
                found, remedy = error.detail or error.message, error.hint or ""
                yield Finding(f"extra {extra}", found, "installed", remedy, Severity.ERROR, code=error.code)
        else:
            there.append(extra)
    yield Finding("extras", ", ".join(there) or "none", "")


def _jars(pipeline: Pipeline | None) -> Iterator[Finding]:
    if pipeline is not None and not any(isinstance(sink, DeltaSettings) for sink in pipeline.sinks):
        return
    home = cache_dir(DELTA_JARS[0])
    if (home / "complete").exists():
        yield Finding("Delta's jars", f"{len(prefetch_jars())} in {home}, as listed", "")
    else:
        yield Finding("Delta's jars", f"not in {home} yet: the first run downloads them", "")


def _space(path: Path) -> Iterator[Finding]:
    while not path.exists() and path != path.parent:
        path = path.parent
    free = shutil.disk_usage(path).free
    found = f"{free / (1 << 30):,.1f} GB free"
    if free < _LEAST_FREE:
        yield Finding(f"disk {path}", found, "a GB or more", "", Severity.WARNING, code="TR-1212")
    elif not os.access(path, os.W_OK):
        yield Finding(f"disk {path}", "cannot be written", "write access", "", Severity.ERROR, code="TR-1201")
    else:
        yield Finding(f"disk {path}", found, "")


def _memory() -> Finding:
    return Finding("machine", f"{cores()} cores, {memory_bytes() / (1 << 30):,.1f} GB of memory", "")


def _port(name: str, address: tuple[str, int], pipeline: Pipeline) -> Finding:
    """Whether a port can be listened on; a running pipeline of this checkpoint may have it."""
    host, port = address
    check = f"port {port} ({name})"
    run = RunState.read(absolute(pipeline.checkpoint))
    if run is not None and run.runs:
        return Finding(check, "the pipeline runs", "")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        found = error.strerror or str(error)
        return Finding(
            check, found, "an address of this machine and a free port", "", Severity.ERROR, code="TR-1274"
        )
    return Finding(check, "free", "")


# ---- source and sinks ----


def _source(options: SourceOptions) -> Iterator[Finding]:
    """Clock and round trip of the source."""
    with closing(registry.source(options)) as source:
        position = source.log_end()
        took, skews = [], []
        for _ in range(_TRIES):
            begin_s, begin = time.time(), time.monotonic()
            clock = source.log_clock(position)
            took.append(time.monotonic() - begin)
            if clock is not None:
                skews.append(clock.ts_us / 1e6 - (begin_s + took[-1] / 2))
    yield _round_trip(f"source {options.host}:{options.port}", took)
    if skews:
        yield _clock(min(skews, key=abs), min(took))


def _clock(skew_s: float, trip_s: float) -> Finding:
    """Whether the source's clock and this machine's agree."""
    if abs(skew_s) <= _SKEW_S + trip_s:
        return Finding("clock", f"differs from the source's by less than {_SKEW_S + trip_s:.1f} s", "")
    direction = "behind" if skew_s > 0 else "ahead of"
    return Finding(
        "clock",
        f"this machine is {abs(skew_s):,.1f} s {direction} the source",
        "the same time: the lag in metrics is the difference of both clocks",
        "timedatectl set-ntp true -- on the machine whose clock is wrong",
        Severity.WARNING,
        code="TR-1275",
    )


def _addresses(pipeline: Pipeline) -> Iterator[tuple[str, str, int]]:
    """Hosts and ports of the sinks."""
    for sink in pipeline.sinks:
        if isinstance(sink, ReplicaSettings):
            yield (
                f"sink {sink.type} {sink.server.host}:{sink.server.port}",
                sink.server.host,
                sink.server.port,
            )
        elif isinstance(sink, KafkaSettings):
            for address in sink.bootstrap_servers.split(","):
                host, _, port = address.strip().rpartition(":")
                if port.isdecimal():
                    yield f"sink kafka {address.strip()}", host.strip("[]"), int(port)
        elif isinstance(sink, RedisSettings | WebhookSettings | NatsSettings | RabbitMqSettings):
            host, number = sink.address[:2]
            yield f"sink {sink.type} {host}:{number}", host, number
        elif isinstance(sink, RocketMqSettings):
            for address in sink.addresses:
                host, _, port = address.rpartition(":")
                yield f"sink rocketmq {address}", host.strip("[]"), int(port)


def _way(check: str, host: str, port: int) -> Iterator[Finding]:
    """How long a connection to an address takes."""
    took = []
    for _ in range(_TRIES):
        begin = time.monotonic()
        try:
            socket.create_connection((host, port), _TIMEOUT_S).close()
        except OSError as error:
            found = error.strerror or str(error)
            yield Finding(
                check, f"no connection: {found}", "an open port", "", Severity.ERROR, code="TR-7074"
            )
            return
        took.append(time.monotonic() - begin)
    yield _round_trip(check, took)


def _round_trip(check: str, took: list[float]) -> Finding:
    trip_s = median(took)
    found = f"answers within {trip_s * 1000:,.1f} ms"
    if trip_s <= _SLOW_S:
        return Finding(check, found, "")
    needed = f"less than {_SLOW_S * 1000:.0f} ms: planning and writing a batch take several round trips"
    return Finding(check, found, needed, "run the pipeline nearer to it", Severity.WARNING, code="TR-1276")
