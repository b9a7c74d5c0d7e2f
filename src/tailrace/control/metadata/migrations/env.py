"""What Alembic runs to apply the versions; `upgrade` gives the connection."""

from __future__ import annotations

from alembic import context

from tailrace.control.metadata.migrations import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
context.run_migrations()
