"""What Delta tables hold of a stream, read from their logs without Spark.

Each commit of the sink names its batch in `userMetadata`. Pending changes are in a table beside the target
(`pending`): each append brings a batch, and a delete names the batch up to which everything is merged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tailrace.config.sinks import DeltaSettings
from tailrace.model.table import TableId
from tailrace.sinks.delta.pending import BATCH, changes_path
from tailrace.sinks.delta.shared import own_root
from tailrace.sinks.paths import below, target_path
from tailrace.sinks.route import Router
from tailrace.sinks.standing import TargetStanding
from tailrace.spark.checkpoint import Directory

_COMMIT = re.compile(r"\d{20}\.json")
#: Commits to search for one with a batch.
_RECENT = 200


def targets(
    settings: DeltaSettings, router: Router, tables: Iterable[TableId], source: str, query: str
) -> dict[str, TargetStanding]:
    """The targets of `tables` that exist, by name.

    Args:
        settings: of the sink.
        router: names the targets.
        tables: the tables.
        source: the name of their source if there are several, else "".
        query: the stream, whose commits count.
    """
    found = {}
    own, app = own_root(settings.path, source), f"tailrace/{query}/"
    for table in tables:
        name, path = router.target(table), target_path(router, table)
        if name not in found and (newest := _newest(below(settings.path, path), app)) is not None:
            waiting = dict(_pending(changes_path(own, path)))
            found[name] = TargetStanding(
                max([newest, *waiting]), tuple(sorted(waiting)), sum(waiting.values())
            )
    return found


def _newest(path: str, app: str) -> int | None:
    """The batch of the newest commit at `path`; None: there is no table; -1: others made its last commits."""
    commits = 0
    for actions in _commits(path):
        commits += 1
        batch = _batch(actions)
        if batch is not None and _is_of(actions, app):
            return batch
        if commits == _RECENT:
            break
    return -1 if commits else None


def _pending(path: str) -> Iterator[tuple[int, int]]:
    """Batches that are not merged, with the number of their changes."""
    merged = -1
    for actions in _commits(path):
        batch = _batch(actions)
        added = [action["add"] for action in actions if "add" in action]
        if batch is not None and not added and any("remove" in action for action in actions):
            merged = max(merged, batch)
        if batch is not None and added:
            if batch <= merged:
                return
            numbers = {int(file["partitionValues"][BATCH.name]) for file in added}
            if numbers == {batch}:
                yield batch, sum(_rows(file) for file in added)


def _is_of(actions: Sequence[dict[str, Any]], app: str) -> bool:
    """Whether a commit is of one of the applications whose ids begin with `app`."""
    return any(action.get("txn", {}).get("appId", "").startswith(app) for action in actions)


def _rows(file: dict[str, Any]) -> int:
    return int(json.loads(file.get("stats") or "{}").get("numRecords", 0))


def _batch(actions: Sequence[dict[str, Any]]) -> int | None:
    """The batch that a commit's `userMetadata` names."""
    for action in actions:
        text = action.get("commitInfo", {}).get("userMetadata")
        try:
            value = json.loads(text or "null")
        except ValueError:
            continue  # written by another program
        if isinstance(value, dict) and isinstance(value.get("batch"), int):
            return int(value["batch"])
    return None


def _commits(path: str) -> Iterator[list[dict[str, Any]]]:
    """The actions of each commit, newest first."""
    log = Directory(f"{path}/_delta_log")
    for name in reversed([name for name in log.names() if _COMMIT.fullmatch(name)]):
        text = log.read(name)
        if text is not None:  # else Delta has just removed it
            yield [json.loads(line) for line in text.splitlines() if line]
