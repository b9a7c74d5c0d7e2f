"""Random histories with crashes: at every batch a target holds what it should, in the end the whole table.

TAILRACE_SEED=1234 runs that seed alone.
"""

from __future__ import annotations

import os
import random

import pytest

from tailrace.config.options import parse_options
from tailrace.enumerator.boundary_prefetch import BoundaryPrefetch
from tailrace.enumerator.enumerator import Enumerator, Limits
from tailrace.enumerator.offset import StreamOffset
from tailrace.enumerator.request import Request
from tests.support.histories import TABLES, ModelDatabase, ModelSink, ModelSource

HISTORIES, PER_TEST = 2000, 100
STEPS = 12
#: Those beyond are slow tests.
OF_EACH_RUN = 1000
KINDS = ["rows"] * 8 + ["rewrite", "truncate", "swap", "drop", "create", "create", "unlogged"]
OPTIONS = parse_options(
    {
        "url": "mysql://h",
        "user": "u",
        "tables": "shop.*",
        "snapshotChunkRows": "2",
        "onPositionLost": "refresh",
    }
)


class Requests:
    """Requests in memory; they survive a crash."""

    def __init__(self):
        self.waiting = []

    def pending(self):
        return list(self.waiting)

    def remove(self, ids):
        self.waiting = [request for request in self.waiting if request.id not in ids]


class History:
    """One stream, crashed and started again."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.database = ModelDatabase(self.chance)
        self.sink = ModelSink(self.database)
        self.requests = Requests()
        self.source = ModelSource(self.database, self.chance)
        self.offset = StreamOffset()
        self.batches = self.asked = 0
        self.seconds = 0.0
        self.start()

    def start(self):
        self.plan = Enumerator(
            OPTIONS, self.source, parallelism=2, requests=self.requests, clock=lambda: self.seconds
        )

    def crashes(self):
        """Perhaps crash; whether it did."""
        if self.source.is_calm or self.chance.random() > 0.1:
            return False
        self.start()
        return True

    def changes(self, most):
        if not self.source.is_calm:
            for _ in range(self.chance.randint(0, most)):
                self.database.write(KINDS)

    def ask(self):
        self.asked += 1
        self.requests.waiting.append(Request(f"r{self.asked}", (*TABLES,)))

    def batch(self):
        """Plan, read and write a batch; whether there was one."""
        start = self.offset
        self.seconds += self.chance.choice([0, 1, 40])
        end = self.plan.latest(start, Limits())
        if end is start:
            return False
        if self.crashes():
            return True  # nobody knows the plan
        self.offset = end = StreamOffset.from_json(end.to_json())
        self.batches += 1
        while True:
            self.changes(2)
            cells = []
            for split in self.plan.splits(start, end):
                self.changes(1)
                cells += self.database.read(split)
            if self.crashes():
                continue
            written = self.chance.sample([*TABLES], self.chance.randint(0, len(TABLES)))
            self.sink.write(self.batches, (start, end), cells, written)
            if self.crashes():
                continue  # some targets have the batch, others do not
            self.sink.write(self.batches, (start, end), cells, TABLES)
            break
        self.sink.check(end)
        if not self.crashes():
            self.plan.commit(end)
        return True

    def live(self):
        for _ in range(STEPS):
            self.changes(5)
            self.batch()
            if self.chance.random() < 0.05:
                self.ask()
            if self.chance.random() < 0.03:
                self.database.purged = len(self.database.log)
        if any(entry.kind == "unlogged" for entry in self.database.log):
            self.ask()
        self.source.is_calm = True
        for _ in range(200):
            self.seconds += 40
            if not self.batch() and not self.requests.pending():
                break
        else:
            raise AssertionError(f"it does not end: {self.offset.to_json()}")
        assert not self.offset.tables
        assert all(reread.done for reread in self.offset.again.values())
        self.sink.check(self.offset, is_end=True)


def seeds():
    given = os.environ.get("TAILRACE_SEED")
    if given is not None:
        return [range(int(given), int(given) + 1)]
    every = [range(first, first + PER_TEST) for first in range(0, HISTORIES, PER_TEST)]
    return [pytest.param(s, marks=[] if s.start < OF_EACH_RUN else [pytest.mark.slow]) for s in every]


@pytest.mark.parametrize("seeds", seeds(), ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_target_holds_what_the_table_held_at_every_batch(monkeypatch, seeds):
    monkeypatch.setattr(BoundaryPrefetch, "prepare", lambda *_: None)  # a thread is not repeated by a seed
    for seed in seeds:
        history = History(seed)
        try:
            history.live()
        except BaseException as error:
            error.add_note(f"TAILRACE_SEED={seed}")
            for number, entry in enumerate(history.database.log, start=1):
                error.add_note(f"{number}: {entry}")
            raise
