"""Tables whose changes the log lacks for a time: which, and why. Pure.

PostgreSQL publishes a table by its oid, and the log names it by its name at the time of the change. So a
stream knows a table by its name, its oid, and the entry by which the publication has it, and stores them
(`Source.identities`). Once one of them is another, changes are missing: those of the table when it was not
published or had another name, or those of the table that now has the name before it had it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from tailrace.sources.base import GONE, TRUNCATED
from tailrace.sources.postgres.catalog import CatalogTable
from tailrace.sources.postgres.replication.publication import Publication

#: Of an identity that says what rows depend on.
_PARTS = 4


def gaps_of(
    tables: Iterable[CatalogTable],
    published: Publication | None,
    ids: Mapping[str, str],
    reading: Collection[str],
) -> dict[str, str]:
    """See `Source.gaps`.

    Args:
        tables: the captured tables that exist now.
        published: the publication, None if it does not exist.
        ids: as stored.
        reading: tables whose snapshot has begun and is not finished.
    """
    found = {}
    altered = _is_altered(ids.get("", ""), "" if published is None else published.identity)
    for table in tables:
        name = str(table.schema.id)
        if name not in ids:
            continue
        if table.unlogged:
            found[name] = "it is UNLOGGED: its changes are not in the log"
        elif published is None:
            found[name] = "the publication does not exist"
        elif not published.all_tables and table.schema.id not in published.tables:
            found[name] = (
                "it is not in the publication: it was dropped and created again, another table was renamed "
                "to its name, or it was removed from the publication"
            )
        elif altered:
            found[name] = (
                f"the settings of publication `{published.name}` were changed, or it was dropped and created "
                "again"
            )
        elif why := _reason(ids[name], table.identity_text, name in reading):
            found[name] = why
    return found


def rewrites_of(
    tables: Iterable[CatalogTable],
    published: Publication | None,
    ids: Mapping[str, str],
    are_told: Callable[[CatalogTable], bool],
) -> dict[str, str]:
    """See `Source.rewrites`. Identities that an older version stored may lack what it takes.

    Args:
        tables: the captured tables that exist now.
        published: the publication, None if it does not exist.
        ids: as stored.
        are_told: whether events tell what became of a table's columns.
    """
    found = {}
    for table in tables:
        stored = ids.get(str(table.schema.id), "")
        parts = stored.split("/")
        why = (
            "it was truncated, or its columns changed as the log does not tell" if stored == TRUNCATED else ""
        )
        if len(parts) == _PARTS and table.contents is not None:
            files_count = published is not None and not published.tells_new_files(table.oid)
            why = table.contents.change_since(parts[-1], files_count=files_count, are_told=are_told(table))
        if why:
            found[str(table.schema.id)] = why
    return found


def _is_altered(stored: str, now: str) -> bool:
    """Whether a publication may have lacked changes; a new owner alone does not matter."""
    if not stored or stored == now:
        return False
    before, after = stored.split("/"), now.split("/")
    return len(after) != len(before) or before[0] != after[0] or before[-1] == after[-1]


def _reason(stored: str, now: str, is_read: bool) -> str:
    """Why changes of a table are missing, "" if they are not."""
    if not stored or stored == now:
        return ""
    if stored == GONE:
        return "it was gone, had another name, was UNLOGGED or was not captured for a time"
    if stored == TRUNCATED:
        return ""
    (oid, entry, key, *_), (oid_now, entry_now, key_now, *_) = stored.split("/"), now.split("/")
    if oid != oid_now:
        return "it was dropped and created again, or another table was renamed to its name"
    if entry != entry_now:
        return (
            "it was removed from the publication for a time, or the row filter or column list that it has "
            "there was changed"
        )
    return "its key was changed while its snapshot was read" if is_read and key != key_now else ""
