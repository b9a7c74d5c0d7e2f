"""Broken bytes must end in one of our errors or in valid arrays: no crash, no hang, no other exception.

Input and scratch memory end at pages that may not be touched, so that an access beyond the slack kills the
process.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tailrace.errors import SourceError
from tailrace.kernels.memory import SLACK
from tailrace.sources.mysql.wire import imagebuffers
from tailrace.sources.mysql.wire.block import EventBlock
from tailrace.sources.mysql.wire.decoder import EventDecoder
from tests.unit.wire_rows.recording import FILE, FIRST, LOG, captured, events

_SECONDS = 5.0
_PAGE = mmap.PAGESIZE
#: Places within JSON documents.
_JSON = [found.start() for found in re.finditer(rb"\x02x\n", LOG)]


class GuardedPages:
    """Memory whose end is the beginning of a forbidden page."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def allocate(self, size: int) -> np.ndarray:
        whole = (size + _PAGE - 1) // _PAGE * _PAGE
        pages = mmap.mmap(-1, whole + _PAGE)
        array = np.frombuffer(pages, np.uint8)
        if self._libc.mprotect(array.ctypes.data + whole, _PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
        return array[whole - size : whole]

    def zeros(self, shape: Any, dtype: Any = float) -> np.ndarray:
        if dtype is np.uint8 and isinstance(shape, int) and shape:
            return self.allocate(shape)
        return np.zeros(shape, dtype)

    empty = zeros

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def _mutated(r: random.Random) -> bytes:
    data = bytearray(LOG)
    for _ in range(r.choice([1, 1, 2, 5, 30])):
        at = r.randrange(FIRST, len(data))
        choice = r.random()
        if choice < 0.3:
            at = r.choice(_JSON) + r.randrange(-60, 60)
        elif choice < 0.8:  # within an event's body, so that more than headers is reached
            begin, size, _ = r.choice(events())
            at = r.randrange(begin + 19, begin + size)
        data[at] = r.choice([r.randrange(256), 0, 255, 127, 128, data[at] ^ 1 << r.randrange(8)])
    if r.random() < 0.1:
        begin, size, _ = r.choice(events())
        del data[begin : begin + size]
    if r.random() < 0.05:
        del data[r.randrange(FIRST, len(data)) :]
    return bytes(data)


def _seeds() -> Iterator[int]:
    end = time.monotonic() + _SECONDS
    seed = 0
    while time.monotonic() < end:
        yield seed
        seed += 1


def test_broken_bytes_end_in_an_error_of_ours_or_in_valid_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    guarded = GuardedPages()
    monkeypatch.setattr(imagebuffers, "np", guarded)
    outcomes = {"decoded": 0, "refused": 0}
    for seed in _seeds():
        r = random.Random(seed)
        data = _mutated(r)
        buffer = guarded.allocate(len(data) + SLACK)
        buffer[: len(data)] = np.frombuffer(data, np.uint8)
        decoder = EventDecoder(
            wanted=captured,
            batch_rows=r.choice([1, 7, 100]),
            batch_bytes=r.choice([1, 1000, 1 << 20]),
            verify_checksums=False,
        )
        try:
            for batch in decoder.feed(EventBlock(buffer, FIRST, len(data), FILE, FIRST, True)):
                batch.to_record_batch().validate(full=True)
        except SourceError:
            outcomes["refused"] += 1
        else:
            outcomes["decoded"] += 1
    assert min(outcomes.values()) > 5
