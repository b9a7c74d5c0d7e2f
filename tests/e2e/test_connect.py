"""Spark Connect: the source runs in the server, and a client names it and nothing else."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.peers.toolkit import UnavailableError
from tailrace_dev.servers.server import wait_until
from tests.support.other_spark import environment
from tests.support.wait import listens

CLIENT = Path(__file__).parents[1] / "support" / "connect_client.py"
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@contextmanager
def connect_server(interpreter, variables, log):
    """The address of a server of the PySpark of `interpreter`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (pyspark,) = interpreter.parent.parent.glob("lib/python*/site-packages/pyspark")
    command = [str(pyspark / "bin" / "spark-submit"), "--class", SERVER, "--master", "local[2]"]
    for setting in (
        f"spark.connect.grpc.binding.port={port}",
        "spark.connect.grpc.binding.address=127.0.0.1",
        "spark.driver.host=127.0.0.1",
        "spark.driver.bindAddress=127.0.0.1",
        "spark.ui.enabled=false",
    ):
        command += ["--conf", setting]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "spark-internal"],
            env={**variables, "SPARK_HOME": str(pyspark)},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def answers():
        assert process.poll() is None, log.read_text(errors="replace")[-4000:]
        return listens(port)

    try:
        wait_until(answers, 240)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def test_client_reads_a_stream_and_a_table_and_never_has_the_password(mysql, database, tmp_path):
    try:
        interpreter, variables = environment("pyspark-connect-4.2", "pyspark[connect]==4.2.*")
    except UnavailableError as error:
        pytest.skip(str(error))
    mysql.execute(
        f"CREATE TABLE {database}.t (id int PRIMARY KEY, v varchar(10))",
        f"INSERT INTO {database}.t VALUES (1, 'a'), (2, NULL)",
    )
    secret = {"SHOP_PASSWORD": mysql.password}
    options = {
        "url": mysql.url,
        "user": mysql.user,
        "password": "${env:SHOP_PASSWORD}",
        "tables": f"{database}.t",
    }
    log = tmp_path / "server.log"
    with connect_server(interpreter, {**variables, **secret}, log) as address:
        without = {name: text for name, text in variables.items() if name != "PYTHONPATH"}
        command = [str(interpreter), str(CLIENT), address, str(tmp_path / "out"), json.dumps(options)]
        done = subprocess.run(
            command, env=without, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False
        )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed + log.read_text(errors="replace")[-4000:]
    (line,) = [each for each in done.stdout.splitlines() if each.startswith("RESULT ")]
    found = json.loads(line.removeprefix("RESULT "))
    assert found["changes"] == [[1, "a", "r"], [2, None, "r"]]
    assert found["rows"] == [[1, "a"], [2, None]]
    assert "tailrace" in found["shown"]
    assert mysql.password not in found["shown"] + printed + log.read_text(errors="replace")
