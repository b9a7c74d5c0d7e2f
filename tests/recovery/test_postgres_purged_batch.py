"""A batch that was planned, and not committed when its slot was lost: the stream goes on, exactly."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import PositionLostError, PreflightError
from tailrace.spark.requests import RequestDirectory
from tests.recovery.test_postgres_rejoin import ROWS, change, drop_slot, filled, invalidate_slot
from tests.recovery.test_postgres_schema import stream
from tests.support.replication import postgres_of
from tests.support.rereading import Target
from tests.support.wait import wait_until


def check_goes_on(server: Any, database: str, lose: Any, path: Any, chunk: int) -> None:
    run = filled(server, database)
    given = {"tables": "public.t", "snapshotChunkRows": chunk}

    def opened(**more: Any) -> Any:
        found = stream(server, database, **given, **more)
        found.plan._requests._requests = RequestDirectory(str(path))
        return found

    with opened() as engine:
        target = Target(engine, "public.t")
        if chunk < ROWS:
            assert target.step()
            assert engine.offset.tables["public.t"].cursor
        else:
            target.drain_all()
        at = engine.offset.log["lsn"]
        change(run)
        while True:
            batch = engine.next()
            if batch is not None and batch[1].log["lsn"] > at:
                break
            if batch is not None:
                target.apply(*engine.read(*batch), end=batch[1].to_json())
    start, end = (StreamOffset.from_json(offset.to_json()) for offset in batch)
    active = f"SELECT NOT active FROM pg_replication_slots WHERE slot_name = 'slot_{database}'"
    server.wait_until(active, bool)
    lose(server, database, run)
    run("INSERT INTO t VALUES (100)", "DELETE FROM t WHERE id = 99")
    with opened() as engine, pytest.raises((PositionLostError, PreflightError), match="slot"):
        engine.read(start, end)
    for _ in range(2):  # delivered as often as it takes, with the same content
        with opened(onPositionLost="refresh") as engine:
            read = engine.read(start, end)
            assert not read[1], "the log is gone"
    assert len(RequestDirectory(str(path)).pending()) == 1
    target.apply(*read, end=end.to_json())
    with opened(onPositionLost="refresh") as engine:
        engine.offset, target.engine = end, engine
        wait_until(lambda: [target.step()] and engine.offset.requests, 30, "the request to be accepted")
        target.drain_all()
        target.equals(server, database=database)
        run("INSERT INTO t VALUES (101)", "DELETE FROM t WHERE id = 100")
        target.drain_all()
        target.equals(server, database=database)


@pytest.mark.parametrize("chunk", [1000, 5], ids=["after the snapshot", "during the snapshot"])
def test_stream_goes_on_behind_a_batch_whose_slot_was_dropped(
    postgres: Any, postgres_database: str, tmp_path: Any, chunk: int
) -> None:
    check_goes_on(postgres, postgres_database, drop_slot, tmp_path, chunk)


@pytest.mark.slow  # a server of its own
def test_stream_goes_on_behind_a_batch_whose_slot_was_invalidated(tmp_path: Any) -> None:
    with postgres_of("18") as server:
        server.execute("CREATE DATABASE lost")
        check_goes_on(server, "lost", invalidate_slot, tmp_path, 1000)
