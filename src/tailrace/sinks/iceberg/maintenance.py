"""Expires old snapshots and deletes the files that only they needed.

pyiceberg removes snapshots from a table's metadata and leaves their files. So files that only expired
snapshots reach are deleted after that commit. A process that dies in between leaves files that nothing names,
which Spark's `remove_orphan_files` finds.

The time of the last expiry is a table property, so it outlasts the process.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import ExpireSnapshots

_EXPIRED_AT = "tailrace.expired-at"


def expire(table: Table, interval_s: int, retention_hours: int, now: float) -> bool:
    """Expire snapshots if it is due.

    Args:
        table: the table; the newest snapshot, and those that a branch or a tag names, stay.
        interval_s: the time between two expiries; before the first one it counts from the oldest snapshot.
        retention_hours: the age from which snapshots expire.
        now: the time, seconds since 1970.

    Returns:
        Whether any snapshot was expired.
    """
    if not is_due(table, _EXPIRED_AT, interval_s, now):
        return False
    snapshots = table.metadata.snapshots
    oldest_ms = (now - retention_hours * 3600) * 1000
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    old = [s for s in snapshots if s.timestamp_ms < oldest_ms and s.snapshot_id not in named]
    kept = [s for s in snapshots if s not in old]
    unneeded = _reached(table, old) - _reached(table, kept) if old else set()
    with table.transaction() as transaction:
        transaction.set_properties({_EXPIRED_AT: str(int(now))})
        if old:
            ExpireSnapshots(transaction).by_ids([s.snapshot_id for s in old]).commit()
    for path in unneeded:
        table.io.delete(path)
    return bool(old)


def is_due(table: Table, done_at: str, interval_s: int, now: float) -> bool:
    """Whether a regular job is due.

    Args:
        table: the table.
        done_at: its property with the time of the last run, seconds since 1970.
        interval_s: the time between two runs; before the first one it counts from the oldest snapshot.
        now: the time, seconds since 1970.
    """
    snapshots = table.metadata.snapshots
    if not snapshots:
        return False
    last = float(table.properties.get(done_at, min(s.timestamp_ms for s in snapshots) / 1000))
    return now - last >= interval_s


def _reached(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    """The manifest lists, manifests and files of snapshots."""
    lists: set[str] = set()
    manifests: dict[str, ManifestFile] = {}
    for snapshot in snapshots:
        lists.add(snapshot.manifest_list)
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)}
    files = {
        entry.data_file.file_path
        for manifest in manifests.values()
        for entry in manifest.fetch_manifest_entry(table.io)
    }
    return lists | set(manifests) | files
