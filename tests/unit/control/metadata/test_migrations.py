"""A migration only adds: servers of the version before go on (docs/guides/deployment.md)."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect

from tailrace.control.metadata import migrations

_CONFIG = Config()
_CONFIG.set_main_option("script_location", str(Path(migrations.__file__).parent))
REVISIONS = [revision.revision for revision in ScriptDirectory.from_config(_CONFIG).walk_revisions()][::-1]


def _tables(connection: Connection) -> dict[str, dict[str, tuple[str, bool]]]:
    """Of each table: the type of each column, and whether an INSERT may leave it out."""
    found = inspect(connection)
    return {
        table: {
            column["name"]: (
                repr(column["type"]),
                column["nullable"] or column["default"] is not None or bool(column["primary_key"]),
            )
            for column in found.get_columns(table)
        }
        for table in found.get_table_names()
    }


@pytest.mark.parametrize(("before", "after"), list(zip([None, *REVISIONS[:-1]], REVISIONS, strict=True)))
def test_migration_leaves_what_servers_of_the_version_before_use(
    before: str | None, after: str, tmp_path: Path
) -> None:
    with create_engine(f"sqlite:///{tmp_path}/t.db").begin() as connection:
        _CONFIG.attributes["connection"] = connection
        if before is not None:
            command.upgrade(_CONFIG, before)
        was = _tables(connection)
        command.upgrade(_CONFIG, after)
        now = _tables(connection)
    assert was != now or before is not None
    for table, columns in was.items():
        if table == migrations.VERSION_TABLE:
            continue
        for name, (kind, may_be_left_out) in columns.items():
            assert now[table][name][0] == kind, f"{table}.{name}"
            assert now[table][name][1] >= may_be_left_out, f"{table}.{name}"
        added = {name for name in now[table] if name not in columns}
        assert all(now[table][name][1] for name in added), f"{table}: {added}"


def test_there_is_a_first_migration() -> None:
    assert REVISIONS[0] == "0001"
