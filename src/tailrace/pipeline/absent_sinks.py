"""Sinks that a pipeline leaves out for a time, and that catch up when they are back.

    <checkpoint>/_tailrace/sinks.json    {"v": 1, "sinks": {"delta:3f2a…": null, "mysql:91bc…": 812}}
                                         by sink: the first batch that it was not given, null if none

A batch counts as done when all sinks of the pipeline file have it, so a sink that is down stops the others.
To let them go on, its section is taken out of the file. When the section returns, its targets lack what
came in between: their tables are read again, in place (docs/design/0006-reading-tables-again.md). Without
this the targets would go on, wrong without an error. Until the reading begins, the sink is given nothing,
like one that is parked (`parked_sinks`); unless no other one flows: the stream could not go on.

The file is written before a batch that another set of sinks is given, never otherwise. A batch that comes
again makes the same request, under the same id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tailrace.config.kafka import KafkaSettings
from tailrace.config.message_sinks import NatsSettings, RedisSettings, RocketMqSettings, WebhookSettings
from tailrace.config.rabbitmq import RabbitMqSettings
from tailrace.config.sinks import (
    ClickHouseSettings,
    ConsoleSettings,
    DuckDbSettings,
    OpenSearchSettings,
    ReplicaSettings,
    SinkSettings,
)
from tailrace.errors import StateError
from tailrace.sinks.base import WHOLE
from tailrace.sinks.written_tables import WrittenTables
from tailrace.spark.checkpoint import Directory, absolute
from tailrace.spark.requests import RequestDirectory

_FILE = "sinks.json"
_VERSION = 1


def sink_key(settings: SinkSettings) -> str:
    """Identifies a sink by its type and place, without its address."""
    match settings:
        case ConsoleSettings():
            place: tuple[str, ...] = ()
        case ReplicaSettings():
            place = (*map(str, settings.address[1:]), getattr(settings, "schema", ""))
        case KafkaSettings():
            place = (settings.bootstrap_servers, settings.topic_prefix)
        case RocketMqSettings():
            place = (settings.name_servers, settings.topic_prefix)
        case RedisSettings():
            place = (*map(str, settings.address), settings.topic_prefix)
        case NatsSettings():
            place = (*settings.addresses, settings.topic_prefix)
        case RabbitMqSettings():
            place = (*(f"{host}:{port}" for _, host, port in settings.addresses), settings.vhost)
            place = (*place, settings.topic_prefix)
        case WebhookSettings():
            place = (settings.url,)
        case OpenSearchSettings():
            place = settings.urls
        case ClickHouseSettings():
            place = (*map(str, settings.address[1:]), settings.database)
        case DuckDbSettings():
            place = (absolute(settings.database),)
        case _:
            place = (absolute(settings.path),)
    digest = hashlib.sha256(json.dumps(place).encode()).hexdigest()[:16]
    return f"{settings.type}:{digest}"


class AbsentSinks:
    """The sinks that a stream has been given.

    Args:
        checkpoint: Spark's `checkpointLocation`.
        requests: the directory of requests to the stream.
        sinks: the pipeline's sinks.
        written: the tables that the stream has written.
        on_notice: receives what the user should know.
        wait: leaves a sink out until its tables begin to be read again; gives whether it does so
            (`ParkedSinks.wait`).
    """

    def __init__(
        self,
        checkpoint: str,
        requests: str,
        sinks: Sequence[SinkSettings],
        written: WrittenTables,
        on_notice: Callable[[str], None],
        *,
        wait: Callable[[SinkSettings, int], bool],
    ) -> None:
        self._wait = wait
        self._path = f"{checkpoint.rstrip('/')}/_tailrace"
        self._directory = Directory(self._path, private=True)
        self._requests = RequestDirectory(requests)
        self._sinks = {sink_key(settings): settings for settings in sinks}
        self._written = written
        self._on_notice = on_notice
        self._is_noted = False

    def note(self, batch: int, end: Mapping[str, Any] | None) -> None:
        """Note the sinks, before they are given a batch; have tables read again for those that are back.

        Args:
            batch: the batch's number.
            end: the stream offset at its end, None if it is unknown.

        Raises:
            StateError: a sink is back, and the stream has promised no table as a whole.
        """
        if self._is_noted:
            return
        before = self._read()
        now: dict[str, int | None] = dict.fromkeys(self._sinks)
        for key, left in before.items():
            if key not in now:
                now[key] = batch if left is None else left
            elif left is not None and left < batch:
                self._catch_up(key, left, batch, end)
        if now != before:
            self._directory.write(_FILE, json.dumps({"v": _VERSION, "sinks": dict(sorted(now.items()))}))
        self._is_noted = True

    def _catch_up(self, key: str, left: int, batch: int, end: Mapping[str, Any] | None) -> None:
        kind = self._sinks[key].type
        tables = self._written.before(batch)
        partial = () if end is None else set(end.get("partial", ())) & set(tables)
        if partial:
            raise StateError(
                f"sink `{kind}` has missed batches",
                f"it was not in the pipeline file from batch {left} to batch {batch - 1}, and the stream "
                f"follows {', '.join(f'`{name}`' for name in sorted(partial))} without earlier rows, so not "
                "all tables are read as a whole",
                "give the sink another place, whose targets begin now; or name them in "
                "snapshot.include.collection.list, and start once without the sink: they are read then",
                code="TR-6078",
            )
        if end is None or end.get("mode") not in WHOLE:
            raise StateError(
                f"sink `{kind}` has missed batches",
                f"it was not in the pipeline file from batch {left} to batch {batch - 1}, and the stream"
                " began without a snapshot, so tables are not read as a whole",
                "give the sink another place, whose targets begin now; or start a new stream",
                code="TR-6078",
            )
        if not tables:
            return
        if not self._wait(self._sinks[key], left):
            self._requests.add(tables, needed=True, id_=f"{batch:019d}-{key.replace(':', '-')}")
        self._on_notice(
            f"sink `{kind}` was left out from batch {left} to batch {batch - 1}: its tables are read again"
        )

    def _read(self) -> dict[str, int | None]:
        text = self._directory.read(_FILE)
        if text is None:
            return {}
        try:
            value = json.loads(text)
            if value["v"] != _VERSION:
                raise ValueError
            return {str(key): None if n is None else int(n) for key, n in value["sinks"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise StateError(
                f"`{self._path}/{_FILE}` cannot be read",
                f"found {text[:200]!a}",
                "remove the file: sinks that were left out before the next start do not catch up then; have"
                " their tables read again: tailrace resync PIPELINE.YAML TABLE...",
                code="TR-6077",
            ) from None
