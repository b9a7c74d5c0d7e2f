"""MySQL servers: `mysqld` from PATH, else Debian's packages.

Set up for capture (row images and metadata FULL, GTIDs on) and for a quick start: a data directory is
initialised once per version and copied for each server, which then generates a new uuid and sets a random
password for root. With this password one can read and write files only in one empty directory, and only as
the user that runs the server: see `account`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pymysql
from pymysql.connections import Connection

from tailrace.private import write_private
from tailrace_dev.servers import debian
from tailrace_dev.servers.account import Account
from tailrace_dev.servers.launch import Starter, as_arguments, copy_template, with_defaults
from tailrace_dev.servers.program import Program, run, version_on_path
from tailrace_dev.servers.server import DevServer

#: Debian's packages by suite; the first suite is preferred.
_PACKAGES = {"sid": ("mysql-server-core", "mysql-client-core")}

#: Default settings of MySQL and MariaDB.
COMMON_DEFAULTS = {
    "bind_address": "127.0.0.1",
    "server_id": "1",
    "log_bin": "binlog",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "local_infile": "ON",
    # Fast, and still safe against SIGKILL: commits are written, but not forced to the disk.
    "sync_binlog": "0",
    "innodb_flush_log_at_trx_commit": "2",
    "innodb_buffer_pool_size": "268435456",
    "innodb_buffer_pool_load_at_startup": "OFF",
    "innodb_buffer_pool_dump_at_shutdown": "OFF",
}
#: Default settings of MySQL.
DEFAULTS = {
    **COMMON_DEFAULTS,
    "mysqlx": "OFF",
    "gtid_mode": "ON",
    "enforce_gtid_consistency": "ON",
    "innodb_redo_log_capacity": "536870912",
}

#: Options that only initialisation can set: each combination has its own template.
_AT_INITIALISE = ("lower_case_table_names", "innodb_page_size", "innodb_data_file_path")


class MySqlProtocolServer(DevServer):
    """A server that PyMySQL connects to: MySQL or MariaDB."""

    scheme = "mysql"
    user = "root"

    def connect(self, **options: Any) -> Connection[Any]:
        """A connection of root with autocommit; `options` override the arguments of `pymysql.connect`."""
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
        """Run statements one after the other as root; returns the last one's rows."""
        rows: list[tuple[Any, ...]] = []
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        return rows

    def start(self) -> Self:
        """See `DevServer.start`; a new server's root has its password before it accepts connections."""
        super().start()
        self._first_statements.unlink(missing_ok=True)
        return self

    def prepare(self, settings: Mapping[str, str]) -> list[str]:
        """Create a new server's files, next to its data directory; returns the arguments to run with."""
        files = self.private / "files"
        files.mkdir(mode=0o700)
        temporary = self.private / "tmp"  # a MariaDB that starts removes the others' files from a shared one
        temporary.mkdir(mode=0o700)
        write_private(
            self._first_statements,
            "SET SESSION sql_log_bin = 0;\n"
            f"ALTER USER '{self.user}'@'localhost' IDENTIFIED BY '{self.password}';\n",
        )
        self.hand_over()
        return [
            *as_arguments({"secure_file_priv": str(files), **settings}),
            f"--datadir={self.data}",
            f"--tmpdir={temporary}",
            f"--port={self.port}",
            # Relative to the data directory: the full path may be longer than the limit for sockets.
            "--socket=server.sock",
            "--pid-file=server.pid",
        ]

    @property
    def _first_statements(self) -> Path:
        return self.private / "first.sql"

    def _command(self) -> list[str]:
        first = self._first_statements
        return [*super()._command(), *([f"--init-file={first}"] if first.exists() else [])]

    def _probe(self) -> str | None:
        try:
            self.connect(connect_timeout=2).close()
        except pymysql.err.OperationalError as error:
            return str(error.args[-1])
        return None


class MySqlServer(MySqlProtocolServer):
    """A MySQL server; its administrator is `root`."""

    product = "mysql"


def _prepare(server: MySqlServer, program: Program, options: Mapping[str, str]) -> list[str]:
    settings = with_defaults(DEFAULTS, options)
    initial = {name: value for name, value in settings.items() if name in _AT_INITIALISE}
    names = ["mysql", program.version, *(f"{k}={v}" for k, v in sorted(initial.items()))]
    key = re.sub(r"[^\w.=-]", "_", "-".join(names))
    copy_template(key, lambda new: _initialise(program, new, initial, server.state.run_as), server)
    return server.prepare(settings)


def _initialise(program: Program, data: Path, settings: Mapping[str, str], run_as: Account | None) -> None:
    small = {**settings, "innodb_redo_log_capacity": "8388608", "log_bin": "binlog"}
    run(
        [*program.command, "--initialize-insecure", f"--datadir={data}", *as_arguments(small)],
        f"MySQL {program.version} could not create its data directory",
        run_as=run_as,
    )
    # Every copy generates its own uuid and begins a new log.
    for leftover in [data / "auto.cnf", *data.glob("binlog.*")]:
        leftover.unlink(missing_ok=True)


def mysql_program(version: str | None) -> Program:
    """A mysqld that runs here.

    Raises:
        TailraceError: none is available.
    """
    seen: list[str] = []
    found = version_on_path("mysqld", r"Ver (\d+\.\d+\.\d+)(?!\S*MariaDB)", version, seen)
    if found:
        return Program([found[0], "--no-defaults"], found[1])
    root = debian.first_with("MySQL", "mysqld", _PACKAGES, version, seen)
    return unpacked_program(root, "usr/sbin/mysqld", root.path / "usr/share/mysql")


def unpacked_program(root: debian.PackageRoot, binary: str, share: Path) -> Program:
    """The server `binary` in unpacked packages, with its data files in `share`."""
    usr = root.path / "usr"
    paths = [
        f"--basedir={usr}",
        f"--plugin-dir={usr / 'lib/mysql/plugin'}",
        f"--lc-messages-dir={share}",
        f"--character-sets-dir={share / 'charsets'}",
    ]
    return Program([*root.command(binary), "--no-defaults", *paths], root.version, share)


start_mysql = Starter(MySqlServer, mysql_program, _prepare)
