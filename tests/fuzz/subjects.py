"""What is fuzzed: each subject takes a source of randomness and must end in our error, or in valid values."""

from __future__ import annotations

import importlib
import random
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from tailrace.errors import SourceError
from tailrace.kernels import columns, imagebuffers
from tailrace.kernels.memory import SLACK
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.sources.mysql.wire.block import EventBlock
from tailrace.sources.mysql.wire.decoder import EventDecoder
from tailrace.sources.mysql.wire.kernels import events as ev
from tailrace.sources.mysql.wire.kernels.packets import (
    MORE,
    SPECIAL,
    cut_at,
    event_flags,
    unframe,
    whole_events,
)
from tailrace.sources.mysql.wire.kernels.resultset import RowDecoder
from tailrace.sources.mysql.wire.rare.jsondiff import apply_diffs
from tailrace.sources.mysql.wire.rare.payload import unpack
from tailrace.sources.mysql.wire.schema.native import column_type
from tailrace.sources.mysql.wire.schema.tablemap import parse_table_map
from tailrace.sources.mysql.wire.transactions import TransactionIndex
from tests.fuzz import guarded
from tests.fuzz.mutate import FIRST, broken, broken_log, events
from tests.fuzz.postgres import archived_sessions, copies, pgoutput_index, pgoutput_streams

#: Recorded logs: of the decoder's tests, of the index's tests, and of `tests.fuzz.record`.
_TESTS = Path(__file__).parent.parent
_FILE = "binlog.000007"
_TABLE_MAP, _PAYLOAD = 19, 40
_CODEC = pa.Codec("zstd")


@cache
def logs() -> list[bytes]:
    """The recorded logs."""
    found = [*_TESTS.glob("golden/mysql/*.binlog"), *_TESTS.glob("fuzz/logs/*.binlog")]
    return [path.read_bytes() for path in sorted(found)]


def _block(data: bytes, checksum: bool = True) -> EventBlock:
    return EventBlock(guarded.holding(data), FIRST, len(data), _FILE, FIRST, checksum)


def _decode(r: random.Random, block: EventBlock, *, queries: bool = False) -> None:
    decoder = EventDecoder(
        captures=lambda table: table.table != "odd",
        queries=queries,
        batch_rows=r.choice([1, 7, 100]),
        batch_bytes=r.choice([1, 1000, 1 << 20]),
        verify_checksums=False,
    )
    try:
        with mock.patch.object(imagebuffers, "np", guarded.GuardedNumpy()):
            for batch in decoder.feed(block):
                batch.to_record_batch().validate(full=True)
    except SourceError as error:
        if f"{_FILE}:" not in str(error):
            raise AssertionError("an error that does not say where") from error
        raise


def row_events(r: random.Random) -> None:
    """Logs with broken events: rows, table maps, GTIDs, statements, differences of JSON values."""
    _decode(r, _block(broken_log(r, r.choice(logs()))))


def statement_texts(r: random.Random) -> None:
    """Logs with broken events, among them the texts of statements."""
    log = r.choice(logs())
    out = bytearray(log[:FIRST])
    for at, size in events(log):
        if log[at + 4] == _TABLE_MAP:
            out += _text_event(r)
        out += log[at : at + size]
    _decode(r, _block(broken_log(r, bytes(out))), queries=True)


def _text_event(r: random.Random) -> bytes:
    body = r.randbytes(1) + r.choice([b"", b"INSERT INTO t", r.randbytes(20)])
    head = bytes(4) + bytes([r.choice([ev.ROWS_QUERY, ev.ANNOTATE_ROWS])]) + bytes(4)
    body = body[r.randrange(2) :]
    return head + (ev.HEADER + len(body) + 4).to_bytes(4, "little") + bytes(6) + body + bytes(4)


def payloads(r: random.Random) -> None:
    """Compressed transactions that are sound outside and broken inside, or the other way round."""
    log = r.choice([log for log in logs() if any(log[at + 4] == _PAYLOAD for at, _ in events(log))])
    out = bytearray(log[:FIRST])
    for at, size in events(log):
        event = log[at : at + size]
        if event[4] == _PAYLOAD:
            event = _packed(r, event)
        out += event
    _decode(r, _block(bytes(out)))


def _packed(r: random.Random, event: bytes) -> bytes:
    body = event[ev.HEADER : -4]
    if r.random() < 0.3:
        body = broken(r, body)
    else:
        pieces = list(unpack(body, ""))
        plain = b"".join(piece[: len(piece) - SLACK].tobytes() for piece, _ in pieces)
        plain = broken_log(r, bytes(FIRST) + plain)[FIRST:]
        packed = _CODEC.compress(plain, asbytes=True)
        said = len(plain) if r.random() < 0.8 else r.choice([0, 1, len(plain) * 1000, 1 << 31, 1 << 63])
        fields = ((2, 0), (3, said), (1, len(packed)))
        body = b"".join(bytes([k, 9, 254]) + v.to_bytes(8, "little") for k, v in fields) + b"\0" + packed
    size = ev.HEADER + len(body) + 4
    return event[:9] + size.to_bytes(4, "little") + event[13 : ev.HEADER] + body + bytes(4)


def bombs(r: random.Random) -> None:
    """Little that unpacks to a lot: memory is taken for what was asked for, never for what is claimed."""
    log = logs()[-1]
    at, size = events(log)[0]
    plain = bytes(r.choice([1 << 20, 64 << 20, 256 << 20]))
    packed = _CODEC.compress(plain, asbytes=True)
    fields = ((2, 0), (3, r.choice([len(plain), 100, 1 << 30])), (1, len(packed)))
    body = b"".join(bytes([k, 9, 254]) + v.to_bytes(8, "little") for k, v in fields) + b"\0" + packed
    header = (
        bytes(4) + bytes([_PAYLOAD]) + bytes(4) + (ev.HEADER + len(body) + 4).to_bytes(4, "little") + bytes(6)
    )
    _decode(r, _block(log[:FIRST] + log[at : at + size] + header + body + bytes(4)))


def transaction_index(r: random.Random) -> None:
    """The driver's index of transactions, over broken events and cut blocks."""
    data = broken_log(r, r.choice(logs()))
    index = TransactionIndex(lambda table: table.table != "odd", count_rows=r.random() < 0.7)
    block = _block(data)
    ends = [at for at, _ in events(data)] if r.random() < 0.3 and _is_sound(data) else []
    start = FIRST
    for end in [*r.sample(ends[1:], min(3, max(0, len(ends) - 1))), len(data)]:
        if end > start:
            done = index.feed(EventBlock(block.buffer, start, end, _FILE, start, True))
            assert done.rows.shape[1] == 8
            start = end


def _is_sound(data: bytes) -> bool:
    at = FIRST
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        if size < ev.HEADER:
            return False
        at += size
    return at == len(data)


def table_maps(r: random.Random) -> None:
    """Table maps by themselves."""
    log = r.choice(logs())
    at, size = r.choice([(at, size) for at, size in events(log) if log[at + 4] == _TABLE_MAP])
    parse_table_map(broken(r, log[at + ev.HEADER : at + size - 4]))


def packets(r: random.Random) -> None:
    """A dump's packets: the events in them are moved together and walked over."""
    log = r.choice(logs())
    stream = b"".join(_packet(b"\0" + log[at : at + size]) for at, size in events(log))
    stream = broken(r, stream)
    state, walk = np.zeros(4, np.int64), np.zeros(4, np.int64)
    at, out = 0, b""
    while at < len(stream):
        piece = stream[at : at + r.choice([1, 5, 100, 1 << 20])]
        source, to = guarded.holding(piece), guarded.allocate(len(piece) + SLACK)
        status = unframe(source.ctypes.data, len(piece), to.ctypes.data, state.ctypes.data)
        used, written = int(state[0]), int(state[1])
        assert 0 <= used <= len(piece)
        assert 0 <= written <= used
        out += to[:written].tobytes()
        if status != MORE or (not used and len(piece) == len(stream) - at):
            break
        at += used
        if not used:
            out += _rest(r, stream, at, state)
            break
    if not out:
        return
    buffer = guarded.holding(out)
    base, end, p = buffer.ctypes.data, buffer.ctypes.data + len(out), buffer.ctypes.data
    position = FIRST
    while p < end:
        walk[3] = r.randrange(2)
        status = whole_events(p, end, position, walk.ctypes.data)
        assert 0 <= walk[2] <= walk[0] <= end - p
        assert 0 <= cut_at(p, end, r.randrange(1000)) <= end - p
        p, position = p + int(walk[0]), position + int(walk[0])
        if status != SPECIAL:
            break
        _, size, _, _ = event_flags(buffer, p - base)
        p, position = p + size, position + size


def _rest(r: random.Random, stream: bytes, at: int, state: np.ndarray) -> bytes:
    """The stream's rest in one piece."""
    piece = stream[at:]
    source, to = guarded.holding(piece), guarded.allocate(len(piece) + SLACK)
    unframe(source.ctypes.data, len(piece), to.ctypes.data, state.ctypes.data)
    return to[: int(state[1])].tobytes()


def _packet(payload: bytes) -> bytes:
    return struct.pack("<I", len(payload))[:3] + bytes([0]) + payload


@cache
def _schema() -> TableSchema:
    kinds: dict[str, dict[str, Any]] = {
        **{
            name: {}
            for name in ("tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "year")
        },
        "varchar": {"length": 9},
        "decimal": {"precision": 20, "scale": 5},
        "datetime": {"fraction": 6},
        "timestamp": {"fraction": 3},
        "time": {},
        "date": {},
        "bit": {"bits": 12},
        "longblob": {},
        "json": {},
        "enum": {"labels": ("a", "b")},
    }
    return TableSchema(
        TableId("d", "t"), tuple(Column(f"c_{n}", column_type(n, **more)) for n, more in kinds.items())
    )


def _good_row(r: random.Random) -> bytes:
    moment = struct.pack("<HBBBBBI", 2024, 1, 31, 1, 2, 3, 4)

    def text(value: bytes) -> bytes:
        return (
            bytes([len(value)]) + value
            if len(value) < 251
            else b"\xfc" + struct.pack("<H", len(value)) + value
        )

    values = [
        b"\x01",
        *(struct.pack("<h", -2), struct.pack("<i", 3), struct.pack("<i", 4), struct.pack("<q", -5)),
        *(struct.pack("<f", 1.5), struct.pack("<d", 2.5), struct.pack("<h", 2024), text(b"text")),
        *(text(b"-12.50000"), b"\x0b" + moment, b"\x07" + moment[:7]),
        *(b"\x08" + struct.pack("<BIBBB", 1, 3, 4, 5, 6), b"\x04" + moment[:4], text(b"\x01\x02")),
        *(text(bytes(r.choice([0, 300]))), text(b'{"a": 1}'), text(b"b")),
    ]
    bitmap = bytearray((len(values) + 9) // 8)
    for i in range(len(values)):
        if r.random() < 0.2:
            bitmap[(i + 2) // 8] |= 1 << ((i + 2) % 8)
    kept = [v for i, v in enumerate(values) if not bitmap[(i + 2) // 8] >> ((i + 2) % 8) & 1]
    return b"\0" + bytes(bitmap) + b"".join(kept)


def result_sets(r: random.Random) -> None:
    """Packets of a SELECT's rows."""
    rows = [_good_row(r) for _ in range(3)]
    framed = [struct.pack("<I", len(p))[:3] + bytes([i]) + p for i, p in enumerate([*rows, b"\xfe\0\0\2\0"])]
    stream = broken(r, b"".join(framed))
    memory = guarded.holding(stream)
    with mock.patch.object(columns, "np", guarded.GuardedNumpy()):
        decoder = RowDecoder(_schema())
        buffers = decoder.buffers(3, 700)
        start = memory.ctypes.data
        _, at, count, _ = decoder.packets((start, start + len(stream)), start + 10_000, buffers, 0, 0)
    assert start <= at <= start + len(stream)
    for array in buffers.arrays(count):
        array.validate()


_DOCUMENT = bytes.fromhex("00020020001200010013000200050700021500616263010008000407000c01786e756c6c")


def json_diffs(r: random.Random) -> None:
    """Differences of JSON values and the documents they are applied to."""
    paths = [b"$.a", b"$.bc[0]", b"$", b"$.bc[2]", b'$."q"', b"$[0]"]
    diffs = b""
    for _ in range(r.randrange(1, 4)):
        path, operation = r.choice(paths), r.randrange(3)
        diffs += bytes([operation, len(path)]) + path
        if operation != 2:
            diffs += bytes([len(_DOCUMENT)]) + _DOCUMENT
    document = _DOCUMENT if r.random() < 0.5 else broken(r, _DOCUMENT)
    out = apply_diffs(document, diffs if r.random() < 0.3 else broken(r, diffs))
    assert len(out) < 100 * (len(document) + len(diffs)) + 100


SUBJECTS: dict[str, Callable[[random.Random], None]] = {
    subject.__name__: subject
    for subject in (
        row_events,
        statement_texts,
        payloads,
        transaction_index,
        table_maps,
        packets,
        result_sets,
        json_diffs,
        bombs,
        pgoutput_streams,
        pgoutput_index,
        archived_sessions,
        copies,
    )
}


def subject_named(name: str) -> Callable[[random.Random], None]:
    """One of SUBJECTS, or `module:function`."""
    module, _, function = name.partition(":")
    found: Callable[[random.Random], None] = (
        getattr(importlib.import_module(module), function) if function else SUBJECTS[name]
    )
    return found


def run_case(name: str, seed: int) -> bool:
    """Run one case; whether what was broken was refused. Any other end is an exception, or the process's."""
    try:
        subject_named(name)(random.Random(f"{name}:{seed}"))
    except SourceError as error:
        if error.code == "TR-8040":  # another exception, which `concerning` has given a table
            raise
        return True
    return False
