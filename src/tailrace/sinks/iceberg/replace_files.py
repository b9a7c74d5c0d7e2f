"""A commit that replaces data files and changes no row, by a private class of pyiceberg.

pyiceberg's public API has no such commit: `update_snapshot().overwrite()` notes `overwrite`, at which a
streaming reader stops. So `_OverwriteFiles` is subclassed here, and nowhere else. `pyproject.toml` bounds
pyiceberg's version; before it is raised, tests/unit/sinks/iceberg/test_replace_files.py checks the class.
"""

from __future__ import annotations

from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles


class ReplaceFiles(_OverwriteFiles):
    """An overwrite whose snapshot says `replace`."""

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        summary = super()._summary(snapshot_properties or {})
        return Summary(Operation.REPLACE, **summary.additional_properties)


def replace_files(
    table: Table, transaction: Transaction, snapshot_properties: dict[str, str]
) -> ReplaceFiles:
    """Replace files of a table, as part of a transaction; a context manager that takes the files.

    Args:
        table: the table.
        transaction: commits it.
        snapshot_properties: of the new snapshot.
    """
    return ReplaceFiles(
        operation=Operation.OVERWRITE,
        transaction=transaction,
        io=table.io,
        branch=MAIN_BRANCH,
        snapshot_properties=snapshot_properties,
    )
