"""Development servers: the user that runs them, access to them and to their passwords."""

from __future__ import annotations

import json
import os
import pwd
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pymysql
import pytest
from click.testing import CliRunner
from pg8000.exceptions import DatabaseError

from tailrace.cache import cache_dir
from tailrace.errors import TailraceError
from tailrace_dev.servers import account, registry
from tailrace_dev.servers.commands import dev
from tailrace_dev.servers.server import DevServer, ServerState
from tests.support.replication import postgres_of, standby_of

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at /proc")

DATABASES = ["mysql", "mariadb", "postgres"]


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Any:
    """One of the shared servers."""
    return request.getfixturevalue(request.param)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def processes_of(server: DevServer) -> Iterator[Path]:
    """The server's process and its children."""
    yield Path(f"/proc/{server.state.pid}")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == server.state.pid:
            yield process


def shown_of(process: Path) -> bytes:
    """The command line and the environment of a process, b"" once it has ended."""
    try:
        return (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def listening(pid: int) -> set[str]:
    """The addresses that a process listens on, as /proc writes them."""
    sockets = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(str(file.readlink()).removeprefix("socket:[").removesuffix("]"))
        except OSError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                found.add(fields[1].rpartition(":")[0])
    return found


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.mark.skipif(os.getuid() != 0, reason="run by root only")
@pytest.mark.parametrize("server", [*DATABASES, "kafka", "registry"], indirect=True)
def test_server_of_root_runs_as_nobody(server: DevServer) -> None:
    status = Path(f"/proc/{server.state.pid}/status").read_text()
    nobody = pwd.getpwnam("nobody")
    assert re.search(rf"^Uid:(\t{nobody.pw_uid}){{4}}$", status, re.M)
    assert re.search(rf"^Gid:(\t{nobody.pw_gid}){{4}}$", status, re.M)
    assert re.search(r"^Groups:\t *$", status, re.M)
    assert mode(server.private) == 0o700


@pytest.mark.parametrize("server", [*DATABASES, "kafka", "registry"], indirect=True)
def test_server_listens_on_loopback_only(server: DevServer) -> None:
    found = listening(server.state.pid)
    assert found
    assert found <= LOOPBACK


@pytest.mark.parametrize("server", DATABASES, indirect=True)
def test_password_is_in_one_file_that_only_its_owner_reads(server: DevServer) -> None:
    assert len(server.password) >= 32
    assert mode(server.password_file) == 0o600
    assert mode(server.directory) == 0o700
    for file in server.directory.iterdir():
        if file.is_file():
            assert mode(file) == 0o600, file
            assert file == server.password_file or server.password.encode() not in file.read_bytes()
    for file in server.private.iterdir():
        assert not file.is_file() or server.password.encode() not in file.read_bytes(), file


@pytest.mark.parametrize("server", DATABASES, indirect=True)
def test_password_is_in_no_command_line_and_no_environment(
    server: DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown_of(Path(f"/proc/{server.state.pid}"))
    for process in processes_of(server):
        assert server.password.encode() not in shown_of(process)


def test_servers_get_no_secrets_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    assert "hush" not in account.environment().values()
    assert "PATH" in account.environment()


@pytest.mark.parametrize("server", ["mysql", "mariadb"], indirect=True)
@pytest.mark.parametrize("password", ["", "wrong"])
def test_nobody_signs_in_to_mysql_without_the_password(server: Any, password: str) -> None:
    with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
        server.connect(password=password)
    users = server.execute("SELECT user, host FROM mysql.user WHERE user IN ('root', '')")
    assert users == [("root", "localhost")]


@pytest.mark.parametrize("replication", [None, "database", "true"])
def test_nobody_signs_in_to_postgresql_without_the_password(postgres: Any, replication: str | None) -> None:
    with pytest.raises(DatabaseError, match="28P01"):
        postgres.connect(password="wrong", replication=replication)
    rules = postgres.execute("SELECT DISTINCT auth_method FROM pg_hba_file_rules")
    assert rules == [["scram-sha-256"]]


@pytest.mark.parametrize("server", ["mysql", "mariadb"], indirect=True)
def test_files_of_others_cannot_be_read_by_sql(server: Any) -> None:
    assert server.execute("SELECT LOAD_FILE('/etc/passwd')") == [(None,)]
    with pytest.raises(pymysql.err.OperationalError, match="secure-file-priv"):
        server.execute("SELECT 1 INTO OUTFILE '/tmp/tailrace-test-outfile'")
    ((where,),) = server.execute("SELECT @@secure_file_priv")
    assert list(Path(where).iterdir()) == []


def test_standby_has_its_password_from_a_file(tmp_path: Path) -> None:
    with postgres_of("18") as primary, standby_of(primary) as standby:
        password = primary.password.encode()
        for process in (*processes_of(primary), *processes_of(standby)):
            assert password not in shown_of(process)
        assert password not in (standby.data / "postgresql.auto.conf").read_bytes()
        assert mode(standby.private / "pgpass") == 0o600
        assert standby.execute("SELECT pg_is_in_recovery()") == [[True]]


def test_start_and_list_name_the_password_s_file_and_not_the_password() -> None:
    started = CliRunner().invoke(dev, ["start", "mysql"], catch_exceptions=False).output
    name = started.partition(":")[0]
    try:
        file = cache_dir("run") / name / "password"
        listed = CliRunner().invoke(dev, ["list"], catch_exceptions=False).output
        for said in (started, listed):
            assert f"${{file:{file}}}" in said
            assert file.read_text() not in said
        assert "user: root" in started
    finally:
        CliRunner().invoke(dev, ["stop", name], catch_exceptions=False)


def test_server_that_an_earlier_version_started_is_listed_and_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path))
    directory = tmp_path / "run" / "mysql-43121"
    (directory / "data").mkdir(parents=True)
    code = "import time; time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code, str(directory / "data")])
    state = {
        "name": "mysql-43121",
        "product": "mysql",
        "version": "9.7.4",
        "port": 43121,
        "command": [sys.executable, "-c", code, str(directory / "data")],
        "data": str(directory / "data"),
        "pid": process.pid,
        "owner": None,
        "run_as": None,
        "environment": {},
        "v": 1,
    }
    (directory / "server.json").write_text(json.dumps(state, indent=1))
    try:
        listed = CliRunner().invoke(dev, ["list"], catch_exceptions=False).output
        assert listed.startswith("mysql-43121  9.7.4  mysql://127.0.0.1:43121  running  ")
        assert "password" not in listed
        (found,) = registry.states()
        assert asdict(found) == state
    finally:
        process.terminate()
        process.wait()
    stopped = CliRunner().invoke(dev, ["stop", "mysql-43121"], catch_exceptions=False).output
    assert "mysql-43121: stopped" in stopped
    assert not directory.exists()


class _Sleeper(DevServer):
    product = "sleeper"
    scheme = "none"
    user = ""

    def _probe(self) -> str | None:
        return None


def test_program_that_its_user_cannot_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path))
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    (tmp_path / "data").mkdir()
    state = ServerState("sleeper-1", "sleeper", "1", 1, [str(program)], str(tmp_path / "data"))
    with pytest.raises(TailraceError, match="cannot be started") as refused:
        _Sleeper(state).start()
    assert str(program) in refused.value.detail


@pytest.mark.skipif(os.getuid() != 0, reason="root makes the copies")
def test_programs_are_not_run_from_a_directory_that_others_can_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs").chmod(0o777)
    monkeypatch.setattr(account, "_PROGRAMS", tmp_path / "programs")
    (tmp_path / "file").touch()
    with pytest.raises(TailraceError, match="is not safe"):
        account.reachable(tmp_path / "file", "file-1")


@pytest.mark.skipif(os.getuid() != 0, reason="root makes the copies")
def test_copy_of_programs_can_be_read_but_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "_PROGRAMS", tmp_path / "programs")
    original = tmp_path / "original"
    (original / "bin").mkdir(parents=True, mode=0o700)
    program = original / "bin" / "program"
    program.write_text("x")
    program.chmod(0o770)
    (original / "link").symlink_to(program)
    copy = account.reachable(original, "original-1")
    assert copy == tmp_path / "programs" / "original-1"
    assert {mode(copy), mode(copy / "bin"), mode(copy / "bin" / "program")} == {0o755}
    assert (copy / "link").readlink() == copy / "bin" / "program"
    assert account.reachable(original, "original-1") == copy
