"""What tables of DuckDB hold of a stream: the notes in `_tailrace.targets`."""

from __future__ import annotations

from pathlib import Path

from tailrace.config.sinks import DuckDbSettings
from tailrace.sinks.duckdb import state
from tailrace.sinks.duckdb.client import connected
from tailrace.sinks.standing import TargetStanding
from tailrace.spark.checkpoint import absolute


def targets(settings: DuckDbSettings, stream: str) -> dict[str, TargetStanding]:
    """The targets that belong to the stream, by name."""
    notes = _notes(settings) or {}
    return {name: TargetStanding(note.batch) for name, note in notes.items() if note.stream == stream}


def count_of_targets(settings: DuckDbSettings) -> int | None:
    """The number of all streams' targets; None: there is no file yet."""
    notes = _notes(settings)
    return None if notes is None else len(notes)


def _notes(settings: DuckDbSettings) -> dict[str, state.TargetNote] | None:
    if not Path(absolute(settings.database)).exists():
        return None
    with connected(settings, read_only=True) as connection:
        return state.read(connection)
