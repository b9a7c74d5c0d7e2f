"""The relay of the log: what a task reads of it is what the follower was sent, or nothing."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tailrace.kernels.memory import SLACK
from tailrace.sources.mysql.binlog import relay as module
from tailrace.sources.mysql.binlog.held import number_of
from tailrace.sources.mysql.binlog.relay import LogRelay, RelayedEvents
from tailrace.sources.mysql.wire.block import EventBlock

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no memory files")

START = (1, 4)


def blocks_of(
    seed: int, count: int, largest: int = 500, files: int = 3
) -> tuple[list[EventBlock], dict[str, bytes]]:
    """Blocks of a log, and the whole content of its files, the four bytes of their heads included."""
    choose = random.Random(seed)
    found, logs = [], {}
    for number in range(1, files + 1):
        file, pos = f"log.{number:06}", 4
        logs[file] = b"\xfebin"
        for _ in range(count // files):
            data = choose.randbytes(choose.randint(1, largest))
            before = choose.randint(0, 9)
            buffer = np.frombuffer(bytes(before) + data + bytes(SLACK), np.uint8)
            found.append(EventBlock(buffer, before, before + len(data), file, pos, number % 2 == 0))
            logs[file] += data
            pos += len(data)
    return found, logs


def ends_of(blocks: list[EventBlock]) -> list[tuple[int, int]]:
    return [(number_of(b.file), b.pos + b.end - b.start) for b in blocks]


def expected(logs: dict[str, bytes], start: tuple[int, int], end: tuple[int, int]) -> dict[str, bytes]:
    found = {}
    for file, data in logs.items():
        number = number_of(file)
        low = max(4, start[1] if start[0] == number else 4 if start[0] < number else len(data))
        high = end[1] if end[0] == number else len(data) if end[0] > number else 0
        if low < high:
            found[file] = data[low:high]
    return found


def read(described: bytes | None) -> dict[str, bytes] | None:
    """The bytes of each file, having checked that the blocks follow each other."""
    events = RelayedEvents.of(described)
    if events is None:
        return None
    found: dict[str, bytes] = {}
    ends: dict[str, int] = {}
    with events:
        for block in events.blocks():
            assert block.checksum == (number_of(block.file) % 2 == 0)
            assert block.pos == ends.get(block.file, block.pos)
            ends[block.file] = block.pos + block.end - block.start
            data = block.buffer[block.start : block.end].tobytes()
            found[block.file] = found.get(block.file, b"") + data
            assert len(block.buffer) >= block.end + SLACK
    return found


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PIECE_BYTES", 2000)
    monkeypatch.setattr(module, "_BLOCK_BYTES", 900)


@pytest.fixture
def relay() -> Iterator[LogRelay]:
    with closing(LogRelay(START, 20_000)) as relay:
        yield relay


@pytest.mark.parametrize("seed", range(20))
def test_a_range_is_what_was_added(relay: LogRelay, seed: int) -> None:
    blocks, logs = blocks_of(seed, 60)
    for block in blocks:
        relay.add(block)
    ends = [START, *ends_of(blocks)]
    choose = random.Random(seed)
    for _ in range(50):
        low, high = sorted(choose.sample(range(len(ends)), 2))
        assert read(relay.between(ends[low], ends[high])) == expected(logs, ends[low], ends[high])


def test_a_large_event_is_a_block_of_its_own(relay: LogRelay) -> None:
    blocks, logs = blocks_of(1, 9, largest=5000)
    for block in blocks:
        relay.add(block)
    end = ends_of(blocks)[-1]
    assert read(relay.between(START, end)) == expected(logs, START, end)


def test_another_process_reads_it(relay: LogRelay) -> None:
    blocks, logs = blocks_of(2, 30)
    for block in blocks:
        relay.add(block)
    end = ends_of(blocks)[-1]
    script = (
        "import sys\n"
        "from tailrace.sources.mysql.binlog.relay import RelayedEvents\n"
        "with RelayedEvents.of(sys.stdin.buffer.read()) as events:\n"
        "    for block in events.blocks():\n"
        "        sys.stdout.buffer.write(block.buffer[block.start : block.end].tobytes())\n"
    )
    described = relay.between(START, end)
    found = subprocess.run(
        [sys.executable, "-c", script], input=described, stdout=subprocess.PIPE, check=True
    )
    assert found.stdout == b"".join(expected(logs, START, end).values())


def test_what_was_done_is_not_held(relay: LogRelay) -> None:
    blocks, logs = blocks_of(3, 60)
    for block in blocks:
        relay.add(block)
    ends = ends_of(blocks)
    described = relay.between(START, ends[29])
    relay.forget(ends[29])
    assert relay.between(START, ends[40]) is None
    assert read(described) is None
    assert read(relay.between(ends[29], ends[59])) == expected(logs, ends[29], ends[59])


def test_a_task_that_has_begun_reads_on(relay: LogRelay) -> None:
    blocks, logs = blocks_of(4, 60)
    for block in blocks:
        relay.add(block)
    end = ends_of(blocks)[-1]
    events = RelayedEvents.of(relay.between(START, end))
    assert events is not None
    relay.close()
    with events:
        data = b"".join(b.buffer[b.start : b.end].tobytes() for b in events.blocks())
    assert data == b"".join(expected(logs, START, end).values())


def test_memory_that_a_task_reads_is_not_used_again(relay: LogRelay) -> None:
    blocks, logs = blocks_of(12, 600)
    ends = ends_of(blocks)
    for block in blocks[:40]:
        relay.add(block)
    events = RelayedEvents.of(relay.between(START, ends[39]))
    assert events is not None
    with events:
        found = []
        for number, block in enumerate(events.blocks()):
            found.append(block.buffer[block.start : block.end].tobytes())
            # all is done and gone, as if this task were one that Spark has given up
            for more in blocks[40 + 20 * number :][:20]:
                relay.add(more)
            relay.forget(ends[40 + 20 * number + 19])
        assert b"".join(found) == b"".join(expected(logs, START, ends[39]).values())


def test_memory_is_used_again_and_given_back(relay: LogRelay) -> None:
    blocks, _ = blocks_of(13, 3000, files=1)
    ends, before = ends_of(blocks), open_files()
    created: set[int] = set()
    done = START
    for at in range(0, 3000, 20):
        for block in blocks[at : at + 20]:
            relay.add(block)
        created |= {os.fstat(piece.fd).st_ino for piece in relay._pieces}
        assert read(relay.between(done, ends[at + 18]))
        done = ends[at + 18]
        relay.forget(done)
        assert open_files() - before < 10
    assert len(created) < 10
    relay.forget(ends[-1])
    relay.forget(ends[-1])
    assert open_files() == before


def test_read_pieces_make_room(relay: LogRelay) -> None:
    """However long the log, and wherever batches end in pieces."""
    blocks, logs = blocks_of(5, 3000, files=2)
    ends = ends_of(blocks)
    done, at = START, 0
    for index, block in enumerate(blocks):
        assert relay._bytes <= 20_000 + 500
        while not relay.has_room():
            high = min(at + 13, index)
            assert read(relay.between(done, ends[high])) == expected(logs, done, ends[high])
            done, at = ends[high], high
            relay.forget(done)
        relay.add(block)
    assert at > 2500


def test_pieces_of_the_batch_that_is_read_make_room(relay: LogRelay) -> None:
    blocks, _ = blocks_of(6, 300, files=1)
    ends = ends_of(blocks)
    added = 0
    while relay.has_room():
        relay.add(blocks[added])
        added += 1
    assert read(relay.between(START, ends[added - 1]))
    assert relay.has_room()
    # the last piece goes on behind the batch
    relay.add(blocks[added])
    assert read(relay.between(ends[added - 1], ends[added])) is not None


def test_it_ends_if_nobody_reads(relay: LogRelay) -> None:
    blocks, _ = blocks_of(7, 600, files=1)
    ends = ends_of(blocks)
    before, offers = START, 0
    for block, end in zip(blocks, ends, strict=True):
        relay.add(block)
        offers += relay.between(before, end) is not None
        relay.forget(end)
        before = end
    assert 0 < offers < 250
    assert relay.has_room()
    assert relay._bytes == 0


def test_it_goes_on_if_batches_are_not_offered(relay: LogRelay) -> None:
    blocks, logs = blocks_of(8, 600, files=1)
    ends = ends_of(blocks)
    for block, end in zip(blocks[:-1], ends, strict=False):
        relay.add(block)
        relay.forget(end)
    relay.add(blocks[-1])
    assert read(relay.between(ends[-2], ends[-1])) == expected(logs, ends[-2], ends[-1])


def test_a_skipped_part_is_not_read(relay: LogRelay) -> None:
    blocks, logs = blocks_of(9, 60)
    ends = ends_of(blocks)
    for block in blocks[:30]:
        relay.add(block)
    relay.skip()
    for block in blocks[30:]:
        relay.add(block)
    assert relay.between(ends[28], ends[40]) is None
    assert read(relay.between(ends[29], ends[40])) == expected(logs, ends[29], ends[40])


def test_other_files_are_not_taken_for_a_piece(relay: LogRelay, tmp_path: Path) -> None:
    blocks, _ = blocks_of(10, 3)
    for block in blocks:
        relay.add(block)
    described = relay.between(START, ends_of(blocks)[-1])
    assert described is not None
    (first, *rest) = json.loads(described)
    regular, pipe = tmp_path / "regular", tmp_path / "pipe"
    regular.write_bytes(bytes(10_000))
    os.mkfifo(pipe)
    for path in (regular, pipe, tmp_path / "missing", tmp_path):
        assert RelayedEvents.of(json.dumps([{**first, "path": str(path)}, *rest]).encode()) is None
    short = json.dumps([{**first, "sizes": [10_000]}, *rest]).encode()
    assert RelayedEvents.of(short) is None
    assert read(described) is not None


def test_no_memory_means_no_relay(relay: LogRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks, _ = blocks_of(11, 60)
    for block in blocks[:30]:
        relay.add(block)

    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", refuse)
        relay.add(blocks[30])
    relay.add(blocks[31])
    ends = ends_of(blocks)
    assert relay.between(ends[0], ends[31]) is None
    assert relay.has_room()
