"""A batch that was planned, and not committed when its log was purged: the stream goes on, exactly."""

from __future__ import annotations

import pytest

from tailrace.enumerator.offset import StreamOffset
from tailrace.spark.requests import RequestDirectory
from tests.support.engine import Engine, options_for
from tests.support.rereading import Target
from tests.support.wait import wait_until


def newest(mysql):
    """The newest file of the log."""
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOG STATUS")
        return cursor.fetchone()[0]


def engine_for(options, path):
    engine = Engine(options)
    engine.plan._requests._requests = RequestDirectory(str(path))
    return engine


@pytest.mark.parametrize("chunk", [100, 3], ids=["after the snapshot", "during the snapshot"])
@pytest.mark.parametrize("whole", [True, False], ids=["all of it", "its begin"])
def test_stream_goes_on_behind_a_batch_whose_log_was_purged(mysql, database, tmp_path, chunk, whole):
    table = f"{database}.t"
    mysql.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT)",
        f"INSERT INTO {table} VALUES {', '.join(f'({i}, {i})' for i in range(20))}",
    )
    options = options_for(mysql, table, onPositionLost="refresh", snapshotChunkRows=chunk)
    with engine_for(options, tmp_path) as engine:
        target = Target(engine, table)
        target.step()
        if chunk == 100:
            target.drain(mysql)
        mysql.execute(f"UPDATE {table} SET a = 7 WHERE id < 5", f"DELETE FROM {table} WHERE id IN (0, 19)")
        if not whole:
            mysql.execute("FLUSH BINARY LOGS", f"INSERT INTO {table} VALUES (50, 50)")
        last = newest(mysql)
        while True:
            batch = engine.next()
            if batch is not None and batch[1].log["file"] == last:
                break
            if batch is not None:
                target.apply(*engine.read(*batch), end=batch[1].to_json())
    start, end = batch
    if whole:
        mysql.execute("FLUSH BINARY LOGS")
    mysql.execute(f"PURGE BINARY LOGS TO '{newest(mysql)}'", f"INSERT INTO {table} VALUES (51, 51)")
    for _ in range(2):  # delivered as often as it takes, with the same content
        with engine_for(options, tmp_path) as engine:
            read = engine.read(start, StreamOffset.from_json(end.to_json()))
            assert not read[1]
    assert len(RequestDirectory(str(tmp_path)).pending()) == 1
    target.apply(*read, end=end.to_json())
    with engine_for(options, tmp_path) as engine:
        engine.offset, target.engine = end, engine
        # the request takes effect once the log is read up to where it was found
        wait_until(lambda: [target.step()] and engine.offset.requests, 30, "the request to be accepted")
        target.drain(mysql)
        target.equals(mysql)
