"""Debian packages without root: apt-get with its own state, unpacked into a private root directory.

All directories that apt-get writes to are in the cache, and its list of installed packages is empty, so it
downloads a package with all dependencies down to libc. `dpkg -x` unpacks them into one directory, and
programs run by that root's own dynamic loader: nothing of the machine's system is used or changed.

Mirror, key and any proxy are those of the machine's apt configuration; only the suite differs.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tailrace.cache import cache_dir, locked
from tailrace.errors import TailraceError
from tailrace_dev.servers.account import reachable
from tailrace_dev.servers.program import matches, run, unavailable

#: Whatever the machine's own configuration allows: no package without the archive's signature.
SIGNED = frozenset(
    {
        "APT::Get::AllowUnauthenticated=false",
        "Acquire::AllowInsecureRepositories=false",
        "Acquire::AllowDowngradeToInsecureRepositories=false",
        "Acquire::AllowWeakRepositories=false",
    }
)
_OS_RELEASE = Path("/etc/os-release")
_APT = Path("/etc/apt")


@dataclass(frozen=True)
class PackageRoot:
    """Unpacked packages.

    Args:
        path: the private root directory.
        version: upstream version of the requested package, e.g. `9.7.4`.
    """

    path: Path
    version: str

    def command(self, program: str) -> list[str]:
        """The beginning of a command line that runs `program`, a path below the root: `usr/sbin/mysqld`."""
        loader = next(iter(sorted(self.path.glob("**/ld-linux*.so.[0-9]"))), None)
        if loader is None:
            raise TailraceError(
                f"no dynamic loader under `{self.path}`", hint="delete it and try again", code="TR-9004"
            )
        libraries = [str(loader.parent)]
        for directory in sorted(p for p in self.path.glob("**/lib/**/") if p.is_dir()):
            if directory.name in (loader.parent.name, "private") and str(directory) not in libraries:
                libraries.append(str(directory))
        return [
            str(loader),
            "--library-path",
            ":".join(libraries),
            str(self.path / program),
        ]


def available() -> bool:
    """Whether this machine can download Debian packages."""
    return bool(shutil.which("apt-get") and shutil.which("dpkg") and _archive())


def first_with(
    product: str,
    binary: str,
    packages: Mapping[str, tuple[str, ...]],
    version: str | None,
    seen: list[str],
) -> PackageRoot:
    """The packages of the first suite that has a version of a server.

    Args:
        product: the server's name, for the error.
        binary: its program.
        packages: see `unpack`, by suite.
        version: leading part of the requested version; None: any.
        seen: what was found elsewhere, for the error.

    Raises:
        TailraceError: no suite has it.
    """
    if not available():
        raise unavailable(
            product, binary, version, [*seen, "this machine has no apt-get with a Debian mirror"]
        )
    for suite, names in packages.items():
        root = unpack(suite, names, version)
        if root is not None:
            return root
        seen = [*seen, f"Debian's {suite} has another version"]
    raise unavailable(product, binary, version, seen)


def unpack(
    suite: str, packages: tuple[str, ...], version: str | None = None, architecture: str | None = None
) -> PackageRoot | None:
    """Packages of a suite with their dependencies, unpacked into the cache at first use.

    Args:
        suite: e.g. `sid`.
        packages: names; the first one's version is the version of the whole.
        version: leading part of the requested upstream version, e.g. `10.11`; None: any.
        architecture: Debian's name of another machine's, e.g. `arm64`; None: this machine's.

    Returns:
        The root, readable for servers; None when the suite has another version.

    Raises:
        TailraceError: apt-get failed; with the end of its output.
    """
    state = f"{suite}-{architecture}" if architecture else suite
    root = cache_dir("debian", state) / packages[0]
    stamp = root / ".version"
    with locked(f"debian-{state}"):
        if not stamp.exists():
            apt = _Apt(suite, state, architecture)
            apt.update()
            found = apt.version(packages[0])
            if found is None or not matches(found, version):
                return None
            shutil.rmtree(root, ignore_errors=True)
            unpacked = root.with_suffix(".new")
            shutil.rmtree(unpacked, ignore_errors=True)
            for archive in apt.download(packages):
                run(["dpkg", "-x", str(archive), str(unpacked)], f"`{archive.name}` could not be unpacked")
                archive.unlink()
            (unpacked / ".version").write_text(found, encoding="utf-8")
            unpacked.rename(root)
        found = stamp.read_text(encoding="utf-8")
    if not matches(found, version):
        return None
    return PackageRoot(reachable(root, f"debian-{state}-{packages[0]}-{found}"), found)


class _Apt:
    """apt-get and apt-cache with a private state for one suite."""

    def __init__(self, suite: str, state: str, architecture: str | None) -> None:
        self._suite = suite
        self._directory = cache_dir("debian", state, "apt")
        for name in ("state/lists/partial", "cache/archives/partial"):
            (self._directory / name).mkdir(parents=True, exist_ok=True)
        status = self._directory / "status"
        status.touch()
        sources = self._directory / "mirror.sources"
        archive = _archive()
        if archive is None:
            raise TailraceError(
                "this machine's apt configuration has no mirror of its own release",
                f"searched sources.list and sources.list.d in {_APT}",
                "install the server yourself so that it is on PATH",
                code="TR-9004",
            )
        stanza = f"Types: deb\nURIs: {archive.uri}\nSuites: {suite}\nComponents: main\n"
        if archive.signed_by:
            stanza += f"Signed-By: {archive.signed_by}\n"
        sources.write_text(stanza, encoding="utf-8")
        self._options = [
            f"Dir::State={self._directory / 'state'}",
            f"Dir::State::status={status}",
            f"Dir::Cache={self._directory / 'cache'}",
            f"Dir::Etc::sourcelist={sources}",
            "Dir::Etc::sourceparts=-",
            "Dir::Etc::preferencesparts=-",
            "Acquire::Languages=none",
            "Acquire::PDiffs=false",
            "Acquire::Retries=3",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
            "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false",
            "APT::Install-Recommends=false",
            *sorted(SIGNED),
        ]
        if architecture:
            self._options += [f"APT::Architecture={architecture}", f"APT::Architectures={architecture}"]
        if os.getuid() == 0:
            # apt's own unprivileged user could not write into this user's cache.
            self._options.append("APT::Sandbox::User=root")

    def update(self) -> None:
        self._call("apt-get", "update")

    def version(self, package: str) -> str | None:
        """The suite's upstream version of `package`."""
        candidate = re.search(
            r"^ +Candidate: (?:\d+:)?(\d+(?:\.\d+)+)", self._call("apt-cache", "policy", package), re.M
        )
        return candidate[1] if candidate else None

    def download(self, packages: tuple[str, ...]) -> list[Path]:
        archives = self._directory / "cache" / "archives"
        for old in archives.glob("*.deb"):
            old.unlink()
        self._call("apt-get", "--yes", "--download-only", "install", *packages)
        return sorted(archives.glob("*.deb"))

    def _call(self, program: str, *arguments: str) -> str:
        options = [part for option in self._options for part in ("-o", option)]
        return run(
            [program, *options, *arguments],
            f"Debian's packages of {self._suite} could not be downloaded",
            {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
        )


@dataclass(frozen=True)
class _Entry:
    """One repository of apt's configuration."""

    uri: str
    suites: list[str]
    components: list[str]
    signed_by: str


def _archive() -> _Entry | None:
    """The archive of this machine's own Debian release, as apt's configuration names it."""
    release = _OS_RELEASE.read_text(encoding="utf-8") if _OS_RELEASE.exists() else ""
    codename = re.search(r"^VERSION_CODENAME=\W?(\w+)", release, re.M)
    if not re.search(r"^ID=\W?debian\b", release, re.M):
        return None
    suites = {"stable", "testing", "unstable", "sid", *([codename[1]] if codename else [])}
    directory = _APT / "sources.list.d"
    entries: list[_Entry] = []
    for file in [_APT / "sources.list", *sorted(directory.glob("*.list"))]:
        if file.is_file():
            entries += _lines(file.read_text(encoding="utf-8"))
    for file in sorted(directory.glob("*.sources")):
        entries += _stanzas(file.read_text(encoding="utf-8"))
    for entry in entries:
        # Other vendors' repositories also use Debian's names of suites, but have keys of their own.
        ours = not entry.signed_by or Path(entry.signed_by).name.startswith("debian-archive")
        if ours and "main" in entry.components and suites & set(entry.suites):
            return entry
    return None


def _stanzas(text: str) -> list[_Entry]:
    """Entries of a deb822 file (`man sources.list`)."""
    entries: list[_Entry] = []
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", text):
        fields = {
            name.lower(): value.strip()
            for name, value in re.findall(r"^([\w-]+):((?:.*)(?:\n[ \t].*)*)", stanza, re.M)
        }
        if "deb" in fields.get("types", "").split() and fields.get("enabled", "yes").lower() != "no":
            suites, components = (fields.get(name, "").split() for name in ("suites", "components"))
            key = fields.get("signed-by", "")
            entries += [_Entry(uri, suites, components, key) for uri in fields.get("uris", "").split()]
    return entries


def _lines(text: str) -> list[_Entry]:
    """Entries of a one-line file (`man sources.list`)."""
    entries = []
    for match in re.finditer(r"^\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+(.*)", text, re.M):
        key = re.search(r"signed-by=(\S+)", match[1] or "")
        components = match[4].partition("#")[0].split()
        entries.append(_Entry(match[2], [match[3]], components, key[1] if key else ""))
    return entries
