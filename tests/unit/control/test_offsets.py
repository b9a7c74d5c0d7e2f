"""Offsets of a subscription's stream are set while nobody can run it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from tailrace.control import leases, offsets
from tailrace.control.audit import read_events
from tailrace.control.metadata.database import ControlDatabase, now_us
from tailrace.control.metadata.tables import subscriptions as table
from tailrace.control.operations import Control
from tailrace.control.policy import Policy
from tailrace.control.stages import Desired
from tailrace.errors import ConfigError, ControlError, LeaseLostError, StateError
from tailrace.pipeline import offset_replacement
from tests.unit.control.test_operations import SPEC


def add_batch(control: Control, number: int, pos: int, *, committed: bool = True) -> dict[str, Any]:
    """A batch in the checkpoint of a stream; returns its end."""
    (pipeline,) = control.pipelines(SPEC, "shop")
    end = {
        "v": 1,
        "mode": "initial",
        "log": {"file": "b.000003", "pos": pos, "gtids": "", "server": "s", "epoch": 0, "ts_ms": 5},
        "tables": {},
        "done": {"shop.orders": 1},
    }
    path = Path(pipeline.checkpoint)
    for name in ("offsets", "commits"):
        (path / name).mkdir(parents=True, exist_ok=True)
    (path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(end)}")
    if committed:
        (path / "commits" / str(number)).write_text("v1\n{}")
    return end


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    database = ControlDatabase(f"sqlite:///{tmp_path}/tailrace.db")
    database.prepare()
    found = Control(database, tmp_path, Policy(hosts=["127.0.0.1"]))
    found.create("ann", "shop", SPEC, paused=True)
    yield found
    database.close()


def moved(end: dict[str, Any], pos: int) -> dict[str, Any]:
    return {**end, "log": {**end["log"], "pos": pos}}


def put(
    control: Control, value: dict[str, Any], version: str | None = None, **how: bool
) -> offsets.OffsetSet:
    return offsets.set_offset(control, "bob", "shop", value, version, unchecked=True, **how)


def position(control: Control) -> Any:
    found = offsets.offset(control, "shop")
    assert found is not None
    return found["end"]["log"]["pos"]


def refused(control: Control, value: dict[str, Any], code: str, version: str | None = None) -> None:
    with pytest.raises((ControlError, StateError, ConfigError)) as error:
        put(control, value, version)
    assert error.value.code == code


def test_subscription_that_is_to_run_or_is_run_keeps_its_offset(control: Control) -> None:
    end = add_batch(control, 0, 500)
    control.ask("ann", "shop", Desired.RUN)
    refused(control, moved(end, 400), "TR-8487")
    assert put(control, moved(end, 400), dry_run=True).kept is None
    with control.database.begin() as connection:
        ((_, lease),) = leases.claim(connection, "s1", leases.Room(1))
    control.ask("ann", "shop", Desired.PAUSE)
    refused(control, moved(end, 400), "TR-8487")  # its worker has not ended yet
    assert position(control) == 500
    with control.database.begin() as connection:
        leases.release(connection, lease)
    put(control, moved(end, 400))
    assert position(control) == 400


def test_owner_that_hangs_cannot_go_on_behind_another_offset(control: Control) -> None:
    end = add_batch(control, 0, 500)
    control.ask("ann", "shop", Desired.RUN)
    with control.database.begin() as connection:
        ((_, lease),) = leases.claim(connection, "s1", leases.Room(1))
    control.ask("ann", "shop", Desired.PAUSE)
    with control.database.begin() as connection:
        connection.execute(update(table).values(lease_until_us=now_us() - 1))
    put(control, moved(end, 400))
    with control.database.begin() as connection, pytest.raises(LeaseLostError):
        leases.begin_batch(connection, lease, "", 1, "{}")


def test_nobody_begins_to_run_it_meanwhile(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    end = add_batch(control, 0, 500)
    checking, go_on = threading.Event(), threading.Event()
    planned = offset_replacement.planned

    def slow(*given: Any, **how: Any) -> Any:
        checking.set()
        assert go_on.wait(20)
        return planned(*given, **how)

    monkeypatch.setattr(offset_replacement, "planned", slow)
    with ThreadPoolExecutor(1) as pool:
        setting = pool.submit(put, control, moved(end, 400))
        assert checking.wait(20)
        control.ask("ann", "shop", Desired.RUN)
        with control.database.begin() as connection:
            assert leases.claim(connection, "s1", leases.Room(1)) == []
        refused(control, moved(end, 300), "TR-8487")
        go_on.set()
        assert setting.result(20).kept == "offsets.before/0.0"
    with control.database.begin() as connection:
        ((found, lease),) = leases.claim(connection, "s1", leases.Room(1))
        assert lease.number == 2
    assert found.owner == "s1"
    assert position(control) == 400


def test_it_is_free_again_after_a_refusal(control: Control) -> None:
    end = add_batch(control, 0, 500)
    refused(control, {**moved(end, 400), "log": None}, "TR-1301")
    refused(control, {}, "TR-6001")
    assert control.get("shop").owner is None
    seen = offsets.offset(control, "shop")
    assert seen is not None
    add_batch(control, 1, 600, committed=False)
    refused(control, moved(end, 400), "TR-8488", seen["version"])
    refused(control, moved(end, 400), "TR-6005")
    assert control.get("shop").owner is None
    kinds = [event.kind for event in control.database.read(lambda c: read_events(c, "shop"))]
    assert "subscription.set_offset" not in kinds


def test_tables_that_would_lack_changes_are_read_again(control: Control) -> None:
    end = add_batch(control, 0, 500)
    assert list(put(control, moved(end, 900), skip_changes=True).replacement.reads_again) == []
    assert list(put(control, moved(end, 950)).replacement.reads_again) == ["shop.orders"]
