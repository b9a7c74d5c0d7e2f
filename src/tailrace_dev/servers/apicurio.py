"""Schema registries: Apicurio Registry, which speaks Confluent's REST interface below `/apis/ccompat/v7`.

The program is an archive (classifier `all`) of Maven Central, fetched by the Ivy that Spark brings, as
Spark's own resolver takes jars only. It needs Java 21, Spark does not: one is looked for where
`java` is found and where Linux systems keep several, else Debian's package is unpacked. Schemas are kept in
memory: a registry that is stopped or killed has forgotten them. It listens on the loopback interface, without
passwords: every user of the machine can read and register schemas.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from tailrace.cache import cache_dir, locked
from tailrace.errors import TailraceError
from tailrace.pinned import verify
from tailrace_dev.servers import account, debian
from tailrace_dev.servers.jars import java
from tailrace_dev.servers.launch import launch
from tailrace_dev.servers.program import Program, matches, run
from tailrace_dev.servers.server import DevServer

_VERSION = "3.3.3"
#: Names the archive among what is pinned.
COLLECTION = f"apicurio-{_VERSION}"
_JAVA_VERSION = 21
_PACKAGES = ("openjdk-21-jre-headless",)
_JVMS = Path("/usr/lib/jvm")

#: What a registry runs with unless the caller says otherwise: Quarkus' and Apicurio's properties.
DEFAULTS = {
    "quarkus.http.host": "127.0.0.1",
    "quarkus.management.host": "127.0.0.1",
    "quarkus.management.port": "0",
    "quarkus.log.level": "WARN",
    "quarkus.http.access-log.enabled": "false",
}
_JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
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
    """A schema registry of one's own, without passwords: for test data."""

    product = "registry"
    scheme = "http"
    user = ""

    @property
    def url(self) -> str:
        """The registry as the option `schema-registry-url` needs it."""
        return f"{super().url}/apis/ccompat/v7"

    def _probe(self) -> str | None:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=10):  # noqa: S310 - ours
                return None
        except (urllib.error.URLError, OSError) as error:
            return str(error)


def start_registry(
    version: str | None = None,
    port: int | None = None,
    options: Mapping[str, str] | None = None,
    *,
    detached: bool = False,
) -> RegistryServer:
    """Starts a new, empty schema registry.

    Args:
        version: leading part of the version wanted, e.g. `3.3`; None: the one there is.
        port: TCP port on 127.0.0.1; None: a free one.
        options: properties over DEFAULTS, e.g. `{"apicurio.ccompat.legacy-id-mode.enabled": "true"}`.
        detached: whether it outlives this process.

    Returns:
        The running registry. As a context manager it is removed at the end of the block.

    Raises:
        TailraceError: no such registry can be had here, or it does not start.
    """
    if not matches(_VERSION, version):
        raise TailraceError(
            f"no Apicurio Registry {version} can be had", f"there is {_VERSION}", "leave --version out"
        )
    home = _home()
    java_command, name = _java()
    # Classes parsed once: without it a start takes three times as long.
    classes = account.writable_directory(cache_dir("apicurio"))
    shared = f"-XX:SharedArchiveFile={classes}/{_VERSION}-{name}.jsa"
    command = [*java_command, *_JVM, "-XX:+AutoCreateSharedArchive", shared]

    def prepare(server: RegistryServer) -> list[str]:
        server.data.mkdir(mode=0o700)
        server.hand_over()
        settings = {
            **DEFAULTS,
            **(options or {}),
            "quarkus.http.port": str(server.port),
            "java.io.tmpdir": str(server.data),
        }
        return [
            *(f"-D{key}={value}" for key, value in settings.items()),
            "-jar",
            str(home / "quarkus-run.jar"),
        ]

    return launch(RegistryServer, Program(command, _VERSION), port, detached=detached, prepare=prepare)


def _home() -> Path:
    """The unpacked program, fetched at first use."""
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
    """The program's archive, downloaded into a new directory; nothing is known of its content yet.

    Raises:
        TailraceError: it could not be had.
    """
    directory.mkdir()
    module = directory / "ivy.xml"
    module.write_text(_IVY_FILE.format(version=_VERSION), encoding="utf-8")
    ivy = [java(), "-cp", str(_ivy()), "org.apache.ivy.Main", "-warn", "-ivy", str(module)]
    pattern = f"{directory}/[artifact]-[revision].[ext]"
    what = f"Apicurio Registry {_VERSION} could not be fetched"
    run([*ivy, "-cache", str(directory / "cache"), "-retrieve", pattern], what)
    target = directory / f"apicurio-registry-app-{_VERSION}.tar.gz"
    if not target.exists():
        raise TailraceError(
            what,
            "Ivy found no such archive",
            "give this machine a way to Maven Central, or use a registry that runs elsewhere",
        )
    return target


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    for place in (spec.submodule_search_locations or []) if spec else []:
        for jar in Path(place).glob("jars/ivy-*.jar"):
            return jar
    raise TailraceError("no Ivy found", "it comes with pyspark", "pip install pyspark")


def _java() -> tuple[list[str], str]:
    """The command of a Java that is new enough, and a name for its version."""
    seen = []
    for program in _javas():
        said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
        found = re.search(r'version "((\d+)[^"]*)"', said)
        if found and int(found[2]) >= _JAVA_VERSION:
            return [program], found[1]
        seen.append(f"`{program}` is {found[1] if found else 'no Java'}")
    if debian.available():
        root = debian.unpack("sid", _PACKAGES)
        if root is not None:
            _mend_links(root.path)
            for path in sorted(root.path.glob("usr/lib/jvm/*/bin/java")):
                return root.command(str(path.relative_to(root.path))), root.version
        seen.append(f"Debian's sid has no {_PACKAGES[0]}")
    raise TailraceError(
        f"Apicurio Registry {_VERSION} needs Java {_JAVA_VERSION}",
        "; ".join(seen),
        f"install one and put it on PATH or under {_JVMS}, or use a registry that runs elsewhere",
    )


def _mend_links(root: Path) -> None:
    """Have the links below a private root's Java that lead to the machine's /etc lead to the root's own."""
    for link in root.glob("usr/lib/jvm/*/**/*"):
        target = root / str(link.readlink()).lstrip("/") if link.is_symlink() else link
        if not link.exists() and target.exists():
            link.unlink()
            link.symlink_to(target)


def _javas() -> Iterator[str]:
    home = os.environ.get("JAVA_HOME")
    for path in (f"{home}/bin" if home else None, None):
        found = shutil.which("java", path=path)
        if found is not None:
            yield found
    yield from map(str, sorted(_JVMS.glob("*/bin/java")))
