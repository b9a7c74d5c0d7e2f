"""The kernel stays inside its memory: outputs with canaries, inputs that end where readable memory ends."""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.formats.encodings import json_documents
from tailrace.kernels.memory import SLACK
from tailrace.model.change import ChangeBatch
from tailrace.model.table import Column, TableSchema
from tailrace.model.types import ColumnType, Kind
from tests.unit.formats.changes import ID, NAME, ORDERS, batch, change

TABLE = TableSchema(
    ORDERS.id,
    (
        ID,
        NAME,
        Column("bin", ColumnType(Kind.BYTES, "blob")),
        Column("big", ColumnType(Kind.DECIMAL, "decimal", precision=65, scale=0)),
        Column("bits", ColumnType(Kind.BITS, "bit", bits=64)),
        Column("float", ColumnType(Kind.DOUBLE, "double")),
    ),
    ("id", "name"),
)
ROWS = [
    {"id": i, "name": text, "bin": blob, "big": str(-(10**60)), "bits": b"12345678", "float": -1.1e-300}
    for i, (text, blob) in enumerate(
        [
            ("", b""),
            ("abcdefgh" * 9, b"x" * 40),
            ("\x01" * 17, b"\xff" * 5),
            ("😀é" * 7, b"ab"),
            ("abc", b"abc"),
        ]
    )
]
CHANGES = [c for row in ROWS for c in (change("c", None, row), change("u", row, row), change("d", row))]


class SmallOutput(json_documents.Output):
    """Starts with no room, grows by a few bytes, and watches what lies behind its room."""

    made: ClassVar[list[SmallOutput]] = []

    def __init__(self, expected: int) -> None:
        SmallOutput.made.append(self)
        self._resize(0, np.zeros(0, np.uint8))

    def grow(self, used, table):
        self.check()
        self._resize(self._capacity + 13, self._memory[:used])

    def _resize(self, capacity, kept):
        self._capacity = capacity
        self._memory = np.full(capacity + SLACK + 64, 0xA5, np.uint8)
        self._memory[: len(kept)] = kept

    def check(self):
        assert (self._memory[self._capacity + SLACK :] == 0xA5).all()


@pytest.mark.parametrize("schemas", [False, True], ids=["payload", "schema"])
def test_output_is_never_written_beyond_its_room(monkeypatch, schemas):
    changes = batch(TABLE, CHANGES)
    form = DebeziumFormat(Envelopes(Topics("app")), schemas)
    expected = form.to_messages(changes, 0)
    monkeypatch.setattr(SmallOutput, "made", [])
    monkeypatch.setattr(json_documents, "Output", SmallOutput)
    assert form.to_messages(changes, 0).equals(expected)
    for output in SmallOutput.made:
        output.check()


class Guarded:
    """Memory whose end is followed by a page that nothing may touch."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        self._libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self._libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self._mapped: list[tuple[int, int]] = []

    def buffer(self, buffer: pa.Buffer | None) -> pa.Buffer | None:
        """A copy of `buffer` that ends at the guard."""
        if buffer is None:
            return None
        pages = (buffer.size + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
        size = pages + mmap.PAGESIZE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        base = self._libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        assert self._libc.mprotect(base + pages, mmap.PAGESIZE, 0) == 0
        self._mapped.append((base, size))
        address = base + pages - buffer.size
        ctypes.memmove(address, buffer.address, buffer.size)
        return pa.foreign_buffer(address, buffer.size)

    def array(self, array: pa.Array) -> pa.Array:
        """A copy of `array` with its last bytes at the guard."""
        children, n = [], len(array)
        if pa.types.is_struct(array.type):
            children = [self.array(array.field(i)) for i in range(array.type.num_fields)]
            buffers = [array.buffers()[0]]
        else:
            buffers = array.buffers()
        exact = [_trimmed(array.type, i, b, n, buffers) for i, b in enumerate(buffers)]
        return pa.Array.from_buffers(
            array.type, n, [self.buffer(b) for b in exact], children=children or None
        )

    def release(self) -> None:
        for base, size in self._mapped:
            self._libc.munmap(base, size)


def _trimmed(type_, i, buffer, n, buffers):
    """The part of an array's buffer that `n` values need."""
    if buffer is None:
        return None
    if i == 0:
        return buffer.slice(0, (n + 7) // 8)
    if not (pa.types.is_string(type_) or pa.types.is_binary(type_)):
        return buffer.slice(0, n * type_.bit_width // 8)
    if i == 1:
        return buffer.slice(0, 4 * (n + 1))
    return buffer.slice(0, int(np.frombuffer(buffers[1], np.int32)[n]))


@pytest.mark.skipif(sys.platform != "linux", reason="guard pages by mprotect")
@pytest.mark.parametrize("rows", range(1, len(CHANGES) + 1, 2))
def test_input_is_never_read_beyond_its_end(rows):
    changes = batch(TABLE, CHANGES[-rows:])
    guarded = Guarded()
    try:
        before, after = (None if a is None else guarded.array(a) for a in (changes.before, changes.after))
        copy = ChangeBatch(TABLE, guarded.array(changes.op), before, after, changes.origin)
        form = DebeziumFormat(Envelopes(Topics("app")))
        assert form.to_messages(copy, 0).equals(form.to_messages(changes, 0))
        del copy, before, after
    finally:
        guarded.release()
