"""Old snapshots expired, and the files that only they needed deleted.

pyiceberg takes snapshots out of a table's metadata and leaves their files. What the expired ones reach and
the others do not is deleted after that commit: a process that dies in between leaves files that nothing
names, which Spark's `remove_orphan_files` finds.

When snapshots were last expired is a property of the table, so it outlasts the process.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import ExpireSnapshots

_EXPIRED_AT = "tailrace.expired-at"


def expire(table: Table, interval_s: int, retention_hours: int, now: float) -> bool:
    """Expire what is due; whether anything was.

    Args:
        table: the table; the newest snapshot, and those that a branch or a tag names, stay.
        interval_s: pause between two times; before the first it counts from the oldest snapshot on.
        retention_hours: how old a snapshot must be.
        now: seconds since 1970.
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


def is_due(table: Table, noted: str, interval_s: int, now: float) -> bool:
    """Whether work that is done now and then is to be done.

    Args:
        table: the table.
        noted: its property that says when it was done last, seconds since 1970.
        interval_s: pause between two times; before the first it counts from the oldest snapshot on.
        now: seconds since 1970.
    """
    snapshots = table.metadata.snapshots
    if not snapshots:
        return False
    last = float(table.properties.get(noted, min(s.timestamp_ms for s in snapshots) / 1000))
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
