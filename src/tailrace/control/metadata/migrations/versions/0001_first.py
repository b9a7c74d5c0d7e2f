"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from tailrace.control.metadata.migrations.steps import create_index, create_table

revision = "0001"
down_revision = None

_LONG = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def upgrade() -> None:
    """Create them."""
    create_table(
        "subscriptions",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("name", _name(128), nullable=False),
        sa.Column("spec", _LONG, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("desired", sa.String(16), nullable=False),
        sa.Column("stage", sa.String(32), nullable=False),
        sa.Column("reached", sa.String(32), nullable=False),
        sa.Column("stage_reason", _LONG),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("retry_us", sa.BigInteger),
        sa.Column("owner", _name(128)),
        sa.Column("lease", sa.BigInteger, nullable=False),
        sa.Column("lease_until_us", sa.BigInteger, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("updated_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_subscriptions"),
        sa.UniqueConstraint("name", name="uq_subscriptions_name"),
    )
    create_index("ix_subscriptions_owner", "subscriptions", ["owner"])
    create_table(
        "streams",
        sa.Column("subscription_id", _ID, nullable=False),
        sa.Column("source", _name(128), nullable=False),
        sa.Column("begun_batch", sa.BigInteger, nullable=False),
        sa.Column("begun_digest", sa.String(64), nullable=False),
        sa.Column("begun_lease", sa.BigInteger, nullable=False),
        sa.Column("done_batch", sa.BigInteger),
        sa.Column("done_lease", sa.BigInteger),
        sa.PrimaryKeyConstraint("subscription_id", "source", name="pk_streams"),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscriptions.id"],
            name="fk_streams_subscription_id",
            ondelete="CASCADE",
        ),
    )
    create_table(
        "progress",
        sa.Column("subscription_id", _ID, nullable=False),
        sa.Column("source", _name(128), nullable=False),
        sa.Column("table_name", _name(256), nullable=False),
        sa.Column("stage", sa.String(32), nullable=False),
        sa.Column("last_key", _LONG),
        sa.Column("rows", sa.BigInteger),
        sa.Column("estimated", sa.BigInteger),
        sa.Column("position", _LONG),
        sa.Column("complete_us", sa.BigInteger),
        sa.Column("changes", sa.BigInteger, nullable=False),
        sa.Column("error", _LONG),
        sa.Column("updated_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("subscription_id", "source", "table_name", name="pk_progress"),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscriptions.id"],
            name="fk_progress_subscription_id",
            ondelete="CASCADE",
        ),
    )
    create_table(
        "events",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.Column("subscription", _name(128)),
        sa.Column("actor", _name(128), nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("before_json", _LONG),
        sa.Column("after_json", _LONG),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
    )
    create_index("ix_events_subscription_id", "events", ["subscription", "id"])
    create_table(
        "servers",
        sa.Column("name", _name(128), nullable=False),
        sa.Column("host", _name(256), nullable=False),
        sa.Column("pid", sa.BigInteger, nullable=False),
        sa.Column("url", _name(512), nullable=False),
        sa.Column("capacity", sa.Integer, nullable=False),
        sa.Column("running", sa.Integer, nullable=False),
        sa.Column("draining", sa.Integer, nullable=False),
        sa.Column("version", sa.String(32), nullable=False),
        sa.Column("started_us", sa.BigInteger, nullable=False),
        sa.Column("seen_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_servers"),
    )
    create_table(
        "tokens",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("name", _name(128), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("expires_us", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("digest", name="uq_tokens_digest"),
        sa.UniqueConstraint("name", name="uq_tokens_name"),
    )
