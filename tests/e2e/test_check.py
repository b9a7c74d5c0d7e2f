"""`tailrace check` beyond the source: routes, sinks, transforms, disks."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml

from tests.support.pipelines import PipelineProcess


@pytest.fixture
def shop(mysql, database):
    mysql.execute(
        f"CREATE TABLE {database}.orders (id int PRIMARY KEY, price int, item varchar(20))",
        f"CREATE TABLE {database}.people (id int PRIMARY KEY, name varchar(20))",
    )
    return database


def checked(mysql, tables, directory, **sections):
    """Exit code and output of `tailrace check`, with sections of the pipeline file replaced."""
    run = PipelineProcess(directory, mysql, tables)
    file = yaml.safe_load(run.file.read_text())
    run.file.write_text(yaml.safe_dump({**file, **sections}))
    command = [sys.executable, "-m", "tailrace", "check", str(run.file)]
    done = subprocess.run(
        command, env=run.environment, capture_output=True, text=True, timeout=240, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_everything_in_order(mysql, shop, tmp_path):
    rules = [{"source-table": r".*\.orders", "projection": "id, price * 2 AS doubled"}]
    code, printed = checked(mysql, f"{shop}.*", tmp_path, transform=rules)
    assert code == 0, printed
    assert f"ok    sink delta {tmp_path}/tables: can be written, " in printed
    assert f"ok    transform of {shop}.orders: columns id, doubled" in printed
    assert not (tmp_path / "tables").exists(), "a check leaves nothing behind"


def test_what_would_fail_later_is_named_at_once(mysql, shop, tmp_path):
    (tmp_path / "file").touch()
    code, printed = checked(
        mysql,
        f"{shop}.*",
        tmp_path,
        transform=[
            {"source-table": r".*\.orders", "filter": "prise > 1"},
            {
                "source-table": r".*\.people",
                "projection": "id, name",
                "mask-hash": ["nome"],
                "mask-salt": "${env:TEST_PASSWORD}",
            },
        ],
        route=[
            {"source-table": r"other\..*", "sink-table": "x.y"},
            {"source-table": r".*\.(.*)", "sink-table": "copy.$1"},
        ],
        sink=[
            {"type": "delta", "path": str(tmp_path / "file" / "lake")},
            {
                "type": "mysql",
                "url": f"mysql://127.0.0.1:{mysql.port}/copy",
                "user": "nobody",
                "password": "x",
            },
        ],
    )
    assert code == 3, printed
    assert f"FAIL  sink[0] delta {tmp_path}/file/lake: found `{tmp_path}/file` is no directory" in printed
    assert f"FAIL  sink[1] mysql 127.0.0.1:{mysql.port}: found " in printed
    assert "warn  route[0] `other\\..*`: found no captured table matches" in printed
    assert f"FAIL  transform of {shop}.orders: found Spark rejects" in printed
    assert "`prise`" in printed
    assert f"FAIL  transform of {shop}.people: found a transform masks or truncates `nome`" in printed


def test_two_tables_in_one_target_are_found(mysql, shop, tmp_path):
    mysql.execute(f"CREATE TABLE {shop}.`orders_` (id int PRIMARY KEY)")
    routes = [
        {"source-table": r".*\.orders_", "sink-table": "all.rows"},
        {"source-table": r".*\.people", "sink-table": "all.$1rows"},
    ]
    routes[1]["source-table"] = r".*\.(x?)people"
    code, printed = checked(mysql, f"{shop}.*", tmp_path, route=routes)
    assert code == 3, printed
    assert "would be mixed in one target" in printed
