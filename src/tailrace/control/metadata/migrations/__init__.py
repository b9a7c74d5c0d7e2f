"""Versions of the tables, by Alembic: each a module in `versions`, the newest is the present one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from tailrace.errors import StateError

#: The table that says which version the others have.
VERSION_TABLE = "tailrace_version"


def upgrade(engine: Engine) -> None:
    """Create the tables, or bring them to this version; servers that do it at the same time wait.

    Raises:
        StateError: a newer version of Tailrace has been here.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    script = ScriptDirectory.from_config(config)
    with engine.connect() as connection, _alone(connection):
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        found = context.get_current_revision()
        known = {revision.revision for revision in script.walk_revisions()}
        if found is not None and found not in known:
            raise StateError(
                "the database of the control plane is of a newer version of Tailrace",
                f"found version `{found}`, the newest one known here is `{script.get_current_head()}`",
                "install the version of Tailrace that the other servers have; to go back, restore the backup "
                "from before the upgrade",
                code="TR-8405",
            )
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """A transaction that no other process is in: MySQL commits at each CREATE TABLE, and locks by session."""
    is_mysql = connection.dialect.name in ("mysql", "mariadb")
    with connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(7246180)"))
        if is_mysql:
            connection.execute(text("SELECT GET_LOCK('tailrace.upgrade', 60)"))
        try:
            yield
        finally:
            if is_mysql:
                connection.execute(text("SELECT RELEASE_LOCK('tailrace.upgrade')"))
