"""The engine without Spark: batches planned and read in this process, and checks of their sum."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tailrace.config.options import SourceOptions, parse_options
from tailrace.enumerator.enumerator import Enumerator, Limits
from tailrace.enumerator.offset import StreamOffset
from tailrace.model.change import OP_LETTERS, ChangeBatch
from tailrace.model.split import LogSplit, SnapshotSplit
from tailrace.reader.hash_partition import in_share
from tailrace.reader.log import read_log
from tailrace.reader.snapshot import (
    read_snapshot,
    read_until_end,
    read_until_lost,
    read_until_rewritten,
)
from tailrace.sources import registry

State = dict[tuple[Any, ...], dict[str, Any]]


def options_for(server, tables: str, **given: Any) -> SourceOptions:
    return parse_options(
        {
            "url": f"mysql://{server.host}:{server.port}",
            "user": server.user,
            "password": server.password,
            "tables": tables,
            "snapshotProtection": "none",  # what writers of a test do to the pace has tests of its own
            **{k: str(v) for k, v in given.items()},
        }
    )


class Engine:
    """One stream, driven batch by batch."""

    def __init__(
        self, options: SourceOptions, *, parallelism: int = 2, session: Any = registry.session
    ) -> None:
        self.options = options
        self.session = session
        self.plan = Enumerator(options, registry.source(options), parallelism=parallelism)
        self.offset = StreamOffset()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.plan.close()

    def read_beyond(self) -> None:
        """Let the stream read beyond what `plan.hold` has set, as the next run of AvailableNow does."""
        self.plan._horizon._held = None

    def next(self, limits: Limits | None = None) -> tuple[StreamOffset, StreamOffset] | None:
        """The offsets of the next batch, None when there is nothing new."""
        start = self.offset
        end = self.plan.latest(start, limits or Limits(None, 1 << 20))
        if end is start:
            return None
        # what Spark does to offsets
        self.offset = StreamOffset.from_json(end.to_json())
        return start, self.offset

    def read(self, start: StreamOffset, end: StreamOffset) -> tuple[list[ChangeBatch], list[ChangeBatch]]:
        """The batch's snapshot and log part."""
        snapshot, log = [], []
        for split in self.plan.splits(start, end):
            options = self.options.capturing(split.tables, split.columns)
            session = self.session(options)
            skips = options.columns.skips_unchanged
            try:
                if isinstance(split, SnapshotSplit):
                    exact = self.options.exactly_once
                    refreshes = self.options.on_rewrite == "refresh"
                    read = read_until_rewritten if refreshes else read_snapshot
                    rows = read(session.located(split), session, exact=exact)
                    rows = read_until_end(rows, split, session)
                    rejoins = self.options.on_position_lost == "refresh"
                    snapshot.extend(read_until_lost(rows) if rejoins else rows)
                else:
                    log.extend(
                        in_share(
                            read_log(session.located(split), session, skips_unchanged=skips), split.share
                        )
                    )
            finally:
                session.close()
        return snapshot, log


def rows_of(batches: list[ChangeBatch]) -> list[dict[str, Any]]:
    return [row for b in batches for row in b.image("after").to_pylist()]


def changes_of(batches: list[ChangeBatch]) -> list[tuple[str, Any, Any, str]]:
    """(op, before, after, seq) of every change, in order."""
    out = []
    for b in batches:
        out.extend(
            zip(
                [OP_LETTERS[o] for o in b.op.to_pylist()],
                b.image("before").to_pylist(),
                b.image("after").to_pylist(),
                b.origin.column("seq").to_pylist(),
                strict=True,
            )
        )
    return out


def multiset(batches: list[ChangeBatch]) -> Counter[str]:
    """A batch's output in comparable form: every change with its origin, in any order."""
    out: Counter[str] = Counter()
    for b in batches:
        images = (b.op.to_pylist(), b.image("before").to_pylist(), b.image("after").to_pylist())
        out.update(repr(row) for row in zip(*images, b.origin.to_pylist(), strict=True))
    return out


def apply(state: State, changes: list[tuple[str, Any, Any, str]], key: tuple[str, ...]) -> None:
    """Apply log changes to `state`; each must fit the present rows."""
    for op, before, after, _ in changes:
        if op in ("u", "d"):
            found = state.pop(tuple(before[k] for k in key), None)
            assert found == before, f"{op} of {before}: the state holds {found}"
        if op in ("u", "c"):
            new = tuple(after[k] for k in key)
            assert new not in state, f"{op} of a key that is there: {after}"
            state[new] = after


class Held:
    """A sink's rows of one table; fails as soon as a change does not fit."""

    def __init__(self, engine: Engine, key: tuple[str, ...]) -> None:
        self.engine = engine
        self.state: State = {}
        self.seqs: list[str] = []
        self._key = key

    def take(self, snapshot: list[ChangeBatch], log: list[ChangeBatch]) -> None:
        """Apply a batch."""
        changes = changes_of(log)
        apply(self.state, changes, self._key)
        self.seqs += [seq for *_, seq in changes]
        for row in rows_of(snapshot):
            key = tuple(row[k] for k in self._key)
            assert key not in self.state, f"snapshot row that is there: {key}"
            self.state[key] = row


def whole_log(
    options: SourceOptions, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[str, Any, Any, str]]:
    """Every change in `(start, end]` of the log, read in one go."""
    session = registry.session(options)
    try:
        return changes_of(list(read_log(LogSplit(start, end), session)))
    finally:
        session.close()
