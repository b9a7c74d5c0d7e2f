"""Broken bytes made of good ones."""

from __future__ import annotations

import random
import re

#: A log file's events begin behind its magic number.
FIRST = 4
_HEADER = 19
_NUMBERS = [0, 1, 2, 127, 128, 250, 251, 252, 253, 254, 255]


def events(data: bytes) -> list[tuple[int, int]]:
    """Offset and size of each event of a log file."""
    found, at = [], FIRST
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        found.append((at, size))
        at += size
    return found


def flipped(r: random.Random, data: bytes, first: int = 0) -> bytes:
    """`data` with bytes changed here and there from offset `first` on."""
    out = bytearray(data)
    for _ in range(r.choice([1, 1, 2, 5, 30])):
        at = r.randrange(first, len(out))
        out[at] = r.choice([r.randrange(256), *_NUMBERS, out[at] ^ 1 << r.randrange(8)])
    return bytes(out)


def stretched(r: random.Random, data: bytes, first: int = 0) -> bytes:
    """`data` with what may be a length or an offset set to something large, small or off by a little."""
    out = bytearray(data)
    width = r.choice([1, 2, 3, 4, 8])
    if len(out) - first <= width:
        return bytes(out)
    at = r.randrange(first, len(out) - width)
    now = int.from_bytes(out[at : at + width], "little")
    top = (1 << 8 * width) - 1
    wanted = r.choice([0, 1, top, top >> 1, (top >> 1) + 1, now + 1, now - 1, now + 255, len(out), 2 * now])
    out[at : at + width] = (wanted & top).to_bytes(width, "little")
    return bytes(out)


def cut(r: random.Random, data: bytes, first: int = 0) -> bytes:
    """`data` with its end, or a piece of it, gone, or a piece twice."""
    at = r.randrange(first, len(data))
    if r.random() < 0.4:
        return data[:at]
    stop = min(len(data), at + r.choice([1, 2, 4, r.randrange(1, 200)]))
    return data[:at] + data[stop:] if r.random() < 0.6 else data[:stop] + data[at:]


def broken(r: random.Random, data: bytes, first: int = 0) -> bytes:
    """`data`, broken in one of these ways or in several."""
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        if len(data) > first:
            data = r.choice([flipped, flipped, stretched, cut])(r, data, first)
    return data


def broken_log(r: random.Random, log: bytes) -> bytes:
    """A log file broken within its events, so that more than headers is reached.

    Mostly the sizes in the headers are kept in line, else nothing behind the first change would be read.
    """
    out = bytearray(log[:FIRST])
    listed = events(log)
    targets = {r.randrange(len(listed)) for _ in range(r.choice([1, 1, 2, 4]))}
    json_events = [
        i for i, (at, size) in enumerate(listed) if re.search(rb"\x02x\n|\$[.\[]", log[at : at + size])
    ]
    if json_events and r.random() < 0.3:
        targets = {r.choice(json_events)}
    for i, (at, size) in enumerate(listed):
        event = log[at : at + size]
        if i in targets:
            choice = r.random()
            if choice < 0.04:
                continue
            if choice < 0.08:
                out += event
            elif choice < 0.16:
                event = broken(r, event)
            else:
                event = broken(r, event, _HEADER)
                event = event[:9] + len(event).to_bytes(4, "little") + event[13:]
        out += event
    if r.random() < 0.03:
        del out[r.randrange(FIRST, len(out)) :]
    return bytes(out)
