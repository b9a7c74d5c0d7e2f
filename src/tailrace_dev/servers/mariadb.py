"""MariaDB servers: `mariadbd` from PATH, else Debian's packages.

The data directory is created as `mariadb-install-db` does, by feeding the server's own scripts to
`mariadbd --bootstrap`; the program itself is not used, as it requires a system installation.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tailrace.errors import TailraceError
from tailrace_dev.servers import debian
from tailrace_dev.servers.account import Account
from tailrace_dev.servers.launch import Starter, copy_template, with_defaults
from tailrace_dev.servers.mysql import COMMON_DEFAULTS, MySqlProtocolServer, unpacked_program
from tailrace_dev.servers.program import Program, run, version_on_path

#: Debian's packages by suite; the first suite is preferred, the others have older versions.
_PACKAGES = dict.fromkeys(("sid", "bookworm"), ("mariadb-server-core",))

#: Default settings of a server.
DEFAULTS = {
    **COMMON_DEFAULTS,
    "gtid_strict_mode": "ON",
    "log_slave_updates": "ON",
    "character_set_server": "utf8mb4",
}

#: Scripts that create the system tables, in order; in older versions their names begin with `mysql_`.
_SCRIPTS = ("system_tables.sql", "performance_tables.sql", "system_tables_data.sql")


class MariaDbServer(MySqlProtocolServer):
    """A MariaDB server; its administrator is `root`."""

    product = "mariadb"
    scheme = "mariadb"


def _prepare(server: MariaDbServer, program: Program, options: Mapping[str, str]) -> list[str]:
    run_as = server.state.run_as
    key = f"mariadb-{program.version}-one-root"
    copy_template(key, lambda new: _initialise(program, new, run_as), server)
    return server.prepare(with_defaults(DEFAULTS, options))


def _initialise(program: Program, data: Path, run_as: Account | None) -> None:
    assert program.share is not None
    script = [
        "CREATE DATABASE mysql;",
        "USE mysql;",
        # root logs in by a password and not by the operating system's user.
        "SET @auth_root_socket = NULL;",
        "SET @skip_auth_anonymous = 1;",
    ]
    for name in _SCRIPTS:
        file = next(
            (
                p
                for p in (program.share / f"{prefix}_{name}" for prefix in ("mariadb", "mysql"))
                if p.exists()
            ),
            None,
        )
        if file is None:
            raise TailraceError(
                f"MariaDB {program.version} is incomplete",
                f"no `{name}` in {program.share}",
                "install the package that holds `mariadb-install-db`",
                code="TR-9004",
            )
        script.append(file.read_text(encoding="utf-8"))
    # the scripts create others for this host's names, which would have no password
    script.append("DELETE FROM mysql.global_priv WHERE user = 'root' AND host <> 'localhost';")
    run(
        [*program.command, "--bootstrap", f"--datadir={data}", "--innodb-log-file-size=8M"],
        f"MariaDB {program.version} could not create its data directory",
        text="\n".join(script),
        run_as=run_as,
        directory=data.parent,
    )


def mariadb_program(version: str | None) -> Program:
    """A mariadbd that runs here.

    Raises:
        TailraceError: none is available.
    """
    seen: list[str] = []
    found = version_on_path("mariadbd", r"Ver (\d+\.\d+\.\d+)\S*MariaDB", version, seen)
    if found:
        usr = Path(found[0]).resolve().parents[1]
        return Program([found[0], "--no-defaults"], found[1], _share(usr))
    root = debian.first_with("MariaDB", "mariadbd", _PACKAGES, version, seen)
    return unpacked_program(root, "usr/sbin/mariadbd", _share(root.path / "usr"))


def _share(usr: Path) -> Path:
    mariadb = usr / "share" / "mariadb"
    return mariadb if (mariadb / "mariadb_system_tables.sql").exists() else usr / "share" / "mysql"


start_mariadb = Starter(MariaDbServer, mariadb_program, _prepare)
