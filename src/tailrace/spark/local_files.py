"""Hadoop's local file system without processes: for Sparks that run in one JVM.

Hadoop starts `chmod` for each file that it writes and `readlink` for each that it renames, as Spark comes
without Hadoop's native library. A micro-batch writes three files at least, and a process takes 5 to 20 ms.
The classes in `LocalFiles.java` let the JVM do it. The compiler that is part of Spark (Janino) compiles them
on this machine, once: a Java without `javac` is enough, and no versions of Java and Hadoop are fixed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import tempfile
from collections import deque
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from zipfile import ZipFile

from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.find_spark_home import _find_spark_home

from tailrace.cache import cache_dir
from tailrace.java import java

_IMPL = "spark.hadoop.fs.file.impl"
_CLASS = "tailrace.LocalFiles"
#: What lets Spark use the classes.
_CONF = {_IMPL: _CLASS, "spark.hadoop.fs.AbstractFileSystem.file.impl": "tailrace.LocalFilesOfContext"}
_OPTIONS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]

_log = logging.getLogger(__name__)


def settings() -> Mapping[str, str]:
    """Spark's settings with which it uses the classes; none if they cannot be compiled."""
    try:
        jar()
    except (OSError, ValueError, Py4JError):  # ValueError: Java ended before it said where it can be reached
        _log.info("Hadoop's own class writes local files, with a process for each", exc_info=True)
        return {}
    return _CONF


def environment(conf: Mapping[str, str]) -> Mapping[str, str]:
    """Variables of a JVM with Spark's settings `conf`: it finds the classes if these name them."""
    if conf.get(_IMPL) != _CLASS:
        return {}
    # the end of the class path: the archive of classes fits every path that begins as its own
    name = "SPARK_DIST_CLASSPATH"
    return {name: os.pathsep.join(filter(None, [os.environ.get(name), str(jar())]))}


def jar() -> Path:
    """The jar of the classes; compiled if it does not exist.

    Raises:
        ConfigError: the cache cannot be written.
        OSError, ValueError: Java does not run, or there is no space.
        Py4JError: the compiler fails.
    """
    text = resources.files("tailrace.spark").joinpath("LocalFiles.java").read_text(encoding="utf-8")
    jars = Path(_find_spark_home(), "jars")
    identity = [text, *sorted(found.name for found in jars.glob("hadoop-client-api-*"))]
    digest = hashlib.sha256("\n".join(identity).encode()).hexdigest()[:16]
    path = cache_dir("classes") / f"local-files-{digest}.jar"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            made = Path(scratch, path.name)
            with ZipFile(made, "w") as file:
                for name, code in _compiled(text, jars).items():
                    file.writestr(f"{name.replace('.', '/')}.class", code)
            made.rename(path)
    return path


def _compiled(text: str, jars: Path) -> Mapping[str, bytes]:
    """The classes of a Java source, by name."""
    gateway = JavaGateway.launch_gateway(
        classpath=f"{jars}/*",
        java_path=java(),
        javaopts=_OPTIONS,
        enable_auth=True,
        die_on_exit=True,
        redirect_stdout=deque(),
        redirect_stderr=subprocess.DEVNULL,
    )
    with gateway.java_process as process:
        try:
            compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
            compiler.cook(text)
            return dict(compiler.getBytecodes())
        finally:
            gateway.shutdown()
            process.stdin.close()  # which ends the process
            process.wait()
