"""Tables that are read again, as a batch's end offset names them. Pure.

While a table is read again, its target receives the table's present rows (cells of kind REREAD) among the
changes of its log. Rows that the table no longer has come in neither. So a sink that holds rows notes the key
of every row that it receives from the batch in which the reading begins on, unless the row is deleted; in the
batch that ends the reading it deletes the rows of all other keys. Why that is exact:
docs/design/0006-reading-tables-again.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reread:
    """A table that is read again.

    Args:
        id: identifies this reading: if a table is to be read anew, another one begins under another id.
        done: whether the batch holds the table's last rows.
        partial: whether only rows are read that a condition holds for: no row is deleted at the end.
    """

    id: str
    done: bool
    partial: bool = False


def rereads(end: Mapping[str, Any] | None) -> dict[str, Reread]:
    """The tables (`database.table`) that are read again in the batch with the end offset `end`."""
    again = {} if end is None else end.get("again", {})
    return {table: Reread(entry["id"], entry["done"], "where" in entry) for table, entry in again.items()}
