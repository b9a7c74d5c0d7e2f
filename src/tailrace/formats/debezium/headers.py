"""Headers of `debezium` messages.

    __debezium.newkey          on the delete of a key update: the row's new key
    __debezium.oldkey          on its create: the row's old key
    __debezium.context.*       connectorLogicalName, taskId, connectorName, runId, if enabled
    __tailrace.absent.before   names of the columns that are null in `before` because the log omits them
    __tailrace.absent.after    the same for `after`

A tombstone has the headers of its delete. Keys are encoded as in messages, other values as by Connect's JSON
converter set as `header.converter`. The order is Debezium's. Constant headers come last, as plain text.

Source: debezium/debezium v3.6.1 `RelationalChangeRecordEmitter`, and its observed output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.formats.connect.source_block import HEX_DIGITS
from tailrace.formats.encodings.json_documents import operations
from tailrace.formats.encodings.layout import dumps
from tailrace.formats.row import IN_AFTER, IN_BEFORE, absent_columns
from tailrace.model.change import OP_CREATE, OP_DELETE, ChangeBatch

NEW_KEY_HEADER = "__debezium.newkey"
OLD_KEY_HEADER = "__debezium.oldkey"
CONTEXT_HEADER = "__debezium.context."
ABSENT_HEADER = "__tailrace.absent."

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

_STRING = {"type": "string", "optional": False}
_NAMES = {"type": "array", "items": _STRING, "optional": False}


@dataclass(frozen=True)
class _Header:
    """One header of some changes.

    Args:
        name: its name.
        at: indices of the changes that have it, each once.
        values: one value for each of these changes, or one for all.
    """

    name: str
    at: np.ndarray
    values: pa.Array


def context_of(prefix: str, connector: str, run_id: str) -> dict[str, str]:
    """Debezium's context headers by the suffix of their names; a connector that reads one log has one task.

    Args:
        prefix: Debezium's `topic.prefix`.
        connector: Debezium's name for the kind of source.
        run_id: identifier of this run.
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
    added: Mapping[str, pa.Array] | None = None,
    constants: Mapping[str, str] | None = None,
) -> pa.ListArray:
    """The headers of each change's messages, null if there are none.

    Args:
        batch: changes of one table.
        keys: keys of messages.
        key_of: for each change the index of its key in `keys`.
        schemas: whether values carry their Connect schema.
        context: Debezium's context headers by the suffix of their names.
        added: further headers by their names, one binary value for each change; null: a header without value.
        constants: headers that each message has, last, with their text.
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
    found += [_Header(name, np.arange(len(batch)), values) for name, values in (added or {}).items()]
    for name, text in (constants or {}).items():
        found.append(_Header(name, np.arange(len(batch)), pa.array([text.encode()], pa.binary())))
    return _lists(found, len(batch)) if found else pa.nulls(len(batch), HEADERS)


def _text(value: Any, schema: Mapping[str, Any], *, schemas: bool) -> pa.Array:
    """An array with one element: the value as Connect's converter writes it."""
    document = {"schema": schema, "payload": value} if schemas else value
    return pa.array([dumps(document).encode()], pa.binary())


def _lists(headers: Sequence[_Header], changes: int) -> pa.ListArray:
    """The headers of each change, in the order of `headers`."""
    counts = np.zeros(changes, np.int64)
    for header in headers:
        counts[header.at] += 1
    offsets = np.concatenate([[0], np.cumsum(counts)])
    end = offsets[:-1].copy()
    names, values = (np.empty(offsets[-1], np.int64) for _ in range(2))
    first_value = 0
    for number, header in enumerate(headers):
        at = end[header.at]
        end[header.at] += 1
        names[at] = number
        values[at] = first_value + (np.arange(len(at)) if len(header.values) > 1 else 0)
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
    """The headers with the other key, for both halves of each key update."""
    old = key_updates(batch)
    if not batch.table.key or len(old) == 0:
        return []
    old_keys, new_keys = (keys.take(pa.array(key_of[half])) for half in (old, old + 1))
    return [_Header(NEW_KEY_HEADER, old, new_keys), _Header(OLD_KEY_HEADER, old + 1, old_keys)]


def key_updates(batch: ChangeBatch) -> np.ndarray:
    """Indices of changes that are the first half of a key update; the next change is the second half.

    The halves come from the same row of an event, so their `seq` differs in the last digit only: even, then
    odd.
    """
    ops = operations(batch)
    candidates = np.flatnonzero((ops[:-1] == OP_DELETE) & (ops[1:] == OP_CREATE))
    if len(candidates) == 0:
        return candidates
    seq = batch.origin.column("seq")
    offsets = np.frombuffer(seq.buffers()[1], np.int32, len(seq) + 1, 4 * seq.offset)
    text = np.frombuffer(seq.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    # most of them differ in that digit already
    candidates = candidates[(lengths[candidates] > 0) & (lengths[candidates] == lengths[candidates + 1])]
    even, odd = (HEX_DIGITS[text[offsets[candidates + half + 1] - 1]] for half in (0, 1))
    candidates = candidates[(even % 2 == 0) & (odd == even + 1)]
    found = [candidates[:0]]
    for length in np.unique(lengths[candidates]):
        at = candidates[lengths[candidates] == length]
        first, second = (text[offsets[at + half][:, None] + np.arange(length - 1)] for half in (0, 1))
        found.append(at[(first == second).all(axis=1)])
    return np.sort(np.concatenate(found))
