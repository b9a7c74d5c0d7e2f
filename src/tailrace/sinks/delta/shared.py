"""Delta tables of a pipeline with several sources, which may share them.

    tailrace.stream        the pipeline's id, the same for all its sources (`sinks.shared_targets`)
    tailrace.source.NAME   the stream of a source that has written to the table

Each source has its own transaction ids in a table's commits, and keeps its pending changes, its seen keys
and its `_tailrace_batches` below `<sink>/_tailrace/sources/NAME`. A source that finds a table without its
property has never written to it, or the table was dropped and another source has made it anew: then the
tables of which the source has written rows are read again.
"""

from __future__ import annotations

from tailrace.errors import StateError
from tailrace.sinks.base import StreamId
from tailrace.sinks.delta.transaction import DeltaState
from tailrace.sinks.shared_targets import SourceOfTarget

_PREFIX = "tailrace.source."


def own_root(path: str, source: str) -> str:
    """The directory below which a stream keeps what belongs to its targets.

    Args:
        path: the sink's path.
        source: the name of the stream's source if there are several, else "".
    """
    return f"{path}/_tailrace/sources/{source}" if source else path


def owner_of(source: SourceOfTarget | None, stream: StreamId) -> str:
    """What a table of the stream has as `tailrace.stream`."""
    return stream.query if source is None else source.shared.id


def source_property(source: SourceOfTarget) -> str:
    """The property that holds the source's stream."""
    return f"{_PREFIX}{source.name}"


def has_several_sources(state: DeltaState) -> bool:
    """Whether several sources of the pipeline have written to a table."""
    return sum(name.startswith(_PREFIX) for name in state.properties) > 1


def joins(
    target: str, state: DeltaState, source: SourceOfTarget, stream: StreamId, shard: str | None
) -> bool:
    """Whether a table of the pipeline has not been written by a source yet.

    Args:
        target: the table's target.
        state: the table.
        source: the source.
        stream: its stream.
        shard: the column that tells the source's rows from others'; None: there is none.

    Raises:
        StateError: another stream of this source has written to it, or another source's rows are in it and
            cannot be told apart.
    """
    streams = {
        name.removeprefix(_PREFIX): query
        for name, query in state.properties.items()
        if name.startswith(_PREFIX)
    }
    former = streams.pop(source.name, None)
    if former not in (None, stream.query):
        raise StateError(
            f"target `{target}` is not this stream's",
            f"found rows of stream {former} of source `{source.name}`, needed {stream.query}",
            "continue with that stream's checkpoint, give the source another name, or delete the table",
            code="TR-7020",
        )
    if streams and shard is None:
        raise StateError(
            f"target `{target}` has rows of other sources",
            f"found source `{'`, `'.join(sorted(streams))}`, and nothing in the table's key tells rows apart",
            "route the table to another target; or delete the target, and add `shard-column` to the route",
            code="TR-7021",
        )
    return former is None
