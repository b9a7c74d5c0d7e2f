"""Groups of subscriptions."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from tailrace.control.metadata.migrations.steps import add_column, create_index

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add them: those from before are in none."""
    exact = mysql.VARCHAR(128, charset="utf8mb4", collation="utf8mb4_bin")
    name = sa.String(128).with_variant(exact, "mysql", "mariadb")
    add_column("subscriptions", sa.Column("group_name", name))
    create_index("ix_subscriptions_group_name", "subscriptions", ["group_name"])
