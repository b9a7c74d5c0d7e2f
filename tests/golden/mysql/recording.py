"""The recorded log as blocks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tailrace.kernels.memory import SLACK
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableId
from tailrace.sources.mysql.wire.block import EventBlock
from tailrace.sources.mysql.wire.decoder import EventDecoder

LOG = (Path(__file__).parent / "recorded.binlog").read_bytes()
EXPECTED: dict[str, list[dict[str, str | None]]] = json.loads(
    (Path(__file__).parent / "recorded.json").read_text()
)
FILE = "binlog.000007"
#: Offset of the first event.
FIRST = 4
TABLE_MAP, QUERY, WRITE_ROWS = 19, 2, 30


def captured(table: TableId) -> bool:
    return table.table in ("t", "u")


def block(
    data: bytes, start: int = FIRST, end: int | None = None, *, file: str = FILE, checksum: bool = True
) -> EventBlock:
    buffer = np.frombuffer(bytearray(data) + bytes(SLACK), np.uint8)
    return EventBlock(buffer, start, len(data) if end is None else end, file, start, checksum)


def events(data: bytes = LOG) -> list[tuple[int, int, int]]:
    """Offset, size and type of each event."""
    found, at = [], FIRST
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        found.append((at, size, data[at + 4]))
        at += size
    return found


def first(type_: int, data: bytes = LOG) -> int:
    """Offset of the first event of a type."""
    return next(at for at, _, t in events(data) if t == type_)


def patched(at: int, *values: int) -> bytes:
    """The log with bytes replaced from an offset on."""
    return LOG[:at] + bytes(values) + LOG[at + len(values) :]


def decode(*blocks: EventBlock, **options: Any) -> list[ChangeBatch]:
    decoder = EventDecoder(**{"captures": captured, **options})
    return [batch for b in blocks for batch in decoder.feed(b)]


def lines(batches: Sequence[ChangeBatch], table: str = "") -> list[dict[str, Any]]:
    """Every change as Python values, by `seq`."""
    out = []
    for batch in batches:
        if batch.table.id.table.startswith(table):
            empty = {"before": None, "after": None}
            out += [{**empty, **line} for line in batch.to_record_batch().to_pylist()]
    return sorted(out, key=lambda line: line["origin.seq"])
