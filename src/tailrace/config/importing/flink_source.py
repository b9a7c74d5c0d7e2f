"""The settings of a source of Flink CDC, which its pipelines and its SQL have in common."""

from __future__ import annotations

import re

from tailrace.config.importing.draft import Draft, DraftEntry
from tailrace.config.importing.given import Given, wrong
from tailrace.config.importing.patterns import divided, python_pattern
from tailrace.errors import ConfigError

_TYPES = {"mysql": "mysql", "postgres": "postgresql", "postgresql": "postgresql"}
_STARTS = {
    "initial": "initial",
    "snapshot": "snapshot",
    "latest-offset": "latest",
    "earliest-offset": "earliest",
    "committed-offset": "earliest",
}
#: Why settings are needless, by pattern.
_NEEDLESS = {
    r"server-time-zone": "times are converted by the log's own rules",
    r"scan\.(incremental|snapshot)\..*|chunk-(key|meta)\..*|split-key\..*": "of its snapshot",
    r"connect\.(timeout|max-retries)|connection\.pool\.size": "of its connections",
    r"heartbeat\.interval(\.ms)?": "a stream's position moves on while its tables do not change",
    r"scan\.(binlog\.)?newly-added-table\.enabled": "new tables are captured as they appear",
    r"scan\.parse\.online\.schema\.changes\.enabled": "schema changes by gh-ost and pt-osc are followed",
    r"scan\.lsn-commit\..*": "the slot is confirmed after each batch",
    r"use\.legacy\.json\.format": "JSON is the server's text",
    r"include-comments\.enabled": "comments of columns are not delivered",
    r"scan\.read-changelog-as-append-only\.enabled": "the sink's `mode` says how changes are kept",
}


def source(given: Given, made: Draft) -> None:
    """Take a source into a draft.

    Raises:
        ConfigError: a setting is missing or wrong, or there is no such source.
    """
    section = made.source
    kind = given.needed("type")
    if kind not in _TYPES:
        raise ConfigError(
            "there is no pipeline for this source",
            f"`{given.named('type')}` is none of mysql, postgres",
            code="TR-1352",
        )
    dialect = _TYPES[kind]
    section["type"] = DraftEntry(dialect, "type")
    section["hostname"] = DraftEntry(given.needed("hostname"), "hostname")
    if (port := given.number("port")) is not None:
        section["port"] = DraftEntry(port, "port")
    _tables(given, made, dialect)
    section["username"] = DraftEntry(given.needed("username"), "username")
    password = given.take("password", is_secret=True)
    if password is not None:
        section["password"] = made.secret(
            password, "DATABASE_PASSWORD", "password", f"the password of `{section['username'].value}`"
        )
    if (number := given.take("server-id")) is not None:
        first = re.match(r"\d{1,10}", number)
        if first is None:
            raise wrong(given.named("server-id"), "needed a number or a range of numbers")
        section["server-id"] = DraftEntry(int(first[0]), "server-id", "the first one that is used")
    section["starting-position"] = _start(given, made)
    if dialect == "postgresql":
        _slot(given, made)
    if not given.flag("schema-change.enabled", default=True):
        section["schema.change.behavior"] = DraftEntry("ignore", "schema-change.enabled")
    booleans = "treat-tinyint1-as-boolean.enabled"
    if given.flag(booleans, default=True) and dialect == "mysql":
        made.miss(
            given.named(booleans),
            "TINYINT(1) is a number; there it is a boolean by default: see `projection`",
        )
    if (listed := given.take("metadata.list")) is not None:
        made.miss(given.named("metadata.list"), f"`{listed}`: expressions cannot name it")
    _tls(given, made)
    debezium = given.without("debezium.")
    for name in debezium.left():
        debezium.take(name, is_secret=True)
        made.miss(f"debezium.{name}", "write what it means here: docs/reference/debezium.md")
    for name in given.left():
        why = next((text for pattern, text in _NEEDLESS.items() if re.fullmatch(pattern, name)), None)
        if why is not None:
            given.take(name)
            made.need_not(given.named(name), why)


def _tables(given: Given, made: Draft, dialect: str) -> None:
    section = made.source
    listed = [_pattern(one, given, dialect) for one in _listed(given.needed("tables"))]
    if dialect == "postgresql":
        databases = {database for database, _ in listed if database}
        if len(databases) != 1:
            raise wrong(given.named("tables"), "needed database.schema.table, of one database")
        section["database"] = DraftEntry(databases.pop(), "tables")
    section["tables"] = DraftEntry([pattern for _, pattern in listed], "tables")
    if (excluded := given.take("tables.exclude")) is not None:
        section["table.exclude.list"] = DraftEntry(
            [_pattern(one, given, dialect)[1] for one in _listed(excluded)], "tables.exclude"
        )


def _listed(text: str) -> list[str]:
    return [part.strip() for part in re.split(r",(?![^{\[(]*[}\])])", text) if part.strip()]


def _pattern(text: str, given: Given, dialect: str) -> tuple[str, str]:
    """A table's pattern as here, after the name of its database where that is apart."""
    parts = [python_pattern(part) for part in divided(text)]
    count = 3 if dialect == "postgresql" else 2
    if len(parts) != count:
        raise wrong(given.named("tables"), f"needed {count} parts with a dot between them")
    return (parts[0], r"\.".join(parts[1:])) if count == 3 else ("", r"\.".join(parts))


def _start(given: Given, made: Draft) -> DraftEntry:
    mode = (given.take("scan.startup.mode") or "initial").lower()
    settings = given.without("scan.startup.")
    for name in ("specific-offset.skip-events", "specific-offset.skip-rows"):
        if settings.take(name) is not None:
            made.need_not(settings.named(name), "a half-read transaction comes again, from its first change")
    if mode == "timestamp":
        return DraftEntry(f"timestamp:{settings.needed('timestamp-millis')}", "scan.startup.timestamp-millis")
    if mode == "specific-offset":
        gtids = settings.take("specific-offset.gtid-set")
        file, pos = settings.take("specific-offset.file"), settings.number("specific-offset.pos")
        if gtids is not None:
            return DraftEntry("gtid:" + re.sub(r"\s", "", gtids), "scan.startup.specific-offset.gtid-set")
        if file is None:
            raise wrong(given.named("scan.startup.mode"), "needed a GTID set, or a file and an offset")
        return DraftEntry(f"file-at-or-before:{file}:{pos or 4}", "scan.startup.specific-offset.file")
    if mode not in _STARTS:
        raise wrong(
            given.named("scan.startup.mode"),
            f"needed one of {', '.join(_STARTS)}, specific-offset, timestamp",
        )
    return DraftEntry(_STARTS[mode], "scan.startup.mode")


def _slot(given: Given, made: Draft) -> None:
    plugin = (given.take("decoding.plugin.name") or "pgoutput").lower()
    slot = given.take("slot.name")
    publication = given.take("debezium.publication.name") or "dbz_publication"
    if plugin != "pgoutput":
        made.need_not(given.named("decoding.plugin.name"), "the log is read by `pgoutput`, from a new slot")
    elif slot is not None:
        made.source["slot-name"] = DraftEntry(slot, "slot.name")
        made.source["publication-name"] = DraftEntry(publication, "debezium.publication.name")
        made.must_set(
            "source.slot-name",
            "a new stream is refused while the old one's slot exists (TR-4202): drop it, name another one, "
            "or set `starting-position` to earliest, to go on where the slot stands, without a snapshot",
        )


def _tls(given: Given, made: Draft) -> None:
    settings = given.without("jdbc.properties.")
    use, mode = settings.take("useSSL"), settings.take("sslMode")
    modes = {
        "DISABLED": "disabled",
        "PREFERRED": "preferred",
        "REQUIRED": "required",
        "VERIFY_CA": "verify-ca",
        "VERIFY_IDENTITY": "verify-identity",
    }
    if mode is not None and mode.upper() in modes:
        made.source["tls-mode"] = DraftEntry(modes[mode.upper()], "jdbc.properties.sslMode")
    elif use == "false":
        made.source["tls-mode"] = DraftEntry("disabled", "jdbc.properties.useSSL")
    elif use == "true":
        made.source["tls-mode"] = DraftEntry("required", "jdbc.properties.useSSL")
    for name in settings.left():
        settings.take(name, is_secret=True)
        made.need_not(f"jdbc.properties.{name}", "of the JDBC driver; TLS is set by `tls-mode` and `tls-ca`")
