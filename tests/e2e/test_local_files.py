"""Files that Spark writes on this machine: as Hadoop's own class writes them, without its processes."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from tailrace.spark import launch, local_files, session

#: What is done to a file system in a directory, and what is to be seen afterwards.
Operation = Callable[[Any, "Names"], Any]


class Names:
    """Paths of Hadoop in a directory."""

    def __init__(self, jvm: Any, root: Path) -> None:
        self.jvm, self.root = jvm, root

    def __call__(self, name: str) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path(f"file://{self.root}/{name}")

    def permission(self, mode: int) -> Any:
        return self.jvm.org.apache.hadoop.fs.permission.FsPermission(mode)


def _write(fs: Any, at: Names) -> None:
    fs.create(at("a/b/file")).close()
    fs.create(at("a/b/file")).close()  # again


def _set_modes(fs: Any, at: Names) -> None:
    for number, mode in enumerate((0o600, 0o640, 0o755, 0o1777, 0o000)):
        fs.create(at(f"file{number}")).close()
        fs.setPermission(at(f"file{number}"), at.permission(mode))
        fs.mkdirs(at(f"directory{number}"), at.permission(mode))


def _keep_group(fs: Any, at: Names) -> None:
    shared = at.root / "shared"
    shared.mkdir()
    shared.chmod(0o2775)
    fs.mkdirs(at("shared/new/deep"))
    fs.create(at("shared/new/file")).close()
    fs.setPermission(at("shared"), at.permission(0o750))


def _follow_links(fs: Any, at: Names) -> list[Any]:
    (at.root / "target").write_text("x")
    (at.root / "link").symlink_to(at.root / "target")
    (at.root / "dangling").symlink_to(at.root / "gone")
    (at.root / "directory").mkdir()
    fs.setPermission(at("link"), at.permission(0o600))
    found = [fs.getFileLinkStatus(at(name)) for name in ("target", "link", "dangling", "directory")]
    return [(s.isSymlink(), s.isDirectory(), s.getLen(), s.getPath().getName()) for s in found]


def _move(fs: Any, at: Names) -> list[bool]:
    _write(fs, at)
    fs.mkdirs(at("other"))
    return [fs.rename(at("a/b/file"), at("other/moved")), fs.rename(at("a"), at("other"))]


def _move_by_context(fs: Any, at: Names) -> None:
    configuration = fs.getConf()
    context = at.jvm.org.apache.hadoop.fs.FileContext.getFileContext(at("").toUri(), configuration)
    rename = at.jvm.org.apache.hadoop.fs.Options.Rename
    for name, how in (("first", rename.NONE), ("second", rename.OVERWRITE), ("third", rename.NONE)):
        fs.create(at(name)).close()
        one = at.jvm.java.lang.reflect.Array.newInstance(how.getClass(), 1)
        one[0] = how
        context.rename(at(name), at("moved"), one)


def _of_missing(name: str) -> Operation:
    def look(fs: Any, at: Names) -> Any:
        (at.root / "file").write_text("x")
        return getattr(fs, name)(at("gone"))

    return look


def _below_a_file(fs: Any, at: Names) -> Any:
    (at.root / "file").write_text("x")
    return [fs.exists(at("file/x")), fs.getFileLinkStatus(at("file/x"))]


def _mode_of_missing(fs: Any, at: Names) -> None:
    fs.setPermission(at("gone"), at.permission(0o600))


OPERATIONS: dict[str, Operation] = {
    "write": _write,
    "set modes": _set_modes,
    "a directory's group": _keep_group,
    "links": _follow_links,
    "move": _move,
    "move by context": _move_by_context,
    "status of a missing file": _of_missing("getFileStatus"),
    "link status of a missing file": _of_missing("getFileLinkStatus"),
    "link status below a file": _below_a_file,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_files_are_as_hadoop_leaves_them(spark: SparkSession, tmp_path: Path, name: str) -> None:
    assert spark._jsc is not None
    jvm: Any = spark._jvm
    seen = {}
    for of_context, own in (
        ("org.apache.hadoop.fs.local.RawLocalFs", jvm.org.apache.hadoop.fs.RawLocalFileSystem()),
        ("tailrace.LocalFilesOfContext", jvm.tailrace.LocalFiles()),
    ):
        conf = jvm.org.apache.hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())
        conf.set("fs.AbstractFileSystem.file.impl", of_context)
        conf.set("fs.permissions.umask-mode", "027")
        own.initialize(jvm.java.net.URI("file:///"), conf)
        root = tmp_path / of_context
        root.mkdir()
        seen[of_context] = (_outcome(own, Names(jvm, root), OPERATIONS[name]), _tree(root))
    first, second = seen.values()
    assert first == second


def _outcome(fs: Any, at: Names, operation: Operation) -> Any:
    try:
        return operation(fs, at)
    except Py4JJavaError as error:
        return error.java_exception.getClass().getName()


def _tree(root: Path) -> dict[str, str]:
    paths = sorted(root.rglob("*"))
    return {str(path.relative_to(root)): stat.filemode(path.lstat().st_mode) for path in paths}


def test_mode_of_a_missing_file_cannot_be_set(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark._jvm
    with pytest.raises(Py4JJavaError, match="NoSuchFileException"):
        _mode_of_missing(jvm.tailrace.LocalFiles(), Names(jvm, tmp_path))


def test_a_local_spark_uses_them(spark: SparkSession) -> None:
    assert spark._jsc is not None
    conf = spark._jsc.hadoopConfiguration()
    jvm: Any = spark._jvm
    assert jvm.org.apache.hadoop.fs.FileSystem.get(conf).getClass().getName() == "tailrace.LocalFiles"
    context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(conf).getDefaultFileSystem()
    assert context.getClass().getName() == "tailrace.LocalFilesOfContext"


class Begun:
    """What a JVM would be started with."""

    def __init__(self) -> None:
        self.conf: dict[str, str] = {}
        self.environment: dict[str, str] = {}

    def begin(self, conf: Any, environment: Any, *_: Any, **__: Any) -> None:
        self.conf, self.environment = dict(conf), dict(environment)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Begun:
    found = Begun()
    monkeypatch.setattr(launch, "is_running", lambda: False)
    monkeypatch.setattr(launch, "begin", found.begin)
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    monkeypatch.setenv("SPARK_DIST_CLASSPATH", "/of/user.jar")
    return found


def test_class_path_of_the_user_stays(begun: Begun) -> None:
    session.begin_session("test", master="local[1]")
    expected = os.pathsep.join(["/of/user.jar", str(local_files.jar())])
    assert begun.environment["SPARK_DIST_CLASSPATH"] == expected


RAW = "org.apache.hadoop.fs.RawLocalFileSystem"


@pytest.mark.parametrize(
    ("master", "paths", "given", "used"),
    [
        ("spark://host:7077", ["/lake"], {}, RAW),
        ("local[1]", ["s3a://bucket/lake"], {}, None),
        ("local[1]", ["/lake"], {"spark.hadoop.fs.file.impl": "com.example.Files"}, "com.example.Files"),
    ],
)
def test_other_sparks_do_without(
    begun: Begun, master: str, paths: list[str], given: dict[str, str], used: str | None
) -> None:
    session.begin_session("test", master=master, paths=paths, extra_conf=given)
    assert begun.conf.get("spark.hadoop.fs.file.impl") == used
    assert "SPARK_DIST_CLASSPATH" not in begun.environment


def test_without_a_compiler_hadoop_writes(
    begun: Begun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path))
    monkeypatch.setattr(local_files, "java", lambda: str(tmp_path / "java"))
    session.begin_session("test", master="local[1]")
    assert begun.conf["spark.hadoop.fs.file.impl"] == RAW
    assert "SPARK_DIST_CLASSPATH" not in begun.environment
