"""A pipeline behind an SSH server is killed: no `ssh` stays behind, and the next run goes on."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.pipelines import PipelineProcess
from tests.support.sshd import SshServer
from tests.support.wait import wait_until


@pytest.mark.slow
def test_no_tunnel_outlives_a_killed_pipeline(mysql: Any, database: str, tmp_path: Path) -> None:
    table = f"{database}.t"
    rows = ", ".join(f"({i})" for i in range(100))
    mysql.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)", f"INSERT INTO {table} VALUES {rows}")
    with SshServer() as sshd:
        options = sshd.options()
        way = {
            "ssh-tunnel": options["sshTunnel"],
            "ssh-key-file": options["sshKeyFile"],
            "ssh-known-hosts-file": options["sshKnownHostsFile"],
        }
        sink = {"type": "json", "path": str(tmp_path / "tables")}
        process = PipelineProcess(tmp_path, mysql, re.escape(table), sink=sink, **way)
        assert process.run(failpoint="sink.committed") == -signal.SIGKILL, process.output()
        assert sshd.logins() > 0
        wait_until(lambda: not sshd.tunnels(), 20, "the end of the programs ssh")
        mysql.execute(f"INSERT INTO {table} VALUES (1000)")
        assert process.run() == 0, process.output()
        wait_until(lambda: not sshd.tunnels(), 20, "the end of the programs ssh")
    files = (tmp_path / "tables").glob("*/*/*.json")
    found = sorted(json.loads(line)["id"] for file in files for line in file.read_text().splitlines())
    assert found == [*range(100), 1000]
