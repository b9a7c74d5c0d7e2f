"""A parked table whose rows are rewritten meanwhile: a replay does not tell them, so they are read."""

from __future__ import annotations

import pytest

from tailrace.enumerator.request import Request
from tests.support.engine import Engine, options_for
from tests.support.rereading import Requests, Target

CHANGES = {
    "while it is parked": (["ALTER TABLE t ADD COLUMN c INT DEFAULT 5"], []),
    "before it is parked": ([], ["ALTER TABLE t ADD COLUMN c INT DEFAULT 5"]),
    "by rows alone": (["UPDATE t SET a = 7 WHERE id < 9", "INSERT INTO t VALUES (90, 9)"], []),
}


@pytest.mark.parametrize("when", CHANGES)
def test_table_that_is_resumed_by_a_replay_equals_its_target(mysql, database, when):
    def run(*statements):
        mysql.execute(f"USE `{database}`", *statements)

    parked, before = CHANGES[when]
    name = f"{database}.t"
    values = ", ".join(f"({n}, {n})" for n in range(30))
    run("CREATE TABLE t (id INT PRIMARY KEY, a INT)", f"INSERT INTO t VALUES {values}")
    run("CREATE TABLE u (id INT PRIMARY KEY)")
    with Engine(options_for(mysql, rf"{database}\.(t|u)", snapshotChunkRows=7)) as engine:
        target = Target(engine, name)
        requests = engine.plan._requests._requests = Requests()
        target.drain_all()
        if before:
            run(*before)
            target.step()  # the reading begins
        requests.waiting.append(Request("r1", (name,), "park"))
        run("INSERT INTO u VALUES (1)")
        target.drain_all()
        assert name in engine.offset.parked
        run(*parked, "UPDATE t SET a = 8 WHERE id = 3", "DELETE FROM t WHERE id = 4")
        target.drain_all()
        requests.waiting.append(Request("r2", (name,), "resume", replay=True))
        target.drain_all()
        target.drain_all()
        assert not engine.offset.parked
        target.equals(mysql)
        assert bool(target.readings) == (when != "by rows alone")
