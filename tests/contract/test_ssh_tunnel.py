"""Connections through an SSH server: MySQL, MariaDB and PostgreSQL, the driver and tasks."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.config.options import SourceOptions, parse_options
from tailrace.errors import ConfigError, SourceError, TransientSourceError
from tailrace.sources.mysql.binlog.dump import DumpStream
from tailrace.sources.mysql.connection import connect as connect_mysql
from tailrace.sources.mysql.connection import one, retrying
from tailrace.sources.postgres.connection import connect as connect_postgres
from tailrace.sources.route import reach
from tailrace_dev.servers.server import free_port
from tests.support.sshd import SshServer, make_key
from tests.support.wait import wait_until


@pytest.fixture(scope="module")
def sshd() -> Iterator[SshServer]:
    with SshServer() as server:
        yield server


def given(server: Any, sshd: SshServer, **more: str) -> dict[str, str]:
    database = "/postgres" if server.scheme == "postgresql" else ""
    return {
        "url": f"{server.scheme}://{server.host}:{server.port}{database}",
        "user": server.user,
        "password": server.password,
        "tables": "a.b",
        **sshd.options(**more),
    }


def options(server: Any, sshd: SshServer, **more: str) -> SourceOptions:
    return parse_options(given(server, sshd, **more))


def ended(sshd: SshServer) -> None:
    wait_until(lambda: not sshd.tunnels(), 10, "the end of the programs ssh")


@pytest.mark.parametrize(
    ("product", "tls"),
    [
        ("mysql", "disabled"),
        ("mysql", "required"),
        pytest.param("mariadb", "disabled", marks=pytest.mark.slow),
    ],
)
def test_connection_goes_through_the_ssh_server(
    request: pytest.FixtureRequest, sshd: SshServer, product: str, tls: str
) -> None:
    server = request.getfixturevalue(product)
    before = sshd.logins()
    connection = connect_mysql(options(server, sshd, tlsMode=tls), purpose="a test")
    with connection.cursor() as cursor:
        cursor.execute("SELECT REPEAT('x', 3000000)")
        assert len(one(cursor)[0]) == 3_000_000
    assert connection.is_encrypted is (tls == "required")
    assert (sshd.logins(), len(sshd.tunnels())) == (before + 1, 1)
    connection.close()
    ended(sshd)


def test_connection_to_postgres_goes_through_the_ssh_server(postgres: Any, sshd: SshServer) -> None:
    before = sshd.logins()
    with connect_postgres(options(postgres, sshd), purpose="a test") as connection:
        assert connection.value("SELECT length(repeat('x', 3000000))") == 3_000_000
        assert sshd.logins() == before + 1
    ended(sshd)


def test_statement_of_postgres_is_cancelled_through_the_ssh_server(postgres: Any, sshd: SshServer) -> None:
    import threading

    connection = connect_postgres(options(postgres, sshd), purpose="a test")
    failures: list[Exception] = []

    def sleep() -> None:
        try:
            connection.rows("SELECT pg_sleep(60)")
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    thread = threading.Thread(target=sleep)
    thread.start()
    running = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)' AND state = 'active'"
    postgres.wait_until(running, lambda count: count == 1)
    connection.cancel()
    thread.join(20)
    assert not thread.is_alive()
    assert "57014" in str(failures[0])
    connection.close()
    ended(sshd)


def test_log_is_read_through_the_ssh_server_and_broken_off(mysql: Any, sshd: SshServer) -> None:
    file = mysql.execute("SHOW BINARY LOGS")[0][0]
    stream = DumpStream(options(mysql, sshd), file, 4, blocking=True)
    blocks = stream.blocks()
    assert next(blocks)
    assert len(sshd.tunnels()) == 1
    stream.close()
    blocks.close()
    ended(sshd)


_HOLDS = """
import sys
from tailrace.config.options import parse_options
from tailrace.sources.{product}.connection import connect
connections = [connect(parse_options(eval(sys.argv[1])), purpose="a test") for _ in range(3)]
print("there", flush=True)
if "{product}" == "mysql":
    connections[0].cursor().execute("SELECT SLEEP(60)")
else:
    connections[0].rows("SELECT generate_series(1, 1000000000)")
"""


@pytest.mark.parametrize("product", ["mysql", pytest.param("postgres", marks=pytest.mark.slow)])
def test_tunnels_end_with_a_process_that_is_killed(
    request: pytest.FixtureRequest, sshd: SshServer, product: str
) -> None:
    server = request.getfixturevalue(product)
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDS.format(product=product), repr(given(server, sshd))],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"there\n"
            assert len(sshd.tunnels()) == 3
        finally:
            os.kill(process.pid, signal.SIGKILL)
    ended(sshd)


def test_connection_is_made_again_when_the_ssh_server_is_back(mysql: Any) -> None:
    with SshServer() as sshd:
        of_source = options(mysql, sshd, retryTimeoutMs="20000")
        connection = connect_mysql(of_source, purpose="a test")
        sshd.stop()
        with pytest.raises(TransientSourceError) as lost, closing(connection):
            retrying(
                options(mysql, sshd, retryTimeoutMs="1"),
                lambda: connection.cursor().execute("SELECT 1"),
                "asking",
            )
        assert lost.value.code == "TR-3001"
        with pytest.raises(TransientSourceError, match="the SSH server cannot be reached") as away:
            connect_mysql(of_source, purpose="a test")
        assert away.value.code == "TR-3032"
        assert "Connection refused" in str(away.value.detail)
        sshd.start()
        connect_mysql(of_source, purpose="a test").close()


# ---- what is refused ----


def refused(server: Any, sshd: SshServer, kind: type[Exception] = SourceError, **more: str) -> Any:
    connect = connect_postgres if server.scheme == "postgresql" else connect_mysql
    before = sshd.logins()
    with pytest.raises(kind) as caught:
        connect(options(server, sshd, **more), purpose="a test")
    assert "through the SSH server" in str(caught.value) or kind is ConfigError
    ended(sshd)
    return caught.value, sshd.logins() - before


@pytest.mark.parametrize("product", ["mysql", "postgres"])
def test_host_key_that_is_unknown_or_another_is_refused(
    request: pytest.FixtureRequest, sshd: SshServer, product: str, tmp_path: Path
) -> None:
    server = request.getfixturevalue(product)
    known = tmp_path / "known hosts 100%"
    known.write_text("")
    error, logins = refused(server, sshd, sshKnownHostsFile=str(known))
    assert (error.code, error.retryable, logins) == ("TR-3033", False, 0)
    assert f"ssh-keyscan -p {sshd.port} 127.0.0.1" in error.hint
    assert str(known) in error.hint
    make_key(tmp_path / "other")
    known.write_text(f"[127.0.0.1]:{sshd.port} {(tmp_path / 'other.pub').read_text()}")
    error, logins = refused(server, sshd, sshKnownHostsFile=str(known))
    assert (error.code, logins) == ("TR-3033", 0)
    known.write_text(sshd.known_hosts.read_text())
    assert reach(options(server, sshd, sshKnownHostsFile=str(known))) == ""


def test_key_that_the_server_does_not_know_is_refused(mysql: Any, sshd: SshServer, tmp_path: Path) -> None:
    make_key(tmp_path / "other")
    error, logins = refused(mysql, sshd, sshKeyFile=str(tmp_path / "other"))
    assert (error.code, error.retryable, logins) == ("TR-3034", False, 0)
    assert "Permission denied" in error.detail
    error, _ = refused(mysql, sshd, ConfigError, sshKeyFile=str(tmp_path / "none"))
    assert error.code == "TR-1102"


def test_key_with_a_passphrase_is_refused_and_nothing_asked(
    mysql: Any, sshd: SshServer, tmp_path: Path
) -> None:
    key = tmp_path / "locked"
    key.write_bytes(sshd.key.read_bytes())
    key.chmod(0o600)
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-N", "a phrase", "-f", str(key)], check=True, capture_output=True
    )
    error, _ = refused(mysql, sshd, sshKeyFile=str(key))
    assert error.code == "TR-3034"


def test_forwarding_that_the_ssh_server_forbids_is_told(mysql: Any) -> None:
    with SshServer("PermitOpen 127.0.0.1:1") as sshd:
        error, _ = refused(mysql, sshd)
    assert (error.code, error.retryable) == ("TR-3035", False)


@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
def test_database_that_the_ssh_server_does_not_reach_is_told(
    mysql: Any, postgres: Any, sshd: SshServer, scheme: str
) -> None:
    server = mysql if scheme == "mysql" else postgres
    url = f"{scheme}://127.0.0.1:{free_port()}/postgres"
    error, _ = refused(server, sshd, TransientSourceError, url=url)
    assert error.code == "TR-3037"
    assert "Connection refused" in error.detail
    assert "Connection refused" in reach(options(server, sshd, url=url))


def test_database_that_refuses_the_password_is_not_taken_for_the_tunnel(mysql: Any, sshd: SshServer) -> None:
    with pytest.raises(SourceError) as caught:
        connect_mysql(options(mysql, sshd, password="wrong"), purpose="a test")
    assert caught.value.code == "TR-3101"


def test_program_that_is_missing_is_named(
    mysql: Any, sshd: SshServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if (setpriv := shutil.which("setpriv")) is not None:
        (tmp_path / "setpriv").symlink_to(setpriv)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="needs the program `ssh`") as caught:
        connect_mysql(options(mysql, sshd), purpose="a test")
    assert caught.value.code == "TR-3031"


def test_program_gets_no_secret_of_the_environment(
    mysql: Any, sshd: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_PASSWORD", mysql.password)
    connection = connect_mysql(options(mysql, sshd, password="${env:DB_PASSWORD}"), purpose="a test")
    (pid,) = sshd.tunnels()
    process = Path("/proc") / str(pid)
    assert (
        mysql.password.encode() not in (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
    )
    connection.close()


def test_tasks_go_through_the_ssh_server(mysql: Any, database: str, sshd: SshServer, spark: Any) -> None:
    rows = ", ".join(f"({i}, 'v')" for i in range(3000))
    mysql.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v TEXT)", f"INSERT INTO {database}.t VALUES {rows}"
    )
    logins, connections = sshd.logins(), _connections(mysql)
    read = spark.read.format("tailrace").options(
        **given(mysql, sshd, tables=re.escape(f"{database}.t"), snapshotChunkRows="1000")
    )
    assert read.load().count() == 3000
    # each connection to the server came through the tunnel; one more is the one that counts
    assert sshd.logins() - logins == _connections(mysql) - connections - 1 >= 3
    ended(sshd)


def _connections(mysql: Any) -> int:
    return int(mysql.execute("SHOW GLOBAL STATUS LIKE 'Connections'")[0][1])
