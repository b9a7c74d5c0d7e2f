"""Helpers of tests that read a real server's binary log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tailrace.config.options import SourceOptions, parse_options
from tailrace.sources.mysql.binlog.dump import read_log
from tailrace.sources.mysql.binlog.follower import BinlogFollower, BinlogRange
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.mysql.wire.block import EventBlock


def options_of(server: Any, **given: str) -> SourceOptions:
    """Options that capture everything on `server`."""
    return parse_options(
        {
            "url": server.url,
            "user": "root",
            "password": server.password,
            "tables": ".*[.].*",
            "retryTimeoutMs": "60000",
            **given,
        }
    )


def read_bytes(
    options: SourceOptions, start: MySqlPosition, end: MySqlPosition
) -> dict[str, tuple[int, bytes]]:
    """The result of `read_log`, as offset and bytes by file; checks that blocks are contiguous."""
    return bytes_of(read_log(options, start, end))


def bytes_of(blocks: Iterable[EventBlock]) -> dict[str, tuple[int, bytes]]:
    """What is in blocks, as offset and bytes by file; checks that they are contiguous."""
    found: dict[str, tuple[int, bytes]] = {}
    for block in blocks:
        pos, data = found.get(block.file, (block.pos, b""))
        assert block.pos == pos + len(data)
        found[block.file] = (pos, data + block.buffer[block.start : block.end].tobytes())
    return found


def file_bytes(server: Any, file: str) -> bytes:
    """The content of a log file on the disk."""
    return (server.data / file).read_bytes()


def first_event(data: bytes) -> int:
    """Offset of the end of a file's FORMAT_DESCRIPTION_EVENT, which says "in use" in a live file."""
    return 4 + int.from_bytes(data[4 + 9 : 4 + 13], "little")


def all_ranges(
    follower: BinlogFollower, start: MySqlPosition, end: MySqlPosition, **limits: int | None
) -> list[BinlogRange]:
    """Ranges one after the other, up to `end`."""
    found: list[BinlogRange] = []
    at = start
    while at.order < end.order:
        ours = follower.end_after(
            at, max_bytes=limits.get("max_bytes"), max_rows=limits.get("max_rows"), upto=end
        )
        if ours is None:
            assert follower.wait(20), f"nothing after {at}"
            continue
        found.append(ours)
        at = ours.end
    return found
