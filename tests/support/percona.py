"""pt-online-schema-change of Debian's percona-toolkit, with a perl of its own."""

from __future__ import annotations

from pathlib import Path

from tailrace_dev.servers import debian
from tailrace_dev.servers.mysql import MySqlProtocolServer
from tailrace_dev.servers.program import run

#: Bookworm's: its client library logs in to all servers of the tests.
_SUITE, _PACKAGES = "bookworm", ("percona-toolkit",)
_MODULES = (
    "usr/lib/*/perl5/5*",
    "usr/share/perl5",
    "usr/lib/*/perl/5*",
    "usr/share/perl/5*",
    "usr/lib/*/perl-base",
)
#: Helps against what newer servers do not have: SHOW SLAVE STATUS, and checks that ask for it.
_SETTINGS = ("--recursion-method=none", "--no-check-replication-filters", "--no-version-check")


def alter(server: MySqlProtocolServer, table: str, change: str, directory: Path, **settings: str) -> None:
    """Run pt-online-schema-change.

    Args:
        server: MySQL or MariaDB.
        table: `database.table`.
        change: what follows ALTER TABLE and the name.
        directory: for its option file.
        settings: more of its options, e.g. `chunk_size`.
    """
    root = debian.unpack(_SUITE, _PACKAGES)
    assert root is not None
    modules = [f"-I{path}" for pattern in _MODULES for path in sorted(root.path.glob(pattern))]
    plugins = next(root.path.glob("usr/lib/*/libmariadb3/plugin"))
    options = directory / "pt.cnf"
    options.write_text(
        f"[client]\nhost=127.0.0.1\nport={server.port}\nuser={server.user}\npassword={server.password}\n"
        f"plugin-dir={plugins}\n",
        encoding="utf-8",
    )
    database, _, name = table.partition(".")
    run(
        [
            *root.command("usr/bin/perl"),
            *modules,
            str(root.path / "usr/bin/pt-online-schema-change"),
            *_SETTINGS,
            *(f"--{key.replace('_', '-')}={value}" for key, value in settings.items()),
            f"--alter={change}",
            "--execute",
            f"F={options},D={database},t={name}",
        ],
        "pt-online-schema-change failed",
    )
