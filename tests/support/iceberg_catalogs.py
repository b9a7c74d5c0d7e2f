"""Catalogs of Iceberg tables that are servers: REST, of Iceberg's own tests; Hive; Glue, by moto."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
from pyiceberg.catalog import Catalog, load_catalog

from tailrace.cache import cache_dir, locked
from tailrace.java import java
from tailrace_dev.servers.jars import spark_jar
from tailrace_dev.servers.server import free_port
from tests.support.plugins import JAVA
from tests.support.s3 import KEY, SECRET, object_store
from tests.support.wait import listens, wait_until

_ICEBERG, _JETTY, _SQLITE = "1.11.0", "12.1.5", "3.50.3.0"
_JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
#: Spark's resolver takes no classifiers, so Ivy, which it uses, is run by itself.
_IVY_FILE = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tailrace" module="tests"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.iceberg" name="iceberg-open-api" rev="{_ICEBERG}" transitive="false">
      <artifact name="iceberg-open-api" ext="jar" m:classifier="test-fixtures"/>
    </dependency>
    <dependency org="org.apache.iceberg" name="iceberg-core" rev="{_ICEBERG}"
        conf="default->master,compile,runtime">
      <artifact name="iceberg-core" ext="jar"/>
      <artifact name="iceberg-core" ext="jar" m:classifier="tests"/>
    </dependency>
    <dependency org="org.eclipse.jetty.ee10" name="jetty-ee10-servlet" rev="{_JETTY}"
        conf="default->master,compile,runtime"/>
    <dependency org="org.eclipse.jetty.compression" name="jetty-compression-server" rev="{_JETTY}"
        conf="default->master,compile,runtime"/>
    <dependency org="org.eclipse.jetty.compression" name="jetty-compression-gzip" rev="{_JETTY}"
        conf="default->master,compile,runtime"/>
    <dependency org="org.xerial" name="sqlite-jdbc" rev="{_SQLITE}" conf="default->master"/>
  </dependencies>
</ivy-module>
"""


@dataclass(frozen=True)
class CatalogServer:
    """A running one.

    Args:
        kind: `rest`, `hive` or `glue`.
        root: where its tables are.
        properties: pyiceberg's, without the store's.
        store: pyiceberg's properties of the store.
        spark: settings of `pipeline.spark` for the store, and their variables.
    """

    kind: str
    root: str
    properties: Mapping[str, str]
    store: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def opened(self) -> Iterator[Catalog]:
        """The catalog, as another program has it."""
        with closing(load_catalog("reader", **self.properties, **self.store)) as catalog:
            yield catalog

    def clear(self) -> None:
        """Drop all tables."""
        with self.opened() as catalog:
            for namespace in catalog.list_namespaces():
                for name in catalog.list_tables(namespace):
                    catalog.drop_table(name)


@contextmanager
def rest_catalog(directory: Path) -> Iterator[CatalogServer]:
    """The REST catalog of Iceberg's own tests, which keeps its tables in SQLite."""
    port = free_port()
    environment = {
        "CATALOG_REST_PORT": str(port),
        "CATALOG_URI": f"jdbc:sqlite:{directory}/catalog.db",
        "CATALOG_WAREHOUSE": f"file://{directory}/warehouse",
    }
    jars = [*_rest_jars(), *_spark_jars("hadoop-client-*.jar", "log4j-*.jar", "commons-logging-*.jar")]
    with _java(directory, jars, ["org.apache.iceberg.rest.RESTCatalogServer"], port, environment):
        uri = f"http://127.0.0.1:{port}"
        yield CatalogServer("rest", f"file://{directory}/lake", {"type": "rest", "uri": uri})


@contextmanager
def hive_metastore(directory: Path, *, compares: bool = False) -> Iterator[CatalogServer]:
    """The Hive metastore of Spark's jars; by default it would compare columns with the former ones."""
    port = free_port()
    places = (str(JAVA / "HiveMetastore.java"), str(port), f"{directory}/db", f"{directory}/warehouse")
    arguments = [*places, str(compares).lower()]
    options = [
        # its logger wants a package that Spark does not bring
        "-Dlog4j2.contextSelector=org.apache.logging.log4j.core.selector.BasicContextSelector",
        f"-Dderby.stream.error.file={directory}/derby.log",
    ]
    with _java(directory, _spark_jars("*.jar"), [*options, *arguments], port, {}):
        uri = f"thrift://127.0.0.1:{port}"
        yield CatalogServer("hive", f"file://{directory}/lake", {"type": "hive", "uri": uri})


@contextmanager
def glue_catalog() -> Iterator[CatalogServer]:
    """Glue and S3, by moto."""
    with object_store() as store:
        address = f"http://127.0.0.1:{store.port}"
        properties = {
            "type": "glue",
            "glue.endpoint": address,
            "glue.region": "eu-central-1",
            "glue.access-key-id": KEY,
            "glue.secret-access-key": SECRET,
        }
        of_store = {
            "s3.endpoint": address,
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
            "s3.region": "eu-central-1",
        }
        yield CatalogServer("glue", "s3://lake", properties, of_store, store.settings, store.environment)


@contextmanager
def _java(
    directory: Path, jars: Sequence[Path], arguments: Sequence[str], port: int, environment: Mapping[str, str]
) -> Iterator[None]:
    """A Java program that listens at a port."""
    path = os.pathsep.join(map(str, jars))
    with Path(directory, "log.txt").open("wb") as log:
        server = subprocess.Popen(
            [java(), *_JVM, "-cp", path, *arguments],
            env={**os.environ, **environment},
            cwd=directory,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: listens(port) or server.poll() is not None, 120, "the catalog")
        assert server.poll() is None, Path(directory, "log.txt").read_text()[-3000:]
        yield
    finally:
        server.kill()
        server.wait()


def _spark_jars(*patterns: str) -> list[Path]:
    directory = Path(pyspark.__path__[0], "jars")
    return [jar for pattern in patterns for jar in sorted(directory.glob(pattern))]


def _rest_jars() -> list[Path]:
    """The REST catalog's, downloaded at first use."""
    name = f"iceberg-rest-{_ICEBERG}"
    home = cache_dir(name)
    done = home / "complete"
    with locked(name):
        if not done.exists():
            module = home / "ivy.xml"
            module.write_text(_IVY_FILE, encoding="utf-8")
            ivy = [java(), "-cp", str(spark_jar("ivy-*.jar", "Ivy")), "org.apache.ivy.Main", "-warn"]
            pattern = f"{home}/jars/[artifact]-[revision](-[classifier]).[ext]"
            command = [*ivy, "-ivy", str(module), "-cache", str(home / "cache"), "-retrieve", pattern]
            subprocess.run(command, check=True)
            done.touch()
    return sorted((home / "jars").glob("*.jar"))
