"""Options of `spark.readStream.format("tailrace")`: parsed, checked, typed.

Options arrive as strings, their names in any case. Each is declared once in OPTIONS with its parser and
what is allowed: errors, documentation and `SourceOptions` come from that table.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tailrace.config.secret import Secret
from tailrace.errors import ConfigError

SHAPES = ("row", "envelope", "debezium", "cells")
DELIVERIES = ("exactly-once", "at-least-once")
#: Debezium's handling modes, by their names there: values, Debezium's default first.
MODES = {
    "decimal.handling.mode": ("precise", "double", "string"),
    "time.precision.mode": (
        "adaptive_time_microseconds",
        "microseconds",
        "nanoseconds",
        "connect",
        "isostring",
    ),
    "bigint.unsigned.handling.mode": ("long", "precise"),
    "binary.handling.mode": ("bytes", "base64", "base64-url-safe", "hex"),
}
#: Debezium's names of the options for logical messages.
MESSAGE_PREFIXES = {
    "message.prefix.include.list": "the prefixes of those to have",
    "message.prefix.exclude.list": "all but those with such a prefix",
}
#: Debezium's name of the option for its context headers.
EXTENDED_HEADERS = "extended.headers.enabled"
PARTITIONERS = ("forward", "hash")
TLS_MODES = ("disabled", "preferred", "required", "verify-ca", "verify-identity")
STARTS = ("initial", "latest", "earliest", "snapshot")


@dataclass(frozen=True)
class Option:
    """One option.

    Args:
        name: in Spark's camelCase.
        parse: text to value; raises ValueError.
        default: the value when it is not given; REQUIRED when it must be.
        allowed: what may be given, for errors and documentation.
        doc: one line for the documentation.
    """

    name: str
    parse: Callable[[str], Any]
    default: Any
    allowed: str
    doc: str


REQUIRED = object()


def _one_of(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in values:
            raise ValueError
        return text.lower()

    return parse


def _positive(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise ValueError
    return value


def _bytes(text: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*([kmg]?)i?b?\s*", text.lower())
    if not match or not int(match[1]):
        raise ValueError
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]]


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _server_id(text: str) -> int:
    value = _positive(text)
    if value >= 1 << 32:
        raise ValueError
    return value


def _slot(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9_]{1,63}", text):
        raise ValueError
    return text


def _name(text: str) -> str:
    if not 0 < len(text.encode()) < 64:
        raise ValueError
    return text


def _starting(text: str) -> str:
    lowered = text.strip().lower()
    if lowered in STARTS:
        return lowered
    if re.fullmatch(
        r"timestamp:\S.*|file:[^:\s]+:\d+|gtid:.*|lsn:[0-9a-f]+/[0-9a-f]+", text.strip(), re.IGNORECASE
    ):
        return text.strip()
    raise ValueError


def parse_url(text: str) -> tuple[str, str, int, str]:
    """Scheme, host, port and path of a server's url. Raises ValueError."""
    parts = urlsplit(text)
    defaults = {"mysql": 3306, "mariadb": 3306, "postgresql": 5432}
    if parts.scheme not in defaults or not parts.hostname or parts.username or parts.password:
        raise ValueError
    if parts.query or parts.fragment:
        raise ValueError
    return parts.scheme, parts.hostname, parts.port or defaults[parts.scheme], parts.path.strip("/")


#: A comma between regular expressions, not one within braces or brackets.
_PATTERN_COMMA = re.compile(r",(?![^{\[(]*[}\])])")


def _regexes(text: str) -> tuple[str, ...]:
    patterns = tuple(p.strip() for p in _PATTERN_COMMA.split(text) if p.strip())
    if not patterns:
        raise ValueError
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    return patterns


def _patterns(text: str) -> tuple[str, ...]:
    patterns = _regexes(text)
    for pattern in patterns:
        if "." not in pattern:
            raise ValueError(f"{pattern!r} names no database")
    return patterns


def _columns(text: str) -> tuple[str, ...]:
    patterns = _patterns(text)
    if any(p.count(".") < 2 for p in patterns):
        raise ValueError
    return patterns


@dataclass(frozen=True)
class ZeroDates:
    """What becomes of dates that are none: zero, or with a zero month or day.

    Args:
        rules: policy and pattern of a column's name; the first that matches counts.
    """

    rules: tuple[tuple[str, str], ...] = (("null", ".*"),)

    def __str__(self) -> str:
        return ",".join(p if pattern == ".*" else f"{p}:{pattern}" for p, pattern in self.rules)

    def of(self, column: str) -> str | None:
        """The policy of the column `database.table.column`: text, error, or None for null."""
        for policy, pattern in self.rules:
            if re.fullmatch(pattern, column):
                return None if policy == "null" else policy
        return None


def _zero_dates(text: str) -> ZeroDates:
    rules = []
    for rule in _PATTERN_COMMA.split(text):
        policy, _, pattern = rule.strip().partition(":")
        if policy not in ("null", "text", "error"):
            raise ValueError
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        rules.append((policy, pattern or ".*"))
    return ZeroDates(tuple(rules))


OPTIONS: tuple[Option, ...] = (
    Option(
        "url",
        parse_url,
        REQUIRED,
        "mysql://HOST[:PORT] | mariadb://HOST[:PORT] | postgresql://HOST[:PORT]/DATABASE",
        "The server to capture.",
    ),
    Option("user", str, REQUIRED, "a user name", "User that reads tables and log."),
    Option(
        "password",
        Secret,
        Secret(""),
        "the password, ${env:NAME} or ${file:PATH}",
        "Password of `user`; a reference is resolved on the driver's machine when a batch needs it.",
    ),
    Option(
        "tables",
        _patterns,
        REQUIRED,
        "comma-separated regular expressions over database.table (PostgreSQL: schema.table), each matched "
        "against the whole name",
        "The tables to capture.",
    ),
    Option("shape", _one_of(*SHAPES), "row", " | ".join(SHAPES), "Form of the rows."),
    Option(
        "startingPosition",
        _starting,
        "initial",
        " | ".join(STARTS)
        + " | file:NAME:OFFSET | gtid:SET | timestamp:2026-01-31T12:00:00Z (or epoch milliseconds); "
        "PostgreSQL: " + " | ".join(STARTS) + " | lsn:0/16B3748",
        "Where a new stream begins; a restarted one goes on from its checkpoint.",
    ),
    Option(
        "maxRowsPerTrigger",
        _positive,
        None,
        "a number > 0",
        "A batch ends at the first transaction at or past this many rows.",
    ),
    Option(
        "maxBytesPerTrigger",
        _bytes,
        64 << 20,
        "bytes > 0, with k, m or g",
        "A batch ends at the first transaction at or past this many bytes of log.",
    ),
    Option(
        "snapshotParallelism",
        _positive,
        None,
        "a number > 0",
        "Snapshot splits read at once, a batch has up to 8 times as many; default: the driver's cores.",
    ),
    Option("snapshotChunkRows", _positive, 250_000, "a number > 0", "Rows per snapshot split."),
    Option(
        "logParallelism",
        _positive,
        1,
        "a number > 0",
        "Tasks that read a backlog of the log (MySQL, MariaDB).",
    ),
    Option(
        "partitioner",
        _one_of(*PARTITIONERS),
        "forward",
        " | ".join(PARTITIONERS),
        "How they share it: a stretch of the log each (forward), or the changes of some keys each, in log "
        "order (hash).",
    ),
    Option(
        "delivery",
        _one_of(*DELIVERIES),
        "exactly-once",
        " | ".join(DELIVERIES),
        "at-least-once leaves out the rewind of snapshot rows.",
    ),
    Option(
        "serverId",
        _server_id,
        None,
        "1..4294967295",
        "First replication server id to use; default: derived from the stream. A clash tries others.",
    ),
    Option(
        "heartbeatTable",
        str,
        None,
        "database.table",
        "Table (id INT PRIMARY KEY, ts TIMESTAMP(6)) that may be written as a barrier where GTIDs are off.",
    ),
    Option(
        "slotName",
        _slot,
        None,
        "a name of a-z, 0-9 and _, at most 63 characters",
        "Replication slot, one for each stream, made if it is missing; default: tailrace.",
    ),
    Option(
        "publicationName",
        _name,
        None,
        "a name of at most 63 bytes",
        "Publication of the stream, made and widened where it lacks captured tables; default: as the slot.",
    ),
    Option(
        "textColumns",
        _columns,
        None,
        "comma-separated regular expressions over schema.table.column",
        "Columns to have as text, for values that their own type cannot hold (NaN in a NUMERIC(p, s)).",
    ),
    *(
        Option(
            name,
            _regexes,
            None,
            "comma-separated regular expressions, each matched against the whole prefix",
            f"Logical messages (`pg_logical_emit_message`): {which}. With neither list there are none "
            "(Debezium: all).",
        )
        for name, which in MESSAGE_PREFIXES.items()
    ),
    Option("tlsMode", _one_of(*TLS_MODES), "preferred", " | ".join(TLS_MODES), "TLS of every connection."),
    Option("tlsCa", str, None, "a PEM file", "Authorities that sign the server's certificate."),
    Option("tlsCert", str, None, "a PEM file", "Client certificate."),
    Option("tlsKey", str, None, "a PEM file", "Key of the client certificate."),
    Option(
        "allowPublicKeyRetrieval",
        _boolean,
        False,
        "true | false",
        "As Connector/J's. Without TLS: whether the password may be encrypted with a key that the server "
        "sends, whoever that is.",
    ),
    Option(
        "serverPublicKeyFile",
        str,
        None,
        "a PEM file",
        "The server's RSA key (Connector/J: serverRSAPublicKeyFile): without TLS, the password is encrypted "
        "with it.",
    ),
    Option(
        "allowCleartextPassword",
        _boolean,
        False,
        "true | false",
        "Without TLS: whether the password may be sent in clear text to a server that asks for it.",
    ),
    Option(
        "connectTimeoutMs",
        _positive,
        10_000,
        "milliseconds > 0",
        "Longest time for a whole log-in: the look-up of the host, TLS and every answer.",
    ),
    Option(
        "queryTimeoutMs",
        _positive,
        3_600_000,
        "milliseconds > 0",
        "Longest time for the whole answer to a question about catalog, keys or log; rows and the log itself "
        "have none. `check` as a whole has `retryTimeoutMs`.",
    ),
    Option(
        "maxAnswerBytes",
        _bytes,
        512 << 20,
        "bytes > 0, with k, m or g",
        "Most memory that such an answer may take. A row and an event of the log may have 1 GB.",
    ),
    Option(
        "retryTimeoutMs",
        _positive,
        300_000,
        "milliseconds > 0",
        "How long a lost server is tried again, with back-off, before the stream stops.",
    ),
    Option(
        "zeroDates",
        _zero_dates,
        ZeroDates(),
        "comma-separated: null | text | error, each alone for all columns or as POLICY:PATTERN, a regular "
        "expression over database.table.column; the first that matches counts",
        "What `0000-00-00` and dates with a zero month or day read as: null; text, as are then all values of "
        "the column; or an error that stops the stream.",
    ),
    Option("topicPrefix", str, None, "a name", "`debezium` shape: first part of topics and schema names."),
    Option(
        "schemasEnable",
        _boolean,
        False,
        "true | false",
        "`debezium` shape: whether key and value carry their schema.",
    ),
    *(
        Option(name, _one_of(*modes), modes[0], " | ".join(modes), "`debezium` shape: as Debezium's.")
        for name, modes in MODES.items()
    ),
    Option(
        EXTENDED_HEADERS,
        _boolean,
        False,
        "true | false",
        "`debezium` shape: whether messages have Debezium's headers `__debezium.context.*` (there: true); "
        "they cost up to a fifth of the rate.",
    ),
)

#: Options that only some databases have.
_ONLY_FOR = {
    **dict.fromkeys(
        (
            "serverId",
            "heartbeatTable",
            "zeroDates",
            "logParallelism",
            "partitioner",
            "allowPublicKeyRetrieval",
            "serverPublicKeyFile",
        ),
        ("mysql", "mariadb"),
    ),
    **dict.fromkeys(("slotName", "publicationName", "textColumns", *MESSAGE_PREFIXES), ("postgresql",)),
}
#: Kinds of starting position that only some databases have.
_STARTS_ONLY_FOR = {"file": "mysql", "gtid": "mysql", "timestamp": "mysql", "lsn": "postgresql"}

#: Options Spark itself adds or that other layers read.
_IGNORED = frozenset({"path"})


@dataclass(frozen=True)
class TlsOptions:
    """How connections are encrypted; one setting for SELECTs and log."""

    mode: str = "preferred"
    ca: str | None = None
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True)
class SourceOptions:
    """The options of one stream. Field names are the options' in snake_case (see OPTIONS)."""

    dialect: str
    host: str
    port: int
    database: str
    user: str
    tables: tuple[str, ...]
    password: Secret = field(default_factory=lambda: Secret(""))
    shape: str = "row"
    starting_position: str = "initial"
    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int = 64 << 20
    snapshot_parallelism: int | None = None
    snapshot_chunk_rows: int = 250_000
    log_parallelism: int = 1
    partitioner: str = "forward"
    delivery: str = "exactly-once"
    server_id: int | None = None
    heartbeat_table: str | None = None
    tls: TlsOptions = TlsOptions()
    allow_public_key_retrieval: bool = False
    server_public_key_file: str | None = None
    allow_cleartext_password: bool = False
    connect_timeout_ms: int = 10_000
    query_timeout_ms: int = 3_600_000
    max_answer_bytes: int = 512 << 20
    retry_timeout_ms: int = 300_000
    zero_dates: ZeroDates = ZeroDates()
    slot_name: str | None = None
    publication_name: str | None = None
    text_columns: tuple[str, ...] | None = None
    message_prefix_include_list: tuple[str, ...] | None = None
    message_prefix_exclude_list: tuple[str, ...] | None = None
    topic_prefix: str | None = None
    schemas_enable: bool = False
    decimal_handling_mode: str = "precise"
    time_precision_mode: str = "adaptive_time_microseconds"
    bigint_unsigned_handling_mode: str = "long"
    binary_handling_mode: str = "bytes"
    extended_headers_enabled: bool = False

    @property
    def extra(self) -> str | None:
        """The extra that brings the database's driver."""
        return "postgres" if self.dialect == "postgresql" else None

    @property
    def slot(self) -> str:
        """The replication slot's name."""
        return self.slot_name or "tailrace"

    @property
    def publication(self) -> str:
        """The publication's name."""
        return self.publication_name or self.slot

    def is_text(self, column: str) -> bool:
        """Whether the column `schema.table.column` is to be text."""
        return any(re.fullmatch(p, column) for p in self.text_columns or ())

    @property
    def has_messages(self) -> bool:
        """Whether logical messages are wanted."""
        return bool(self.message_prefix_include_list or self.message_prefix_exclude_list)

    def wants_message(self, prefix: str) -> bool:
        """Whether logical messages with that prefix are wanted."""
        if self.message_prefix_include_list:
            return any(re.fullmatch(p, prefix) for p in self.message_prefix_include_list)
        return not any(re.fullmatch(p, prefix) for p in self.message_prefix_exclude_list or (".*",))

    @property
    def exactly_once(self) -> bool:
        """Whether snapshot rows are rewound to their batch's position."""
        return self.delivery == "exactly-once"

    def captures(self, name: str) -> bool:
        """Whether the table `database.table` is captured."""
        return any(re.fullmatch(p, name) for p in self.tables)


def parse_options(given: Mapping[str, str], where: str = "option") -> SourceOptions:
    """The typed options.

    Args:
        given: names (any case) and texts.
        where: what a name is called in errors.

    Raises:
        ConfigError: an option is unknown, missing or wrong; the message names it and what is allowed.
    """
    known = {o.name.lower(): o for o in OPTIONS}
    values: dict[str, Any] = {}
    for name, text in given.items():
        option = known.get(name.lower())
        if option is None:
            if name.lower() in _IGNORED:
                continue
            near = difflib.get_close_matches(name.lower(), known, 1)
            raise ConfigError(
                f"unknown {where} `{name}`",
                f"known are: {', '.join(sorted(o.name for o in OPTIONS))}",
                f"did you mean `{known[near[0]].name}`?" if near else None,
            )
        try:
            values[option.name] = option.parse(str(text))
        except (ValueError, KeyError) as error:
            found = "a value that is not shown" if option.name == "password" else f"`{text}`"
            reason = f" ({error})" if isinstance(error, ValueError) and "not a reg" in str(error) else ""
            raise ConfigError(
                f"{where} `{option.name}` is wrong",
                f"found {found}{reason}, allowed: {option.allowed}",
            ) from None
    for option in OPTIONS:
        if option.name not in values:
            if option.default is REQUIRED:
                raise ConfigError(
                    f"{where} `{option.name}` is missing",
                    f"allowed: {option.allowed}",
                    f'set it, e.g. .option("{option.name}", "...")',
                )
            values[option.name] = option.default
    for name in (*MODES, EXTENDED_HEADERS):
        if values["shape"] != "debezium" and name in {n.lower() for n in given}:
            raise ConfigError(
                f"{where} `{name}` has no effect on shape `{values['shape']}`",
                "it says how `debezium` messages look",
                "leave it out, or set shape to debezium",
            )
    _check_messages(values, where)
    dialect, host, port, database = values.pop("url")
    _check_dialect(
        dialect, database, {known[n.lower()].name for n in given if n.lower() in known}, values, where
    )
    tls = TlsOptions(*(values.pop(n) for n in ("tlsMode", "tlsCa", "tlsCert", "tlsKey")))
    return SourceOptions(dialect, host, port, database, tls=tls, **{_snake(n): v for n, v in values.items()})


def _check_messages(values: Mapping[str, Any], where: str) -> None:
    """Refuse logical messages where they have no form, and two lists of them."""
    given = [name for name in MESSAGE_PREFIXES if values[name] is not None]
    if given and values["shape"] in ("row", "envelope"):
        raise ConfigError(
            f"{where} `{given[0]}` has no effect on shape `{values['shape']}`",
            "rows of that shape are those of one table",
            "leave it out, or set shape to debezium",
        )
    if len(given) > 1:
        raise ConfigError(
            f"{where}s `{given[0]}` and `{given[1]}` exclude each other", hint="give one of them"
        )


def _check_dialect(
    dialect: str, database: str, names: set[str], values: Mapping[str, Any], where: str
) -> None:
    """Refuse options that the database has no use for."""
    if dialect == "postgresql" and not database:
        raise ConfigError(
            f"{where} `url` names no database",
            "a session is of one database",
            "postgresql://HOST[:PORT]/DATABASE",
        )
    for name in sorted(names):
        if name in _ONLY_FOR and dialect not in _ONLY_FOR[name]:
            raise ConfigError(
                f"{where} `{name}` has no effect on {dialect}",
                f"it is one of {' and '.join(_ONLY_FOR[name])}",
                "leave it out",
            )
    kind = values["startingPosition"].partition(":")[0].lower()
    needed = _STARTS_ONLY_FOR.get(kind)
    if needed is not None and (needed == "postgresql") != (dialect == "postgresql"):
        raise ConfigError(
            f"{where} `startingPosition` is wrong", f"found `{kind}:...`, which {dialect} does not have"
        )


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda m: "_" + m[0].lower(), name.replace(".", "_"))
