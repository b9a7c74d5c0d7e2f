"""The image of `Dockerfile`, built and run by podman, with a root that is read-only.

The base image is made here from Debian's packages. Needs root, podman, runc and mmdebstrap.
TAILRACE_TEST_IMAGE names an image that is built already.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
import pytest
import yaml

from tailrace.cache import cache_dir
from tailrace_dev.servers.server import free_port
from tests.support.wait import wait_until
from tests.support.wheels import ROOT

_PROGRAMS = ("podman", "runc", "mmdebstrap")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        os.getuid() != 0 or not all(map(shutil.which, _PROGRAMS)), reason=f"needs root, {_PROGRAMS}"
    ),
]
_BASE, _IMAGE = "localhost/tailrace-tests-base", "localhost/tailrace-tests"
#: The user of the image.
_USER = 10001
#: Without systemd, and for a root that may not raise limits.
_ENGINE = ("podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs")
_LIMITS = ("--ulimit", "nofile=1024:4096", "--ulimit", "nproc=4096:4096")
#: Authorities of this machine's own, and its settings of pip: without them, nothing can be downloaded.
_AUTHORITIES, _PIP = Path("/usr/local/share/ca-certificates"), Path("/etc/pip.conf")


def _podman(*arguments: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*_ENGINE, *arguments], capture_output=True, text=True, check=False, timeout=1500, **options
    )
    assert not check or done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


@pytest.fixture(scope="module")
def image() -> str:
    """The image, built; what it is built from is kept for the next time."""
    if built := os.environ.get("TAILRACE_TEST_IMAGE"):
        return built
    if _podman("image", "exists", _BASE, check=False).returncode:
        packages = "--include=python3,python3-venv,ca-certificates"
        sources = sorted(map(str, Path("/etc/apt").glob("sources.list"))) or sorted(
            map(str, Path("/etc/apt/sources.list.d").glob("debian.sources"))
        )
        hooks = [f"copy-in {_AUTHORITIES} {_AUTHORITIES.parent}", 'chroot "$1" update-ca-certificates']
        hooks = [f"--customize-hook={hook}" for hook in hooks if _AUTHORITIES.is_dir()]
        system = subprocess.Popen(
            ["mmdebstrap", "--variant=minbase", packages, *hooks, "bookworm", "-", *sources],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        with system:
            _podman("import", "-", _BASE, stdin=system.stdout)
        assert system.returncode == 0
    # kernels are compiled once
    mounts = [f"--volume={cache_dir('image')}:/root/.cache/tailrace"]
    mounts += [f"--volume={_PIP}:{_PIP}:ro"] if _PIP.exists() else []
    build = ("build", "--isolation=chroot", "--network=host", "--format=docker", "--layers", *mounts)
    _podman(*build, f"--build-arg=BASE={_BASE}", f"--tag={_IMAGE}", str(ROOT))
    return _IMAGE


def _run(image: str, *command: str, options: tuple[str, ...] = (), check: bool = True) -> Any:
    locked = ("--read-only", "--tmpfs=/tmp:exec", "--cap-drop=all", "--security-opt=no-new-privileges")
    return _podman(
        *("run", "--rm", "--network=host", *_LIMITS, *locked, *options, image, *command), check=check
    )


def test_image_has_the_version_and_no_compiler(image: str) -> None:
    assert _run(image, "--version").stdout.startswith("tailrace, version ")
    looks = (
        "command -v gcc cc ld as clang zig pip uv; python3 -c 'import numba' 2>&1; id -u; java -version 2>&1"
    )
    found = _run(image, "-c", looks, options=("--entrypoint=sh",), check=False).stdout.splitlines()
    assert "No module named 'numba'" in "".join(found)
    assert str(_USER) in found
    assert not [line for line in found if line.startswith("/")], found
    assert any('"17.' in line for line in found)


def test_archive_of_classes_is_that_of_the_images_own_spark(image: str) -> None:
    """Its name depends on the times of Spark's jars, which layers of an image keep by the second."""
    script = "from tailrace.spark.archive import archive_options; print(archive_options()[0])"
    said = _run(image, "-c", script, options=("--entrypoint=python3",)).stdout
    assert said.startswith("-XX:SharedArchiveFile=/opt/tailrace-cache/classes/")


@pytest.fixture
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A volume of the image's user."""
    directory = tmp_path_factory.mktemp("image")
    for path in (directory, *directory.parents):
        if path == Path("/tmp"):
            break
        path.chmod(0o755)
    os.chown(directory, _USER, _USER)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def test_pipeline_runs_with_a_root_that_is_read_only(image: str, mysql, database: str, data: Path) -> None:
    mysql.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, name VARCHAR(9))",
        f"INSERT INTO {database}.t VALUES (1, 'one'), (2, 'two')",
    )
    pipeline = data / "shop.yaml"
    pipeline.write_text(
        yaml.safe_dump(
            {
                "source": {
                    "url": mysql.url,
                    "username": mysql.user,
                    "password": "${env:SHOP}",
                    "tables": rf"{database}\.t",
                },
                "sink": {"type": "delta", "path": "/var/lib/tailrace/lake"},
                "pipeline": {"checkpoint": "/var/lib/tailrace/checkpoint", "trigger": "available-now"},
            }
        )
    )
    pipeline.chmod(0o644)
    options = (
        f"--env=SHOP={mysql.password}",
        f"--volume={data}:/var/lib/tailrace",
        "--memory=4g",
        "--cpus=2",
    )
    done = _run(image, "run", "/var/lib/tailrace/shop.yaml", options=options, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = polars.read_delta(str(data / "lake" / f"{database}.t"))
    assert sorted(rows.select("id", "name").rows()) == [(1, "one"), (2, "two")]


def test_server_answers_is_healthy_and_ends_on_sigterm(image: str, data: Path) -> None:
    port = free_port()
    name = f"tailrace-tests-{port}"
    command = ("serve", "--data-dir=/var/lib/tailrace/data", f"--listen=0.0.0.0:{port}", "--plain-http")
    health = f"--health-cmd=python3 -c \"import urllib.request as u; u.urlopen('http://127.0.0.1:{port}/healthz')\""
    _podman(
        *(
            "run",
            "--detach",
            f"--name={name}",
            "--network=host",
            *_LIMITS,
            "--read-only",
            "--tmpfs=/tmp:exec",
        ),
        *("--memory=4g", health, f"--volume={data}:/var/lib/tailrace", image, *command),
    )
    try:

        def said() -> str:
            return _podman("logs", name).stdout

        wait_until(lambda: "answers at" in said(), 60, said)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
            assert answer.status == 200
        _podman("healthcheck", "run", name)
        assert "runs up to 1 pipelines" in said()  # of the container's memory, not of the machine's
        assert "sign in with the token tr_" in said()
        _podman("stop", "--time=60", name)
        state = _podman("inspect", "--format={{.State.ExitCode}} {{.State.OOMKilled}}", name).stdout.split()
        assert state == ["0", "false"]
    finally:
        _podman("rm", "--force", name)
