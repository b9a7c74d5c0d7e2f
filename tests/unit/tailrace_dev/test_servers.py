"""Finding servers and packages: what needs no server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tailrace.cache import cache_dir
from tailrace.errors import TailraceError
from tailrace_dev.servers import debian, registry
from tailrace_dev.servers.program import matches, unavailable
from tailrace_dev.servers.server import DevServer, ServerState

_OS = 'PRETTY_NAME="Debian"\nID=debian\nVERSION_CODENAME=bookworm\n'
_STANZA = """\
# a comment
Types: deb
# another, inside the stanza
URIs: http://mirror.test/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""

_SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "os-release").write_text(_OS)
    (tmp_path / "apt" / "sources.list.d").mkdir(parents=True)
    monkeypatch.setattr(debian, "_OS_RELEASE", tmp_path / "os-release")
    monkeypatch.setattr(debian, "_APT", tmp_path / "apt")
    return tmp_path / "apt"


def test_version_matches_by_whole_numbers() -> None:
    assert matches("10.11.14", "10.11")
    assert matches("9.7.4", None)
    assert not matches("10.11.14", "10.1")


def test_mirror_is_read_from_stanzas_with_comments(apt: Path) -> None:
    (apt / "sources.list.d" / "debian.sources").write_text(_STANZA)
    archive = debian._archive()
    assert archive is not None
    assert archive.uri == "http://mirror.test/debian"
    assert archive.signed_by == "/usr/share/keyrings/debian-archive-keyring.gpg"


def test_mirror_is_read_from_one_line_files(apt: Path) -> None:
    (apt / "sources.list").write_text(
        "deb-src http://source.test/debian bookworm main\ndeb http://mirror.test/debian bookworm main # x\n"
    )
    archive = debian._archive()
    assert archive is not None
    assert archive.uri == "http://mirror.test/debian"


def test_other_vendors_and_disabled_repositories_are_no_mirror(apt: Path) -> None:
    (apt / "sources.list.d" / "a.list").write_text(
        "deb [signed-by=/usr/share/keyrings/vendor.gpg] http://vendor.test/repo stable main\n"
        "deb http://vendor.test/other bookworm-vendor main\n"
    )
    (apt / "sources.list.d" / "b.sources").write_text(_STANZA + "Enabled: no\n")
    assert debian._archive() is None


def test_other_distributions_have_no_debian_mirror(apt: Path) -> None:
    (apt.parent / "os-release").write_text(_OS.replace("ID=debian", "ID=ubuntu"))
    (apt / "sources.list.d" / "debian.sources").write_text(_STANZA)
    assert not debian.available()


def test_error_for_a_missing_server_says_what_was_seen_and_what_to_do() -> None:
    error = unavailable(
        "MySQL", "mysqld", "5.7", ["`mysqld` is not on PATH", "Debian's sid has another version"]
    )
    assert error.message == "no MySQL server 5.7 is available on this machine"
    assert error.detail == "`mysqld` is not on PATH; Debian's sid has another version"
    assert error.hint is not None
    assert error.hint.startswith("install one so that `mysqld` is on PATH")


class _Server(DevServer):
    product = "sleeper"
    scheme = "none"
    user = "nobody"

    def _probe(self) -> str | None:
        return None


def _state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int | None, command: list[str]
) -> ServerState:
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path / "cache"))
    name, port, directory = registry.claim("sleeper", None)
    (directory / "data").mkdir()
    return ServerState(
        name, "sleeper", "1", port, [*command, str(directory / "data")], str(directory / "data"), owner=owner
    )


def test_server_is_found_by_other_processes_until_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = _state(tmp_path, monkeypatch, None, _SLEEP)
    with _Server(state).start() as server:
        (found,) = registry.states()
        other = _Server(found)
        assert other.running
        other.stop()
        assert not server.running
        server.start()
        assert server.running
    assert registry.states() == []
    assert not server.directory.exists()


def test_server_of_a_dead_process_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No process has a number beyond the kernel's limit.
    state = _state(tmp_path, monkeypatch, 1 << 30, _SLEEP)
    server = _Server(state).start()
    registry.remove_orphans()
    assert not server.running
    assert registry.states() == []


def test_error_of_a_server_that_ends_names_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = _state(tmp_path, monkeypatch, None, ["sh", "-c", "echo the disk is full; exit 3"])
    monkeypatch.setattr(_Server, "_probe", lambda self: "no")
    with pytest.raises(TailraceError, match="ended while it started") as caught:
        _Server(state).start()
    assert caught.value.detail == "its log ends with: the disk is full"
    assert caught.value.hint == f"see {cache_dir('run') / state.name / 'log'}"


def test_port_that_is_taken_by_a_server_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = _state(tmp_path, monkeypatch, None, [])
    with pytest.raises(TailraceError, match="already exists"):
        registry.claim("sleeper", state.port)
