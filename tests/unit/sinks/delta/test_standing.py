"""What Delta's logs say of a stream's batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tailrace.config.sinks import DeltaSettings
from tailrace.model.table import TableId
from tailrace.sinks.delta.standing import targets
from tailrace.sinks.route import Router
from tailrace.sinks.standing import TargetStanding

TABLE = TableId("shop", "t")


def commit(path: Path, batch: object, *actions: dict[str, Any], stream: str = "s") -> None:
    log = path / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    number = len(list(log.glob("*.json")))
    info = {"commitInfo": {"userMetadata": batch if isinstance(batch, str) else json.dumps({"batch": batch})}}
    lines = [info, {"txn": {"appId": f"tailrace/{stream}/t"}}, *actions]
    (log / f"{number:020d}.json").write_text("\n".join(json.dumps(line) for line in lines))


def add(batch: int, rows: int) -> dict[str, Any]:
    return {"add": {"partitionValues": {"_batch": str(batch)}, "stats": json.dumps({"numRecords": rows})}}


def found(path: Path) -> dict[str, TargetStanding]:
    return targets(DeltaSettings(str(path)), Router([]), [TABLE, TableId("shop", "missing")], "", "s")


def test_changes_wait_from_the_first_batch_above_the_merged_ones(tmp_path: Path) -> None:
    target, changes = tmp_path / "shop.t", tmp_path / "_tailrace" / "changes" / "shop.t"
    assert found(tmp_path) == {}
    commit(target, 0, {"add": {}})
    assert found(tmp_path) == {"shop.t": TargetStanding(0)}
    for batch in (1, 2, 3):
        commit(changes, batch, add(batch, 10 * batch))
    assert found(tmp_path) == {"shop.t": TargetStanding(3, (1, 2, 3), 60)}
    commit(target, 2, {"remove": {}}, {"add": {}})
    commit(changes, 2, {"remove": {}}, {"remove": {}})
    assert found(tmp_path) == {"shop.t": TargetStanding(3, (3,), 30)}
    commit(changes, 3, {"remove": {}})
    commit(changes, 5, add(5, 4))
    assert found(tmp_path) == {"shop.t": TargetStanding(5, (5,), 4)}


def test_commits_of_others_are_passed_over(tmp_path: Path) -> None:
    target = tmp_path / "shop.t"
    commit(target, 7, {"add": {}})
    for other in ("", "no JSON", "[]", '{"batch": "x"}'):
        commit(target, other, {"add": {}})
    commit(target, 9, {"add": {}}, stream="another")
    assert found(tmp_path) == {"shop.t": TargetStanding(7)}
