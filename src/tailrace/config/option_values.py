"""Parsers of option values: text to value, ValueError for what is not allowed.

A ValueError's text is shown to the user only where it cannot hold a password (see `config.options`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, time
from pathlib import Path
from urllib.parse import urlsplit

from tailrace.config.moment import microseconds
from tailrace.config.secret import has_credentials

STARTS = ("initial", "latest", "earliest", "snapshot")
_NO_USER = "an address holds no user and no password, they have options of their own"
#: A comma between regular expressions, not one within braces or brackets.
_PATTERN_COMMA = re.compile(r",(?![^{\[(]*[}\])])")


def one_of(*values: str) -> Callable[[str], str]:
    """A parser of one of `values`, in any case."""

    def parse(text: str) -> str:
        if text.lower() not in values:
            raise ValueError
        return text.lower()

    return parse


def some_of(*values: str) -> Callable[[str], tuple[str, ...]]:
    """A parser of some of `values`, with commas between them, in any case."""

    def parse(text: str) -> tuple[str, ...]:
        found = tuple(part.strip().lower() for part in text.split(","))
        if not set(found) <= set(values):
            raise ValueError
        return found

    return parse


def positive(text: str) -> int:
    """A number > 0."""
    value = int(text)
    if value <= 0:
        raise ValueError
    return value


#: The value of an option that is `auto`.
AUTO = 0


def number_or_auto(text: str) -> int:
    """A number > 0, or AUTO."""
    return AUTO if text == "auto" else positive(text)


def not_negative(text: str) -> int:
    """A number >= 0."""
    value = int(text)
    if value < 0:
        raise ValueError
    return value


def byte_count(text: str) -> int:
    """A number of bytes > 0, with or without a unit: `65536`, `64k`, `2 MiB`."""
    match = re.fullmatch(r"\s*(\d+)\s*([kmg]?)i?b?\s*", text.lower())
    if not match or not int(match[1]):
        raise ValueError
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]]


@dataclass(frozen=True)
class DayWindow:
    """A part of each day, by the driver's clock; `end` is outside, and may lie on the next day."""

    start: time
    end: time

    def has(self, now: time) -> bool:
        """Whether it is open."""
        if self.start < self.end:
            return self.start <= now < self.end
        return now >= self.start or now < self.end

    def __str__(self) -> str:
        return f"{self.start:%H:%M}-{self.end:%H:%M}"


def day_windows(text: str) -> tuple[DayWindow, ...]:
    """Parts of the day: `22:00-06:00, 12:00-13:00`."""
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,2}:\d\d)\s*-\s*(\d{1,2}:\d\d)\s*", part)
        if not match:
            raise ValueError
        start, end = (datetime.strptime(value, "%H:%M").time() for value in match.groups())  # noqa: DTZ007
        if start == end:
            raise ValueError
        found.append(DayWindow(start, end))
    return tuple(found)


def boolean(text: str) -> bool:
    """True or false; KeyError for other texts."""
    return {"true": True, "false": False}[text.lower()]


def server_id(text: str) -> int:
    """A MySQL replication server id."""
    value = positive(text)
    if value >= 1 << 32:
        raise ValueError
    return value


def signal_table(text: str) -> str:
    """A table's name with its database's or schema's."""
    database, dot, table = text.strip().partition(".")
    if not (database and dot and table):
        raise ValueError
    return text.strip()


def slot_name(text: str) -> str:
    """A name that PostgreSQL allows for a replication slot."""
    if not re.fullmatch(r"[a-z0-9_]{1,63}", text):
        raise ValueError
    return text


def publication_name(text: str) -> str:
    """A PostgreSQL identifier."""
    if not 0 < len(text.encode()) < 64:
        raise ValueError
    return text


def starting_position(text: str) -> str:
    """A starting position; its kind in lower case where it is a word."""
    lowered = text.strip().lower()
    if lowered in STARTS:
        return lowered
    if re.fullmatch(
        r"timestamp:\S.*|file(-at-or-before)?:[^:\s]+:\d+|gtid:.*|lsn:[0-9a-f]+/[0-9a-f]+",
        text.strip(),
        re.IGNORECASE,
    ):
        return text.strip()
    raise ValueError


def ending_position(text: str) -> str:
    """Where a stream ends; its kind in lower case where it is a word."""
    text = text.strip()
    if text.lower() == "latest":
        return "latest"
    kind, _, value = text.partition(":")
    if kind.lower() == "timestamp":
        microseconds(value.strip())
        return text
    if text.startswith("{"):
        found = json.loads(text)
        is_lsn = isinstance(found.get("lsn"), str)
        if not is_lsn and not (isinstance(found.get("file"), str) and isinstance(found.get("pos"), int)):
            raise ValueError
        return text
    if re.fullmatch(r"file:[^:\s]+:\d+|gtid:.+|lsn:[0-9a-f]+/[0-9a-f]+", text, re.IGNORECASE):
        return text
    raise ValueError


def ending_time_us(text: str) -> int | None:
    """The time at which a stream ends, microseconds since 1970 UTC; None: it ends at a position."""
    kind, _, value = text.partition(":")
    return microseconds(value.strip()) if kind.lower() == "timestamp" else None


def is_host(text: str) -> bool:
    """Whether `text` can be a host's name or address, IPv6 with or without brackets."""
    return re.fullmatch(r"[\w.-]+|\[[0-9a-fA-F:.]+(%\w+)?\]", text) is not None


def parse_url(text: str) -> tuple[str, str, int, str]:
    """Scheme, host, port and path of a server's URL. Raises ValueError, which does not show it."""
    defaults = {"mysql": 3306, "mariadb": 3306, "oracle": 1521, "postgresql": 5432}
    try:
        parts = urlsplit(text)
        user = "@" in parts.netloc or ("@" in text and parts.scheme != "postgresql")
        port = None if user else parts.port
    except ValueError:  # its text shows the port, which may be a password
        raise ValueError from None
    if user:
        raise ValueError(_NO_USER)
    if parts.scheme not in defaults or not parts.hostname or parts.query or parts.fragment:
        raise ValueError
    return parts.scheme, parts.hostname, port or defaults[parts.scheme], parts.path.strip("/")


def mysql_server(text: str) -> tuple[str, int]:
    """Host and port of a MySQL server's URL. Raises ValueError, which does not show it."""
    scheme, host, port, path = parse_url(text)
    if scheme != "mysql" or path:
        raise ValueError
    return host, port


@dataclass(frozen=True)
class SshServer:
    """An SSH server.

    Args:
        user: None: whom the client's configuration names.
        host: a name, an address without brackets, or an alias of the client's configuration.
        port: None: what the client's configuration says, else 22.
    """

    user: str | None
    host: str
    port: int | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user + '@' if self.user else ''}{host}{f':{self.port}' if self.port else ''}"


def ssh_server(text: str) -> SshServer:
    """An SSH server: `[user@]host[:port]`. Raises ValueError, which does not show it."""
    match = re.fullmatch(r"(?:([^@:/\s-][^@:/\s]*)@)?(\[[^\]]+\]|\w[\w.-]*)(?::(\d{1,5}))?", text.strip())
    if match is None and text.count(":") > 1 and "@" in text:
        raise ValueError("an address holds no password: SSH servers are given keys")
    if match is None or not is_host(match[2]) or not 0 < int(match[3] or 22) < 1 << 16:
        raise ValueError
    return SshServer(match[1], match[2].strip("[]"), int(match[3]) if match[3] else None)


@dataclass(frozen=True)
class Proxy:
    """A proxy; `kind` is `socks5` or `http`."""

    kind: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.kind}://{host}:{self.port}"


def proxy(text: str) -> Proxy:
    """A proxy's URL. Raises ValueError, which does not show it."""
    defaults = {"socks5": 1080, "http": 8080}
    if "@" in text:
        raise ValueError("an address holds no user and no password, they are `proxyUser` and `proxyPassword`")
    match = re.fullmatch(r"(\w+)://(\[[^\]]+\]|[\w.-]+)(?::(\d{1,5}))?/?", text.strip())
    if match is None or match[1].lower() not in defaults or not is_host(match[2]):
        raise ValueError
    port = int(match[3]) if match[3] else defaults[match[1].lower()]
    if not 0 < port < 1 << 16:
        raise ValueError
    return Proxy(match[1].lower(), match[2].strip("[]"), port)


def aws_region(text: str) -> str:
    """A region's name."""
    if not re.fullmatch(r"[a-z]{2,}(-[a-z]+)+-\d+", text):
        raise ValueError
    return text


def regexes(text: str) -> tuple[str, ...]:
    """Regular expressions, separated by commas."""
    patterns = tuple(p.strip() for p in _PATTERN_COMMA.split(text) if p.strip())
    if not patterns:
        raise ValueError
    for pattern in patterns:
        _check_regex(pattern)
    return patterns


def table_names(text: str) -> tuple[str, ...]:
    """Names of tables, `database.table`, separated by commas."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names or not all("." in name for name in names):
        raise ValueError
    return names


def table_patterns(text: str) -> tuple[str, ...]:
    """Regular expressions over `database.table`."""
    patterns = regexes(text)
    for pattern in patterns:
        if "." not in pattern:
            raise ValueError(f"`{pattern}` names no database")
    return patterns


def column_patterns(text: str) -> tuple[str, ...]:
    """Regular expressions over `schema.table.column`."""
    patterns = table_patterns(text)
    if any(p.count(".") < 2 for p in patterns):
        raise ValueError
    return patterns


@dataclass(frozen=True)
class ZeroDates:
    """How invalid dates are read: zero dates, and dates with a zero month or day.

    Args:
        rules: policy and pattern of a column's name; the first that matches counts.
    """

    rules: tuple[tuple[str, str], ...] = (("null", ".*"),)

    def __str__(self) -> str:
        return ",".join(p if pattern == ".*" else f"{p}:{pattern}" for p, pattern in self.rules)

    def of(self, column: str) -> str | None:
        """The policy of the column `database.table.column`: text, error, or None for null."""
        for policy, pattern in self.rules:
            if re.fullmatch(pattern, column, re.DOTALL):
                return None if policy == "null" else policy
        return None


def zero_dates(text: str) -> ZeroDates:
    """Policies for columns, separated by commas."""
    rules = []
    for rule in _PATTERN_COMMA.split(text):
        policy, _, pattern = rule.strip().partition(":")
        if policy not in ("null", "text", "error"):
            raise ValueError
        _check_regex(pattern)
        rules.append((policy, pattern or ".*"))
    return ZeroDates(tuple(rules))


def _check_regex(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"`{pattern}` is not a regular expression: {error}") from None


def archive_address(text: str) -> str:
    """A directory, made absolute, or a URI without user and password."""
    if has_credentials(text) or "@" in text.partition("://")[2].partition("/")[0]:
        raise ValueError(_NO_USER)
    if not text.strip() or "\0" in text:
        raise ValueError("it is empty")
    if "://" in text and not text.startswith("file://"):
        return text.rstrip("/")
    return str(Path(text.removeprefix("file://")).absolute())
