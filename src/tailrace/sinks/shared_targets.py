"""Targets that several sources of one pipeline share (docs/design/0009-several-sources.md).

Each source is a stream of its own. A target takes rows of several only if its sink can keep their batches
apart, and if a shard column, which begins with the source's name, is part of the rows' key: then no change of
one source, no reading of its tables and no deletion meets a row of another one. Everything else is refused
before a row is written.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from tailrace.config.several_sources import PLACEHOLDER
from tailrace.errors import ConfigError, StateError
from tailrace.model.table import TableId
from tailrace.sinks.base import Capabilities, CellBatch, Sink, Written
from tailrace.sinks.route import Router
from tailrace.spark.checkpoint import Directory, absolute

_FILE = "sources.json"
_VERSION = 1


class SharedTargets:
    """What the sources of a pipeline have in common at its targets.

    Args:
        checkpoint: the directory below which each source has its checkpoint.
    """

    def __init__(self, checkpoint: str) -> None:
        self._directory = Directory(f"{absolute(checkpoint)}/_tailrace", private=True)
        self._lock = threading.Lock()
        self._write_locks: dict[int, threading.Lock] = {}
        #: By sink and path of a target: its sources, with a table of each, and whether it has a shard column.
        self._holders: dict[tuple[int, str], dict[str, tuple[TableId, bool]]] = {}
        #: By sink and directory: a target inside it, its source and table.
        self._inside: dict[tuple[int, str], tuple[str, TableId]] = {}
        self._id = ""

    @property
    def id(self) -> str:
        """Identifies the pipeline's streams together: what shared targets belong to.

        Raises:
            StateError: it was stored, and cannot be read.
        """
        with self._lock:
            self._id = self._id or self._read() or self._create()
            return self._id

    def write_lock(self, sink: int) -> threading.Lock:
        """Held by a source while it writes to a sink.

        Args:
            sink: the sink's number in the pipeline file.
        """
        with self._lock:
            return self._write_locks.setdefault(sink, threading.Lock())

    def claim(
        self, sink: int, kind: str, source: str, router: Router, tables: Iterable[TableId], *, may_share: bool
    ) -> None:
        """Claim the targets of tables for a source.

        Args:
            sink: the sink's number in the pipeline file.
            kind: its type.
            source: the source's name.
            router: names the targets.
            tables: the tables.
            may_share: whether the sink keeps the batches of several streams apart.

        Raises:
            ConfigError: another source has a target, and it cannot be shared.
        """
        with self._lock:
            for table in tables:
                path = router.path(table).casefold()
                is_sharded = router.shard_column(table) is not None
                holders = self._holders.setdefault((sink, path), {})
                others = [(name, held) for name, held in holders.items() if name != source]
                for name, (other, other_is_sharded) in others[:1]:
                    where = f"{other.quoted} of source `{name}` and {table.quoted} of source `{source}`"
                    if not may_share:
                        raise _cannot_share(where, kind, router.target(table), table)
                    if not (is_sharded and other_is_sharded):
                        raise _mixed(where, router.target(table), table)
                held = holders.get(source)
                holders[source] = (table, is_sharded and (held is None or held[1]))
                self._claim_directories(sink, source, table, path)

    def _claim_directories(self, sink: int, source: str, table: TableId, path: str) -> None:
        parents = [path[:end] for end, character in enumerate(path) if character == "/"]
        found = [self._inside.get((sink, path))]
        for parent in parents:
            found += ((name, held[0]) for name, held in self._holders.get((sink, parent), {}).items())
        for one in found:
            if one is not None and one[0] != source:
                raise ConfigError(
                    f"the target of {table.quoted} of source `{source}` and that of {one[1].quoted} of source"
                    f" `{one[0]}` lie inside each other",
                    f"found `{path}`",
                    f"begin `sink-table` with `{PLACEHOLDER}_`",
                    code="TR-1223",
                )
        self._inside |= dict.fromkeys(((sink, parent) for parent in parents), (source, table))

    def _read(self) -> str:
        text = self._directory.read(_FILE)
        if text is None:
            return ""
        try:
            value = json.loads(text)
            if value["v"] != _VERSION:
                raise ValueError
            return str(value["id"])
        except (ValueError, KeyError, TypeError):
            raise StateError(
                f"`{_FILE}` in the checkpoint's `_tailrace` cannot be read",
                f"found {text[:200]!a}",
                "restore the file: Delta tables of the sources name its id as their stream",
                code="TR-1225",
            ) from None

    def _create(self) -> str:
        new = str(uuid.uuid4())
        self._directory.write(_FILE, json.dumps({"v": _VERSION, "id": new}))
        return new


@dataclass(frozen=True)
class SourceOfTarget:
    """The source whose stream a sink writes, one of several.

    Args:
        name: its name.
        shared: what the sources have in common.
        sink: the sink's number in the pipeline file.
    """

    name: str
    shared: SharedTargets = field(compare=False)
    sink: int


class SinkOfSource:
    """A sink as one of several sources has it: refuses targets that other sources have.

    Args:
        sink: the sink.
        kind: its type.
        router: names the targets.
        source: the source.
        may_share: whether the sink keeps the batches of several streams apart.
    """

    def __init__(
        self, sink: Sink, kind: str, router: Router, source: SourceOfTarget, *, may_share: bool
    ) -> None:
        self._sink = sink
        self._kind = kind
        self._router = router
        self._source = source
        self._may_share = may_share

    @property
    def capabilities(self) -> Capabilities:
        """See `Sink.capabilities`."""
        return self._sink.capabilities

    @property
    def pending_rows(self) -> int:
        """See `Sink.pending_rows`."""
        return self._sink.pending_rows

    def claim(self, tables: Iterable[TableId]) -> None:
        """See `Sink.claim`."""
        listed = list(tables)
        self._sink.claim(listed)
        of = self._source
        of.shared.claim(of.sink, self._kind, of.name, self._router, listed, may_share=self._may_share)

    def write(self, batch: CellBatch) -> list[Written]:
        """See `Sink.write`."""
        return self._sink.write(batch)

    def close(self) -> None:
        """See `Sink.close`."""
        self._sink.close()


def _cannot_share(where: str, kind: str, target: str, table: TableId) -> ConfigError:
    return ConfigError(
        f"tables {where} would be mixed in one target",
        f"both go to `{target}`, and the targets of a sink `{kind}` take the rows of one source",
        f"give each source targets of its own: route: [{{source-table: '(.*)\\.(.*)', sink-table:"
        f" '{PLACEHOLDER}_$1.$2'}}]; or use a Delta or Kafka sink for the shared target",
        code="TR-1223",
        table=str(table),
    )


def _mixed(where: str, target: str, table: TableId) -> ConfigError:
    return ConfigError(
        f"tables {where} would be mixed in one target",
        f"both go to `{target}`, and nothing in the key tells their rows apart",
        "add `shard-column: _shard` to their routes: it holds source, database and table, and joins the key;"
        f" or put `{PLACEHOLDER}` into `sink-table`",
        code="TR-1223",
        table=str(table),
    )
