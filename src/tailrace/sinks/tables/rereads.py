"""The tables of a batch that are read again, as far as their targets can follow them (`model.reread`)."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tailrace.model.reread import Reread
from tailrace.model.soft_delete import SoftDelete
from tailrace.model.table import TableId
from tailrace.sinks.base import CellBatch
from tailrace.sinks.claims import Claims

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Refresh:
    """A table that is read again, and its rows in its target.

    Args:
        table: the table.
        reread: the reading.
        shard: the column that holds the table's name; None: all of the target's rows are the table's.
        name: the table's name, as a shard column has it.
        marks: how rows are marked that the table no longer has; None: they are deleted.
    """

    table: TableId
    reread: Reread
    shard: str | None
    name: str
    marks: SoftDelete | None = None


def refreshes(batch: CellBatch, claims: Claims) -> list[Refresh]:
    """The tables of `batch` that are read again whole, and whose rows in targets can be told from others.

    Args:
        batch: the batch; its tables have their targets (`Claims.add`).
        claims: names the targets.
    """
    found = []
    for name, reread in batch.rereads.items():
        if reread.partial:
            continue
        table = TableId.parse(name)
        shard = claims.router.shard_column(table)
        if shard is not None or not claims.share(table):
            marks = batch.soft_deletes.get(name)
            found.append(Refresh(table, reread, shard, claims.router.shard_value(table), marks))
        elif reread.done:
            _log.warning(
                "%s was read again; rows that it no longer has stay in its target %s, which other tables"
                " share: give their route a shard-column",
                table,
                claims.router.target(table),
            )
    return found


def refreshes_by_target(batch: CellBatch, claims: Claims) -> dict[str, list[Refresh]]:
    """What `refreshes` gives, by the targets' names."""
    found: dict[str, list[Refresh]] = {}
    for refresh in refreshes(batch, claims):
        found.setdefault(claims.router.target(refresh.table), []).append(refresh)
    return found
