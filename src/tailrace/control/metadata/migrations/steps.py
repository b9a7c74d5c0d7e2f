"""Steps of a version that may be repeated.

MySQL and MariaDB commit each statement by itself, and the version's number last: a server that is killed
within a version leaves some of its steps done. The next one does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op


def create_table(name: str, *parts: Any) -> None:
    """Create a table, unless it is there."""
    if not sa.inspect(op.get_bind()).has_table(name):
        op.create_table(name, *parts)


def create_index(name: str, table: str, columns: Sequence[str]) -> None:
    """Create an index, unless it is there."""
    if name not in {found["name"] for found in sa.inspect(op.get_bind()).get_indexes(table)}:
        op.create_index(name, table, columns)


def add_column(table: str, column: sa.Column[Any]) -> None:
    """Add a column, unless it is there."""
    if column.name not in {found["name"] for found in sa.inspect(op.get_bind()).get_columns(table)}:
        op.add_column(table, column)
