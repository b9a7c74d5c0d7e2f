"""Packets of a dump become the log's bytes, however they arrive."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.config.options import parse_options
from tailrace.errors import DecodeError
from tailrace.kernels.memory import SLACK
from tailrace.sources.mysql.binlog.dump import DumpStream
from tailrace.sources.mysql.wire.kernels.packets import (
    BAD_POSITION,
    BAD_SIZE,
    EOF,
    ERROR,
    MALFORMED,
    MORE,
    PARTIAL,
    SPECIAL,
    unframe,
    whole_events,
)

FULL = 0xFFFFFF


def framed(payload: bytes) -> bytes:
    """One logical packet, as MySQL cuts it."""
    body, out, sequence = b"\0" + payload, [], 0
    while True:
        part, body = body[:FULL], body[FULL:]
        out.append(len(part).to_bytes(3, "little") + bytes([sequence & 255]) + part)
        sequence += 1
        if len(part) < FULL:
            return b"".join(out)


def run(chunks):
    """(bytes, status) after feeding `chunks` one by one, each with what the last left over."""
    state = np.zeros(4, np.int64)
    rest, out, status = b"", [], MORE
    for chunk in chunks:
        data = rest + chunk
        source = np.zeros(len(data) + SLACK, np.uint8)
        source[: len(data)] = np.frombuffer(data, np.uint8)
        to = np.zeros(len(data) + SLACK, np.uint8)
        status = unframe(source.ctypes.data, len(data), to.ctypes.data, state.ctypes.data)
        out.append(to[: int(state[1])].tobytes())
        rest = data[int(state[0]) :]
        if status != MORE:
            break
    return b"".join(out), status


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=8), st.lists(st.integers(1, 20)))
def test_payloads_come_out_whole_wherever_the_bytes_are_cut(payloads, sizes):
    data = b"".join(framed(p) for p in payloads)
    chunks, at = [], 0
    for size in sizes:
        chunks.append(data[at : at + size])
        at += size
    assert run([*chunks, data[at:]]) == (b"".join(payloads), MORE)


@settings(max_examples=5, deadline=None)
@given(st.sampled_from([FULL - 2, FULL - 1, FULL, 2 * FULL - 1, 2 * FULL + 5]))
def test_payload_of_several_packets_is_put_together(size):
    payload = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    data = framed(payload) + framed(b"next")
    third = len(data) // 3
    out, status = run([data[:third], data[third : 2 * third], data[2 * third :]])
    assert status == MORE
    assert out == payload + b"next"


@pytest.mark.parametrize(("first", "status"), [(0xFF, ERROR), (0xFE, EOF), (0x01, MALFORMED)])
def test_what_is_no_event_stops_the_walk_in_front_of_it(first, status):
    packet = (3).to_bytes(3, "little") + b"\0" + bytes([first]) + b"ab"
    assert run([framed(b"event") + packet]) == (b"event", status)


def event(kind, size, end):
    return (
        bytes(4)
        + bytes([kind])
        + bytes(4)
        + size.to_bytes(4, "little")
        + (end & 0xFFFFFFFF).to_bytes(4, "little")
        + bytes(size - 17)
    )


def walk(data, position):
    buffer = np.zeros(len(data) + SLACK, np.uint8)
    buffer[: len(data)] = np.frombuffer(data, np.uint8)
    state = np.zeros(4, np.int64)
    at = buffer.ctypes.data
    return whole_events(at, at + len(data), position, state.ctypes.data), state.tolist()[:3]


def test_offsets_beyond_32_bits_are_summed_and_checked():
    start = (1 << 32) - 30
    data = event(2, 30, start + 30) + event(2, 40, start + 70) + event(2, 50, start + 120)
    assert walk(data, start) == (PARTIAL, [120, 0, 70])
    assert walk(data[:-1], start) == (PARTIAL, [70, 50, 30])
    assert walk(data, start + 1)[0] == BAD_POSITION
    assert walk(event(2, 30, 30)[:9] + bytes(21), 0)[0] == BAD_SIZE


def test_walk_stops_at_events_that_change_file_or_checksum():
    data = event(2, 30, 130) + event(4, 40, 0)
    assert walk(data, 100) == (SPECIAL, [30, 40, 0])


def test_first_byte_of_a_continued_packet_is_no_status():
    payload = b"\0" * (FULL - 1) + b"\xff\xfe"
    assert run([framed(payload)]) == (payload, MORE)


def test_event_that_claims_more_than_the_server_can_write_takes_no_memory():
    options = parse_options({"url": "mysql://h:1", "user": "u", "tables": "d.t"})
    stream = DumpStream(options, "binlog.000007", 4, blocking=False)
    header = bytes(4) + bytes([30]) + bytes(4) + (0xFFFFFFF0).to_bytes(4, "little") + bytes(6)
    buffer = np.frombuffer(bytearray(header + bytes(SLACK)), np.uint8)
    with pytest.raises(DecodeError, match="claims to have 4294967280 bytes") as refused:
        list(stream._cut(buffer, len(header)))
    assert "at offset 4" in str(refused.value)
