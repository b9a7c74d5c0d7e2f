"""Lists and vectors in the forms that databases read, whole columns at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.sinks.replica.encode import Writer, encode

_CONTROLS = [chr(i) for i in range(32)]


def as_bytes(array: pa.ListArray) -> pa.BinaryArray:
    """Lists of float32 as their bytes, little-endian."""
    numbers = array.values.buffers()[1]
    offsets = pc.multiply(array.offsets, pa.scalar(4, pa.int32()))
    if array.values.offset:
        offsets = pc.add(offsets, pa.scalar(4 * array.values.offset, pa.int32()))
    made = pa.Array.from_buffers(pa.binary(), len(array), [None, offsets.buffers()[1], numbers])
    return pc.if_else(array.is_valid(), made, None)


def as_json(array: pa.ListArray) -> pa.StringArray:
    """Lists as JSON arrays: numbers and booleans as they are, bytes in hexadecimal, all else as text."""
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


def as_array(array: pa.ListArray, writer: Writer) -> pa.StringArray:
    """Lists as array literals of PostgreSQL.

    Args:
        array: the lists.
        writer: how elements are written that are neither text nor bytes.
    """
    values = array.values
    if pa.types.is_binary(values.type):
        texts = _quoted(pc.binary_join_element_wise(r"\\x", _hex(values), ""))
    elif pa.types.is_string(values.type):
        escaped = pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), '"', '\\"')
        texts = _quoted(escaped)
    else:
        texts = _quoted(_lines(values, writer))
    return _joined(array, texts, "NULL", "{", "}")


def _joined(array: pa.ListArray, texts: pa.StringArray, null: str, left: str, right: str) -> pa.StringArray:
    lists = pa.ListArray.from_arrays(array.offsets, pc.fill_null(texts, null))
    joined = pc.binary_join(lists, ",")
    whole = pc.binary_join_element_wise(left, joined, right, "")
    return pc.if_else(array.is_valid(), whole, None)


def _lines(values: pa.Array, writer: Writer) -> pa.StringArray:
    """Each value as a line has it."""
    text = b"".join(bytes(piece) for piece in encode(pa.RecordBatch.from_arrays([values], ["v"]), [writer]))
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == 10)
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    # the newlines are left out by being taken for values of their own
    offsets = np.stack([starts, ends], 1).reshape(-1)
    offsets = np.append(offsets, len(text)).astype(np.int32)
    both = pa.Array.from_buffers(
        pa.string(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    )
    found = both.take(pa.array(np.arange(0, 2 * len(values), 2)))
    return pc.if_else(values.is_valid(), found, None)


def _quoted(texts: pa.Array) -> pa.StringArray:
    return pc.binary_join_element_wise('"', texts.cast(pa.string()), '"', "")


def _escaped(texts: pa.StringArray) -> pa.StringArray:
    texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
        for control in _CONTROLS:
            texts = pc.replace_substring(texts, control, f"\\u{ord(control):04x}")
    return texts


def _hex(values: pa.BinaryArray) -> pa.StringArray:
    """Two digits for each byte."""
    data = values.buffers()[2]
    offsets = values.offset, len(values) + 1
    ends = np.frombuffer(values.buffers()[1], np.int32)[offsets[0] : offsets[0] + offsets[1]]
    digits = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]].tobytes().hex().encode()
    made = pa.Array.from_buffers(
        pa.string(), len(values), [None, pa.py_buffer((ends - ends[0]) * 2), pa.py_buffer(digits)]
    )
    return pc.if_else(values.is_valid(), made, None)
