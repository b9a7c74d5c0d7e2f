"""Schema registries: Apicurio Registry, which speaks Confluent's REST interface below `/apis/ccompat/v7`.

The program is an archive (classifier `all`) on Maven Central, downloaded by the Ivy that comes with Spark:
Spark's own resolver handles jars only. It needs Java 21 (`java21`). Schemas are kept in memory: a registry
that is stopped or killed loses them. It listens on the loopback interface, without passwords: every user of
the machine can read and register schemas.
"""

from __future__ import annotations

import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from tailrace.cache import cache_dir, locked
from tailrace.errors import TailraceError
from tailrace.java import require_java
from tailrace.pinned import verify
from tailrace_dev.servers import account
from tailrace_dev.servers.jars import SMALL_JVM, spark_jar
from tailrace_dev.servers.java21 import java_21
from tailrace_dev.servers.launch import Starter
from tailrace_dev.servers.program import Program, require_only, run
from tailrace_dev.servers.server import DevServer

_VERSION = "3.3.3"
#: The archive's name in the list of pinned files.
COLLECTION = f"apicurio-{_VERSION}"

#: Default settings of a registry: Quarkus' and Apicurio's properties.
DEFAULTS = {
    "quarkus.http.host": "127.0.0.1",
    "quarkus.management.host": "127.0.0.1",
    "quarkus.management.port": "0",
    "quarkus.log.level": "WARN",
    "quarkus.http.access-log.enabled": "false",
}
_JVM = ("-Xmx384m", *SMALL_JVM, "-XX:TieredStopAtLevel=1")
_IVY_FILE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tailrace" module="devservers"/>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{version}" transitive="false">
      <artifact name="apicurio-registry-app" type="archive" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


class RegistryServer(DevServer):
    """A schema registry without passwords, for test data."""

    product = "registry"
    scheme = "http"
    user = ""

    @property
    def url(self) -> str:
        """The registry's address, as the sink's option for the schema registry expects it."""
        return f"{super().url}/apis/ccompat/v7"

    def _probe(self) -> str | None:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=10):  # noqa: S310 - ours
                return None
        except (urllib.error.URLError, OSError) as error:
            return str(error)


def _program(version: str | None) -> Program:
    require_only("Apicurio Registry", _VERSION, version)
    home = _home()
    command, name = java_21(f"Apicurio Registry {_VERSION}", "a registry")
    # An archive of parsed classes: without it a start takes three times as long.
    classes = account.writable_directory(cache_dir("apicurio"))
    shared = f"-XX:SharedArchiveFile={classes}/{_VERSION}-{name}.jsa"
    return Program([*command, *_JVM, "-XX:+AutoCreateSharedArchive", shared], _VERSION, home)


def _prepare(server: RegistryServer, program: Program, options: Mapping[str, str]) -> list[str]:
    assert program.share is not None
    server.data.mkdir(mode=0o700)
    server.hand_over()
    settings = {
        **DEFAULTS,
        **options,
        "quarkus.http.port": str(server.port),
        "java.io.tmpdir": str(server.data),
    }
    arguments = [f"-D{key}={value}" for key, value in settings.items()]
    return [*arguments, "-jar", str(program.share / "quarkus-run.jar")]


start_registry = Starter(RegistryServer, _program, _prepare)


def _home() -> Path:
    """The unpacked program, downloaded at first use."""
    home = cache_dir("apicurio") / _VERSION
    with locked(COLLECTION):
        if not home.exists():
            new = home.with_name(f"{_VERSION}.new")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            downloaded = archive(new / "download")
            verify(COLLECTION, [downloaded])
            with tarfile.open(downloaded) as file:
                file.extractall(new, filter="data")
            shutil.rmtree(new / "download")
            new.rename(home)
    return account.reachable(home, COLLECTION)


def archive(directory: Path) -> Path:
    """Download the program's archive into a new directory; its content is not verified yet.

    Raises:
        TailraceError: it could not be downloaded.
    """
    directory.mkdir()
    module = directory / "ivy.xml"
    module.write_text(_IVY_FILE.format(version=_VERSION), encoding="utf-8")
    ivy = [
        require_java(),
        "-cp",
        str(spark_jar("ivy-*.jar", "Ivy")),
        "org.apache.ivy.Main",
        "-warn",
        "-ivy",
        str(module),
    ]
    pattern = f"{directory}/[artifact]-[revision].[ext]"
    failure = f"Apicurio Registry {_VERSION} could not be downloaded"
    run([*ivy, "-cache", str(directory / "cache"), "-retrieve", pattern], failure)
    target = directory / f"apicurio-registry-app-{_VERSION}.tar.gz"
    if not target.exists():
        raise TailraceError(
            failure,
            "Ivy found no such archive",
            "give this machine access to Maven Central, or use a registry that runs elsewhere",
            code="TR-9005",
        )
    return target
