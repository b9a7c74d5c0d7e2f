"""A live sample: the last few changes of each table, taken in the tasks that read them, while somebody looks.

    <checkpoint>/_tailrace/sample/wanted          {"v": 1, "look": "...", "values": {"shop.orders": "..."},
                                                   "hidden": ["shop[.]customers"]}
                                  <digest>.json   the last changes of a table, with `values` only where asked

Who looks writes `wanted` anew every few seconds, each time with another text in `look`; whoever wants values
puts another text there. The process that plans batches looks for the file every second or five, and believes
each text for a while since it has seen it first: clocks need not agree. Nobody looks: tasks do nothing.

Somebody looks: a task keeps the last five changes of each of twenty tables, as Arrow copies, and writes them
when it has read its split. A row is written only for `values`, without columns that have a mask, and neither
a row nor a key of tables that match `hidden`: the pipeline transforms them, maybe to hide something. When
nobody looks any more, the process that plans removes what was written.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tailrace.model.change import LOG, OP_LETTERS, OP_TRUNCATE, OP_UPDATE, ChangeBatch
from tailrace.model.column_mask import ColumnMask
from tailrace.spark.checkpoint import Directory, is_local

_log = logging.getLogger(__name__)

#: How long somebody looks after having said so, seconds.
LOOK_S = 30.0
#: How long values are shown that somebody asked for, seconds.
VALUES_S = 60.0
#: How often the planning process looks for `wanted`, seconds; on a remote file system.
_POLL_S = 1.0
_REMOTE_POLL_S = 5.0
#: Changes of a table, and tables of a split.
_MOST_CHANGES = 5
_MOST_TABLES = 20
#: Columns of a table, and characters of a value.
_MOST_COLUMNS = 50
_MOST_CHARACTERS = 200
_WANTED = "wanted"
_VERSION = 1


def sample_path(checkpoint: str) -> str:
    """The directory of the samples of the stream with a checkpoint."""
    return f"{checkpoint.rstrip('/')}/_tailrace/sample"


@dataclass(frozen=True)
class Wanted:
    """That somebody looks.

    Args:
        path: the directory of samples.
        values: the tables of which values are wanted, too.
        hidden: patterns of tables whose keys and values are never written.
    """

    path: str
    values: frozenset[str] = frozenset()
    hidden: tuple[str, ...] = ()

    def hides(self, table: str) -> bool:
        """Whether keys and values of a table are never written."""
        return any(re.fullmatch(pattern, table, re.DOTALL) for pattern in self.hidden)


class SampleWatch:
    """Knows whether somebody looks at a stream; for the process that plans its batches.

    Args:
        path: the directory of samples.
        clock: monotonic seconds.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._directory = Directory(path, private=True)
        self._clock = clock
        self._poll_s = _POLL_S if is_local(path) else _REMOTE_POLL_S
        self._next_s = float("-inf")
        #: Texts of `wanted` and when each was seen first.
        self._seen: dict[str, float] = {}
        self._is_new = True
        #: Until when to look for what tasks write that began before nobody looked any more.
        self._sweep_until_s = float("-inf")
        self._wanted: Wanted | None = None

    @property
    def wanted(self) -> Wanted | None:
        """What somebody looks at; None: nobody looks."""
        now_s = self._clock()
        if now_s >= self._next_s:
            self._next_s = now_s + self._poll_s
            try:
                self._look(now_s)
            except OSError as error:  # a sample must not stop a stream
                _log.warning("no live sample: %s", error.strerror)
                self._wanted = None
        return self._wanted

    def _look(self, now_s: float) -> None:
        before, text = self._wanted, self._directory.read(_WANTED)
        if text is None and before is None and not self._is_new and now_s > self._sweep_until_s:
            return
        found = _parsed(text)
        texts = {str(found.get("look"))} | set(found.get("values", {}).values()) if found else set()
        first_s = float("-inf") if self._is_new else now_s  # what is there at the start is of long ago
        if self._is_new or before is not None:
            self._sweep_until_s = now_s + LOOK_S
        self._is_new = False
        self._seen = {text: self._seen.get(text, first_s) for text in texts}
        self._wanted = None
        if found and now_s - self._seen[str(found.get("look"))] < LOOK_S:
            values = frozenset(
                table
                for table, text in found.get("values", {}).items()
                if now_s - self._seen[text] < VALUES_S
            )
            self._wanted = Wanted(self._path, values, tuple(found.get("hidden", ())))
        gone = frozenset[str]() if before is None else before.values
        if self._wanted is not None:
            gone -= self._wanted.values
            for table in gone:
                self._directory.remove(_name(table))
        else:
            for name in self._directory.names():
                self._directory.remove(name)


def sampled(
    changes: Iterator[ChangeBatch], wanted: Wanted, masks: Sequence[ColumnMask]
) -> Iterator[ChangeBatch]:
    """`changes` as they are; the last ones of each table are written when all have passed.

    Args:
        changes: of a split.
        wanted: what somebody looks at.
        masks: those of the stream.
    """
    last: dict[str, list[ChangeBatch]] = {}
    for batch in changes:
        if batch.kind == LOG and len(batch):
            name = str(batch.table.id)
            if name in last or len(last) < _MOST_TABLES:
                count = min(_MOST_CHANGES, len(batch))
                tail = batch.take(pa.array(range(len(batch) - count, len(batch))))
                last[name] = [*last.get(name, []), tail][-_MOST_CHANGES:]
        yield batch
    directory = Directory(wanted.path, private=True)
    for name, batches in last.items():
        shown = [row for batch in batches for row in _rows(batch, wanted, masks)]
        content = {"v": _VERSION, "table": name, "changes": shown[-_MOST_CHANGES:]}
        new = uuid.uuid4().hex
        try:
            directory.write(new, json.dumps(content))
            directory.rename(new, _name(name))
        except OSError as error:  # a sample must not stop a stream
            _log.warning("no live sample: %s", error.strerror)


def _rows(changes: ChangeBatch, wanted: Wanted, masks: Sequence[ColumnMask]) -> Iterator[dict[str, Any]]:
    table = changes.table
    name = str(table.id)
    is_hidden = wanted.hides(name)
    values = name in wanted.values and not is_hidden
    masked = {c.name for c in table.columns if any(mask.has(table.id, c.name) for mask in masks)}
    names = [column.name for column in table.columns][:_MOST_COLUMNS]
    for i, op in enumerate(changes.op.to_pylist()):
        before, after = (_image(changes, side, i) for side in ("before", "after"))
        image = after if after is not None else before or {}
        origin = {of: changes.origin.column(of)[i].as_py() for of in ("ts_us", "file", "pos", "txn")}
        yield {
            "op": "t" if op == OP_TRUNCATE else OP_LETTERS[op],
            **origin,
            "key": None if is_hidden else {key: _text(image[key]) for key in table.key if key in image},
            "changed": _changed(before, after, names) if op == OP_UPDATE else [],
            "columns": names,
            "masked": sorted(masked),
            "before": _shown(before, masked, names) if values else None,
            "after": _shown(after, masked, names) if values else None,
        }


def _image(changes: ChangeBatch, side: str, i: int) -> dict[str, Any] | None:
    """The row of a side, without the columns that the log omitted; None: there is none."""
    row = changes.image(side)[i].as_py()
    absent = changes.absent_before if side == "before" else changes.absent_after
    return None if row is None else {name: value for name, value in row.items() if name not in absent}


def _changed(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, names: Sequence[str]
) -> list[str] | None:
    """The columns that an update has changed; None: the log does not have the row before."""
    if before is None or after is None:
        return None
    return [name for name in names if name in after and (name not in before or before[name] != after[name])]


def _shown(
    row: Mapping[str, Any] | None, masked: set[str], names: Sequence[str]
) -> dict[str, str | None] | None:
    if row is None:
        return None
    return {name: _text(row[name]) for name in names if name in row and name not in masked}


def _text(value: Any) -> str | None:
    if value is None:
        return None
    text = f"{len(value):,} bytes" if isinstance(value, bytes) else str(value)
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "…"


class Samples:
    """The samples of a stream, for who looks at them.

    Args:
        checkpoint: the stream's checkpoint.
    """

    def __init__(self, checkpoint: str) -> None:
        self._directory = Directory(sample_path(checkpoint), private=True)

    def look(self, hidden: Sequence[str], values: Sequence[str] = ()) -> frozenset[str]:
        """Say that somebody looks, also at the values of some tables.

        Args:
            hidden: patterns of tables whose keys and values are never written.
            values: the tables whose values somebody asks for now.

        Returns:
            The tables whose values may be shown: those that somebody asked for within the last minute.
        """
        now_ms = time.time_ns() // 1_000_000
        found = _parsed(self._directory.read(_WANTED)) or {}
        until = {t: ms for t, ms in found.get("until_ms", {}).items() if now_ms < ms}
        texts = {t: text for t, text in found.get("values", {}).items() if t in until}
        for table in values:
            until[table], texts[table] = now_ms + int(VALUES_S * 1000), uuid.uuid4().hex
        wanted = {
            "v": _VERSION,
            "look": uuid.uuid4().hex,
            "values": texts,
            "until_ms": until,
            "hidden": list(hidden),
        }
        new = uuid.uuid4().hex
        self._directory.write(new, json.dumps(wanted))
        self._directory.rename(new, _WANTED)
        return frozenset(until)

    def found(self) -> list[Mapping[str, Any]]:
        """What tasks have written, of each table, in the order of their names."""
        names = [name for name in self._directory.names() if name.endswith(".json")]
        found = [one for name in names if (one := _parsed(self._directory.read(name)))]
        return sorted(found, key=lambda one: str(one["table"]))


def _parsed(text: str | None) -> dict[str, Any] | None:
    """The content of a file; None: there is none, or another version has written it."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("v") == _VERSION else None


def _name(table: str) -> str:
    return hashlib.sha256(table.encode()).hexdigest()[:32] + ".json"
