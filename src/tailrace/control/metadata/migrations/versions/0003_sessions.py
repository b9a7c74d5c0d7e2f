"""Sessions of those who sign in through a provider."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from tailrace.control.metadata.migrations.steps import create_table

revision = "0003"
down_revision = "0002"


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def upgrade() -> None:
    """Create their table."""
    create_table(
        "sessions",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("name", _name(128), nullable=False),
        sa.Column("subject", _name(255), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("expires_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_sessions"),
    )
