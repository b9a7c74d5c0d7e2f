"""Passwords in OpenBao, by the provider `exec` and the script of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.config import secret_providers
from tailrace.config.secret import Secret
from tailrace.control import subscriptions
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.stages import Stage
from tailrace.errors import ConfigError
from tests.support import control
from tests.support.control_servers import ControlServer, Shop, named, wait_for_batch
from tests.support.databases import fresh_database
from tests.support.openbao import OpenBao, openbao
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow  # it downloads 75 MB

_DOCUMENTATION = Path(__file__).parents[2] / "docs" / "reference" / "pipeline.md"


@pytest.fixture(scope="module")
def bao(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenBao]:
    with openbao(tmp_path_factory.mktemp("openbao")) as running:
        yield running


@pytest.fixture
def script(bao: OpenBao, tmp_path: Path) -> Path:
    """The program of the documentation, which says `vault`."""
    found = re.search(r"^#!/bin/sh\nexec vault .*\n", _DOCUMENTATION.read_text(), re.MULTILINE)
    assert found is not None
    file = tmp_path / "get-secret"
    file.write_text(found[0].replace("vault", str(bao.program)))
    file.chmod(0o700)
    return file


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlDatabase]:
    with control.database("sqlite", request, tmp_path) as found:
        yield found


def test_secret_is_read_by_its_key_and_version_and_errors_do_not_show_it(
    bao: OpenBao, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bao.run("kv", "put", "secret/shop/reader", "password=p#1 'x'", "user=ann", "port=5")
    token = bao.token_for("shop", "secret/data/shop/*")
    for name, value in bao.environment(token).items():
        monkeypatch.setenv(name, value)
    secret_providers.forget()
    assert Secret(f"${{exec:{script} secret/shop/reader#password}}").resolve() == "p#1 'x'"
    assert Secret(f"${{exec:{script} secret/shop/reader#user}}").resolve() == "ann"
    bao.run("kv", "put", "secret/shop/reader", "password=hunter2")
    assert Secret(f"${{exec:{script} secret/shop/reader#password}}").resolve() == "p#1 'x'", (
        "kept for a while"
    )
    secret_providers.forget()
    assert Secret(f"${{exec:{script} secret/shop/reader#password}}").resolve() == "hunter2"
    bao.run("kv", "put", "secret/other/reader", "password=hunter2")
    for wrong in ("secret/shop/reader#user", "secret/shop/gone#password", "secret/other/reader#password"):
        secret_providers.forget()
        with pytest.raises(ConfigError) as refused:
            Secret(f"${{exec:{script} {wrong}}}").resolve("`source.password`")
        assert refused.value.code == "TR-8477"
        assert not any(text in str(refused.value) for text in ("hunter2", token, wrong))
    secret_providers.forget()


def test_server_runs_a_pipeline_whose_password_is_in_openbao(
    mysql, bao: OpenBao, script: Path, database: ControlDatabase, tmp_path: Path
) -> None:
    bao.run("kv", "put", "secret/shop/mysql", f"password={mysql.password}")
    token = bao.token_for("shop", "secret/data/shop/*")
    more = ("--allow-provider", f"exec:{script} secret/shop/*")
    with fresh_database(mysql) as schema:
        shop = Shop(mysql, schema, tmp_path)
        with database.begin() as connection:
            for name, path in (("shop", "secret/shop/mysql"), ("other", "secret/other/mysql")):
                spec = shop.spec(name).replace("${env:TEST_PASSWORD}", f"${{exec:{script} {path}#password}}")
                subscriptions.create(connection, "ann", name, spec)
        server = ControlServer("s1", database, tmp_path, bao.environment(token), more=more)
        try:
            wait_for_batch(database, "shop")
            shop.wait_until_equal("shop")
            wait_until(lambda: named(database, "other").stage is Stage.FAILED, 60, server.output)
            assert named(database, "other").reason["code"] == "TR-8435", named(database, "other")
        finally:
            server.close()
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".parquet"]
    assert not [path for path in written if mysql.password.encode() in path.read_bytes()]
