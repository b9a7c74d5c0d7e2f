"""Plots outlive the server that took their samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.control import leases, measurements, progress, subscriptions
from tailrace.control.measurements import KEPT_S, SLOT_S, Measured
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.pages.samples import Sampler
from tailrace.control.progress import TableReport
from tailrace.control.stages import Stage
from tests.support.control import spec


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ControlDatabase]:
    database = ControlDatabase(f"sqlite:///{tmp_path}/t.db")
    database.prepare()
    with database.begin() as connection:
        subscriptions.create(connection, "ann", "shop", spec("shop"))
    yield database
    database.close()


def _report(database: ControlDatabase, changes: int) -> None:
    with database.begin() as connection:
        for _, lease in leases.claim(connection, "s", leases.Room(1)):
            table = TableReport("shop.orders", "incremental_log", rows=7, changes=changes)
            progress.report(connection, lease, Stage.INCREMENTAL_LOG, [table])


def test_plot_goes_on_where_another_server_left_off(database: ControlDatabase) -> None:
    now = database.now_us()
    minute = 60_000_000
    # each two minutes for an hour and a half, with an hour of nobody before
    for ago in (150, *range(90, 2, -2)):
        at = now - ago * minute
        measurements.keep(database, at, {1: Measured(at, 2_000_000, (200 - ago) * 600, 0)})
    _report(database, 198 * 600)
    sampler = Sampler(database)
    sampler.take()
    day, hour = sampler.plot(1, day=True), sampler.plot(1, day=False)
    # the rows, the gap, and the one of the new server
    assert len(day["at"]) == 1 + 1 + 44 + 1
    assert day["changes"][:3] == [None, None, None]
    assert day["lag"][1] is None
    assert set(day["changes"][3:-1]) == {10.0}
    assert day["lag"][-2] == 2.0
    assert day["at"] == sorted(day["at"])  # type: ignore[type-var]
    assert 28 <= len(hour["at"]) <= 31
    assert set(hour["changes"][:-1]) == {10.0}
    assert hour["changes"][-1] is None  # its first sample: it has seen no change yet


def test_one_server_writes_the_rows_of_a_slot_and_old_ones_go(database: ControlDatabase) -> None:
    now = database.now_us() // (SLOT_S * 1_000_000) * SLOT_S * 1_000_000
    slot_us, day_us = SLOT_S * 1_000_000, KEPT_S * 1_000_000
    for at, changes in (
        (now - day_us - slot_us, 1),
        (now - day_us + slot_us, 2),
        (now, 3),
        (now + slot_us // 2, 4),  # another server, in the same slot
    ):
        measurements.keep(database, at, {1: Measured(at, None, changes, 0), 77: Measured(at, None, 0, 0)})
    kept = database.read(lambda connection: measurements.last_day(connection, 1))
    assert [one.changes for one in kept] == [2, 3]
    assert database.read(lambda connection: measurements.last_day(connection, 77)) == []
    with database.begin() as connection:
        subscriptions.set_desired(connection, "ann", "shop", subscriptions.Desired.PAUSE)
        subscriptions.remove(connection, "ann", "shop")
    assert database.read(lambda connection: measurements.last_day(connection, 1)) == []


def test_server_that_finds_a_slot_written_writes_nothing(database: ControlDatabase) -> None:
    _report(database, 5)
    first, second = Sampler(database), Sampler(database)
    for sampler in (first, second, first):
        sampler.take()
    assert len(database.read(lambda connection: measurements.last_day(connection, 1))) <= 2
