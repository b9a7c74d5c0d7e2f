"""One figure of one version, in a process of its own (see `bench.beside`): it imports only that version."""

from __future__ import annotations

import ctypes
import inspect
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

_PASSES = 15
_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Print the figure."""
    part, *rest = sys.argv[1:]
    if part == "whole":
        _whole(rest)
    else:
        _decode(part, Path(rest[0]))


def _whole(command: list[str]) -> None:
    """Print the CPU seconds of a command and of all processes that it started and that ended with it."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    process = subprocess.run(command, check=False, capture_output=True)
    with suppress(ChildProcessError):
        while True:
            os.wait()
    if process.returncode:
        raise RuntimeError(process.stdout + process.stderr)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(used.ru_utime + used.ru_stime)


def _decode(part: str, file: Path) -> None:
    """Print the microseconds of CPU that a row takes. Runs with the sources of either version."""
    log = file.read_bytes()
    passes = _of_mysql(log) if part == "mysql" else _of_postgres(log)
    rows, least = passes(), float("inf")
    for _ in range(_PASSES):
        begin = time.process_time()
        passes()
        least = min(least, time.process_time() - begin)
    print(least / rows * 1e6)


def _filter_of(decoder: type) -> str:
    """The name of a decoder's parameter that selects tables, in the version that is measured."""
    return "captures" if "captures" in inspect.signature(decoder).parameters else "wanted"


def _of_mysql(log: bytes) -> Callable[[], int]:
    from tailrace.kernels.memory import SLACK  # noqa: PLC0415 - of the version that is measured
    from tailrace.sources.mysql.wire.block import EventBlock  # noqa: PLC0415
    from tailrace.sources.mysql.wire.decoder import EventDecoder  # noqa: PLC0415

    all_tables: dict[str, Any] = {_filter_of(EventDecoder): lambda _: True}
    block = EventBlock(np.frombuffer(log + bytes(SLACK), np.uint8), 4, len(log), "binlog.000002", 4, True)
    return lambda: sum(len(batch) for batch in EventDecoder(**all_tables).feed(block))


def _of_postgres(log: bytes) -> Callable[[], int]:
    from tailrace.sources.postgres.wire.pgoutput import LogDecoder, PostgresTypes  # noqa: PLC0415

    events: dict[str, Any] = {_filter_of(LogDecoder): lambda table: table.table == "events"}

    def decode() -> int:
        decoder = LogDecoder(types=PostgresTypes(), **events)
        return sum(len(batch) for batch in decoder.feed(log))

    return decode


if __name__ == "__main__":
    main()
