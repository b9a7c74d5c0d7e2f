"""Tables of ClickHouse's engine: the targets of tests, and a row of the contract suite."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tailrace.config.sinks import ClickHouseSettings, WriteMode
from tailrace.formats.row import ROW_FIELDS
from tailrace.model.moments import rows_to_python
from tailrace.sinks.clickhouse.columns import ABSENT_BEFORE, BATCH, BEFORE, DELETED, PART, VERSION
from tailrace.sinks.clickhouse.log_sink import ClickHouseLogSink
from tailrace.sinks.clickhouse.sink import ClickHouseSink
from tailrace.sinks.clickhouse.sql import Place, qualified
from tailrace.sinks.clickhouse.sql import name as quoted
from tests.support.clickhouse import ClickHouse
from tests.support.sinks.case import Change, Row, SinkCase, as_change

#: Columns of the tests that hold bytes: ClickHouse has one type for texts and bytes.
_BINARY = ("data", "raw", "bin")


#: A change log's columns that are not the source's.
_OF_LOG = {*(field.name for field in ROW_FIELDS), ABSENT_BEFORE, BATCH, PART}


@dataclass(frozen=True)
class Target:
    """A server without tables.

    Args:
        server: the server.
    """

    server: ClickHouse

    @property
    def settings(self) -> ClickHouseSettings:
        """Settings of a sink that writes there."""
        return ClickHouseSettings(f"http://127.0.0.1:{self.server.port}")

    def name(self, target: str) -> str:
        """The quoted name of a target's table."""
        return qualified(Place(self.settings.database).table(target))

    def select(self, query: str) -> list[Row]:
        """Rows as `clickhouse-connect` reads them."""
        settings = {"output_format_arrow_string_as_string": 0}
        found = pa.table(self.server.connect().query_arrow(query, use_strings=False, settings=settings))
        columns = [_texts(name, found.column(name)) for name in found.schema.names]
        return rows_to_python(pa.table(columns, found.schema.names))

    def rows(self, target: str) -> list[Row]:
        """A target's rows."""
        if not self.server.connect().command(f"EXISTS TABLE {self.name(target)}"):
            return []
        return self.select(f"SELECT * EXCEPT ({VERSION}, {DELETED}) FROM {self.name(target)} FINAL")

    def drop(self, target: str) -> None:
        """Drop a target's table."""
        self.server.connect().command(f"DROP TABLE {self.name(target)}")

    def clear(self) -> None:
        """Drop all databases, and the tables of the default one."""
        client = self.server.connect()
        kept = "('default', 'system', 'information_schema', 'INFORMATION_SCHEMA', '_local')"
        databases = client.query(f"SELECT name FROM system.databases WHERE name NOT IN {kept}").result_rows
        tables = client.query("SELECT name FROM system.tables WHERE database = 'default'").result_rows
        for (name,) in databases:
            client.command(f"DROP DATABASE {quoted(name)}")
        for (name,) in tables:
            client.command(f"DROP TABLE default.{quoted(name)}")

    def changes(self, target: str) -> list[Change]:
        """A change log's changes, in order; those with one `_seq` by their first column."""
        found = []
        for row in self.select(f"SELECT * FROM {self.name(target)} ORDER BY _seq, _op != 'r', 1"):
            columns = {k: v for k, v in row.items() if k not in _OF_LOG and not k.startswith(BEFORE)}
            before = {k.removeprefix(BEFORE): v for k, v in row.items() if k.startswith(BEFORE)}
            found.append(as_change(row["_op"], columns, before if row["_op"] == "u" else None))
        return found


def _texts(name: str, column: pa.ChunkedArray) -> pa.Array:
    column = column.combine_chunks()
    if pa.types.is_binary(column.type) and name.removeprefix(BEFORE) not in _BINARY:
        return column.cast(pa.string())
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us"))
    return column


def target_of(request: Any) -> Target:
    """A server without tables, cleared at the end of the test."""
    found = Target(request.getfixturevalue("clickhouse"))
    found.clear()
    request.addfinalizer(found.clear)
    return found


def clickhouse(request: Any) -> SinkCase:
    target = target_of(request)
    return SinkCase(
        lambda router: ClickHouseSink(target.settings, router),
        target.drop,
        rows=target.rows,
        takes_parts=True,
    )


def changelog(request: Any) -> SinkCase:
    target = target_of(request)
    settings = replace(target.settings, mode=WriteMode.CHANGELOG)
    return SinkCase(
        lambda router: ClickHouseLogSink(settings, router),
        target.drop,
        changes=target.changes,
        tells_gone=True,
    )
