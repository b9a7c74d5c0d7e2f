"""Jobs: comparisons and repairs of a subscription's tables."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from tailrace.control.metadata.migrations.steps import create_index, create_table

revision = "0002"
down_revision = "0001"

_LONG = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def upgrade() -> None:
    """Create their table."""
    create_table(
        "jobs",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("subscription_id", _ID, nullable=False),
        sa.Column("client_key", _name(128), nullable=False),
        sa.Column("signal", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("source", _name(128)),
        sa.Column("tables", _LONG, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("is_cancelled", sa.Integer, nullable=False),
        sa.Column("lease", sa.BigInteger),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("done", sa.Integer, nullable=False),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("result", _LONG),
        sa.Column("requested_by", _name(128), nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("started_us", sa.BigInteger),
        sa.Column("ended_us", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.ForeignKeyConstraint(
            ["subscription_id"], ["subscriptions.id"], name="fk_jobs_subscription_id", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("subscription_id", "client_key", name="uq_jobs_subscription_id_client_key"),
    )
    create_index("ix_jobs_state", "jobs", ["state"])
