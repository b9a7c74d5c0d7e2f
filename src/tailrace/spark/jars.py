"""Jars from Maven repositories, kept in the cache. Spark's own resolver downloads them the first time.

So a machine needs nothing beyond Spark's own requirements, and a mirror is configured once, in
`spark.jars.ivySettings`. Whatever the mirror, each file is compared with those that Tailrace was built with
(`pinned`). `python -m tailrace.spark.jars NAME PACKAGE...` prints the jars' paths, for programs that may not
import Spark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyspark

from tailrace.cache import cache_dir, locked
from tailrace.errors import ConfigError
from tailrace.java import require_java
from tailrace.pinned import verify


def cached_jars(
    name: str, packages: Sequence[str], without: Sequence[str] = (), *, pinned: bool = True
) -> list[Path]:
    """The jars of packages and of all their dependencies.

    Args:
        name: directory in the cache; it should contain the version, because a complete directory is not
            checked again.
        packages: `group:artifact:version` each.
        without: `group:artifact` each (`*` for any artifact): dependencies to exclude.
        pinned: whether the files must be those that `pinned` lists under `name`.

    Returns:
        The paths of the jars.

    Raises:
        ConfigError: they are not in the cache and cannot be downloaded, or differ from those listed.
    """
    home = cache_dir(name)
    downloaded, verified = home / "complete", home / "verified"
    if not downloaded.exists() or (pinned and not verified.exists()):
        with locked(name):  # the resolver's own files are for one process at a time
            if not downloaded.exists():
                _download(home, packages, without)
                downloaded.touch()
            if pinned and not verified.exists():
                try:
                    verify(name, _jars(home))
                except ConfigError:
                    shutil.rmtree(home)
                    raise
                verified.touch()
    return _jars(home)


def _jars(home: Path) -> list[Path]:
    return sorted((home / "jars").glob("*.jar"))


def _download(home: Path, packages: Sequence[str], without: Sequence[str]) -> None:
    home.mkdir(parents=True, exist_ok=True)
    nothing = home / "nothing.py"
    nothing.write_text("", encoding="utf-8")
    submit = Path(pyspark.__path__[0]) / "bin" / "spark-submit"
    command = [str(submit), "--master", "local[1]", "--packages", ",".join(packages)]
    if without:
        command += ["--exclude-packages", ",".join(without)]
    command += ["--conf", f"spark.jars.ivy={home}"]
    # Maven's own cache below the user's home may hold a package's description without its jar; the resolver
    # then does not look elsewhere.
    alone = ["--driver-java-options", f"-Duser.home={home}"]
    # without it, Spark looks up this machine's name, which some have not, such as a container that is built
    env = {"SPARK_LOCAL_IP": "127.0.0.1", **os.environ, "PYSPARK_PYTHON": sys.executable}
    require_java()
    for options in ([], alone):
        result = subprocess.run(  # noqa: S603
            [*command, *options, str(nothing)], env=env, capture_output=True, text=True, check=False
        )
        if result.returncode == 0:
            return
        shutil.rmtree(home / "cache", ignore_errors=True)
    log = home / "download.log"
    log.write_text(result.stdout + result.stderr, encoding="utf-8")
    raise ConfigError(
        f"jars could not be downloaded: {', '.join(packages)}",
        f"Spark's resolver failed, its output is in {log}",
        "give it a way to Maven Central or a mirror (spark.jars.ivySettings in spark-defaults.conf)",
        code="TR-1208",
    )


if __name__ == "__main__":
    print(*cached_jars(sys.argv[1], sys.argv[2:]), sep="\n")  # noqa: T201
