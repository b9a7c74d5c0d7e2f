"""What reads PostgreSQL's bytes, fuzzed: broken streams of pgoutput, broken COPYs."""

from __future__ import annotations

import random
import struct
from functools import cache
from unittest import mock

from tailrace.kernels import columns, imagebuffers
from tailrace.sources.postgres.replication.archive import session
from tailrace.sources.postgres.wire import pgoutput
from tailrace.sources.postgres.wire.index import LogIndex
from tailrace.sources.postgres.wire.kernels import arrays, copy
from tailrace.sources.postgres.wire.kernels.copy import CopyReader
from tests.fuzz import guarded
from tests.fuzz.mutate import broken
from tests.golden.postgres.recorded import HERE, SCHEMAS, captures, decoder, stream

_STREAMS = ("binary", "text", "streamed", "prepared")
_FRAME, _XLOG = 5, 25


@cache
def _messages(name: str) -> list[bytes]:
    """The messages of a recorded stream."""
    data, at, out = stream(name), 0, []
    while at < len(data):
        size = 1 + struct.unpack_from(">I", data, at + 1)[0]
        out.append(data[at : at + size])
        at += size
    return out


def _framed(body: bytes) -> bytes:
    return b"d" + struct.pack(">I", len(body) + 4) + body


def _broken_stream(r: random.Random) -> bytes:
    """A stream some of whose messages are broken, left out, or twice there; rarely frames, too."""
    messages = list(_messages(r.choice(_STREAMS)))
    for _ in range(r.choice([1, 1, 2, 4])):
        i = r.randrange(len(messages))
        match r.randrange(8):
            case 0:
                del messages[i]
            case 1:
                messages.insert(r.randrange(len(messages)), messages[i])
            case 2:
                messages[i] = broken(r, messages[i])
            case _:
                first = _FRAME + r.choice([0, _XLOG, _XLOG])
                kept = min(first, len(messages[i]) - 2)
                messages[i] = _framed(messages[i][_FRAME:kept] + broken(r, messages[i][kept:]))
    return b"".join(messages)


def pgoutput_streams(r: random.Random) -> None:
    """Streams of pgoutput, binary and text, of transactions under way and prepared."""
    data = _broken_stream(r)
    numpy = guarded.GuardedNumpy()
    log = decoder(batch_rows=r.choice([1, 7, 100]), batch_bytes=r.choice([1, 1000, 1 << 20]))
    with (
        mock.patch.object(imagebuffers, "np", numpy),
        mock.patch.object(columns, "np", numpy),
        mock.patch.object(arrays, "np", numpy),
        mock.patch.object(pgoutput, "np", numpy),
    ):
        for batch in log.feed(data):
            batch.to_record_batch().validate(full=True)


def archived_sessions(r: random.Random) -> None:
    """Sessions from an archive that begin anywhere in a broken stream: nothing of it is lost."""
    data = _broken_stream(r)
    cut = r.choice([0, len(data), *(len(m) for m in _messages("text")[:1]), r.randrange(len(data))])
    described = session.Descriptions()
    with mock.patch.object(session, "np", guarded.GuardedNumpy()):
        described.learn(data[:cut])
        found = b"".join(described.sent(data[cut:]))
    assert len(found) >= len(data) - cut


def pgoutput_index(r: random.Random) -> None:
    """The driver's index of a stream's transactions, over broken messages and pieces cut anywhere."""
    data = _broken_stream(r)
    buffer = guarded.holding(data)
    index, at = LogIndex(captures), 0
    for cut in [*sorted(r.randrange(len(data)) for _ in range(3)), len(data)]:
        if cut > at:
            found = index.feed(buffer, at, cut, at)
            assert 0 <= found.used <= cut - at
            at += found.used
            index.preamble(at)


@cache
def _rows() -> bytes:
    return (HERE / "t.copy").read_bytes()


def _broken_copy(r: random.Random) -> bytes:
    """A COPY whose fields are broken: values, lengths, numbers of fields."""
    data = _rows()
    if r.random() < 0.2:
        return broken(r, data)
    at, out = 0, b""
    while at < len(data):
        size = 1 + struct.unpack_from(">I", data, at + 1)[0]
        body = data[at + _FRAME : at + size]
        kept = min(r.choice([2, 2, 21]), len(body) - 1)
        if data[at : at + 1] == b"d" and r.random() < 0.7 and kept > 0:
            body = body[:kept] + broken(r, body[kept:])
        out += data[at : at + 1] + struct.pack(">I", len(body) + 4) + body
        at += size
    return out


def copies(r: random.Random) -> None:
    """Rows of binary COPY, received in pieces."""
    data, at = _broken_copy(r), 0
    numpy = guarded.GuardedNumpy()
    with (
        mock.patch.object(columns, "np", numpy),
        mock.patch.object(arrays, "np", numpy),
        mock.patch.object(copy, "np", numpy),
    ):
        reader = CopyReader(SCHEMAS["t"], batch_rows=2, batch_bytes=r.choice([1, 5000]), receive_bytes=64)
        batches = []
        while at < len(data) and not reader.ended:
            room = reader.room()
            n = min(len(room), r.choice([1, 50, 10_000]), len(data) - at)
            room[:n] = data[at : at + n]
            at += n
            batches += reader.received(n)
        last = reader.flush()
        for batch in [*batches, *([] if last is None else [last])]:
            batch.validate(full=True)
