"""MySQL servers: `mysqld` from PATH, else Debian's packages.

Set up for capture (row images and metadata FULL, GTIDs on) and for a quick start: a data directory
is initialised once per version and copied for each server, which then gives itself a new uuid.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pymysql
from pymysql.connections import Connection

from tailrace.devservers import debian, registry
from tailrace.devservers.cache import cache_dir, locked
from tailrace.devservers.server import DevServer, ServerState, as_arguments
from tailrace.errors import TailraceError

#: Where packages come from, by suite.
_PACKAGES = {"sid": ("mysql-server-core", "mysql-client-core")}

#: What a server runs with unless the caller says otherwise.
DEFAULTS = {
    "bind_address": "127.0.0.1",
    "mysqlx": "OFF",
    "server_id": "1",
    "log_bin": "binlog",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "gtid_mode": "ON",
    "enforce_gtid_consistency": "ON",
    "local_infile": "ON",
    # Quick, and still safe against SIGKILL: all is written at commit, only not forced to the disk.
    "sync_binlog": "0",
    "innodb_flush_log_at_trx_commit": "2",
    "innodb_buffer_pool_size": "268435456",
    "innodb_redo_log_capacity": "536870912",
    "innodb_buffer_pool_load_at_startup": "OFF",
    "innodb_buffer_pool_dump_at_shutdown": "OFF",
    "secure_file_priv": "",
}

#: Options that only `--initialize` may set: each set of them has its own template.
_AT_INITIALISE = ("lower_case_table_names", "innodb_page_size", "innodb_data_file_path")


class MySqlConnections:
    """Connections by PyMySQL, as MySQL and MariaDB servers give them."""

    host: str
    port: int
    user: str
    password: str

    def connect(self, **options: Any) -> Connection[Any]:
        """A connection of root with autocommit; `options` go to `pymysql.connect` and win."""
        return pymysql.connect(
            **{
                "host": self.host,
                "port": self.port,
                "user": self.user,
                "password": self.password,
                "autocommit": True,
                "charset": "utf8mb4",
                **options,
            }
        )

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Runs statements one after the other as root; returns the last one's rows."""
        rows: list[tuple[Any, ...]] = []
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        return rows

    def _probe(self) -> str | None:
        try:
            self.connect(connect_timeout=2).close()
        except pymysql.err.OperationalError as error:
            return str(error.args[-1])
        return None


class MySqlServer(MySqlConnections, DevServer):
    """A MySQL server of one's own; `root` without a password."""

    product = "mysql"
    scheme = "mysql"
    user = "root"


def start_mysql(
    version: str | None = None,
    port: int | None = None,
    options: Mapping[str, str] | None = None,
    *,
    detached: bool = False,
) -> MySqlServer:
    """Starts a new, empty MySQL server.

    Args:
        version: leading part of the version wanted, e.g. `9.7`; None: whichever can be had.
        port: TCP port on 127.0.0.1; None: a free one.
        options: server variables over DEFAULTS, e.g. `{"binlog_row_image": "MINIMAL"}`.
        detached: whether it outlives this process.

    Returns:
        The running server. As a context manager it is removed at the end of the block.

    Raises:
        TailraceError: no such server can be had here, or it does not start.
    """
    registry.servers({"mysql": MySqlServer})
    program = _program(version)
    chosen = {**DEFAULTS, **{k.replace("-", "_"): v for k, v in (options or {}).items()}}
    name, port, directory = registry.claim("mysql", port)
    data = directory / "data"
    try:
        _copy_template(program, {k: v for k, v in chosen.items() if k in _AT_INITIALISE}, data)
        arguments = as_arguments(chosen) + [
            f"--datadir={data}",
            f"--port={port}",
            # Relative to the data directory: a path in full may be longer than a socket's can be.
            "--socket=mysql.sock",
            f"--pid-file={data / 'mysql.pid'}",
        ]
        state = ServerState(
            name=name,
            product="mysql",
            version=program.version,
            port=port,
            command=[*program.command, *arguments],
            data=str(data),
            owner=None if detached else os.getpid(),
        )
        return MySqlServer(state).start()
    except BaseException:
        # The log goes with the directory only when there is none to read.
        if not (directory / "log").exists():
            shutil.rmtree(directory, ignore_errors=True)
        raise


class _Program:
    """A mysqld that can be run.

    Args:
        command: command line up to the settings.
        version: e.g. `9.7.4`.
    """

    def __init__(self, command: list[str], version: str) -> None:
        self.command = command
        self.version = version


def _program(version: str | None) -> _Program:
    on_path = shutil.which("mysqld")
    as_user = ["--user=root"] if os.getuid() == 0 else []
    seen = []
    if on_path:
        said = subprocess.run([on_path, "--version"], capture_output=True, text=True, check=False).stdout
        number = re.search(r"\d+\.\d+\.\d+", said)
        if number and "MariaDB" not in said and debian.matches(number[0], version):
            return _Program([on_path, "--no-defaults", *as_user], number[0])
        seen.append(f"`{on_path}` is {number[0] if number else 'of no known version'}")
    if debian.available():
        for suite, packages in _PACKAGES.items():
            root = debian.unpack(suite, packages, version)
            if root:
                usr = root.path / "usr"
                paths = [
                    f"--basedir={usr}",
                    f"--plugin-dir={usr / 'lib/mysql/plugin'}",
                    f"--lc-messages-dir={usr / 'share/mysql'}",
                    f"--character-sets-dir={usr / 'share/mysql/charsets'}",
                ]
                command = [*root.command("usr/sbin/mysqld"), "--no-defaults", *as_user, *paths]
                return _Program(command, root.version)
            seen.append(f"Debian's {suite} has another version")
    else:
        seen.append("this machine has no apt-get with a Debian mirror")
    raise unavailable("MySQL", "mysqld", version, seen)


def unavailable(product: str, binary: str, version: str | None, seen: list[str]) -> TailraceError:
    """The error for a server that cannot be had here."""
    return TailraceError(
        f"no {product} server{' ' + version if version else ''} can be had on this machine",
        "; ".join(seen),
        f"install one so that `{binary}` is on PATH, or use a server that runs elsewhere: give its address "
        "by option `url`",
    )


def _copy_template(program: _Program, options: Mapping[str, str], data: Path) -> None:
    """Makes `data` a copy of an initialised data directory, which is made at first use."""
    key = "-".join(["mysql", program.version, *(f"{k}={v}" for k, v in sorted(options.items()))])
    template = cache_dir("templates") / re.sub(r"[^\w.=-]", "_", key)
    with locked("templates"):
        if not template.exists():
            new = template.with_name(template.name + ".new")
            shutil.rmtree(new, ignore_errors=True)
            settings = {**options, "innodb_redo_log_capacity": "8388608", "log_bin": "binlog"}
            done = subprocess.run(
                [*program.command, "--initialize-insecure", f"--datadir={new}", *as_arguments(settings)],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                shutil.rmtree(new, ignore_errors=True)
                raise TailraceError(
                    f"MySQL {program.version} could not make its data directory",
                    " | ".join((done.stderr + done.stdout).strip().splitlines()[-5:]),
                )
            # Every copy makes its own uuid; its log begins anew.
            for leftover in [new / "auto.cnf", *new.glob("binlog.*")]:
                leftover.unlink(missing_ok=True)
            new.rename(template)
    shutil.copytree(template, data)
