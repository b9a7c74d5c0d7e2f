"""Backup, restore and upgrade of the control plane, as docs/guides/deployment.md has them."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, select, text

import tailrace
from tailrace.config.secret import Secret
from tailrace.control import subscriptions
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.metadata.migrations import VERSION_TABLE
from tailrace.control.metadata.tables import streams
from tailrace.control.stages import Stage
from tests.recovery.test_control_takeover import Shop
from tests.support import control
from tests.support.control_servers import ControlServer, named, wait_for_batch, wait_for_owner
from tests.support.databases import fresh_database
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "deployment.md"


@pytest.fixture
def shop(mysql, tmp_path: Path) -> Iterator[Shop]:
    with fresh_database(mysql) as name:
        yield Shop(mysql, name, tmp_path)


def _guide(language: str, what: str) -> str:
    """The block of the guide that has `what`."""
    guide = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", guide, re.DOTALL | re.MULTILINE)
    (found,) = (block for name, block in blocks if name == language and what in block)
    return str(found)


def _subscribe(database: ControlDatabase, shop: Shop, directory: Path) -> None:
    settings = {"checkpoint": str(directory / "checkpoint")}
    with database.begin() as connection:
        subscriptions.create(connection, "ann", "shop", shop.spec("shop", **settings))


def _allowed(shop: Shop) -> tuple[str, ...]:
    """What servers allow: storage that is not below their data directories, as hosts share it."""
    return ("--allow-path", str(shop.directory))


def _has_failed_with(database: ControlDatabase, code: str) -> Callable[[], bool]:
    return lambda: (named(database, "shop").reason or {}).get("code") == code


def _change(shop: Shop) -> None:
    """Something for a batch."""
    shop.server.execute(f"INSERT INTO {shop.name}.orders SELECT MAX(id) + 1, 7 FROM {shop.name}.orders")


def _restored_goes_on(
    restored: ControlDatabase, shop: Shop, directory: Path, env: dict[str, str], newest: int
) -> None:
    """A copy of the database from before the last owners: targets refuse it until leases are raised."""
    assert named(restored, "shop").lease < newest
    directory.mkdir()
    server = ControlServer("other-host", restored, directory, env, more=_allowed(shop))
    try:
        _change(shop)
        wait_until(_has_failed_with(restored, "TR-8470"), 120, server.output)
        assert server.end() == 0
        statement = _guide("sql", "SET lease")
        with restored.begin() as connection:
            connection.execute(text(statement.strip().rstrip(";")))
            subscriptions.retry(connection, "ann", "shop")
        server.start()
        _change(shop)
        wait_for_batch(restored, "shop", newest + 1)
        shop.wait_until_equal("shop", 120)
        assert named(restored, "shop").stage is Stage.INCREMENTAL_LOG
    finally:
        server.close()


def _owners_after_the_backup(server: ControlServer, database: ControlDatabase, shop: Shop) -> int:
    """Two more owners, who write; returns the lease of the last one."""
    for lease in (2, 3):
        assert server.end() == 0, server.output()
        server.start()
        _change(shop)
        wait_for_batch(database, "shop", lease)
    shop.wait_until_equal("shop", 120)
    assert server.end() == 0, server.output()
    return named(database, "shop").lease


def test_copy_of_sqlite_made_while_serving_is_restored_on_another_host(shop: Shop, tmp_path: Path) -> None:
    env = {"TEST_PASSWORD": shop.server.password}
    home = tmp_path / "home"
    home.mkdir()
    with closing(ControlDatabase(f"sqlite:///{home}/tailrace.db")) as database:
        database.prepare()
        _subscribe(database, shop, tmp_path)
        server = ControlServer("first", database, home, env, more=_allowed(shop))
        try:
            wait_for_batch(database, "shop")
            copy = tmp_path / "backup.db"
            command = _guide("", ".backup").replace(
                "/var/lib/tailrace/tailrace.db", str(home / "tailrace.db")
            )
            command = command.replace("/backup/tailrace.db", str(copy))
            with shop.writing():
                subprocess.run(command.replace("python3", sys.executable), shell=True, check=True)
            newest = _owners_after_the_backup(server, database, shop)
        finally:
            server.close()
    with closing(sqlite3.connect(copy)) as found:
        assert found.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    other = tmp_path / "other"
    with closing(ControlDatabase(f"sqlite:///{copy}")) as restored:
        restored.prepare()
        _restored_goes_on(restored, shop, other, env, newest)


def _program(postgres: Any, name: str) -> str:
    return str(Path(postgres.state.command[0]).with_name(name))


def test_dump_of_postgresql_made_while_serving_is_restored(
    shop: Shop, postgres, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    env = {"TEST_PASSWORD": shop.server.password}
    login = {
        **os.environ,
        "PGHOST": postgres.host,
        "PGPORT": str(postgres.port),
        "PGUSER": postgres.user,
        "PGPASSWORD": postgres.password,
    }
    home = tmp_path / "home"
    home.mkdir()
    with control.database("postgresql", request, tmp_path) as database:
        _subscribe(database, shop, tmp_path)
        server = ControlServer("first", database, home, env, more=_allowed(shop))
        dump = tmp_path / "tailrace.dump"
        try:
            wait_for_batch(database, "shop")
            name = database.url.rpartition("/")[2]
            with shop.writing():
                _run_guide("pg_dump", postgres, login, name, dump)
            newest = _owners_after_the_backup(server, database, shop)
        finally:
            server.close()
    copy = f"t_{uuid.uuid4().hex[:12]}"
    postgres.execute(f"CREATE DATABASE {copy}")
    try:
        _run_guide("pg_restore", postgres, login, copy, dump)
        url = f"postgresql://{postgres.user}@{postgres.host}:{postgres.port}/{copy}"
        with closing(ControlDatabase(url, Secret(postgres.password, is_literal=True))) as restored:
            restored.prepare()
            _restored_goes_on(restored, shop, tmp_path / "other", env, newest)
    finally:
        postgres.drop_database(copy)


def _run_guide(program: str, postgres: Any, env: dict[str, str], database: str, file: Path) -> None:
    (command,) = re.findall(rf"^{program} .*$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    command = command.replace("--dbname=tailrace", f"--dbname={database}")
    command = command.replace("/backup/tailrace.dump", str(file))
    path = f"{Path(_program(postgres, program)).parent}:{os.environ['PATH']}"
    subprocess.run(command, shell=True, check=True, env={**env, "PATH": path})


_NEXT = '''
"""A column more."""

import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{head}"


def upgrade() -> None:
    """Add it."""
    op.add_column("servers", sa.Column("of_the_next_version", sa.String(16)))
'''


def _next_version(directory: Path, head: str) -> Path:
    """A tree of sources whose version has one migration more; a directory for PYTHONPATH."""
    source = Path(tailrace.__file__).parent
    for name in ("tailrace", "pyspark_tailrace", "tailrace_build"):
        shutil.copytree(source.parent / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    versions = directory / "tailrace" / "control" / "metadata" / "migrations" / "versions"
    (versions / "9999_next.py").write_text(_NEXT.format(head=head))
    return directory


def test_servers_are_upgraded_one_after_another_and_an_older_one_does_not_start_again(
    shop: Shop, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    env = {"TEST_PASSWORD": shop.server.password}
    with control.database("postgresql", request, tmp_path) as database:
        head = database.read(_version)
        newer = {**env, "PYTHONPATH": str(_next_version(tmp_path / "next", head))}
        _subscribe(database, shop, tmp_path)
        old = ControlServer("old", database, tmp_path, env)
        new = None
        try:
            wait_for_batch(database, "shop")
            with shop.writing():
                new = ControlServer("new", database, tmp_path, newer)
                wait_until(lambda: database.read(_version) == "9999", 60, new.output)
                # the old one goes on, on the tables of the new one
                before = _begun(database)
                wait_until(lambda: _begun(database) > before + 1, 60, old.output)
                assert named(database, "shop").owner == "old"
                assert old.end() == 0, old.output()
                owner, _ = wait_for_owner(database, "shop", 2)
                assert owner == "new"
                wait_for_batch(database, "shop", 2)
                # back to it: only with the tables of its time
                old.start()
                assert old.process.wait(60) != 0
                assert "TR-8405" in old.output()
            shop.wait_until_equal("shop", 120)
        finally:
            for server in (old, new):
                if server is not None:
                    server.close()


def _version(connection: Connection) -> str:
    return str(connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one())


def _begun(database: ControlDatabase) -> int:
    return int(database.read(lambda c: c.execute(select(streams.c.begun_batch)).scalar_one()))
