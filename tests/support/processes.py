"""The system's information about running processes: children, command lines, sockets."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_LISTENS = "0A"


def with_children(pid: int) -> list[int]:
    """The process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                stat = (entry / "stat").read_text()
                parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def command_line(pid: int) -> str:
    """The public information about how it was started."""
    with suppress(OSError):
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def modules(pid: int) -> list[str]:
    """The modules that Python processes below a process were started with; forks of another are left out."""
    names = {one: command_line(one).partition(" -m ")[2].strip() for one in with_children(pid)}
    parents = {child: one for one in names for child in with_children(one)[1:]}
    return sorted(name for one, name in names.items() if name and names.get(parents.get(one, 0)) != name)


def listening(pids: list[int]) -> set[tuple[str, int]]:
    """Addresses and ports of the processes' listening TCP sockets."""
    inodes = set()
    for pid in pids:
        with suppress(OSError):
            for descriptor in (_PROC / str(pid) / "fd").iterdir():
                with suppress(OSError):
                    inodes.add(str(descriptor.readlink()))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in (_PROC / "self" / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS and f"socket:[{fields[9]}]" in inodes:
                address, _, port = fields[1].partition(":")
                found.add((_address(address), int(port, 16)))
    return found


def _address(text: str) -> str:
    words = bytes.fromhex(text)
    packed = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
    address = ipaddress.ip_address(packed)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
