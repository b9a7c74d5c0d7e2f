"""The time up to which a stream is complete: it moves on by itself, and never ahead of what was read."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tailrace.config.options import SourceOptions
from tailrace.errors import TransientSourceError
from tests.support import postgres as postgres_support
from tests.support.engine import Engine, options_for, rows_of
from tests.support.faketime import skewed
from tests.support.switch import Switch
from tests.support.wait import wait_until

#: Shorter than a stall.
TIMEOUT = {"queryTimeoutMs": 1000, "connectTimeoutMs": 1000, "retryTimeoutMs": 1000}


@dataclass
class Shop:
    """A captured table `t` and one beside it, behind an address of its own.

    Args:
        execute: runs statements on the server.
        clock: the server's clock, microseconds since 1970 UTC.
        rotate: statements that begin another log file.
        address: where the stream finds the server.
        options: of the stream.
    """

    execute: Callable[..., Any]
    clock: Callable[[], int]
    rotate: tuple[str, ...]
    address: Switch
    options: SourceOptions


# MariaDB's clock and log are read by MySQL's code: a test run has one test of them
@pytest.fixture(params=["mysql", pytest.param("mariadb", marks=pytest.mark.slow), "postgres"])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    server = request.getfixturevalue(request.param)
    with Switch(server) as address:
        if request.param == "postgres":
            name = request.getfixturevalue("postgres_database")

            def execute(*statements: str) -> Any:
                return server.execute(*statements, database=name)

            def clock() -> int:
                return int(execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")[0][0])

            rotate: tuple[str, ...] = ("SELECT pg_switch_wal()::text",)
            options = postgres_support.options_for(address, name, r"public\.t", **TIMEOUT)
        else:
            name = request.getfixturevalue("database" if request.param == "mysql" else "mariadb_database")

            def execute(*statements: str) -> Any:
                return server.execute(f"USE {name}", *statements)

            def clock() -> int:
                since = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
                return int(server.execute(f"SELECT {since}")[0][0])

            rotate = ("FLUSH BINARY LOGS",)
            options = options_for(address, rf"{name}\.t", **TIMEOUT)
        execute("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE other (id INT PRIMARY KEY)")
        yield Shop(execute, clock, rotate, address, options)


@contextmanager
def running(shop: Shop) -> Iterator[Engine]:
    """A stream whose snapshot is done."""
    with Engine(shop.options) as engine:
        wait_until(lambda: step(engine) == 0 and engine.offset.done, 30, "the snapshot")
        yield engine


def step(engine: Engine) -> int:
    """Plan and read one batch; the number of rows that it had."""
    try:
        batch = engine.next()
    except TransientSourceError:  # a pipeline starts again
        engine.plan.close()
        return 0
    if batch is None:
        time.sleep(0.05)
        return 0
    return sum(len(rows_of(part)) for part in engine.read(*batch))


def is_complete_at(engine: Engine, ts_us: int) -> bool:
    step(engine)
    return (engine.plan.complete_us or 0) >= ts_us


def test_idle_stream_is_complete_up_to_now(shop: Shop) -> None:
    with running(shop) as engine:
        for _ in range(2):
            now_us = shop.clock()
            wait_until(lambda: is_complete_at(engine, now_us), 30, "an idle stream to move on")  # noqa: B023
            assert (engine.plan.complete_us or 0) <= shop.clock()


@pytest.mark.parametrize("shop", ["mysql", "mariadb", "postgres"], indirect=True)
def test_new_log_file_and_changes_of_other_tables_hold_nothing_up(shop: Shop) -> None:
    with running(shop) as engine:
        shop.execute("INSERT INTO other VALUES (1)", *shop.rotate)
        now_us = shop.clock()
        wait_until(lambda: is_complete_at(engine, now_us), 30, "a stream to move on")


def test_time_stands_still_while_the_connection_stalls(shop: Shop) -> None:
    with running(shop) as engine:
        now_us = shop.clock()
        wait_until(lambda: is_complete_at(engine, now_us), 30, "the stream to move on")
        shop.address.stall()
        stalled_us = shop.clock()
        shop.execute("INSERT INTO t VALUES (1)")
        until = time.monotonic() + 3
        while time.monotonic() < until:
            assert step(engine) == 0
        assert (engine.plan.complete_us or 0) <= stalled_us
        shop.address.resume()
        now_us = shop.clock()
        rows = 0

        def catches_up() -> bool:
            nonlocal rows
            rows += step(engine)
            return (engine.plan.complete_us or 0) >= now_us

        wait_until(catches_up, 60, "the stream to go on")
        assert rows == 1


def test_whatever_was_committed_by_that_time_has_been_read(shop: Shop) -> None:
    """Beside a writer: every row whose commit was acknowledged before the time is in the batches so far."""
    committed: list[tuple[int, int]] = []
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            shop.execute(f"INSERT INTO t VALUES ({number})")
            committed.append((shop.clock(), number))

    with running(shop) as engine:
        writer = threading.Thread(target=write)
        writer.start()
        read: set[int] = set()
        moments = 0
        until = time.monotonic() + 4
        try:
            while time.monotonic() < until:
                batch = engine.next()
                if batch is None:
                    time.sleep(0.01)
                    continue
                for part in engine.read(*batch):
                    read |= {row["id"] for row in rows_of(part)}
                complete_us = engine.plan.complete_us or 0
                due = {number for ts_us, number in list(committed) if ts_us <= complete_us}
                moments += bool(due)
                assert due <= read
        finally:
            stop.set()
            writer.join()
        assert moments > 3


#: A driver: options from stdin, a time of the server as argument; prints its own clock and what it says.
DRIVER = """
import json, os, pickle, sys, time
from tests.recovery.test_freshness import is_complete_at
from tests.support.engine import Engine
from tests.support.wait import wait_until
options = pickle.load(sys.stdin.buffer)
with Engine(options) as engine:
    wait_until(lambda: is_complete_at(engine, int(sys.argv[1])), 60, "the stream to move on")
    print(json.dumps({"clock_s": time.time(), "complete_us": engine.plan.complete_us}), flush=True)
    os._exit(0)  # libfaketime may turn a thread's short wait into one of an hour
"""


@pytest.mark.parametrize("hours", [1, -1])
def test_clock_of_the_driver_does_not_matter(shop: Shop, hours: int) -> None:
    root = str(Path(__file__).parents[2])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([root, str(Path(root, "src"))]),
        **skewed(hours),
    }
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(shop.clock())],
        input=pickle.dumps(shop.options),
        env=environment,
        stdout=subprocess.PIPE,
        timeout=120,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["clock_s"] - time.time() == pytest.approx(hours * 3600, abs=60)
    assert shop.clock() - 60_000_000 < found["complete_us"] <= shop.clock()
