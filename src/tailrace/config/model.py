"""A pipeline file as typed values: what `tailrace run` works from.

    source:    where changes come from     SourceOptions, and Spark's own spelling of them
    transform: what becomes of rows        TransformRule, the first that matches counts
    route:     which target a table has    RouteRule, the first that matches counts
    sink:      where they go               `config.sinks`: one or several, told apart by `type`
    pipeline:  how it runs                 PipelineSettings

Every section but `source` is a dataclass, and `config.load` reads a section by its dataclass: a field
`checkpoint_path` is the key `checkpoint-path` (camelCase is read too), its annotation is the type, a field
without a default must be given. A new setting is a new field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tailrace.config.options import SourceOptions
from tailrace.config.sinks import SinkSettings
from tailrace.extras import require


class TriggerMode(StrEnum):
    """When batches run."""

    CONTINUOUS = "continuous"
    AVAILABLE_NOW = "available-now"
    INTERVAL = "interval"


class Converter(StrEnum):
    """What becomes of operations after a transform; the name is Flink CDC's."""

    SOFT_DELETE = "SOFT_DELETE"


@dataclass(frozen=True)
class TransformRule:
    """What is done to the rows of tables that match, before they are routed.

    Args:
        source_table: regular expression over `database.table`, matched against the whole name.
        projection: a select list of Spark SQL; `*` stands for the table's columns.
        filter: a condition of Spark SQL over the table's columns; other rows are left out.
        primary_keys: columns of the result that are its key; default: the table's, if they are all there.
        converter_after_transform: SOFT_DELETE: a delete becomes an update that keeps the row.
        mask_hash: columns of the result that become SHA-256, in hex, of `mask_salt` and their text.
        mask_salt: the salt, as a secret reference.
        truncate: columns of the result, and the characters they are cut to.
        skipped_operations: letters (c, u, d, r) of the changes that are left out.
        description: for people.
    """

    source_table: str
    projection: str | None = None
    filter: str | None = None
    primary_keys: tuple[str, ...] = ()
    converter_after_transform: Converter | None = None
    mask_hash: tuple[str, ...] = ()
    mask_salt: str | None = field(default=None, repr=False)
    truncate: Mapping[str, str] = field(default_factory=dict)
    skipped_operations: tuple[str, ...] = ()
    description: str | None = None


@dataclass(frozen=True)
class RouteRule:
    """Tables that match go to `sink_table`.

    Args:
        source_table: regular expression over `database.table`, matched against the whole name.
        sink_table: the target's name; `$1`... stand for groups, `replace_symbol` for the table's name.
        replace_symbol: text in `sink_table` that the source table's own name takes the place of.
        shard_column: a column with the source table's `database.table`, added to the rows and to their key:
            for shards whose keys are not apart.
        description: for people.
    """

    source_table: str
    sink_table: str
    replace_symbol: str | None = None
    shard_column: str | None = None
    description: str | None = None


@dataclass(frozen=True)
class PipelineSettings:
    """How a pipeline runs.

    Args:
        name: names the pipeline in logs, targets and Spark; default: the file's name.
        checkpoint: directory of Spark's checkpoint; default: `_tailrace/checkpoint` below the sink's path.
        trigger: when batches run.
        interval_ms: time between batches of `trigger: interval`, milliseconds.
        parallelism: cores of a local Spark; default: all.
        master: Spark master; default: SPARK_MASTER, or a local Spark.
        restarts: how often in a row a stream that failed in a passing way is started again.
        spark: further Spark settings.
    """

    name: str = ""
    checkpoint: str | None = None
    trigger: TriggerMode = TriggerMode.CONTINUOUS
    interval_ms: int = 1000
    parallelism: int | None = None
    master: str | None = None
    restarts: int = 10
    spark: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pipeline:
    """A whole pipeline file.

    Args:
        source: the source's options, typed (`shape` is `cells`).
        source_options: the same as given to Spark: camelCase names and texts, secrets as references.
        sinks: the settings of each sink; one at least.
        transforms: in the file's order.
        routes: in the file's order.
        settings: how it runs; `name` and `checkpoint` are filled in.
    """

    source: SourceOptions
    source_options: Mapping[str, str] = field(repr=False)
    sinks: tuple[SinkSettings, ...]
    transforms: tuple[TransformRule, ...]
    routes: tuple[RouteRule, ...]
    settings: PipelineSettings

    @property
    def checkpoint(self) -> str:
        """Directory of Spark's checkpoint."""
        assert self.settings.checkpoint is not None
        return self.settings.checkpoint

    def require_extras(self) -> None:
        """Import the optional packages that the source and the sinks need.

        Raises:
            ConfigError: one is missing; names the extra that brings it.
        """
        require(self.source.extra, f"source `{self.source.dialect}`")
        for sink in self.sinks:
            require(sink.extra, f"sink `{sink.type}`")
