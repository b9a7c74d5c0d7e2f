"""Packets of a binary log dump to the log's bytes.

The server wraps each event in a packet: a header (3 bytes length, 1 byte sequence), a 0x00 byte, the event.
An event of 16 MB or more continues in further packets (a length of 0xFFFFFF says so), which have no 0x00.

`unframe` moves the events together; `whole_events` finds how far they are complete, by their headers only.
Both can resume at any byte, since a socket may return any number.

Kernels: memory rules in `memory.py`.
Source: MySQL internals manual, "Network Streams", "Binlog Network Stream", "Event Header".
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.memory import copy, ld8, ld32, ld64, st64

#: Results of `unframe`: all input is used, an error packet, the end of the log, or not a packet.
MORE, ERROR, EOF, MALFORMED = 0, 1, 2, 3
#: Results of `whole_events`: the end of the input, an event for Python, a size below the least possible, an
#: end position that contradicts the sizes so far.
PARTIAL, SPECIAL, BAD_SIZE, BAD_POSITION = 0, 1, 2, 3

HEADER = 19
ROTATE, FORMAT_DESCRIPTION, PREVIOUS_GTIDS, HEARTBEAT, HEARTBEAT_V2 = 4, 15, 35, 27, 41
#: MariaDB's; artificial where a dump starts inside an encrypted file.
START_ENCRYPTION = 164
#: Flag of an artificial event, which is in no file.
ARTIFICIAL = 0x20
_FULL = 0xFFFFFF


@entry("int64(int64,int64,int64,int64)")
def unframe(source, length, to, state):
    """Move the payloads in `source` to `to`.

    Args:
        source: address of the bytes received, SLACK readable after them.
        length: their number.
        to: address with room for as many, and SLACK.
        state: address of int64[4]: out: bytes used, bytes written; kept: bytes the open packet still has,
            whether it continues in another one.

    Returns:
        MORE, ERROR or EOF (the packet starts at the first unused byte), or MALFORMED.
    """
    p = source
    end = source + length
    o = to
    left = ld64(state + 16)
    full = ld64(state + 24)
    status = np.int64(MORE)
    while True:
        if left == 0:
            if end - p < 4:
                break
            size = ld32(p) & _FULL
            if full == 0:
                if size == 0:
                    status = np.int64(MALFORMED)
                    break
                if end - p < 5:
                    break
                first = ld8(p + 4)
                if first != 0:
                    status = np.int64(ERROR if first == 0xFF else (EOF if first == 0xFE else MALFORMED))
                    break
                p += 5
                left = size - 1
            else:
                p += 4
                left = size
            full = np.int64(1 if size == _FULL else 0)
            continue
        n = min(left, end - p)
        if n == 0:
            break
        copy(o, p, n)
        o += n
        p += n
        left -= n
    st64(state, p - source)
    st64(state + 8, o - to)
    st64(state + 16, left)
    st64(state + 24, full)
    return status


@inline
def is_special(kind):
    """Whether Python handles every event of this type: it changes the file or the checksum."""
    return (
        kind == ROTATE
        or kind == FORMAT_DESCRIPTION
        or kind == HEARTBEAT
        or kind == HEARTBEAT_V2
        or kind == START_ENCRYPTION
    )


@entry("int64(int64,int64,int64,int64)")
def whole_events(p, end, position, state):
    """Walk over the events from `p` on, up to the first that is special or incomplete.

    Args:
        p: address of an event's start.
        end: address after the last byte, SLACK readable.
        position: 64-bit offset in the file of the event at `p`; the low 32 bits are checked against
            the end position in each header.
        state: address of int64[4], out: bytes walked over, bytes the next event has (0: its header is not
            complete), bytes walked over without the last event; in: whether events may have no end position
            (MariaDB 11 leaves it out within transactions).

    Returns:
        PARTIAL, SPECIAL, BAD_SIZE or BAD_POSITION.
    """
    start = p
    last = p
    lenient = ld64(state + 24)
    size = np.int64(0)
    status = np.int64(PARTIAL)
    while True:
        size = np.int64(0)
        if end - p < HEADER:
            break
        size = ld32(p + 9)
        if size < HEADER:
            status = np.int64(BAD_SIZE)
            break
        if end - p < size:
            break
        if is_special(ld8(p + 4)):
            status = np.int64(SPECIAL)
            break
        said = ld32(p + 13)
        if (position + (p - start) + size) & 0xFFFFFFFF != said and (said != 0 or lenient == 0):
            status = np.int64(BAD_POSITION)
            break
        last = p
        p += size
    st64(state, p - start)
    st64(state + 8, size)
    st64(state + 16, last - start)
    return status


@entry("int64(int64,int64,int64)")
def cut_at(p, end, limit):
    """Bytes of the whole events from `p` on that lie within the next `limit` bytes.

    Args:
        p: address of an event's start.
        end: address after the last whole event.
        limit: bytes from `p` on that may be used.
    """
    start = p
    while end - p >= HEADER:
        size = ld32(p + 9)
        if size < HEADER or p + size > end or p + size - start > limit:
            break
        p += size
    return p - start


def event_flags(buffer: np.ndarray, at: int) -> tuple[int, int, int, int]:
    """(type, size, low 32 bits of the end position, flags) of the event at offset `at`."""
    header = buffer[at : at + HEADER].tobytes()
    return (
        header[4],
        int.from_bytes(header[9:13], "little"),
        int.from_bytes(header[13:17], "little"),
        int.from_bytes(header[17:19], "little"),
    )
