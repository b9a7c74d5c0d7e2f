"""`format("tailrace")`: the engine behind Spark's Python data source API."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace

from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tailrace.config.options import SourceOptions, parse_options
from tailrace.errors import ConfigError
from tailrace.sources import registry
from tailrace.spark import IS_LIMITED
from tailrace.spark.batch import TailraceReader
from tailrace.spark.log_records import follow_settings
from tailrace.spark.requested_schema import as_requested, schema_of
from tailrace.spark.row_layouts import RowLayout, row_layout
from tailrace.spark.stream_reader import TailraceStreamReader
from tailrace.spark.unread import UNREAD_SCHEMA
from tailrace.spark.user_errors import in_short

#: Begins the names of a table's options when CREATE TABLE asks for its columns.
_STORED = "option."


class TailraceDataSource(DataSource):
    """Change data capture as a source of streams and of batch reads. Options: `tailrace.config.options`."""

    #: Whether the process that runs the stream compares tables with their targets (`verify.schedule`).
    compares = False
    #: Whether Spark gets splits in place of cells (`unread`).
    leaves_unread = False
    #: Whether the stream ends at what is committed when it starts, without a trigger that says so.
    reads_until_now = False

    @classmethod
    def name(cls) -> str:
        """The name in `format(...)`."""
        return "tailrace"

    @in_short
    def schema(self) -> StructType:
        """The schema of the rows in the selected shape."""
        layout = self._stream()[1]
        return from_arrow_schema(UNREAD_SCHEMA) if self.leaves_unread else schema_of(layout)

    @in_short
    def reader(self, schema: StructType) -> TailraceReader:
        """The reader of the tables as they are now."""
        options, layout = self._stream()
        if options.starting_position not in ("initial", "snapshot"):
            raise ConfigError(
                f"option `startingPosition` cannot be `{options.starting_position}` for `spark.read`",
                "it reads the tables as they are now",
                "leave it out, or read the log with `spark.readStream`",
                code="TR-1008",
            )
        return TailraceReader(options, as_requested(layout, schema))

    @in_short
    def streamReader(self, schema: StructType) -> TailraceStreamReader:  # noqa: N802
        """The reader of the stream."""
        follow_settings()
        options, layout = self._stream()
        if not self.leaves_unread:
            layout = as_requested(layout, schema)
        given = {"compares": self.compares, "leaves_unread": self.leaves_unread}
        if IS_LIMITED:
            from tailrace.spark.limited_reader import LimitedReader  # noqa: PLC0415 - needs Spark 4.2

            return LimitedReader(options, layout, **given)
        if options.checkpoint_path is None:
            raise ConfigError(
                "option `checkpointPath` is missing",
                "Spark 4.1 does not tell a source where its stream stands",
                "give the path of the writer's `checkpointLocation`, or use Spark 4.2",
                code="TR-1006",
            )
        from tailrace.spark.remembering_reader import RememberingReader  # noqa: PLC0415 - a version's own

        reader = RememberingReader(options, layout, **given)
        reader.reads_until_now = self.reads_until_now
        return reader

    def _options(self) -> SourceOptions:
        if any(name.startswith(_STORED) for name in self.options):
            raise ConfigError(
                "a table cannot be created with `USING tailrace`",
                "Spark 4.2 does not pass the table's options to the source when the table is read",
                "CREATE TEMPORARY VIEW ... USING tailrace OPTIONS (...) shows the rows as they are now; "
                '`spark.readStream.format("tailrace")` reads their changes',
                code="TR-1017",
            )
        return parse_options(dict(self.options))

    def _stream(self) -> tuple[SourceOptions, RowLayout]:
        """The options, of precisely one table if the shape is that of one, and the layout."""
        options = self._options()
        if options.shape not in ("row", "envelope"):
            return options, row_layout(options, None)
        with closing(registry.source(options)) as source:
            tables = source.tables()
            if not tables:
                source.require()  # names the pattern without a table, and what else is wrong
        if len(tables) != 1:
            names = ", ".join(f"`{t.schema.id}`" for t in tables[:10]) or "none"
            raise ConfigError(
                f"shape `{options.shape}` needs exactly one table",
                f"`tables` matches {len(tables)}: {names}",
                "name one table, or use shape `debezium` for many",
                code="TR-1404",
            )
        schema = tables[0].schema
        return replace(options, tables=(re.escape(str(schema.id)),)), row_layout(options, schema)


class PipelineSource(TailraceDataSource):
    """The source of pipelines, registered by name in their session.

    Spark finds `format("tailrace")` itself, and gives its tasks another PYTHONPATH than it gives functions in
    queries: with two environments there are two daemons, each with all our modules.
    """

    compares = True
    leaves_unread = True

    @classmethod
    def name(cls) -> str:
        """The name in `format(...)`."""
        return "tailrace_pipeline"


class PipelineSourceUntilNow(PipelineSource):
    """That of pipelines with `trigger: available-now` on Spark 4.1, whose trigger ends after a batch."""

    reads_until_now = True

    @classmethod
    def name(cls) -> str:
        """The name in `format(...)`."""
        return "tailrace_pipeline_until_now"
