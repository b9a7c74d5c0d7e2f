"""The same pipeline on a Spark standalone cluster: one master, two workers of one core each."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

import tailrace
from tests.support.pipelines import PipelineProcess, delta_rows
from tests.support.spark_cluster import Cluster
from tests.support.wait import wait_until
from tests.support.workload import SUBJECTS, Writers, fill

STORE_KEY = "geheim-des-speichers"
CLUSTER_SECRET = "geheim-des-clusters"
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "clusters.md"


def guide_network(secret: Path) -> tuple[str, dict[str, str]]:
    """What the guide says on the network: `spark-defaults.conf`, and the pipeline's settings of Spark."""
    section = GUIDE.read_text(encoding="utf-8").partition("\n## Network\n")[2]
    (defaults,) = re.findall(r"```\n(spark\..*?)```", section, re.DOTALL)
    (block,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    settings = yaml.safe_load(block)["pipeline"]["spark"]
    settings["spark.authenticate.secret"] = f"${{file:{secret}}}"
    settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
    return re.sub(r"(authenticate\.secret +)\.\.\.", rf"\g<1>{secret.read_text()}", defaults), settings


@pytest.mark.slow  # workers of a cluster start for a minute
@pytest.mark.parametrize("mode", ["upsert"])
def test_pipeline_runs_on_a_standalone_cluster_with_the_guides_settings(
    mysql, database, spark, tmp_path, mode
):
    subject = SUBJECTS[0]
    table = f"{database}.{subject.name}"
    fill(mysql, table, subject, 2000)
    secret = tmp_path / "secret"
    secret.write_text(CLUSTER_SECRET)
    secret.chmod(0o600)
    defaults, network = guide_network(secret)
    assert CLUSTER_SECRET in defaults
    with Cluster(tmp_path, workers=2, defaults=defaults) as cluster:
        run = PipelineProcess(
            tmp_path,
            mysql,
            table,
            mode=mode,
            pipeline={
                "master": cluster.master,
                "spark": {
                    **network,
                    "spark.executor.memory": "512m",
                    "spark.hadoop.x.secret": "${env:TEST_STORE_KEY}",
                },
            },
            env={"TEST_STORE_KEY": STORE_KEY},
            **{"snapshot-chunk-rows": 500, "snapshot-parallelism": 2},
        )
        with Writers(mysql, table, subject, count=2, keys=4000, pause_s=0.05):
            assert run.run() == 0, run.output()
        assert run.run() == 0, run.output()
        assert "lost 1 executor" not in run.output()
        with Command(run, "verify", "--cluster") as verify:  # its workers read both sides
            assert verify.process.wait(240) == 0, verify.printed()
        executors = [p for n in range(2) for p in (tmp_path / f"work-{n}").glob("*/*") if p.is_dir()]
        assert len({p.parent.parent for p in executors}) == 2, "both workers took part"
        said = [
            p.read_text(errors="replace")
            for p in (*tmp_path.glob("*.log"), *tmp_path.glob("work-*/*/*/stderr"))
        ]
        assert any("Command: " in text for text in said), "workers write down how they start executors"
        assert not any(STORE_KEY in text or CLUSTER_SECRET in text for text in said)
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT id, v, pad FROM {table} ORDER BY id")
        held = sorted((r["id"], r["v"], r["pad"]) for r in delta_rows(spark, run.targets / table))
        assert held == list(cursor.fetchall())


class Command:
    """A command of ours as a process of its own; killed with the block."""

    def __init__(
        self, run: PipelineProcess, *arguments: str, cwd: Path | None = None, **environment: str
    ) -> None:
        self._log = run.directory / f"{'-'.join(arguments)}-{len(environment)}.txt"
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tailrace", arguments[0], str(run.file), *arguments[1:]],
                env={**run.environment, **environment},
                cwd=cwd,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def printed(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.printed(), 120, self.printed)


def kill_executors(directory: Path) -> None:
    """Kill every executor whose worker's directory is below `directory`."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            is_executor = b"CoarseGrainedExecutorBackend" in command
            if is_executor and (entry / "cwd").readlink().is_relative_to(directory):
                os.kill(int(entry.name), signal.SIGKILL)


@pytest.mark.slow
def test_busy_cluster_is_said_and_verify_needs_none_of_it(mysql, database, tmp_path):
    """One pipeline holds the only core: another application would wait without a word."""
    subject = SUBJECTS[0]
    table = f"{database}.{subject.name}"
    fill(mysql, table, subject, 500)
    with Cluster(tmp_path, workers=1) as cluster:
        run = PipelineProcess(
            tmp_path,
            mysql,
            table,
            pipeline={
                "master": cluster.master,
                "trigger": "continuous",
                "spark": {"spark.executor.memory": "512m"},
            },
        )
        with Command(run, "run") as holder:
            holder.wait_for(" · batch ")
            assert "writing batch 0" in holder.printed() or "starting the stream" in holder.printed()

            with Command(run, "verify") as verify:
                assert verify.process.wait(120) == 0, verify.printed()
            with Command(run, "verify", "--cluster") as waiting:
                waiting.wait_for("waiting for executors")
                waiting.process.send_signal(signal.SIGINT)
                assert waiting.process.wait(30) == 130
                printed = waiting.printed().splitlines()
                assert "spark.cores.max" in printed[0]
                assert printed[1:] == ["interrupted before the comparison was complete; nothing was changed"]

            kill_executors(tmp_path)
            holder.wait_for("lost 1 executor")
            holder.process.send_signal(signal.SIGTERM)
            assert holder.process.wait(120) == 0, holder.printed()


def bare_python() -> str:
    """A Python of this version without tailrace."""
    python = str(Path(sys.base_prefix) / "bin" / "python3")
    found = subprocess.run([python, "-c", "import tailrace"], env={}, capture_output=True, check=False)
    if found.returncode == 0:
        pytest.skip("this Python itself has tailrace")
    return python


def pack_environment(directory: Path) -> Path:
    """An environment with tailrace as an archive; unpacked in `directory` too, for the driver."""
    home = directory / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    paths = [str(Path(tailrace.__file__).parents[1]), *(p for p in sys.path if p.endswith("site-packages"))]
    (packages / "tailrace-of-the-tests.pth").write_text("\n".join(paths))
    archive = directory / "environment.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(home, ".")
    return archive


@pytest.mark.slow
def test_workers_without_tailrace_are_named_and_an_archive_brings_it(mysql, database, tmp_path):
    subject = SUBJECTS[0]
    table = f"{database}.{subject.name}"
    fill(mysql, table, subject, 100)
    archive = pack_environment(tmp_path)
    with Cluster(tmp_path, workers=1, without=("PYTHONPATH",)) as cluster:
        run = PipelineProcess(
            tmp_path,
            mysql,
            table,
            pipeline={
                "master": cluster.master,
                "spark": {"spark.executor.memory": "512m", "spark.archives": f"{archive}#environment"},
            },
        )
        # the driver finds tailrace in its working directory
        source = Path(tailrace.__file__).parents[1]
        bare = {"PYSPARK_PYTHON": bare_python(), "PYTHONPATH": ""}
        with Command(run, "check", cwd=source, **bare) as check:
            assert check.process.wait(240) == 3, check.printed()
            assert "found no tailrace in" in check.printed()
        with Command(run, "run", cwd=source, **bare) as failing:
            assert failing.process.wait(240) == 2, failing.printed()
            assert "the Python of Spark's workers does not find tailrace" in failing.printed()
            assert "spark.archives" in failing.printed()

        brought = {"PYSPARK_PYTHON": "./environment/bin/python"}
        with Command(run, "check", cwd=tmp_path, **brought) as check:
            assert check.process.wait(240) == 0, check.printed()
            assert "reaches the source" in check.printed()
        with Command(run, "run", cwd=tmp_path, **brought) as working:
            assert working.process.wait(240) == 0, working.printed()


@pytest.mark.slow
def test_master_that_does_not_answer_is_named(mysql, database, tmp_path):
    subject = SUBJECTS[0]
    fill(mysql, f"{database}.{subject.name}", subject, 1)
    master = "spark://127.0.0.1:1"
    run = PipelineProcess(tmp_path, mysql, f"{database}.*", pipeline={"master": master})
    assert run.run() == 2
    assert f"Spark did not start on the cluster `{master}`" in run.output()
    assert "Traceback" not in run.output()
