"""A pipeline behind an SSH server is killed: no `ssh` stays behind, and the next run goes on."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.pipelines import PipelineProcess
from tests.support.sshd import SshServer
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("product", ["mysql", "postgres"])
def test_no_tunnel_outlives_a_killed_pipeline(
    request: pytest.FixtureRequest, product: str, tmp_path: Path
) -> None:
    server = request.getfixturevalue(product)
    database = request.getfixturevalue("database" if product == "mysql" else "postgres_database")
    source: dict[str, Any] = {"type": "mysql", "tables": re.escape(f"{database}.t")}
    if product == "postgres":
        source = {"type": "postgresql", "tables": "public[.]t", "database": database}

    def execute(*statements: str) -> None:
        named = f"{database}." if product == "mysql" else ""
        given = {} if product == "mysql" else {"database": database}
        server.execute(*(s.replace("TABLE_T", f"{named}t") for s in statements), **given)

    rows = ", ".join(f"({i})" for i in range(100))
    execute("CREATE TABLE TABLE_T (id INT PRIMARY KEY)", f"INSERT INTO TABLE_T VALUES {rows}")
    with SshServer() as sshd:
        options = sshd.options()
        process = PipelineProcess(
            tmp_path,
            server,
            sink={"type": "json", "path": str(tmp_path / "tables")},
            **source
            | {
                "ssh-tunnel": options["sshTunnel"],
                "ssh-key-file": options["sshKeyFile"],
                "ssh-known-hosts-file": options["sshKnownHostsFile"],
            },
        )
        assert process.run(failpoint="snapshot.batch") != 0, process.output()
        assert sshd.logins() > 0
        wait_until(lambda: not sshd.tunnels(), 20, "the end of the programs ssh")
        execute("INSERT INTO TABLE_T VALUES (1000)")
        assert process.run() == 0, process.output()
        wait_until(lambda: not sshd.tunnels(), 20, "the end of the programs ssh")
    lines = [
        line for file in (tmp_path / "tables").glob("*/*/*.json") for line in file.read_text().splitlines()
    ]
    assert sorted(json.loads(line)["id"] for line in lines) == [*range(100), 1000]
