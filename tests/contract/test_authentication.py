"""Every method of authentication on real servers: who gets in, and what is refused with which error.

Servers that attack are in `tests/security`. Here, a man in the middle is tried on SCRAM's channel binding.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.config.options import SourceOptions, parse_options
from tailrace.errors import SourceError
from tailrace.sources.mysql.connection import connect as connect_mysql
from tailrace.sources.mysql.connection import one
from tailrace.sources.postgres.connection import connect as connect_postgres
from tailrace_dev.servers import MariaDbServer, account, debian
from tailrace_dev.servers import mariadb as mariadb_servers
from tailrace_dev.servers.launch import launch
from tailrace_dev.servers.mysql import unpacked_program
from tailrace_dev.servers.program import Program
from tests.support.certificates import Authority
from tests.support.listener import Line, Listener
from tests.support.postgres_with_tls import postgres_with_tls

#: With what no encoding but UTF-8 keeps.
PASSWORD = "pässword-'of-a-user"
QUOTED = PASSWORD.replace("'", "''")


def options(server: Any, **given: str) -> SourceOptions:
    database = "/postgres" if server.scheme == "postgresql" else ""
    return parse_options(
        {
            "url": f"{server.scheme}://{server.host}:{server.port}{database}",
            "user": "somebody",
            "password": PASSWORD,
            "tables": "a.b",
            "connectTimeoutMs": "30000",
            **given,
        }
    )


def enters(server: Any, **given: str) -> bool:
    """Connect; returns whether it was over TLS."""
    if server.scheme == "postgresql":
        with connect_postgres(options(server, **given), purpose="a test") as found:
            assert found.value("SELECT current_user::text") == "somebody"
            return found.is_encrypted
    connection = connect_mysql(options(server, **given), purpose="a test")
    with connection.cursor() as cursor:
        cursor.execute("SELECT SUBSTRING_INDEX(CURRENT_USER(), '@', 1)")
        assert one(cursor) == ("somebody",)
    encrypted: bool = connection.is_encrypted
    connection.close()
    return encrypted


def refused(server: Any, code: str, **given: str) -> str:
    """The text of the error of connecting."""
    connect = connect_postgres if server.scheme == "postgresql" else connect_mysql
    with pytest.raises(SourceError) as caught:
        connect(options(server, **given), purpose="a test")
    assert (caught.value.code, caught.value.retryable) == (code, False)
    assert PASSWORD not in str(caught.value)
    assert caught.value.hint
    return str(caught.value)


# ---- MySQL ----


@pytest.fixture
def user(mysql: Any) -> Iterator[Any]:
    """Makes the user `somebody` who is identified by the given words."""
    yield lambda words: mysql.execute(f"CREATE USER 'somebody'@'%' IDENTIFIED {words}", "FLUSH PRIVILEGES")
    mysql.execute("DROP USER IF EXISTS 'somebody'@'%'")


def test_password_that_the_server_has_cached_needs_neither_tls_nor_a_key(mysql: Any, user: Any) -> None:
    user(f"WITH caching_sha2_password BY '{QUOTED}'")
    assert "serverPublicKeyFile" in refused(mysql, "TR-3103", tlsMode="disabled")
    assert enters(mysql, tlsMode="required")
    assert not enters(mysql, tlsMode="disabled")  # the short form: a scramble
    # what does not fit the cached one is asked for in full
    refused(mysql, "TR-3103", tlsMode="disabled", password="wrong")
    refused(mysql, "TR-3101", tlsMode="required", password="wrong")
    mysql.execute("FLUSH PRIVILEGES")
    refused(mysql, "TR-3103", tlsMode="disabled")


def test_key_of_another_server_is_of_no_use(mysql: Any, user: Any, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    user(f"WITH caching_sha2_password BY '{QUOTED}'")
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    pinned = tmp_path / "key.pem"
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    pinned.write_bytes(other.public_bytes(serialization.Encoding.PEM, form))
    refused(mysql, "TR-3101", tlsMode="disabled", serverPublicKeyFile=str(pinned))
    own = str(mysql.data / "public_key.pem")
    assert not enters(mysql, tlsMode="disabled", serverPublicKeyFile=own)


def test_sha256_password_needs_tls_or_the_servers_key(mysql: Any, user: Any) -> None:
    user(f"WITH sha256_password BY '{QUOTED}'")
    own = str(mysql.data / "public_key.pem")
    assert enters(mysql, tlsMode="required")
    assert not enters(mysql, tlsMode="disabled", serverPublicKeyFile=own)
    assert not enters(mysql, tlsMode="disabled", allowPublicKeyRetrieval="true")
    assert "serverPublicKeyFile" in refused(mysql, "TR-3103", tlsMode="disabled")
    refused(mysql, "TR-3101", tlsMode="required", password="wrong")
    refused(mysql, "TR-3101", tlsMode="disabled", serverPublicKeyFile=own, password="wrong")


def test_native_password_is_a_scramble_on_any_connection(mariadb: Any) -> None:
    mariadb.execute(f"CREATE USER 'somebody'@'%' IDENTIFIED BY '{QUOTED}'")
    try:
        assert not enters(mariadb, tlsMode="disabled")
        assert enters(mariadb)
        refused(mariadb, "TR-3101", tlsMode="disabled", password="wrong")
        refused(mariadb, "TR-3101", tlsMode="disabled", password="")
    finally:
        mariadb.execute("DROP USER 'somebody'@'%'")


def test_user_who_must_show_a_certificate_is_let_in_with_one(mysql: Any, user: Any) -> None:
    user(f"BY '{QUOTED}' REQUIRE X509")
    certificate = {
        "tlsCert": str(mysql.data / "client-cert.pem"),
        "tlsKey": str(mysql.data / "client-key.pem"),
        "tlsCa": str(mysql.data / "ca.pem"),
    }
    assert enters(mysql, tlsMode="verify-ca", **certificate)
    refused(mysql, "TR-3101", tlsMode="required")


def test_user_without_a_password_is_let_in(mysql: Any, user: Any) -> None:
    user("BY ''")
    assert not enters(mysql, password="", tlsMode="disabled")
    refused(mysql, "TR-3101")


def test_method_that_only_the_server_has_is_named(mysql: Any, user: Any) -> None:
    mysql.execute("INSTALL PLUGIN auth_socket SONAME 'auth_socket.so'")
    try:
        user("WITH auth_socket")
        assert "refuses the user" in refused(mysql, "TR-3101")
    finally:
        mysql.execute("DROP USER IF EXISTS 'somebody'@'%'", "UNINSTALL PLUGIN auth_socket")


# ---- MariaDB ----

_PASSDB = "somebody:{password}:tailrace\n"


@pytest.fixture(scope="module")
def complete_mariadb() -> Iterator[MariaDbServer]:
    """A MariaDB server with all plugins, whose PAM has a service of its own, `tailrace`."""
    root = debian.unpack("sid", ("mariadb-server", "libpam-wrapper", "libpam-modules"))
    assert root is not None
    usr, directory = root.path / "usr", Path(tempfile.mkdtemp(prefix="tailrace-pam-"))
    lib = next(usr.glob("lib/*/libpam_wrapper.so")).parent
    rule = f"required {lib / 'pam_wrapper' / 'pam_matrix.so'} passdb={directory / 'users'}\n"
    (directory / "services").mkdir()
    (directory / "services" / "tailrace").write_text(f"auth {rule}account {rule}")
    (directory / "users").write_text(_PASSDB.format(password=PASSWORD))
    account.give(directory, account.unprivileged())
    program = unpacked_program(root, "usr/sbin/mariadbd", usr / "share" / "mariadb")
    loader, *arguments = program.command
    wrapped = [
        *("env", "PAM_WRAPPER=1", f"PAM_WRAPPER_SERVICE_DIR={directory / 'services'}"),
        *(loader, "--preload", str(lib / "libpam_wrapper.so"), *arguments),
    ]
    running = Program(wrapped, program.version, program.share)
    try:
        with launch(
            MariaDbServer,
            running,
            None,
            detached=False,
            prepare=lambda server: mariadb_servers._prepare(server, running, {}),
        ) as server:
            yield server
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def mariadb_user(complete_mariadb: MariaDbServer) -> Iterator[Any]:
    yield lambda words: complete_mariadb.execute(f"CREATE USER 'somebody'@'%' IDENTIFIED {words}")
    complete_mariadb.execute("DROP USER IF EXISTS 'somebody'@'%'")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "words"),
    [
        ("auth_ed25519", f"VIA ed25519 USING PASSWORD('{QUOTED}')"),
        ("auth_parsec", f"VIA parsec USING PASSWORD('{QUOTED}')"),
    ],
)
def test_mariadb_lets_in_by_a_scramble_or_signature(
    complete_mariadb: MariaDbServer, mariadb_user: Any, library: str, words: str
) -> None:
    complete_mariadb.execute(f"INSTALL SONAME '{library}'")
    mariadb_user(words)
    assert not enters(complete_mariadb, tlsMode="disabled")
    assert enters(complete_mariadb, tlsMode="required")
    refused(complete_mariadb, "TR-3101", tlsMode="disabled", password="wrong")


@pytest.mark.slow
@pytest.mark.parametrize("cleartext", ["OFF", "ON"])
def test_mariadb_gets_the_password_for_pam_over_tls_or_where_that_is_allowed(
    complete_mariadb: MariaDbServer, mariadb_user: Any, cleartext: str
) -> None:
    if not complete_mariadb.execute("SELECT 1 FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'pam'"):
        complete_mariadb.execute("INSTALL SONAME 'auth_pam_v1'")
    complete_mariadb.stop()
    complete_mariadb.state.command = [
        part for part in complete_mariadb.state.command if "pam_use_cleartext" not in part
    ] + [f"--pam_use_cleartext_plugin={cleartext}"]
    complete_mariadb.start()
    mariadb_user("VIA pam USING 'tailrace'")
    assert enters(complete_mariadb, tlsMode="required")
    refused(complete_mariadb, "TR-3101", tlsMode="required", password="wrong")
    text = refused(complete_mariadb, "TR-3103", tlsMode="disabled")
    assert "in clear text" in text
    assert not enters(complete_mariadb, tlsMode="disabled", allowCleartextPassword="true")


# ---- PostgreSQL ----


class Rules:
    """A PostgreSQL server with TLS whose pg_hba.conf has a line for the user `somebody`."""

    def __init__(self, server: Any, authority: Authority) -> None:
        self.server, self.authority = server, authority
        self._file = server.data / "pg_hba.conf"
        self.before = self._file.read_text()

    def set(self, line: str, encryption: str = "scram-sha-256") -> None:
        self.server.execute(
            f"SET password_encryption = '{encryption}'", f"ALTER ROLE somebody PASSWORD '{QUOTED}'"
        )
        self.write(f"{line}\n{self.before}")

    def write(self, text: str) -> None:
        self._file.write_text(text)
        loaded = self.server.execute("SELECT pg_conf_load_time()::text")
        self.server.execute("SELECT pg_reload_conf()")
        self.server.wait_until("SELECT pg_conf_load_time()::text", lambda at: [[at]] != loaded)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rules]:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    with postgres_with_tls() as server:
        for found, name in zip(authority.sign("server"), ("server.crt", "server.key"), strict=True):
            target = server.data / name
            shutil.copy(found, target)
            target.chmod(0o600)
            if server.state.run_as is not None:
                os.chown(target, *server.state.run_as)
        shutil.copy(authority.file, server.data / "root.crt")
        (server.data / "root.crt").chmod(0o644)
        server.execute(
            "CREATE ROLE somebody LOGIN",
            "ALTER SYSTEM SET ssl = on",
            "ALTER SYSTEM SET ssl_ca_file = 'root.crt'",
        )
        yield Rules(server, authority)


@pytest.mark.parametrize(
    ("method", "encryption"),
    [("scram-sha-256", "scram-sha-256"), ("md5", "md5"), ("md5", "scram-sha-256")],
)
def test_postgres_lets_in_by_a_scramble(rules: Rules, method: str, encryption: str) -> None:
    rules.set(f"host all somebody 127.0.0.1/32 {method}", encryption)
    assert not enters(rules.server, tlsMode="disabled")
    assert enters(rules.server)
    assert enters(rules.server, tlsMode="verify-identity", tlsCa=str(rules.authority.file))
    refused(rules.server, "TR-3101", tlsMode="disabled", password="wrong")
    refused(rules.server, "TR-3101", password="wrong")


def test_scram_is_bound_to_the_certificate(rules: Rules) -> None:
    """A man in the middle with a certificate of his own gets in between only where nothing is verified."""
    rules.set("hostssl all somebody 127.0.0.1/32 scram-sha-256")
    server = rules.server
    assert enters(server, tlsMode="required")
    with _in_the_middle(server, rules.authority) as middle:
        text = refused(
            server, "TR-3101", tlsMode="required", url=f"postgresql://{middle.host}:{middle.port}/postgres"
        )
    # the server's words: the client has named the other certificate
    assert "SCRAM" in text or "channel binding" in text


def _in_the_middle(server: Any, authority: Authority) -> Listener:
    cert, key = authority.sign("middle")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    def script(line: Line) -> None:
        request = line.receive(8)
        with socket.create_connection((server.host, server.port)) as plain:
            plain.sendall(request)
            assert plain.recv(1) == b"S"
            line.send(b"S")
            line.sock = context.wrap_socket(line.sock, server_side=True)
            with trusting.wrap_socket(plain) as behind:
                other = {line.sock: behind, behind: line.sock}
                while not line.stopping.is_set():
                    for sock in select.select(list(other), [], [], 0.05)[0]:
                        if not (piece := sock.recv(65536)):
                            return
                        other[sock].sendall(piece)

    return Listener(script)


def test_postgres_lets_in_by_a_certificate(rules: Rules) -> None:
    rules.set("hostssl all somebody 127.0.0.1/32 cert")
    given = {"tlsMode": "verify-identity", "tlsCa": str(rules.authority.file)}
    cert, key = map(str, rules.authority.sign("somebody"))
    assert enters(rules.server, tlsCert=cert, tlsKey=key, password="", **given)
    cert, key = map(str, rules.authority.sign("somebody-else"))
    refused(rules.server, "TR-3101", tlsCert=cert, tlsKey=key, password="", **given)
    refused(rules.server, "TR-3101", **given)


def test_postgres_gets_the_password_itself_over_tls_only(rules: Rules) -> None:
    rules.set("host all somebody 127.0.0.1/32 password")
    assert enters(rules.server, tlsMode="required")
    assert "in clear text" in refused(rules.server, "TR-3103", tlsMode="disabled")
    assert not enters(rules.server, tlsMode="disabled", allowCleartextPassword="true")
    refused(rules.server, "TR-3101", tlsMode="required", password="wrong")


def test_host_that_postgres_does_not_admit_is_told(rules: Rules) -> None:
    rules.set("host all somebody 127.0.0.1/32 reject")
    assert "pg_hba.conf" in refused(rules.server, "TR-3101")
