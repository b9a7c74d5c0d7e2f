"""Replicas on the server that they copy from: their tables must not be captured themselves.

Rows that are written into a captured table come back through the log, and are written again, for ever. If
the target is the table itself, older rows would even replace newer ones, at the source. So such a target is
refused before a row is written. Servers are compared by address: one behind a proxy is not recognised.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

from tailrace.config.options import SourceOptions
from tailrace.config.sinks import MySqlSettings, PostgresSettings
from tailrace.errors import ConfigError
from tailrace.model.table import TableId
from tailrace.sinks.route import Router


class OwnSource:
    """The source of a pipeline, as its replica sees it.

    Args:
        source: the source's options.
        settings: the replica's.
    """

    def __init__(self, source: SourceOptions, settings: MySqlSettings | PostgresSettings) -> None:
        self._source = source
        server = settings.server
        if isinstance(settings, PostgresSettings):
            self._schema = settings.schema
            has_one_log = source.dialect == "postgresql" and server.database == source.database
        else:
            self._schema = server.database or ""
            has_one_log = source.dialect != "postgresql"
        self._is_same = has_one_log and _is_same_address(source, server)

    def require_apart(self, router: Router, tables: Iterable[TableId]) -> None:
        """Refuse targets that the pipeline captures.

        Args:
            router: names the targets.
            tables: captured tables.

        Raises:
            ConfigError: a target is one.
        """
        for table in tables if self._is_same else ():
            target = router.target(table)
            name = target if "." in target else f"{self._schema}.{target}"
            if self._source.captures(name):
                raise ConfigError(
                    f"the target of table `{table}` is a table that this pipeline captures",
                    f"found `{name}`, on the server of the source: rows would be written again and again, "
                    "and older ones could replace newer ones",
                    "route the table to a name that `tables` does not match: route: [{source-table: "
                    "'(.*)\\.(.*)', sink-table: 'copy.$2'}]; or write to another server",
                    code="TR-1226",
                    table=str(table),
                )


def _is_same_address(one: SourceOptions, other: SourceOptions) -> bool:
    return one.port == other.port and bool(_addresses(one) & _addresses(other))


def _addresses(server: SourceOptions) -> set[str]:
    try:
        found = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    except OSError:  # whoever connects says so
        return {server.host.lower()}
    return {str(address[4][0]) for address in found}
