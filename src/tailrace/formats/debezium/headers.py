"""Headers of `debezium` messages: what is told beside key and value.

    __debezium.newkey          on a key update's delete: the key that the row has now
    __debezium.oldkey          on its create: the key that the row had
    __debezium.context.*       connectorLogicalName, taskId, connectorName, runId, where they are asked for
    __tailrace.absent.before   names of the columns that are null in `before` because the log left them out
    __tailrace.absent.after    the same of `after`

A tombstone has its delete's. Keys are as they are written in messages, other values as Connect's JSON
converter makes them when it is set as `header.converter`; the order is Debezium's.

Source: debezium/debezium v3.6.1 `RelationalChangeRecordEmitter`; what it was seen to write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.formats.encodings.json_documents import operations
from tailrace.formats.encodings.layout import dumps
from tailrace.formats.row import IN_AFTER, IN_BEFORE, absent_columns
from tailrace.model.change import OP_CREATE, OP_DELETE, ChangeBatch

NEW_KEY_HEADER = "__debezium.newkey"
OLD_KEY_HEADER = "__debezium.oldkey"
CONTEXT_HEADER = "__debezium.context."
ABSENT_HEADER = "__tailrace.absent."

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

_EVEN_DIGITS, _ODD_DIGITS = pa.array(list("02468ace")), pa.array(list("13579bdf"))
_FALSE = pa.scalar(False)
_STRING = {"type": "string", "optional": False}
_NAMES = {"type": "array", "items": _STRING, "optional": False}


@dataclass(frozen=True)
class _Header:
    """One header of some changes.

    Args:
        name: its name.
        at: numbers of the changes that have it, each once.
        values: its values, one for each or one for all.
    """

    name: str
    at: np.ndarray
    values: pa.Array


def context_of(prefix: str, connector: str, run_id: str) -> dict[str, str]:
    """Debezium's context headers by the end of their names; a connector that reads one log has one task.

    Args:
        prefix: Debezium's `topic.prefix`.
        connector: Debezium's name of the source's kind.
        run_id: this run's own.
    """
    return {
        "connectorLogicalName": prefix,
        "taskId": "0",
        "connectorName": connector,
        "runId": run_id,
    }


def headers_of(
    batch: ChangeBatch,
    keys: pa.Array,
    key_of: np.ndarray,
    *,
    schemas: bool = False,
    context: Mapping[str, str] | None = None,
) -> pa.ListArray:
    """The headers of each change's messages, null where there are none.

    Args:
        batch: changes of one table.
        keys: keys of messages.
        key_of: for each change where among `keys` its own is.
        schemas: whether values carry their Connect schema.
        context: Debezium's context headers by the end of their names.
    """
    found = _other_keys(batch, keys, key_of)
    for name, value in (context or {}).items():
        text = _text(value, _STRING, schemas=schemas)
        found.append(_Header(f"{CONTEXT_HEADER}{name}", np.arange(len(batch)), text))
    for side, sides in (("before", IN_BEFORE), ("after", IN_AFTER)):
        if names := absent_columns(batch, side):
            has = np.isin(operations(batch), [op for op, image in enumerate(sides) if image])
            text = _text(names, _NAMES, schemas=schemas)
            found.append(_Header(f"{ABSENT_HEADER}{side}", np.flatnonzero(has), text))
    return _lists(found, len(batch)) if found else pa.nulls(len(batch), HEADERS)


def _text(value: Any, schema: Mapping[str, Any], *, schemas: bool) -> pa.Array:
    """An array of one: the value as Connect's converter writes it."""
    document = {"schema": schema, "payload": value} if schemas else value
    return pa.array([dumps(document).encode()], pa.binary())


def _lists(headers: Sequence[_Header], changes: int) -> pa.ListArray:
    """Each change's headers, in the order of `headers`."""
    counts = np.zeros(changes, np.int64)
    for header in headers:
        counts[header.at] += 1
    offsets = np.concatenate([[0], np.cumsum(counts)])
    end = offsets[:-1].copy()
    names, values = (np.empty(offsets[-1], np.int64) for _ in range(2))
    first_value = 0
    for number, header in enumerate(headers):
        place = end[header.at]
        end[header.at] += 1
        names[place] = number
        values[place] = first_value + (np.arange(len(place)) if len(header.values) > 1 else 0)
        first_value += len(header.values)
    entries = pa.StructArray.from_arrays(
        [
            pa.array([header.name for header in headers]).take(pa.array(names)),
            pa.concat_arrays([header.values for header in headers]).take(pa.array(values)),
        ],
        fields=list(HEADERS.value_type),
    )
    ends = pa.array(offsets.astype(np.int32))
    return pa.ListArray.from_arrays(ends, entries, type=HEADERS, mask=pa.array(counts == 0))


def _other_keys(batch: ChangeBatch, keys: pa.Array, key_of: np.ndarray) -> list[_Header]:
    """The other key, on both halves of each key update."""
    old = key_updates(batch)
    if not batch.table.key or len(old) == 0:
        return []
    old_keys, new_keys = (keys.take(pa.array(key_of[half])) for half in (old, old + 1))
    return [_Header(NEW_KEY_HEADER, old, new_keys), _Header(OLD_KEY_HEADER, old + 1, old_keys)]


def key_updates(batch: ChangeBatch) -> np.ndarray:
    """Rows that are the first half of a key update whose second half is the next row.

    The halves have one event and row, so one `seq` but for its last digit: even, then odd.
    """
    ops = operations(batch)
    candidates = np.flatnonzero((ops[:-1] == OP_DELETE) & (ops[1:] == OP_CREATE))
    if len(candidates) == 0:
        return candidates
    seq = batch.origin.column("seq")
    first, second = (seq.take(pa.array(candidates + half)) for half in (0, 1))
    same_row = pc.equal(*(pc.utf8_slice_codeunits(half, start=0, stop=-1) for half in (first, second)))
    even, odd = (
        pc.index_in(pc.utf8_slice_codeunits(half, start=-1), value_set=digits)
        for half, digits in ((first, _EVEN_DIGITS), (second, _ODD_DIGITS))
    )
    halves = pc.fill_null(pc.and_(same_row, pc.equal(even, odd)), _FALSE)
    return np.asarray(candidates[halves.to_numpy(zero_copy_only=False)])
