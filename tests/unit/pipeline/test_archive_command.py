"""`tailrace archive` and `tailrace restore` of databases whose log cannot be archived."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tailrace.cli import cli
from tailrace.errors import ConfigError


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["archive", "--to"], "TR-8218"),
        (["restore", "--table", "S.T", "--at", "2026-11-01T00:00:00Z", "--to"], "TR-8210"),
    ],
)
def test_other_databases_are_refused(command: list[str], code: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "source: {url: 'oracle://127.0.0.1:1/FREEPDB1', username: x, tables: '.*'}\nsink: {type: console}\n"
        f"pipeline: {{checkpoint: {tmp_path}/checkpoint}}\n"
    )
    name, *options = command
    ran = CliRunner().invoke(cli, [name, str(file), *options, str(tmp_path / "made")])
    assert isinstance(ran.exception, ConfigError)
    assert ran.exception.code == code
    assert not (tmp_path / "made").exists()
