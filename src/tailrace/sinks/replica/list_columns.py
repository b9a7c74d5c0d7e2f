"""Lists and vectors as the literals that databases read, whole columns at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.sinks.replica.encode import ColumnEncoding, encode

_CONTROLS = [chr(i) for i in range(32)]


def as_bytes(array: pa.ListArray) -> pa.BinaryArray:
    """Lists of float32 as little-endian bytes."""
    numbers = array.values.buffers()[1]
    offsets = pc.multiply(array.offsets, pa.scalar(4, pa.int32()))
    if array.values.offset:
        offsets = pc.add(offsets, pa.scalar(4 * array.values.offset, pa.int32()))
    whole = pa.Array.from_buffers(pa.binary(), len(array), [None, offsets.buffers()[1], numbers])
    return pc.if_else(array.is_valid(), whole, None)


def as_json(array: pa.ListArray) -> pa.StringArray:
    """Lists as JSON arrays: numbers and booleans unchanged, bytes in hexadecimal, other values as text."""
    values = array.values
    if pa.types.is_boolean(values.type):
        texts = pc.if_else(values, "true", "false")
    elif pa.types.is_binary(values.type):
        texts = _quoted(_hex(values))
    elif pa.types.is_string(values.type):
        texts = _quoted(_escaped(values))
    elif pa.types.is_temporal(values.type):
        texts = _quoted(values.cast(pa.int64() if pa.types.is_duration(values.type) else pa.string()))
    else:
        texts = values.cast(pa.string())
        if pa.types.is_floating(values.type):
            texts = pc.if_else(pc.is_finite(values), texts, _quoted(texts))
    return _joined(array, texts, "null", "[", "]")


def as_array(array: pa.ListArray, encoding: ColumnEncoding) -> pa.StringArray:
    """Lists as PostgreSQL array literals.

    Args:
        array: the lists.
        encoding: the encoding of elements that are neither text nor bytes.
    """
    values = array.values
    if pa.types.is_binary(values.type):
        texts = _quoted(pc.binary_join_element_wise(r"\\x", _hex(values), ""))
    elif pa.types.is_string(values.type):
        escaped = pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), '"', '\\"')
        texts = _quoted(escaped)
    else:
        texts = _quoted(_encoded(values, encoding))
    return _joined(array, texts, "NULL", "{", "}")


def _joined(array: pa.ListArray, texts: pa.StringArray, null: str, left: str, right: str) -> pa.StringArray:
    lists = pa.ListArray.from_arrays(array.offsets, pc.fill_null(texts, null))
    joined = pc.binary_join(lists, ",")
    whole = pc.binary_join_element_wise(left, joined, right, "")
    return pc.if_else(array.is_valid(), whole, None)


def _encoded(values: pa.Array, encoding: ColumnEncoding) -> pa.StringArray:
    """Each value as encoded for loading."""
    rows = pa.RecordBatch.from_arrays([values], ["v"])
    text = b"".join(bytes(buffer) for buffer in encode(rows, [encoding]))
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == 10)
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    # each newline is a value of its own, so that taking every other value skips them
    offsets = np.stack([starts, ends], 1).reshape(-1)
    offsets = np.append(offsets, len(text)).astype(np.int32)
    both = pa.Array.from_buffers(
        pa.string(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    )
    selected = both.take(pa.array(np.arange(0, 2 * len(values), 2)))
    return pc.if_else(values.is_valid(), selected, None)


def _quoted(texts: pa.Array) -> pa.StringArray:
    return pc.binary_join_element_wise('"', texts.cast(pa.string()), '"', "")


def _escaped(texts: pa.StringArray) -> pa.StringArray:
    texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
        for control in _CONTROLS:
            texts = pc.replace_substring(texts, control, f"\\u{ord(control):04x}")
    return texts


def _hex(values: pa.BinaryArray) -> pa.StringArray:
    """Bytes as hexadecimal digits."""
    data = values.buffers()[2]
    offsets = values.offset, len(values) + 1
    ends = np.frombuffer(values.buffers()[1], np.int32)[offsets[0] : offsets[0] + offsets[1]]
    digits = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]].tobytes().hex().encode()
    made = pa.Array.from_buffers(
        pa.string(), len(values), [None, pa.py_buffer((ends - ends[0]) * 2), pa.py_buffer(digits)]
    )
    return pc.if_else(values.is_valid(), made, None)
