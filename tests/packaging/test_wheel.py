"""The wheel in empty environments, bare and with each extra: each runs a pipeline."""

from __future__ import annotations

import json
import os
import tempfile
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from tailrace.cache import cache_dir
from tailrace.cli import EXIT_CONFIG
from tailrace.kernels.library import TARGETS
from tests.support import otlp
from tests.support.http_receiver import http_receiver
from tests.support.topics import messages
from tests.support.wheels import ROOT, Environment, build

#: A container's user without rights, who owns nothing.
_NOBODY = 65534
_ROWS = [(1, "one"), (2, "two")]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory that every user may read, unlike those of `tmp_path`."""
    with tempfile.TemporaryDirectory(prefix="tailrace-wheel-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture(scope="module")
def wheel(place: Path) -> Path:
    return build(place / "dist")[1]


@pytest.fixture(scope="module")
def bare(place: Path, wheel: Path) -> Environment:
    """The wheel without extras."""
    return Environment.make(place / "bare", wheel)


@pytest.fixture
def shop(mysql, database: str) -> dict[str, Any]:
    """The source's section for a table of _ROWS."""
    mysql.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, name VARCHAR(9))",
        f"INSERT INTO {database}.t VALUES {', '.join(map(str, _ROWS))}",
    )
    return {"url": mysql.url, "username": mysql.user, "tables": rf"{database}\.t"}


def _write(directory: Path, source: dict[str, Any], *sinks: dict[str, Any], **sections: Any) -> Path:
    """A pipeline file that runs until everything is read."""
    directory.mkdir(parents=True, exist_ok=True)
    pipeline = {
        "checkpoint": str(directory / "checkpoint"),
        "trigger": "available-now",
        "parallelism": 2,
        "restarts": 0,
    }
    source = {**source, "password": "${env:TEST_PASSWORD}"}
    file = directory / "pipeline.yaml"
    content = {"source": source, "sink": list(sinks), "pipeline": pipeline, **sections}
    file.write_text(yaml.safe_dump(content))
    return file


def _variables(server: Any) -> dict[str, str]:
    """The environment of a run that shares this one's jars."""
    return {
        "TEST_PASSWORD": server.password,
        "TAILRACE_CACHE": str(cache_dir()),
        "SPARK_DRIVER_MEMORY": "1g",
        # this JVM lives for seconds: what the second compiler would win is never won back
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
    }


def _json_rows(directory: Path) -> list[tuple[int, str]]:
    lines = [line for file in directory.glob("*/*/*.json") for line in file.read_text().splitlines()]
    return sorted((row["id"], row["name"]) for row in map(json.loads, lines))


def test_wheel_holds_the_two_packages_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and not {"__pycache__", "tailrace_build", "tailrace_dev"} & set(path.parts)
    }
    libraries = {f"tailrace/kernels/libraries/{file}" for file in TARGETS.values()}
    assert names == sources | libraries
    assert "tailrace/py.typed" in names


def test_bare_wheel_brings_no_compiler_and_little_beside_spark_and_arrow(bare: Environment) -> None:
    site = bare.package.parent
    assert not [name for name in ("llvmlite", "numba", "ziglang", "tailrace_build") if (site / name).exists()]
    given = ("pip", "pyarrow", "pyspark")
    # installed; 25 MB are downloaded
    assert sum(_size(path) for path in site.iterdir() if not path.name.startswith(given)) < 100e6
    assert _size(bare.package / "kernels" / "libraries") < 1e6


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file() and file.suffix != ".pyc")


def test_bare_wheel_runs_for_a_user_who_may_write_nowhere_but_in_its_cache(
    mysql, shop: dict[str, Any], bare: Environment, place: Path
) -> None:
    work = place / "work"
    sinks = (
        {"type": "console"},
        {"type": "parquet", "path": str(work / "parquet")},
        {"type": "json", "path": str(work / "json")},
    )
    file = _write(work, shop, *sinks)
    # `<tmp>/tailrace-<uid>` is where the cache of a user without a home is
    temporary = place / "tmp"
    temporary.mkdir()
    user = _NOBODY if os.getuid() == 0 else os.getuid()
    options: dict[str, Any] = {}
    if user != os.getuid():
        options = {"user": user, "group": user, "extra_groups": []}
        for path in (work, temporary):
            _give(path, user)
    env = _variables(mysql) | {"HOME": "/nonexistent", "TMPDIR": str(temporary)}
    del env["TAILRACE_CACHE"]
    with _read_only(bare.package):
        done = bare.run(bare.tailrace, "run", file, env=env, **options)
        assert done.returncode == 0, done.stdout
    assert not list(temporary.glob("tailrace-*/kernels"))
    assert "one" in done.stdout
    assert _json_rows(work / "json") == _ROWS
    table = pq.read_table(next((work / "parquet").glob("*/*/*.parquet")))
    assert sorted(zip(*table.select(["id", "name"]).to_pydict().values(), strict=True)) == _ROWS


def test_bare_wheel_is_found_by_spark_as_a_source(
    mysql, shop: dict[str, Any], bare: Environment, tmp_path: Path
) -> None:
    script = tmp_path / "plain.py"
    script.write_text(
        _PLAIN.format(url=shop["url"], user=shop["username"], tables=shop["tables"], at=tmp_path)
    )
    done = bare.run("python3", script, env=_variables(mysql))
    assert done.returncode == 0, done.stdout
    assert _json_rows(tmp_path / "rows") == _ROWS


_PLAIN = r"""
import os
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.readStream.format("tailrace").option("url", "{url}").option("user", "{user}")
rows = rows.option("password", os.environ["TEST_PASSWORD"]).option("tables", r"{tables}").load()
written = rows.writeStream.format("json").option("checkpointLocation", "{at}/checkpoint")
written.trigger(availableNow=True).start("{at}/rows/t/0").awaitTermination()
"""


@pytest.mark.parametrize(
    ("sink", "package"),
    [
        ({"type": "delta", "path": "lake"}, "pyroaring"),
        ({"type": "iceberg", "path": "lake"}, "pyiceberg"),
        ({"type": "kafka", "bootstrap-servers": "127.0.0.1:1", "topic-prefix": "x"}, "confluent_kafka"),
        ({"type": "clickhouse", "url": "http://127.0.0.1:1"}, "clickhouse_connect"),
        ({"type": "duckdb", "database": "shop.duckdb"}, "duckdb"),
        ({"type": "postgresql", "url": "postgresql://127.0.0.1:1/x", "user": "x"}, "pg8000"),
    ],
    ids=lambda given: given["type"] if isinstance(given, dict) else given,
)
def test_sink_whose_extra_is_missing_names_it_before_anything_is_started(
    bare: Environment, tmp_path: Path, sink: dict[str, str], package: str
) -> None:
    source = {"url": "mysql://127.0.0.1:1", "username": "x", "tables": ".*"}
    extra = "postgres" if package == "pg8000" else sink["type"]
    file = _write(tmp_path, source, sink)
    for command in ("run", "check", "verify"):
        done = bare.run(bare.tailrace, command, file, env={"TEST_PASSWORD": "", "HOME": str(tmp_path)})
        assert done.returncode == EXIT_CONFIG, done.stdout
        assert done.stdout == (
            f"error: sink `{sink['type']}` needs the extra `{extra}` [TR-1203]\n"
            f"Detail: package `{package}` is not installed\n"
            f"Hint: pip install 'tailrace[{extra}]'\n"
        )


@pytest.mark.parametrize("command", ["run", "check", "verify", "drop"])
def test_source_whose_extra_is_missing_names_it(bare: Environment, tmp_path: Path, command: str) -> None:
    source = {"url": "postgresql://127.0.0.1:1/x", "username": "x", "tables": ".*"}
    file = _write(tmp_path, source, {"type": "console"})
    done = bare.run(bare.tailrace, command, file, env={"TEST_PASSWORD": "", "HOME": str(tmp_path)})
    assert done.returncode == EXIT_CONFIG, done.stdout
    assert "error: source `postgresql` needs the extra `postgres` [TR-1203]\n" in done.stdout
    assert "Hint: pip install 'tailrace[postgres]'\n" in done.stdout


def test_bare_wheel_has_every_command(bare: Environment, tmp_path: Path) -> None:
    listed = bare.run(bare.tailrace, "--help", env={"HOME": str(tmp_path)}).stdout
    assert {"check", "drop", "offsets", "run", "verify"} <= set(listed.split())
    demo = bare.run(bare.tailrace, "demo", env={"HOME": str(tmp_path)}, cwd=tmp_path)
    assert (demo.returncode, demo.stdout.splitlines()[-1]) == (
        EXIT_CONFIG,
        "Hint: pip install 'tailrace[dev]'",
    )


@pytest.mark.slow  # `make wheel-test` runs it too
def test_dev_distribution_brings_the_development_servers(place: Path, wheel: Path, tmp_path: Path) -> None:
    env = Environment.make(place / "dev", wheel, "delta", "postgres")
    env.install(build(tmp_path / "dist", ROOT / "packaging" / "tailrace-dev")[1])
    listed = env.run(env.tailrace, "--help", env={"HOME": str(tmp_path)}).stdout
    assert {"demo", "dev"} <= set(listed.split())
    assert env.run(env.tailrace, "dev", "list", env={"HOME": str(tmp_path)}).returncode == 0


def test_delta_extra_runs_a_pipeline(mysql, shop: dict[str, Any], place: Path, wheel: Path) -> None:
    lake = place / "delta-work"
    env = Environment.make(place / "delta", wheel, "delta")
    file = _write(lake, shop, {"type": "delta", "path": str(lake / "tables")})
    done = env.run(env.tailrace, "run", file, env=_variables(mysql))
    assert done.returncode == 0, done.stdout
    (added,) = (lake / "tables").glob("*.t/*.parquet")
    assert sorted(pq.read_table(added, columns=["id"])["id"].to_pylist()) == [1, 2]


@pytest.fixture(scope="module")
def with_iceberg(place: Path, wheel: Path) -> Environment:
    return Environment.make(place / "iceberg", wheel, "iceberg")


@pytest.fixture(scope="module")
def with_kafka(place: Path, wheel: Path) -> Environment:
    return Environment.make(place / "kafka", wheel, "kafka")


@pytest.mark.parametrize("extra", ["iceberg", "kafka"])
def test_every_module_of_a_sink_is_imported_with_its_extra(
    request: pytest.FixtureRequest, extra: str, tmp_path: Path
) -> None:
    env: Environment = request.getfixturevalue(f"with_{extra}")
    done = env.run(env.python, "-c", _IMPORT.format(extra=extra), env={"HOME": str(tmp_path)})
    assert done.returncode == 0, done.stdout
    assert f"tailrace.sinks.{extra}.sink" in done.stdout.split()


_IMPORT = """
import importlib, pkgutil
import tailrace.sinks.{extra} as package
for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(found.name)
    print(found.name)
"""


@pytest.mark.slow  # that the packages are there, the test before has shown
def test_iceberg_extra_runs_a_pipeline(
    mysql, shop: dict[str, Any], place: Path, with_iceberg: Environment
) -> None:
    lake, env = place / "iceberg-work", with_iceberg
    file = _write(lake, shop, {"type": "iceberg", "path": str(lake / "tables")})
    done = env.run(env.tailrace, "run", file, env=_variables(mysql))
    assert done.returncode == 0, done.stdout
    (added,) = (lake / "tables").rglob("*.parquet")
    assert sorted(pq.read_table(added, columns=["id"])["id"].to_pylist()) == [1, 2]


@pytest.mark.slow
def test_otel_and_openlineage_extras_send_what_a_pipeline_does(
    mysql, shop: dict[str, Any], bare: Environment, place: Path, wheel: Path
) -> None:
    work = place / "telemetry-work"
    env = Environment.make(place / "telemetry", wheel, "otel", "openlineage")
    with http_receiver() as receiver:
        sections = {"telemetry": {"endpoint": receiver.url}, "lineage": {"url": receiver.url}}
        file = _write(work, shop, {"type": "json", "path": str(work / "json")}, **sections)
        done = env.run(env.tailrace, "run", file, env=_variables(mysql))
        assert done.returncode == 0, done.stdout
    assert _json_rows(work / "json") == _ROWS
    assert "batch" in {span.name for span in otlp.spans(receiver)}
    assert otlp.metrics(receiver)["tailrace_batches_total"].sum.data_points[0].as_double >= 1
    events = [json.loads(body)["eventType"] for body in receiver.bodies("/api/v1/lineage")]
    assert (events[0], events[-1]) == ("START", "COMPLETE")
    missing = bare.run(bare.tailrace, "run", file, env=_variables(mysql))
    assert missing.returncode == EXIT_CONFIG
    assert "error: section `telemetry` needs the extra `otel` [TR-1203]" in missing.stdout


@pytest.mark.slow
def test_kafka_extra_runs_a_pipeline(
    mysql, shop: dict[str, Any], kafka, place: Path, with_kafka: Environment
) -> None:
    prefix, env = f"wheel-{uuid.uuid4().hex[:8]}", with_kafka
    sink = {"type": "kafka", "bootstrap-servers": kafka.bootstrap, "topic-prefix": prefix}
    file = _write(place / "kafka-work", shop, sink)
    done = env.run(env.tailrace, "run", file, env=_variables(mysql))
    assert done.returncode == 0, done.stdout
    topic = f"{prefix}.{shop['tables']}".replace("\\", "")
    assert len(messages(kafka, topic)) == len(_ROWS)


@pytest.mark.slow
def test_postgres_extra_runs_a_pipeline(postgres, postgres_database: str, place: Path, wheel: Path) -> None:
    work = place / "postgres-work"
    env = Environment.make(place / "postgres", wheel, "postgres")
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, name text)",
        f"INSERT INTO t VALUES {', '.join(map(str, _ROWS))}",
        database=postgres_database,
    )
    source = {
        "url": f"{postgres.url}/{postgres_database}",
        "username": postgres.user,
        "tables": r"public\.t",
        "slot-name": f"slot_{postgres_database}",
    }
    file = _write(work, source, {"type": "json", "path": str(work / "json")})
    done = env.run(env.tailrace, "run", file, env=_variables(postgres))
    assert done.returncode == 0, done.stdout
    assert _json_rows(work / "json") == _ROWS


@contextmanager
def _read_only(top: Path) -> Iterator[None]:
    """A directory that its owner may not write to either. Files stay: other environments share them."""
    directories = [top, *(p for p in top.rglob("*") if p.is_dir())]
    for path in directories:
        path.chmod(0o555)
    try:
        yield
    finally:
        for path in directories:
            path.chmod(0o755)


def _give(top: Path, user: int) -> None:
    for path in (top, *top.rglob("*")):
        os.chown(path, user, user)
