"""Lag and counts over a day, for plots."""

from __future__ import annotations

import sqlalchemy as sa

from tailrace.control.metadata.migrations.steps import create_index, create_table

revision = "0004"
down_revision = "0003"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table."""
    create_table(
        "measurements",
        sa.Column("subscription_id", _ID, nullable=False),
        sa.Column("slot", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.Column("lag_us", sa.BigInteger),
        sa.Column("changes", sa.BigInteger, nullable=False),
        sa.Column("rows_read", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("subscription_id", "slot", name="pk_measurements"),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscriptions.id"],
            name="fk_measurements_subscription_id",
            ondelete="CASCADE",
        ),
    )
    create_index("ix_measurements_slot", "measurements", ["slot"])
