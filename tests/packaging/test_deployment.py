"""The units of `examples/deployment`: systemd accepts them, and what they call exists."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from tailrace.cli import cli

UNITS = sorted((Path(__file__).parents[2] / "examples" / "deployment" / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_options_of_a_unit_exist(unit: Path) -> None:
    command = re.search(r"^ExecStart=\S+/tailrace (\S+) (.*)$", unit.read_text("utf-8"), re.MULTILINE)
    assert command is not None
    help_text = CliRunner().invoke(cli, [command[1], "--help"]).output
    for option in re.findall(r"--[a-z-]+", command[2]):
        assert re.search(rf"{option}\b", help_text), option


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_a_unit(unit: Path, tmp_path: Path) -> None:
    program = shutil.which("true")
    assert program is not None
    text = unit.read_text("utf-8")
    assert "/opt/tailrace/bin/tailrace" in text
    name = unit.name.replace("@.", "@shop.")
    (tmp_path / name).write_text(text.replace("/opt/tailrace/bin/tailrace", program))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    complaints = [line for line in checked.stderr.splitlines() if name in line]
    assert not complaints, complaints
    assert checked.returncode == 0, checked.stderr
