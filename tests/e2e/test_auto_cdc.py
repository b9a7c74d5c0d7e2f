"""The AUTO CDC example with a real server: `format("tailrace")` feeds `create_auto_cdc_flow` as it is.

Spark's open-source release has no target of its own for it; the one of its own tests is in a jar on Maven
Central. Spark Connect needs packages that Tailrace does not: they have a virtual environment of their own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from bench.peers.toolkit import UnavailableError, python
from tailrace.cache import cache_dir

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "auto_cdc"
IVY = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tailrace" module="tests"/>
  <dependencies>
    <dependency org="org.apache.spark" name="spark-catalyst_2.13" rev="4.2.0" transitive="false">
      <artifact name="spark-catalyst_2.13" type="jar" ext="jar" m:classifier="tests"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


def catalog_jar() -> Path:
    """Spark's catalog for tests, with row-level operations."""
    home = cache_dir() / "spark-catalyst-tests-4.2.0"
    jar = home / "spark-catalyst_2.13-4.2.0.jar"
    if not jar.exists():
        home.mkdir(parents=True, exist_ok=True)
        (home / "ivy.xml").write_text(IVY)
        (ivy,) = Path(pyspark.__path__[0]).glob("jars/ivy-*.jar")
        command = ["java", "-cp", str(ivy), "org.apache.ivy.Main", "-warn", "-ivy", str(home / "ivy.xml")]
        command += ["-cache", str(home / "cache"), "-retrieve", f"{home}/[artifact]-[revision].[ext]"]
        subprocess.run(command, check=True, timeout=300)
    return jar


@pytest.fixture
def shop(mysql, database):
    """A database `shop`, as the example has it."""
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE shop")
        cursor.execute("CREATE TABLE shop.orders (id INT PRIMARY KEY, item VARCHAR(20), price DECIMAL(10,2))")
        cursor.execute("INSERT INTO shop.orders VALUES (1,'a',1.5),(2,'b',2.5),(3,'c',NULL)")
        connection.commit()
    yield mysql
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP DATABASE shop")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_auto_cdc_keeps_its_table_equal_to_the_source(shop, tmp_path):
    try:
        interpreter = python("auto-cdc-4.2.0", "pyspark[connect]==4.2.0")
    except UnavailableError as error:
        pytest.skip(str(error))
    # Tailrace and what it needs come from this environment, beside the other's own.
    site = Path(importlib.util.find_spec("numpy").origin).parent.parent
    env = {
        **{k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(site)]),
        "PYSPARK_PYTHON": str(interpreter),
        "SHOP_URL": f"mysql://{shop.host}:{shop.port}",
        "SHOP_USER": shop.user,
        "SHOP_PASSWORD": shop.password,
    }
    script = ROOT / "tests" / "support" / "auto_cdc.py"
    command = [str(interpreter), str(script), str(EXAMPLE), str(tmp_path), str(catalog_jar())]
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, text=True
    )
    try:
        first = rows(process)
        with shop.connect() as connection, connection.cursor() as cursor:
            cursor.execute("UPDATE shop.orders SET item = 'x' WHERE id = 1")
            cursor.execute("DELETE FROM shop.orders WHERE id = 2")
            cursor.execute("INSERT INTO shop.orders VALUES (4,'d',4)")
            cursor.execute("UPDATE shop.orders SET item = 'y' WHERE id = 4")
            connection.commit()
        process.stdin.write("\n")
        process.stdin.flush()
        second = rows(process)
        process.communicate("\n", timeout=120)
    finally:
        process.kill()
        process.wait()
    assert first == [(1, "a", "1.50"), (2, "b", "2.50"), (3, "c", "None")]
    assert second == [(1, "x", "1.50"), (3, "c", "None"), (4, "y", "4.00")]


def rows(process):
    """The next rows that the run prints."""
    for line in process.stdout:
        if line.startswith("ROWS "):
            return [(r["id"], r["item"], str(r["price"])) for r in json.loads(line.removeprefix("ROWS "))]
    raise AssertionError("the run has ended without rows")
