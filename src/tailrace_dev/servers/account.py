"""The user that servers run as when root starts them, and the files that this user can reach.

A server's administrator can access the files of the user that runs the server. So no server runs as root:
those that root starts run as `nobody`, who can enter neither root's home nor root's cache.

    <temporary files>/tailrace-data-*/    one server's data: the user's own, mode 0700
    /var/cache/tailrace/                  programs, root's: linked or copied from the cache

Other users run servers as themselves, with everything in the cache.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from tailrace.errors import TailraceError

#: User and group id.
Account = tuple[int, int]

_NAME = "nobody"
_PROGRAMS = Path("/var/cache/tailrace")
#: Begins the names of directories that hold only one server's data.
PRIVATE_PREFIX = "tailrace-data-"
#: Environment variables that a server gets; others may hold secrets, which the server's user could read.
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")


def unprivileged() -> Account | None:
    """The account to run servers as; None: the current user, who is not root.

    Raises:
        TailraceError: this machine has no such user.
    """
    if os.getuid() != 0:
        return None
    try:
        found = pwd.getpwnam(_NAME)
    except KeyError:
        raise TailraceError(
            "no user to run the server as",
            f"servers do not run as root, and this machine has no user `{_NAME}`",
            "start it as another user",
            code="TR-9003",
        ) from None
    return found.pw_uid, found.pw_gid


def environment() -> dict[str, str]:
    """The environment variables that a server gets."""
    return {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}


def private_directory() -> Path:
    """A new directory that every account can reach and only ours can enter, until another one owns it."""
    return Path(tempfile.mkdtemp(prefix=PRIVATE_PREFIX))


def give(path: Path, account: Account | None) -> None:
    """Make `account` the owner of `path` and all below it; only for what root alone could write to before."""
    if account is None:
        return
    for directory, names, files in os.walk(path):
        for name in (*names, *files):
            os.chown(Path(directory) / name, *account, follow_symlinks=False)
    os.chown(path, *account)


def append(path: Path, text: str, account: Account | None) -> None:
    """Append to a file in a directory of `account`, as that user: links in it grant no other access."""
    user, group = account or (None, None)
    subprocess.run(
        ["/bin/sh", "-c", 'umask 077; cat >> "$1"', "sh", str(path)],
        input=text,
        text=True,
        check=True,
        user=user,
        group=group,
        extra_groups=None if group is None else [],
    )


def reachable(path: Path, name: str) -> Path:
    """Program files that servers can read.

    Args:
        path: a file or directory.
        name: names the content, with its version.

    Returns:
        `path`, or for root a copy in a directory of root's that everyone can read.

    Raises:
        TailraceError: there is no safe directory for the copy.
    """
    if unprivileged() is None:
        return path
    target = _programs() / name
    if not target.exists():
        made = Path(tempfile.mkdtemp(dir=_programs(), prefix=f".{name}-"))
        try:
            _copy(path, made / name, target)
            try:
                (made / name).rename(target)
            except OSError:
                if not target.exists():
                    raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return target


def writable_directory(path: Path) -> Path:
    """A directory that servers share: `path`, or for root one that the servers' user owns."""
    account = unprivileged()
    if account is None:
        return path
    directory = _programs() / path.name
    is_new = not directory.exists()
    directory.mkdir(mode=0o700, exist_ok=True)
    if is_new:
        os.chown(directory, *account)
    return directory


def _programs() -> Path:
    try:
        _PROGRAMS.mkdir(mode=0o755, parents=True)
        _PROGRAMS.chmod(0o755)  # whatever the umask
    except FileExistsError:
        pass
    except OSError as error:
        raise TailraceError(
            f"directory `{_PROGRAMS}` cannot be created",
            f"{error.strerror}; root's servers run as `{_NAME}`, who reads their programs from it",
            "start the server as another user",
            code="TR-9003",
        ) from None
    found = _PROGRAMS.lstat()
    if found.st_uid != 0 or found.st_mode & 0o022 or not stat.S_ISDIR(found.st_mode):
        raise TailraceError(
            f"directory `{_PROGRAMS}` is not safe",
            "programs are run from it, and users other than root can write to it",
            f"remove {_PROGRAMS}",
            code="TR-9003",
        )
    return _PROGRAMS


def _copy(path: Path, target: Path, final: Path) -> None:
    """Copy `path` to `target`, by hard links where possible, readable for everyone; `target` becomes `final`.

    Absolute symbolic links into `path` point into `final` instead.
    """
    if path.is_file():
        _link(str(path), str(target))
        _open_up(target)
        return
    shutil.copytree(path, target, symlinks=True, copy_function=_link)
    target.chmod(0o755)
    for found in target.rglob("*"):
        if not found.is_symlink():
            _open_up(found)
        elif (aim := found.readlink()).is_relative_to(path):
            found.unlink()
            found.symlink_to(final / aim.relative_to(path))


def _open_up(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    path.chmod((mode | 0o444 | (0o111 if mode & 0o100 else 0)) & ~0o022)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system
        shutil.copy2(source, target, follow_symlinks=False)
