"""The tables of the control plane.

    subscriptions   a pipeline file, what is asked of it, what it does, and who runs it
    streams         the newest batch of each of its sources
    progress        of each of its source tables
    jobs            comparisons and repairs of its tables that somebody asked for
    measurements    lag and counts of each subscription over the last day, for plots
    events          the audit: who changed what, and when
    servers         those that share this database
    tokens          of the API's users, as hashes
    sessions        of those who have signed in through a provider, likewise

All times are microseconds since 1970 UTC by the database's clock (`database.now_us`), in columns whose names
end in `_us`. JSON is kept as text: the three databases compare and index it differently, and nothing here
asks for its parts.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.dialects.mysql import VARCHAR as MYSQL_VARCHAR

#: Most characters of a name of a subscription, server or token.
MOST_NAME = 128
#: Most characters of a source table's name: two identifiers of 64 in MySQL, of 63 in PostgreSQL.
MOST_TABLE = 256

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_N_label)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

#: MySQL's TEXT holds 64 kB, and compares names without case unless told otherwise.
_LONG = Text().with_variant(LONGTEXT(), "mysql", "mariadb")
#: SQLite numbers rows by themselves only for INTEGER.
_ID = BigInteger().with_variant(Integer(), "sqlite")


def _name(length: int) -> String:
    exact = MYSQL_VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return String(length).with_variant(exact, "mysql", "mariadb")


subscriptions = Table(
    "subscriptions",
    metadata,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("name", _name(MOST_NAME), nullable=False, unique=True),
    # the pipeline file as YAML, as it was given: comments stay
    Column("spec", _LONG, nullable=False),
    # `pipeline.group` of the file
    Column("group_name", _name(MOST_NAME)),
    # rises with each change by a user; the ETag
    Column("version", BigInteger, nullable=False),
    Column("desired", String(16), nullable=False),
    Column("stage", String(32), nullable=False),
    # the furthest stage that was reached: a retry goes on from there
    Column("reached", String(32), nullable=False),
    Column("stage_reason", _LONG),
    # failures in a row, and when to try again
    Column("failures", Integer, nullable=False),
    Column("retry_us", BigInteger),
    # who runs it; the lease's number rises with every owner
    Column("owner", _name(MOST_NAME)),
    Column("lease", BigInteger, nullable=False),
    Column("lease_until_us", BigInteger, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
    Index("ix_subscriptions_owner", "owner"),
    Index("ix_subscriptions_group_name", "group_name"),
)

streams = Table(
    "streams",
    metadata,
    Column("subscription_id", _ID, ForeignKey("subscriptions.id", ondelete="CASCADE"), primary_key=True),
    # one of the file's `sources`; "": it has one
    Column("source", _name(MOST_NAME), primary_key=True),
    # the newest batch that was begun, and the newest that the sinks have, each with the lease that did it
    Column("begun_batch", BigInteger, nullable=False),
    # SHA-256 of its end: with 500 tables, the end has 200 kB
    Column("begun_digest", String(64), nullable=False),
    Column("begun_lease", BigInteger, nullable=False),
    Column("done_batch", BigInteger),
    Column("done_lease", BigInteger),
)

progress = Table(
    "progress",
    metadata,
    Column("subscription_id", _ID, ForeignKey("subscriptions.id", ondelete="CASCADE"), primary_key=True),
    Column("source", _name(MOST_NAME), primary_key=True),
    Column("table_name", _name(MOST_TABLE), primary_key=True),
    Column("stage", String(32), nullable=False),
    # cursor of the snapshot, as JSON
    Column("last_key", _LONG),
    Column("rows", BigInteger),
    Column("estimated", BigInteger),
    Column("position", _LONG),
    Column("complete_us", BigInteger),
    Column("changes", BigInteger, nullable=False),
    # code, message, detail and hint, as JSON
    Column("error", _LONG),
    Column("updated_us", BigInteger, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("subscription_id", _ID, ForeignKey("subscriptions.id", ondelete="CASCADE"), nullable=False),
    # the client's name for it: the same once more is found as it is
    Column("client_key", _name(MOST_NAME), nullable=False),
    # the id of its signal: random, so that no other signal is taken for it
    Column("signal", String(64), nullable=False),
    Column("kind", String(16), nullable=False),
    # one of the file's `sources`; null: all that can be compared
    Column("source", _name(MOST_NAME)),
    # JSON: names; none: all
    Column("tables", _LONG, nullable=False),
    Column("state", String(16), nullable=False),
    # whether somebody wants it to end
    Column("is_cancelled", Integer, nullable=False),
    # the lease under which it was run last, and how many there were
    Column("lease", BigInteger),
    Column("attempts", Integer, nullable=False),
    # pairs of sink and table: those that are done with, and all
    Column("done", Integer, nullable=False),
    Column("total", Integer, nullable=False),
    # how it ended, as JSON
    Column("result", _LONG),
    Column("requested_by", _name(MOST_NAME), nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("started_us", BigInteger),
    Column("ended_us", BigInteger),
    UniqueConstraint("subscription_id", "client_key"),
    Index("ix_jobs_state", "state"),
)

measurements = Table(
    "measurements",
    metadata,
    Column("subscription_id", _ID, ForeignKey("subscriptions.id", ondelete="CASCADE"), primary_key=True),
    # the time, in slots of two minutes since 1970
    Column("slot", BigInteger, primary_key=True, autoincrement=False),
    Column("at_us", BigInteger, nullable=False),
    Column("lag_us", BigInteger),
    Column("changes", BigInteger, nullable=False),
    Column("rows_read", BigInteger, nullable=False),
    Index("ix_measurements_slot", "slot"),
)

events = Table(
    "events",
    metadata,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("at_us", BigInteger, nullable=False),
    # not a foreign key: what was deleted stays in the audit
    Column("subscription", _name(MOST_NAME)),
    # a token's name, `user@issuer`, or a server
    Column("actor", _name(MOST_NAME), nullable=False),
    Column("kind", String(64), nullable=False),
    Column("before_json", _LONG),
    Column("after_json", _LONG),
    Index("ix_events_subscription_id", "subscription", "id"),
)

servers = Table(
    "servers",
    metadata,
    Column("name", _name(MOST_NAME), primary_key=True),
    Column("host", _name(MOST_TABLE), nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("url", _name(512), nullable=False),
    # workers that it may have at a time
    Column("capacity", Integer, nullable=False),
    Column("running", Integer, nullable=False),
    Column("draining", Integer, nullable=False),
    Column("version", String(32), nullable=False),
    Column("started_us", BigInteger, nullable=False),
    Column("seen_us", BigInteger, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("name", _name(MOST_NAME), nullable=False),
    # SHA-256 of the token, which has 256 random bits itself
    Column("digest", String(64), nullable=False),
    Column("scope", String(16), nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("expires_us", BigInteger),
    UniqueConstraint("digest"),
    UniqueConstraint("name"),
)

sessions = Table(
    "sessions",
    metadata,
    # SHA-256 of what the browser's cookie holds
    Column("digest", String(64), primary_key=True),
    Column("name", _name(MOST_NAME), nullable=False),
    Column("subject", _name(255), nullable=False),
    Column("scope", String(16), nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("expires_us", BigInteger, nullable=False),
)
