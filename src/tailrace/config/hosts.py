"""Which hosts a pipeline file may name: patterns, and addresses that none of them allows.

    db.example.com     that name                     10.1.0.0/16    names and addresses of that network
    *.example.com      all names below it            *              any

Addresses of the link (169.254.0.0/16, fe80::/10) are never allowed, nor those at which clouds serve the
credentials of their machines: whoever may create a pipeline would read them. A name is looked up for that,
so that it cannot stand for such an address; one that cannot be looked up now is looked up again when a worker
starts. What a name stands for may change after that: `host_guard` looks whenever a connection looks it up.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
#: Looks up the addresses of a name; none if it has none now.
LookUp = Callable[[str], Sequence[Address]]

#: Before `host_guard` guards it: who asks here judges what is found.
_look_up = socket.getaddrinfo
#: How long looking a name up may take, seconds.
_LOOK_UP_S = 3.0
_NEVER: Sequence[Network] = [
    ipaddress.ip_network(text)
    for text in (
        *("0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4"),
        *("::/128", "fe80::/10", "ff00::/8"),
        "fd00:ec2::/32",  # AWS, by IPv6
        "fd20:ce::/32",  # Google, by IPv6
        "100.100.100.200/32",  # Alibaba
        "192.0.0.192/32",  # Oracle
        "168.63.129.16/32",  # Azure
    )
]
#: IPv6 networks that hold IPv4 addresses, in their last 32 bits.
_HOLDING: Sequence[Network] = [
    ipaddress.ip_network(text) for text in ("::ffff:0:0/96", "::/96", "64:ff9b::/96", "64:ff9b:1::/48")
]
_6TO4 = ipaddress.ip_network("2002::/16")
_NAME = re.compile(r"(?!-)[A-Za-z0-9_.-]{1,253}")


def is_name(host: str) -> bool:
    """Whether a text can be the name or address of a host, without brackets."""
    return _address(host) is not None or _NAME.fullmatch(host) is not None


def is_loopback(host: str) -> bool:
    """Whether a name or address is this machine's alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def problem(host: str, patterns: Sequence[str], look_up: LookUp | None = None) -> str | None:
    """Why a host is not allowed; None: it is.

    Args:
        host: a name or an address, without brackets.
        patterns: see the module.
        look_up: looks up names; None: the machine's resolver.
    """
    host = host.rstrip(".").lower()
    own = _address(host)
    found = [own] if own is not None else list((look_up or resolver)(host))
    if any(map(_is_never, found)):
        return "it is an address of the link, or of the cloud's credentials, which no setting allows"
    networks = [network for network in map(_network, patterns) if network is not None]
    if found and networks and all(any(_plain(a) in network for network in networks) for a in found):
        return None
    if any(matches(host, pattern) for pattern in patterns):
        return None
    return "no --allow-host of the server names it"


def resolver(host: str) -> Sequence[Address]:
    """The addresses of a name by the machine's resolver; none if it does not answer in time."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="look-up")
    try:
        found = pool.submit(_look_up, host, None).result(_LOOK_UP_S)
    except (OSError, TimeoutError, UnicodeError):
        return []
    finally:
        pool.shutdown(wait=False)
    return addresses_of(found)


def addresses_of(found: Iterable[tuple[Any, ...]]) -> Sequence[Address]:
    """The addresses in what `socket.getaddrinfo` returns."""
    texts = {str(entry[4][0]).partition("%")[0] for entry in found}
    return [address for address in map(_address, sorted(texts)) if address is not None]


def is_address(host: str) -> bool:
    """Whether a host is an address, in whatever form the resolver reads."""
    return _address(host) is not None


def matches(host: str, pattern: str) -> bool:
    """Whether a pattern of names allows a host."""
    pattern = pattern.rstrip(".").lower()
    if pattern in ("*", host):
        return True
    return pattern.startswith("*.") and host.endswith(pattern[1:]) and len(host) > len(pattern) - 1


def _address(text: str) -> Address | None:
    with suppress(ValueError):
        return ipaddress.ip_address(text)
    with suppress(OSError, ValueError):  # `2130706433`, `0x7f.1`: the resolver reads them, too
        if re.fullmatch(r"[0-9a-fA-FxX.]+", text) and text[0].isdigit():
            return ipaddress.IPv4Address(socket.inet_aton(text))
    return None


def _network(text: str) -> Network | None:
    with suppress(ValueError):
        return ipaddress.ip_network(text, strict=False)
    return None


def _plain(address: Address) -> Address:
    """An address without the IPv6 around an IPv4 one."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _6TO4:
            return ipaddress.IPv4Address((int(address) >> 80) & 0xFFFFFFFF)
        # `::` and `::1` are addresses of their own
        if any(address in network for network in _HOLDING) and int(address) > 1:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_never(address: Address) -> bool:
    return any(each in network for each in (address, _plain(address)) for network in _NEVER)
