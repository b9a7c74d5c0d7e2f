"""Debezium Server, which writes to message systems without Kafka Connect.

Maven Central has it as one archive of 780 MB. Spark's Ivy fetches it, from wherever Ivy finds Maven Central.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.peers import toolkit
from tailrace.cache import cache_dir
from tailrace.errors import TailraceError
from tailrace_dev.servers.jars import spark_jar
from tailrace_dev.servers.java21 import java_21

VERSION = "3.6.0.Final"
#: Memory as the other peers have it.
_JVM = ("-Xms2g", "-Xmx2g", "-XX:+UseParallelGC", "--add-opens=java.base/java.lang=ALL-UNNAMED")
#: The archive's parent POM is not everywhere.
_SETTINGS = """<ivysettings><settings defaultResolver="central"/><resolvers>
<ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers></ivysettings>"""
_MODULE = f"""<ivy-module version="2.0"><info organisation="bench" module="bench"/><dependencies>
<dependency org="io.debezium" name="debezium-server-dist" rev="{VERSION}">
<artifact name="debezium-server-dist" type="tar.gz" ext="tar.gz"/></dependency></dependencies></ivy-module>"""


def home() -> Path:
    """The unpacked server, fetched at first use.

    Raises:
        toolkit.UnavailableError: it cannot be downloaded.
    """
    found = cache_dir() / f"peer-debezium-server-{VERSION}"
    if not (found / "complete").exists():
        shutil.rmtree(found, ignore_errors=True)
        found.mkdir(parents=True)
        with tempfile.TemporaryDirectory(dir=found.parent) as scratch:
            archive = _download(Path(scratch))
            with tarfile.open(archive) as packed:
                packed.extractall(found, filter="data")
        (found / "complete").touch()
    return found / "debezium-server"


def _download(scratch: Path) -> Path:
    settings, module = scratch / "ivysettings.xml", scratch / "ivy.xml"
    settings.write_text(_SETTINGS, encoding="utf-8")
    module.write_text(_MODULE, encoding="utf-8")
    ivy = spark_jar("ivy-*.jar", "Ivy")
    command = [toolkit.java(), "-jar", str(ivy), "-settings", str(settings), "-ivy", str(module)]
    command += ["-cache", str(scratch / "cache"), "-types", "tar.gz"]
    command += ["-retrieve", str(scratch / "[artifact].[ext]")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    archive = scratch / "debezium-server-dist.tar.gz"
    if not archive.exists():
        raise toolkit.UnavailableError(
            f"Debezium Server {VERSION} cannot be downloaded: {(result.stdout + result.stderr)[-500:]}"
        )
    return archive


@contextmanager
def running(properties: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """A server with a configuration of its own, killed at the end.

    Args:
        properties: of its `application.properties`.
        log: the file of its output.

    Raises:
        toolkit.UnavailableError: it cannot be downloaded, or there is no Java 21.
    """
    place = home()
    try:
        java, _ = java_21(f"Debezium Server {VERSION}", "a Java 21")
    except TailraceError as error:
        raise toolkit.UnavailableError(f"{error.message}: {error.detail}") from error
    with tempfile.TemporaryDirectory(prefix="tailrace-peer-") as directory, log.open("w") as output:
        config = Path(directory, "config")
        config.mkdir()
        lines = [f"{name}={value}\n" for name, value in properties.items()]
        (config / "application.properties").write_text("".join(lines), encoding="utf-8")
        (runner,) = place.glob("*-runner.jar")
        path = f"{runner}:{config}:{place}/lib/*"
        process = subprocess.Popen(
            [*java, *_JVM, "-cp", path, "io.debezium.server.Main"],
            cwd=directory,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
