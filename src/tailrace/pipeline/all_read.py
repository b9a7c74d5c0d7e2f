"""Whether a run with `trigger: available-now` has anything to do, found out before Spark is started.

    <checkpoint>/_tailrace/all_read.json    {"v": 1, "batch": 12, "state": "<SHA-256>", "at_ms": ...}

A run that ends because everything is read, with nothing parked and nothing pending, notes its last batch.
The next run asks the source, as its stream would, what has come after that batch; if nothing has, it ends.
`state` covers all that could make a difference besides the source: the stream's id, the offset at the batch's
end, the pipeline's settings, Tailrace's version.

Log that does not concern the stream is left where it is, so the server has to keep it; and tables get no
maintenance. So one run in an hour starts Spark whatever it finds.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import fields, is_dataclass
from typing import Any

from tailrace import __version__
from tailrace.config.model import Pipeline, TriggerMode
from tailrace.config.options import parse_options
from tailrace.config.secret import Secret
from tailrace.enumerator.enumerator import Enumerator, Limits
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import TailraceError
from tailrace.pipeline.supervisor import stream_options
from tailrace.sources import registry
from tailrace.spark import IS_LIMITED
from tailrace.spark.checkpoint import Checkpoint, Directory, PlannedBatch, absolute
from tailrace.spark.requests import RequestDirectory
from tailrace.spark.same_stream import require_same

_log = logging.getLogger(__name__)
_VERSION = 1
_NAME = "_tailrace/all_read.json"
#: How long after a run of Spark another one is due, milliseconds.
_DUE_MS = 3_600_000


def note_all_read(pipeline: Pipeline) -> None:
    """Note that the targets have everything: the stream has ended by itself, and no sink has pending changes.

    Args:
        pipeline: the pipeline, with `trigger: available-now`.
    """
    if not _may_skip(pipeline):
        return
    checkpoint = Checkpoint(absolute(pipeline.checkpoint))
    last = checkpoint.last()
    if last is None or not last.committed:
        return
    found = {
        "v": _VERSION,
        "batch": last.id,
        "state": _state(pipeline, checkpoint, last),
        "at_ms": time.time_ns() // 1_000_000,
    }
    try:
        Directory(checkpoint.path, private=True).write(_NAME, json.dumps(found))
    except OSError as error:  # the next run starts Spark
        _log.warning("it could not be noted that everything is read: %s", error)


def all_read(pipeline: Pipeline) -> PlannedBatch | None:
    """The last batch, if a run would find nothing to do; None: it might, or it must find out by itself.

    Args:
        pipeline: the pipeline, which does not run.
    """
    if not _may_skip(pipeline):
        return None
    checkpoint = Checkpoint(absolute(pipeline.checkpoint))
    noted = _noted(checkpoint)
    if noted is None:
        return None
    last = checkpoint.last()
    now_ms = time.time_ns() // 1_000_000
    if last is None or not last.committed or last.id != noted["batch"]:
        return None
    if not 0 <= now_ms - noted["at_ms"] < _DUE_MS or noted["state"] != _state(pipeline, checkpoint, last):
        return None
    try:
        return None if _has_news(pipeline, last) else last
    except TailraceError:
        return None  # the run meets it, and knows what to do


def _may_skip(pipeline: Pipeline) -> bool:
    """Whether a run does nothing but read and write."""
    return (
        pipeline.settings.trigger is TriggerMode.AVAILABLE_NOW
        and IS_LIMITED
        and pipeline.named is None
        and pipeline.settings.verify is None
        and pipeline.signals.topic is None
    )


def _noted(checkpoint: Checkpoint) -> dict[str, Any] | None:
    text = Directory(checkpoint.path).read(_NAME)
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    known = isinstance(found, dict) and found.get("v") == _VERSION
    return found if known and all(isinstance(found.get(k), int) for k in ("batch", "at_ms")) else None


def _has_news(pipeline: Pipeline, last: PlannedBatch) -> bool:
    options = parse_options(stream_options(pipeline))
    require_same(last.end, options)
    assert options.requests_path is not None
    stream = Enumerator(
        options,
        registry.source(options),
        parallelism=1,
        requests=RequestDirectory(options.requests_path),
        compares=True,
    )
    with closing(stream):
        stream.hold()
        return stream.has_news(StreamOffset.from_json(last.end), Limits.of(options))


def _state(pipeline: Pipeline, checkpoint: Checkpoint, last: PlannedBatch) -> str:
    values = [__version__, checkpoint.query_id(), last.end, _plain(pipeline)]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _plain(value: object) -> Any:
    """Settings as JSON values, the same in every process; secrets are left out."""
    if isinstance(value, Secret):
        return None
    if is_dataclass(value) and not isinstance(value, type):
        of_fields = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return [type(value).__name__, of_fields]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(_plain, value), key=repr)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return repr(value)
