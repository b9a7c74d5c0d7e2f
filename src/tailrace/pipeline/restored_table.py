"""A table as of a time, whatever database it is of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tailrace.model.table import TableSchema
from tailrace.sources.base import Position


@dataclass(frozen=True)
class Restored:
    """A table as of a time.

    Args:
        schema: its columns and key then.
        rows: its rows, of type `schema.arrow`.
        position: the position of the log that they are as of.
        source: what they were made from, for people.
    """

    schema: TableSchema
    rows: Iterator[pa.StructArray]
    position: Position
    source: str
