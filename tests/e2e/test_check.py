"""`tailrace check` beyond the source: routes, sinks, transforms, disks."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml

from tests.support.pipelines import PipelineProcess, delta_rows


@pytest.fixture
def shop(mysql, database):
    mysql.execute(
        f"CREATE TABLE {database}.orders (id int PRIMARY KEY, price int, item varchar(20))",
        f"CREATE TABLE {database}.people (id int PRIMARY KEY, name varchar(20))",
    )
    return database


def checked(mysql, tables, directory, *arguments, **sections):
    """Exit code and output of `tailrace check`, with sections of the pipeline file replaced."""
    run = PipelineProcess(directory, mysql, tables)
    file = yaml.safe_load(run.file.read_text())
    run.file.write_text(yaml.safe_dump({**file, **sections}))
    command = [sys.executable, "-m", "tailrace", "check", str(run.file), *arguments]
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


def test_sample_calls_functions_twice_and_compares(mysql, shop, tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "cleaning.py").write_text(
        "import random\nimport pyarrow as pa\nimport pyarrow.compute as pc\n"
        "from tailrace.functions import returns\n"
        "upper = returns(pa.string())(pc.utf8_upper)\n"
        "@returns(pa.float64())\ndef chance(id):\n    return pa.array([random.random() for _ in id])\n"
        "@returns(pa.int32())\ndef number(name):\n    return pa.array([int(n.as_py()) for n in name])\n"
    )
    mysql.execute(
        f"INSERT INTO {shop}.orders VALUES (1, 5, 'a'), (2, 6, 'b')",
        f"INSERT INTO {shop}.people VALUES (1, 'geheim')",
        f"CREATE TABLE {shop}.dice (id int PRIMARY KEY)",
        f"INSERT INTO {shop}.dice VALUES (1), (2)",
        f"CREATE TABLE {shop}.none (id int PRIMARY KEY)",
    )
    code, printed = checked(
        mysql,
        f"{shop}.*",
        tmp_path,
        "--sample",
        "--functions-path",
        str(tmp_path / "code"),
        functions={"u": "cleaning:upper", "chance": "cleaning:chance", "number": "cleaning:number"},
        transform=[
            {"source-table": r".*\.orders", "projection": "*, u(item) AS name", "filter": "u(item) = 'A'"},
            {"source-table": r".*\.people", "projection": "*, number(name) AS n"},
            {"source-table": r".*\.dice", "projection": "*, chance(id) AS c"},
            {"source-table": ".*", "projection": "*, current_timestamp() AS at"},
        ],
    )
    assert code == 3, printed
    assert f"ok    sample of {shop}.orders: 2 rows became the same 1 twice" in printed
    assert f"FAIL  sample of {shop}.dice: found `c` differs in 2 of 2 rows" in printed
    assert f"FAIL  sample of {shop}.people: found `functions.number` has failed" in printed
    assert "cleaning:number: ValueError in cleaning.py, line 11" in printed
    assert f"ok    sample of {shop}.none: the table is empty" in printed
    assert "geheim" not in printed


def test_documents_that_cannot_be_routed_or_nested_are_named(mysql, shop, opensearch, tmp_path):
    sink = {
        "type": "opensearch",
        "url": opensearch.url,
        "routing": {f"{shop}.orders": "ITEM", f"{shop}.people": "name", f"{shop}.gone": "id"},
        "nested": [
            {"parent": f"{shop}.orders", "child": f"{shop}.{child}", "columns": {"id": "id"}, "field": child}
            for child in ("people", "lost")
        ],
    }
    rule = {"source-table": r".*\.orders", "primary-keys": ["item", "id"]}
    code, printed = checked(mysql, f"{shop}.*", tmp_path, sink=sink, transform=[rule])
    assert code == 3, printed
    assert (
        f"FAIL  sink opensearch routing of {shop}.people: found target `{shop}.people` cannot be" in printed
    )
    assert "TR-7320" in printed
    assert f"routing of {shop}.gone: found no captured table has this target" in printed
    assert f"routing of {shop}.orders" not in printed
    assert f"nested {shop}.people: found the rows of target `{shop}.people` cannot be nested" in printed
    assert f"nested {shop}.lost: found no captured table has the target `{shop}.lost`" in printed


@pytest.mark.slow
def test_pipeline_gets_its_functions_from_the_environment(mysql, spark, shop, tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "cleaning.py").write_text(
        "import pyarrow as pa\nimport pyarrow.compute as pc\nfrom tailrace.functions import returns\n"
        "upper = returns(pa.string())(pc.utf8_upper)\n"
    )
    mysql.execute(f"INSERT INTO {shop}.orders VALUES (1, 5, 'a'), (2, 6, 'b')")
    run = PipelineProcess(
        tmp_path,
        mysql,
        f"{shop}.orders",
        env={"TAILRACE_FUNCTIONS_PATH": str(tmp_path / "code")},
        sections={
            "functions": {"u": "cleaning:upper"},
            "transform": [{"source-table": ".*", "projection": "id, u(item) AS name"}],
        },
    )
    assert run.run() == 0, run.output()
    rows = delta_rows(spark, run.targets / f"{shop}.orders")
    assert sorted((row["id"], row["name"]) for row in rows) == [(1, "A"), (2, "B")]
    run.file.write_text(run.file.read_text().replace("cleaning:upper", "gone:upper"))
    assert run.run() == 2
    assert "the module of `functions.u` cannot be imported on the driver [TR-1232]" in run.output()


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
