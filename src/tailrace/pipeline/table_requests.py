"""What is asked of a pipeline's tables and sinks: requests beside its checkpoint; wrong ones are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.config.model import Pipeline
from tailrace.config.secret import shown
from tailrace.config.sinks import (
    ClickHouseSettings,
    ConsoleSettings,
    DeltaSettings,
    DuckDbSettings,
    IcebergSettings,
    MySqlSettings,
    OpenSearchSettings,
    PostgresSettings,
    SinkSettings,
    WriteMode,
    sink_names,
)
from tailrace.enumerator.signals import TYPES
from tailrace.errors import ConfigError
from tailrace.model.parked import Parked, parked_tables
from tailrace.pipeline.absent_sinks import sink_key
from tailrace.pipeline.parked_sinks import parked_sinks, request_resume
from tailrace.pipeline.tables_in_force import with_tables_in_force
from tailrace.spark.checkpoint import Checkpoint
from tailrace.spark.requests import RequestDirectory, requests_path


def resync(pipeline: Pipeline, tables: Sequence[str], where: str | None, arguments: str) -> str:
    """Request that tables be read again, in place; returns the request's id.

    Args:
        pipeline: the pipeline.
        tables: the tables, as `database.table`.
        where: only rows that it holds for; None: all.
        arguments: what commands about the pipeline are given, for hints.

    Raises:
        ConfigError: a table is not captured, or parked.
    """
    require_captured(pipeline, tables, "cannot be read again")
    parked = sorted(parked_now(pipeline).keys() & set(tables))
    if parked:
        raise ConfigError(
            f"{', '.join(f'`{name}`' for name in parked)} cannot be read again: parked",
            None,
            f"tailrace resume {arguments} {' '.join(parked)}",
            code="TR-1340",
        )
    directory = _requests(pipeline)
    # a signal is answered if its condition is wrong, other requests are not
    return directory.add(tables) if where is None else directory.add_rows(dict.fromkeys(tables, where))


def park(pipeline: Pipeline, tables: Sequence[str]) -> str:
    """Request that tables be left out until they are resumed; returns the request's id.

    Raises:
        ConfigError: a table is not captured.
    """
    require_captured(pipeline, tables, "cannot be parked")
    return _requests(pipeline).add(tables, "park")


def resume(pipeline: Pipeline, tables: Sequence[str], arguments: str, *, replay: bool = False) -> str:
    """Request that the stream go on with parked tables; returns the request's id.

    Args:
        pipeline: the pipeline.
        tables: the tables, as `database.table`.
        arguments: what commands about the pipeline are given, for hints.
        replay: whether to deliver the changes made meanwhile, instead of reading rows again.

    Raises:
        ConfigError: a table is not captured, or its changes are not kept.
    """
    require_captured(pipeline, tables, "cannot be resumed")
    if replay and pipeline.source.dialect == "postgresql":
        raise ConfigError(
            "`tailrace resume --replay` cannot be used with PostgreSQL",
            "the replication slot keeps the log up to where the other tables are, which is past it",
            f"tailrace resume {arguments} {' '.join(tables)}",
            code="TR-1341",
        )
    return _requests(pipeline).add(tables, "resume", replay=replay)


def resume_sink(pipeline: Pipeline, name: str) -> list[str] | None:
    """Request that a parked sink be given everything again.

    Returns:
        The tables that it lacks; None: all.

    Raises:
        ConfigError: there is no such sink, or it is not parked.
    """
    names = sink_names(pipeline.sinks)
    if name not in names:
        raise ConfigError(
            f"sink {shown(name)} cannot be resumed",
            f"the pipeline's sinks are {', '.join(f'`{one}`' for one in names)}",
            code="TR-7613",
        )
    settings = pipeline.sinks[names.index(name)]
    parked = [entry for entry in parked_sinks(pipeline.checkpoint) if entry.sink == sink_key(settings)]
    if not parked:
        raise ConfigError(
            f"sink {shown(name)} is not parked", None, "tailrace status PIPELINE.YAML", code="TR-7613"
        )
    only = None if any(entry.table is None for entry in parked) else [str(entry.table) for entry in parked]
    request_resume(pipeline.checkpoint, settings)
    return only


def send_signal(pipeline: Pipeline, kind: str, data: Mapping[str, Any], id_: str | None = None) -> str:
    """Send a signal of Debezium's kinds; returns its id.

    Args:
        pipeline: the pipeline.
        kind: its type.
        data: its arguments.
        id_: a name for it; None: a new one.

    Raises:
        ConfigError: there is no such type.
    """
    if kind not in TYPES:
        raise ConfigError(
            "the type of the signal is unknown",
            f"found {kind!a}, allowed: {', '.join(TYPES)}",
            code="TR-1369",
        )
    value: dict[str, Any] = {"type": kind, "data": dict(data)}
    if id_ is not None:
        value["id"] = id_
    request = _requests(pipeline).add_signal(value)
    return id_ or request


def parked_now(pipeline: Pipeline) -> dict[str, Parked]:
    """The parked tables, by the pipeline's newest offset."""
    last = Checkpoint(pipeline.checkpoint).last()
    return {} if last is None else parked_tables(last.end)


def require_captured(pipeline: Pipeline, tables: Sequence[str], refusal: str) -> None:
    """Refuse names of tables that the pipeline does not capture.

    Raises:
        ConfigError: there are some.
    """
    pipeline = with_tables_in_force(pipeline)
    unknown = [name for name in tables if not pipeline.source.captures(name)]
    if unknown:
        raise ConfigError(
            f"{', '.join(f'`{name}`' for name in unknown)} {refusal}",
            f"the pipeline captures {pipeline.source.choice}",
            "name tables as `database.table`, or add them to `source.tables`",
            code="TR-1302",
        )


def appends(sink: SinkSettings) -> bool:
    """Whether a sink keeps changes, so that one that comes twice is there twice."""
    match sink:
        case DeltaSettings() | IcebergSettings() | ClickHouseSettings() | DuckDbSettings():
            return sink.mode is not WriteMode.UPSERT
        case ConsoleSettings() | MySqlSettings() | PostgresSettings() | OpenSearchSettings():
            return False
        case _:
            return True


def _requests(pipeline: Pipeline) -> RequestDirectory:
    return RequestDirectory(requests_path(pipeline.checkpoint))
