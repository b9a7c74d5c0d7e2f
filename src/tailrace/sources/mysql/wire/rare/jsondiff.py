"""Partial updates of JSON values: diffs applied to a binary document, in plain Python.

With `binlog_row_value_options=PARTIAL_JSON` the log holds, in place of a JSON column's new value, the list of
its differences from the old one:

    operation 1 byte (REPLACE, INSERT, REMOVE), path, and except for REMOVE a value in the binary format

A document becomes a tree whose scalars keep their bytes, so that no number is ever converted: objects are
dicts by the key's bytes, arrays are lists, a scalar is (type, bytes). The result is written in the format's
large form throughout, with the keys in the server's order: by length, then by bytes.

Not a kernel: a row that is changed in place comes with its whole old document, which costs more than this.

Source: mysql sql-common/json_diff.h and json_diff.cc (diffs), json_binary.h (format), json_path.cc (paths).
"""

from __future__ import annotations

import json
import re
from typing import TypeAlias

from tailrace.errors import DecodeError
from tailrace.sources.mysql.wire.kernels.json import MAX_DEPTH

Scalar: TypeAlias = tuple[int, bytes]
Node: TypeAlias = "dict[bytes, Node] | list[Node] | Scalar"

_REPLACE, _INSERT, _REMOVE = range(3)
_LARGE_OBJECT, _LARGE_ARRAY, _LITERAL, _UINT16, _UINT32, _STRING, _OPAQUE = 1, 3, 4, 6, 8, 12, 15
#: Bytes of a scalar of fixed width, by its type.
_WIDTHS = {4: 1, 5: 2, 6: 2, 7: 4, 8: 4, 9: 8, 10: 8, 11: 8}
#: One step of a path: a member by its plain name, by its quoted one, or an array's element.
_LEG = re.compile(
    r'\.(?P<plain>[^."\[\]*]+)|\.(?P<quoted>"(?:[^"\\]|\\.)*")|\[(?P<cell>\d{1,10})\]', re.DOTALL
)
_MALFORMED = "malformed JSON value or difference"


def apply_diffs(document: bytes, diffs: bytes) -> bytes:
    """The binary document after `diffs`.

    Args:
        document: the value before, in the binary format.
        diffs: the differences, one after the other; none leave it as it is.

    Raises:
        DecodeError: the document or a difference is malformed, or they do not fit each other.
    """
    if not diffs:
        return document
    root = parse(document)
    at = 0
    while at < len(diffs):
        operation, at = diffs[at], at + 1
        path, at = _piece(diffs, at)
        value = None
        if operation in (_REPLACE, _INSERT):
            data, at = _piece(diffs, at)
            value = parse(data)
        elif operation != _REMOVE:
            raise DecodeError(_MALFORMED, f"operation {operation}", code="TR-5201")
        root = _apply(root, operation, _legs(path), value)
    out = bytearray(1)
    out[0] = _write(root, out)
    return bytes(out)


def parse(document: bytes) -> Node:
    """The tree of a binary document. Raises DecodeError if it is malformed."""
    if not document:
        return _LITERAL, b"\0"
    return _Parser(document).value(document[0], 1, len(document), 0)


class _Parser:
    """Reads one document.

    A well-formed one uses each byte once. One whose entries share their values could grow without bound, so
    the bytes read are counted.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = len(data)

    def value(self, kind: int, at: int, end: int, depth: int) -> Node:
        if kind <= _LARGE_ARRAY:
            return self._container(kind, at, end, depth)
        if width := _WIDTHS.get(kind):
            return kind, self._take(at, at + width, end)
        if kind not in (_STRING, _OPAQUE):
            raise DecodeError(_MALFORMED, f"type {kind}", code="TR-5201")
        stop = at + (kind == _OPAQUE)
        size = shift = 0
        while True:
            if stop >= end or shift > 28:
                raise DecodeError(_MALFORMED, "a length that does not end", code="TR-5201")
            byte = self._data[stop]
            size |= (byte & 127) << shift
            stop, shift = stop + 1, shift + 7
            if byte < 128:
                break
        return kind, self._take(at, stop + size, end)

    def _take(self, at: int, stop: int, end: int) -> bytes:
        self._count(stop - at)
        if stop > end:
            raise DecodeError(_MALFORMED, "a value beyond the end of its container", code="TR-5201")
        return self._data[at:stop]

    def _count(self, used: int) -> None:
        self._left -= used
        if self._left < 0:
            raise DecodeError(_MALFORMED, "values that share their bytes", code="TR-5201")

    def _container(self, kind: int, at: int, end: int, depth: int) -> Node:
        wide = 4 if kind & 1 else 2
        if depth >= MAX_DEPTH or end - at < 2 * wide:
            raise DecodeError(_MALFORMED, "a container that does not fit", code="TR-5201")
        count, size = self._number(at, wide), self._number(at + wide, wide)
        is_object = kind <= _LARGE_OBJECT
        values = 2 * wide + (count * (wide + 2) if is_object else 0)
        header = values + count * (1 + wide)
        if size > end - at or header > size:
            raise DecodeError(_MALFORMED, "a container that does not fit", code="TR-5201")
        self._count(header)
        nodes = [
            self._entry(at, at + values + i * (1 + wide), wide=wide, size=size, header=header, depth=depth)
            for i in range(count)
        ]
        if not is_object:
            return nodes
        keys = []
        for i in range(count):
            entry = at + 2 * wide + i * (wide + 2)
            offset, length = self._number(entry, wide), self._number(entry + wide, 2)
            if offset < header:
                raise DecodeError(_MALFORMED, "a key within the header", code="TR-5201")
            keys.append(self._take(at + offset, at + offset + length, at + size))
        return dict(zip(keys, nodes, strict=True))

    def _entry(self, base: int, entry: int, *, wide: int, size: int, header: int, depth: int) -> Node:
        kind = self._data[entry]
        if _LITERAL <= kind <= (_UINT32 if wide == 4 else _UINT16):
            return kind, self._data[entry + 1 : entry + 1 + _WIDTHS[kind]]
        offset = self._number(entry + 1, wide)
        if offset < header or offset >= size:
            raise DecodeError(_MALFORMED, "a value outside its container", code="TR-5201")
        return self.value(kind, base + offset, base + size, depth + 1)

    def _number(self, at: int, width: int) -> int:
        return int.from_bytes(self._data[at : at + width], "little")


def _write(node: Node, out: bytearray) -> int:
    """Append a value; its type."""
    if isinstance(node, tuple):
        out += node[1]
        return node[0]
    base, count = len(out), len(node)
    keys = sorted(node, key=lambda k: (len(k), k)) if isinstance(node, dict) else []
    entries = base + 8 + 6 * len(keys)
    out += count.to_bytes(4, "little") + bytes(4 + 6 * len(keys) + 5 * count)
    for i, key in enumerate(keys):
        at = base + 8 + 6 * i
        out[at : at + 6] = (len(out) - base).to_bytes(4, "little") + len(key).to_bytes(2, "little")
        out += key
    values = [node[key] for key in keys] if isinstance(node, dict) else node
    for i, value in enumerate(values):
        at = entries + 5 * i
        if isinstance(value, tuple) and value[0] <= _UINT32:  # a value that fits its entry is stored in it
            out[at] = value[0]
            out[at + 1 : at + 1 + len(value[1])] = value[1]
            continue
        out[at + 1 : at + 5] = (len(out) - base).to_bytes(4, "little")
        out[at] = _write(value, out)
    out[base + 4 : base + 8] = (len(out) - base).to_bytes(4, "little")
    return _LARGE_OBJECT if isinstance(node, dict) else _LARGE_ARRAY


def _apply(root: Node, operation: int, legs: list[bytes | int], value: Node | None) -> Node:
    if not legs:
        if operation != _REPLACE or value is None:
            raise DecodeError(_MALFORMED, "the whole document inserted or removed", code="TR-5201")
        return value
    parent = root
    for leg in legs[:-1]:
        parent = _child(parent, leg)
    last = legs[-1]
    if operation != _INSERT:
        _child(parent, last)
    if isinstance(parent, dict) and isinstance(last, bytes):
        if value is None:
            del parent[last]
        elif operation == _INSERT and last in parent:
            raise DecodeError(_MALFORMED, "an inserted member that exists already", code="TR-5201")
        else:
            parent[last] = value
    elif isinstance(parent, list) and isinstance(last, int):
        if value is None:
            del parent[last]
        elif operation == _INSERT:
            parent.insert(last, value)  # beyond the end: at the end
        else:
            parent[last] = value
    else:
        raise DecodeError(_MALFORMED, "a path that does not fit its document", code="TR-5201")
    return root


def _child(node: Node, leg: bytes | int) -> Node:
    if isinstance(node, dict) and isinstance(leg, bytes) and leg in node:
        return node[leg]
    if isinstance(node, list) and isinstance(leg, int) and leg < len(node):
        return node[leg]
    raise DecodeError(_MALFORMED, "a path that does not exist in its document", code="TR-5201")


def _legs(path: bytes) -> list[bytes | int]:
    """The steps of a path, each a member's key or an element's index."""
    legs: list[bytes | int] = []
    try:
        text = path.decode()
        if text[:1] != "$":
            raise ValueError
        at = 1
        while at < len(text):
            match = _LEG.match(text, at)
            if match is None:
                raise ValueError
            at = match.end()
            if match["cell"] is not None:
                legs.append(int(match["cell"]))
            else:
                quoted = match["quoted"]
                legs.append((match["plain"] if quoted is None else json.loads(quoted, strict=False)).encode())
    except ValueError as error:
        raise DecodeError(_MALFORMED, "a path that is none", code="TR-5201") from error
    return legs


def _piece(data: bytes, at: int) -> tuple[bytes, int]:
    """The bytes that a length-encoded integer at `at` counts, and the offset after them."""
    if at >= len(data):
        raise DecodeError(_MALFORMED, "cut off", code="TR-5201")
    size, at = packed(data, at)
    if size > len(data) - at:
        raise DecodeError(_MALFORMED, "cut off", code="TR-5201")
    return data[at : at + size], at + size


def packed(data: bytes, at: int) -> tuple[int, int]:
    """The length-encoded integer at `at`, which lies in `data`, and the offset after it."""
    first = data[at]
    size = {252: 2, 253: 3, 254: 8}.get(first, 0)
    if first < 251:
        return first, at + 1
    if not size or len(data) - at <= size:
        raise DecodeError(_MALFORMED, "cut off", code="TR-5201")
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size
