"""Tailrace on machines without a package, Java, or a writable directory."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from click.testing import CliRunner
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tailrace
from tailrace.cache import cache_dir, locked
from tailrace.cli import cli
from tailrace.errors import ConfigError
from tailrace.extras import EXTRAS, require
from tailrace.java import require_java

_SOURCES = Path(tailrace.__file__).parents[1]

#: A user who is not us.
_NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to other users")


def _python(code: str, **variables: str) -> subprocess.Popen[str]:
    """A separate Python process that runs `code`."""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(_SOURCES), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _printed(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=120)[0]


# ---- optional packages -----------------------------------------------------------------------------------


def test_every_extra_brings_what_is_imported_of_it() -> None:
    project = tomllib.loads((_SOURCES.parent / "pyproject.toml").read_text())["project"]
    assert EXTRAS.keys() == project["optional-dependencies"].keys()
    brought_by = packages_distributions()
    for extra, modules in EXTRAS.items():
        if extra == "dev":  # a distribution of this repository
            continue
        declared = {canonicalize_name(Requirement(r).name) for r in project["optional-dependencies"][extra]}
        imported = {
            canonicalize_name(name)
            for module in modules
            for name in _bringers(brought_by[module.partition(".")[0]], module)
        }
        assert imported == declared


def _bringers(names: list[str], module: str) -> list[str]:
    """Those of the distributions of a package that bring a module of it: several may share the package."""
    if len(names) == 1:
        return names
    file = f"{module.replace('.', '/')}/__init__.py"
    return [name for name in names if any(str(path) == file for path in distribution(name).files or ())]


def test_lake_sinks_load_no_kernels_on_the_driver() -> None:
    """Kernels are for tasks."""
    sinks = "tailrace.sinks.delta.sink, tailrace.sinks.iceberg.sink, tailrace.sinks.files"
    check = f"import sys, {sinks}; print('tailrace.kernels.library' in sys.modules)"
    assert _printed(_python(check)) == "False\n"


def test_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "kafka", ("nowhere.inside",))
    with pytest.raises(ConfigError) as raised:
        require("kafka", "sink `kafka`")
    assert str(raised.value) == (
        "sink `kafka` needs the extra `kafka` [TR-1203]\n"
        "Detail: package `nowhere` is not installed\n"
        "Hint: pip install 'tailrace[kafka]'"
    )


def test_package_that_does_not_load_is_reported_with_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text("raise ImportError('libbroken.so.1: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(EXTRAS, "delta", ("broken",))
    with pytest.raises(ConfigError) as raised:
        require("delta", "sink `delta`")
    assert raised.value.message == "sink `delta` needs package `broken`, which cannot be imported"
    assert raised.value.detail == "ImportError: libbroken.so.1: cannot open shared object file"


def test_engine_and_commands_load_no_optional_package() -> None:
    packages = sorted(
        {m.partition(".")[0] for modules in EXTRAS.values() for m in modules} - {"tailrace_dev"}
    )
    code = f"""
import sys
import tailrace.pipeline.run, tailrace.verify.run, tailrace_dev.demo.run, tailrace_dev.servers.commands
import tailrace.spark.source, tailrace_dev.warm
tailrace_dev.warm.load_kernels()
print(sorted(set({packages}) & set(sys.modules)))
"""
    assert _printed(_python(code)) == "[]\n"


# ---- the cache -------------------------------------------------------------------------------------------


def test_cache_is_private_at_every_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path / "cache"))
    before = os.umask(0)
    try:
        made = cache_dir("a", "b")
    finally:
        os.umask(before)
    assert [p.stat().st_mode & 0o777 for p in (made, made.parent, made.parent.parent)] == [0o700] * 3


def test_cache_that_cannot_be_written_is_an_error_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TAILRACE_CACHE", "/dev/null/cache")
    for use in (cache_dir, locked("x").__enter__):
        with pytest.raises(ConfigError, match="TAILRACE_CACHE") as raised:
            use()
        assert raised.value.message == "cache directory `/dev/null/cache` cannot be written"


def test_user_without_a_home_has_a_cache_among_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TAILRACE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/dev/null")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert cache_dir() == tmp_path / f"tailrace-{os.getuid()}"
    assert cache_dir().stat().st_mode & 0o777 == 0o700


def test_machine_without_a_place_for_temporary_files_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.delenv("TAILRACE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(ConfigError, match="TAILRACE_CACHE") as raised:
        cache_dir()
    assert raised.value.message == "there is no directory for temporary files"


@as_root
@pytest.mark.parametrize("owned_by_others", ["the directory", "a link to it"])
def test_cache_that_another_user_controls_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owned_by_others: str
) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir(mode=0o700)
    link.symlink_to(real)
    os.chown(real if owned_by_others == "the directory" else link, _NOBODY, _NOBODY, follow_symlinks=False)
    monkeypatch.setenv("TAILRACE_CACHE", str(link))
    if owned_by_others == "the directory":
        with pytest.raises(ConfigError, match="is not safe"):
            cache_dir()
        return
    monkeypatch.setattr(os, "getuid", lambda: 1)
    os.chown(real, 1, 1)
    with pytest.raises(ConfigError, match="is not safe"):
        cache_dir()


def test_cache_that_others_may_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    monkeypatch.setenv("TAILRACE_CACHE", str(shared))
    with pytest.raises(ConfigError, match="is not safe"):
        cache_dir()


@as_root
def test_home_of_another_user_holds_no_cache_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tailrace").mkdir()
    os.chown(tmp_path / "tailrace", _NOBODY, _NOBODY)
    monkeypatch.delenv("TAILRACE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert cache_dir() == tmp_path / f"tailrace-{os.getuid()}"


def test_cache_at_home_that_a_loose_umask_made_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tailrace").mkdir()
    (tmp_path / "tailrace").chmod(0o775)
    monkeypatch.delenv("TAILRACE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "tailrace"
    assert cache_dir().stat().st_mode & 0o777 == 0o755


# ---- compiled kernels ------------------------------------------------------------------------------------


def test_kernels_that_cannot_be_kept_end_in_one_sentence() -> None:
    printed = _printed(_python("import tailrace.kernels.murmur", TAILRACE_CACHE="/dev/null/cache"))
    assert "tailrace.errors.ConfigError: cache directory `/dev/null/cache` cannot be written" in printed
    assert printed.splitlines()[-1].startswith("Hint: set TAILRACE_CACHE to ")


def test_sources_without_a_compiler_or_libraries_say_what_to_install(tmp_path: Path) -> None:
    copy = tmp_path / "src" / "tailrace"
    shutil.copytree(_SOURCES / "tailrace", copy, ignore=shutil.ignore_patterns("__pycache__"))
    printed = _printed(_python("import tailrace.kernels.murmur", PYTHONPATH=str(copy.parent)))
    assert "ConfigError: this installation has no compiled kernels for " in printed
    assert "Hint: install Tailrace from its wheel (`pip install tailrace`)" in printed


# ---- Java, PySpark, files --------------------------------------------------------------------------------


def _fake_java(directory: Path, says: str) -> Path:
    program = directory / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return directory


@pytest.mark.parametrize(("version", "number"), [("1.8.0_452", 8), ("11.0.2", 11), ("16", 16)])
def test_java_that_is_too_old_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, number: int
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path, f'openjdk version "{version}" 2020-01-01')))
    with pytest.raises(ConfigError, match=rf"Java {number} is too old for Spark 4") as raised:
        require_java()
    assert raised.value.detail == f"`{tmp_path}/bin/java` is Java {number}"


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_java_17_and_newer_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path, f'openjdk version "{version}" 2025-01-01')))
    require_java()


def test_java_that_is_not_there_is_an_error_that_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="no Java found") as raised:
        require_java()
    assert raised.value.detail == f"JAVA_HOME is `{tmp_path}`, where there is no `bin/java`"
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="no Java found") as raised:
        require_java()
    assert raised.value.detail == "`java` is not on PATH"


def test_session_without_java_says_so(tmp_path: Path) -> None:
    code = """
from pathlib import Path
from tailrace.spark.session import spark_session
spark_session("x", log_file=Path("log"))
"""
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(_SOURCES), "JAVA_HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "tailrace.errors.ConfigError: no Java found" in process.stderr


def test_another_release_of_pyspark_is_named(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("__version__ = '4.0.1'")
    printed = _printed(_python("import tailrace.spark.source", PYTHONPATH=f"{tmp_path}:{_SOURCES}"))
    assert (
        "tailrace.errors.ConfigError: PySpark 4.0.1 is installed, and Tailrace runs on 4.1 and 4.2" in printed
    )
    assert "Hint: pip install 'pyspark>=4.1,<4.3'" in printed


def test_pyspark_that_is_refused_is_what_the_package_asks_for() -> None:
    project = tomllib.loads((_SOURCES.parent / "pyproject.toml").read_text())["project"]
    (pyspark,) = [r for r in project["dependencies"] if Requirement(r).name == "pyspark"]
    assert pyspark == "pyspark>=4.1,<4.3"


@pytest.mark.parametrize(
    "said",
    [
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: tailrace. Make sure the name is correct",
        "java.io.EOFException occurred while reading the port number from tailrace.spark.daemon's stdout",
    ],
)
def test_python_of_workers_without_the_package_is_named(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query = importlib.import_module("tailrace.pipeline.supervisor")
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    error = query._as_ours(Exception(said), None, None)
    assert isinstance(error, ConfigError)
    assert error.message == "the Python of Spark's workers does not find tailrace"
    assert error.detail is not None
    assert error.detail.startswith("PYSPARK_PYTHON is `/usr/bin/python3`")


def test_log_that_cannot_be_written_is_an_error_before_anything_is_started(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "source: {url: 'mysql://127.0.0.1:1', username: x, tables: '.*'}\nsink: {type: console}\n"
        f"pipeline: {{checkpoint: {tmp_path}/checkpoint}}\n"
    )
    ran = CliRunner().invoke(cli, ["run", str(file), "--log-file", "/dev/null/tailrace.log"])
    assert isinstance(ran.exception, ConfigError)
    assert ran.exception.message == "log file `/dev/null/tailrace.log` cannot be written"
    assert "--log-file" in str(ran.exception.hint)
