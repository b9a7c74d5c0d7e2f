"""References to providers of secrets: programs, and entry points of installed packages."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.config import secret_providers
from tailrace.config.load import parse_pipeline
from tailrace.config.secret import Secret, references, resolve_all
from tailrace.control.policy import Policy
from tailrace.control.secrets import require_references
from tailrace.errors import ConfigError

SPEC = """\
source: {url: 'mysql://db.example/shop', user: u, password: 'PASSWORD', tables: 'a.b'}
sink: {type: delta, path: /data/lake}
"""


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    secret_providers.forget()
    yield
    secret_providers.forget()


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Path]:
    def make(script: str) -> Path:
        file = tmp_path / "get-secret"
        file.write_text(f"#!/bin/sh\necho called >> {tmp_path}/calls\n{script}\n")
        file.chmod(0o700)
        return file

    return make


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with the providers `safe` and `env`."""
    (tmp_path / "safe_secrets.py").write_text(
        "from tailrace.config.secret_providers import ProvidedSecret\n"
        "class Safe:\n"
        "    calls = 0\n"
        "    def read(self, path):\n"
        "        if path == 'broken':\n"
        "            raise KeyError('hunter2 is not to be shown')\n"
        "        Safe.calls += 1\n"
        "        return ProvidedSecret({'user': 'ann', 'password': f'of {path} {Safe.calls}'}, 0.2)\n"
    )
    described = tmp_path / "safe_secrets-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: safe-secrets\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(
        "[tailrace.secrets]\nsafe = safe_secrets:Safe\nenv = safe_secrets:Safe\ngone = nowhere:Gone\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


def test_program_prints_a_secret(program: Callable[[str], Path], tmp_path: Path) -> None:
    file = program('printf "%s\\n" "for $1"')
    assert Secret(f"${{exec:{file} shop/reader}}").resolve() == "for shop/reader"
    assert Secret(f"a-${{exec:{file} x}}-b").resolve() == "a-for x-b"
    assert Secret(f"${{exec:{file} shop/reader}}").resolve() == "for shop/reader"
    assert (tmp_path / "calls").read_text().count("called") == 2, "kept for a while"
    assert resolve_all({"sasl.password": f"${{exec:{file}}}"}, "sink.properties") == {"sasl.password": "for "}


def test_program_prints_an_object(program: Callable[[str], Path], tmp_path: Path) -> None:
    file = program("""echo '{"user": "ann", "password": "p#1", "port": 5}'""")
    assert Secret(f"${{exec:{file}#password}}").resolve() == "p#1"
    assert Secret(f"${{exec:{file}#user}}").resolve() == "ann"
    assert (tmp_path / "calls").read_text().count("called") == 1, "one answer has both"
    for key in ("port", "other"):
        with pytest.raises(ConfigError) as refused:
            Secret(f"${{exec:{file}#{key}}}").resolve("`source.password`")
        assert refused.value.code == "TR-8477"


@pytest.mark.parametrize(
    "script", ["echo hunter2; echo hunter2 >&2; exit 3", "printf 'hunter2\\377'", "head -c 2000000 /dev/zero"]
)
def test_program_that_fails_tells_nothing(script: str, program: Callable[[str], Path]) -> None:
    with pytest.raises(ConfigError) as refused:
        Secret(f"${{exec:{program(script)}}}").resolve("`source.password`")
    assert refused.value.code == "TR-8477"
    assert refused.value.message.startswith("`source.password`")
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


@pytest.mark.parametrize(
    "path",
    ["cat /etc/hostname", "/bin/cat -n", "/bin/sh -c id", "/bin/cat a b", "/bin/../bin/id", "/etc/hostname"],
)
def test_program_is_a_file_with_one_word(path: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Secret(f"${{exec:{path}}}").resolve()
    assert refused.value.code == "TR-8477"


def test_no_shell_reads_the_word(program: Callable[[str], Path], tmp_path: Path) -> None:
    file = program('printf "%s" "$1"')
    for word in ("$(touch x)", "`id`", "a;id", "a&b", "*"):
        with pytest.raises((ConfigError, ValueError)):
            Secret(f"${{exec:{file} {word}}}").resolve()
    assert not (tmp_path / "calls").exists()


@pytest.mark.usefixtures("package")
def test_installed_package_offers_a_provider() -> None:
    assert references("${safe:a#user} ${unknown:b}") == [("safe", "a#user")]
    assert Secret("${safe:db/shop#user}").resolve() == "ann"
    first = Secret("${safe:db/shop#password}").resolve()
    assert first == "of db/shop 1"
    time.sleep(0.25)
    assert Secret("${safe:db/shop#password}").resolve() == "of db/shop 2", "it is asked again"
    for wrong in ("${safe:broken#x}", "${safe:db/shop}", "${gone:x}"):
        with pytest.raises(ConfigError) as refused:
            Secret(wrong).resolve()
        assert refused.value.code == "TR-8477"
        assert "hunter2" not in str(refused.value)


@pytest.mark.usefixtures("package")
def test_package_cannot_take_the_place_of_variables() -> None:
    os.environ["TAILRACE_SECRET_X"] = "of the variable"
    assert Secret("${env:TAILRACE_SECRET_X}").resolve() == "of the variable"
    del os.environ["TAILRACE_SECRET_X"]


def test_provider_that_is_not_installed_is_named() -> None:
    with pytest.raises(ConfigError) as refused:
        Secret("${vualt:db/shop#password}").resolve("`source.password`")
    assert refused.value.code == "TR-8476"
    assert "db/shop" not in str(refused.value)
    # Spark's own, and what only looks like one
    for text in ("${system:user.home}", "pa${x:y}ss", "${spark:x}"):
        assert Secret(text).resolve() == text


@pytest.mark.usefixtures("package")
def test_control_plane_keeps_the_reference_and_asks_the_policy(tmp_path: Path) -> None:
    spec = SPEC.replace("PASSWORD", "${safe:team/shop#password}")
    require_references(spec)
    pipeline = parse_pipeline(spec, default_name="shop")
    assert "team/shop" not in repr(pipeline)
    for pattern, allowed in (("safe:team/*", True), ("safe:other/*", False), ("*", True)):
        policy = Policy(paths=["/data"], hosts=["*"], providers=[pattern], look_up=lambda _: ())
        if allowed:
            policy.require(spec, tmp_path)
        else:
            with pytest.raises(ConfigError) as refused:
                policy.require(spec, tmp_path)
            assert refused.value.code == "TR-8435"
    for path in ("team/../other/shop", "team/%2e%2e/other"):
        with pytest.raises(ConfigError):
            policy.require(SPEC.replace("PASSWORD", f"${{safe:{path}}}"), tmp_path)
